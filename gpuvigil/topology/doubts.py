"""What does not fit together in a fabric, each in a sentence that says where to look."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..numbers_in_words import counted, natural
from .model import Doubt, Link, Question, Uplink
from .pods import AGREE, HOSTS, Norm, Pods


@dataclass(frozen=True, slots=True)
class _Misfit:
    """A port that is elsewhere than nearly all others of its name in its pod."""

    link: Link
    at: str
    norm: Norm
    of: int  # ports of its host that can be compared


_PAIR = 2


def judged(links: Iterable[Link], pods: Pods) -> frozenset[tuple[str, str]]:
    """Node and name of each port that can be compared with enough others of its name."""
    return frozenset((link.node, link.name) for link, _, _ in _judged(links, pods))


def _judged(links: Iterable[Link], pods: Pods) -> Iterator[tuple[Link, str, Norm]]:
    for link in links:
        norm = pods.norm(link) if link.role == "fabric" else None
        if link.switch is not None and norm is not None and norm.hosts >= HOSTS:
            yield link, link.switch.value, norm


def miswired(links: Iterable[Link], pods: Pods) -> list[Doubt]:
    """Cables in the wrong rail; two that are each where the other belongs are swapped."""
    judged = list(_judged(links, pods))
    of = Counter(link.node for link, _, _ in judged)
    misfits = [
        _Misfit(link, at, norm, of[link.node]) for link, at, norm in judged if at != norm.leaf
    ]
    found, paired = [], set[int]()
    # A swap within one host first: that is where a hand reaches both.
    for same_host in (True, False):
        for number, one in enumerate(misfits):
            other = _partner(number, misfits, paired, same_host=same_host)
            if number not in paired and other is not None:
                paired |= {number, other}
                found.append(_swapped(one, misfits[other], pods))
    return found + [_wrong(it, pods) for number, it in enumerate(misfits) if number not in paired]


def _partner(
    number: int, misfits: Sequence[_Misfit], paired: Collection[int], *, same_host: bool
) -> int | None:
    one = misfits[number]
    for later in range(number + 1, len(misfits)):
        other = misfits[later]
        if (
            later not in paired
            and (other.link.node == one.link.node) is same_host
            and (one.at, other.at) == (other.norm.leaf, one.norm.leaf)
        ):
            return later
    return None


def _swapped(one: _Misfit, other: _Misfit, pods: Pods) -> Doubt:
    node = one.link.node
    is_one_host = other.link.node == node
    far = "" if is_one_host else f"{other.link.node} "
    return Doubt(
        question=Question.SWAPPED,
        text=(
            f"{one.link.node} {one.link.name} and {far}{other.link.name} look swapped:"
            f" {one.link.name} is at {one.at}, where {other.link.name} belongs, and the other way round"
            f" ({_basis(one.norm)}). Swap the two cables back."
        ),
        ports=((one.link.node, one.link.name), (other.link.node, other.link.name)),
        switches=(one.at, other.at),
        rails=(pods.rail(node, one.at), pods.rail(node, other.at)),
        basis=_basis(one.norm),
        # A host that has these two alone and counts them the other way round looks the same.
        certain=not is_one_host or one.of > _PAIR or node in pods.alike,
    )


def _wrong(it: _Misfit, pods: Pods) -> Doubt:
    return Doubt(
        question=Question.WRONG_RAIL,
        text=(
            f"{it.link.node} {it.link.name} is at {it.at} and belongs at {it.norm.leaf}"
            f" ({_basis(it.norm)}). Move its cable."
        ),
        ports=((it.link.node, it.link.name),),
        switches=(it.at, it.norm.leaf),
        rails=(pods.rail(it.link.node, it.at), pods.rail(it.link.node, it.norm.leaf)),
        basis=_basis(it.norm),
    )


def _basis(norm: Norm) -> str:
    return f"as on {norm.agree} of {counted(norm.hosts, 'host')}"


def without_uplink(leaves: Iterable[str], uplinks: Iterable[Uplink]) -> list[Doubt]:
    """Leaves that no cable leads up from, where one does from most others.

    Where nobody says how switches are connected, nothing is said of any.
    """
    known = set(leaves)
    connected = {up.lower for up in uplinks} | {up.upper for up in uplinks}
    have = known & connected
    if 2 * len(have) < len(known) or not have:
        return []
    return [
        Doubt(
            question=Question.NO_UPLINK,
            text=f"{leaf} has ports of nodes and no uplink, unlike {counted(len(have), 'other leaf').replace('leafs', 'leaves')}.",
            switches=(leaf,),
        )
        for leaf in sorted(known - have, key=natural)
    ]


def rails_missing(links: Iterable[Link], pods: Pods) -> list[Doubt]:
    """Hosts with fewer rails than nearly all others of their pod."""
    rails: dict[str, set[str]] = defaultdict(set)
    never_up: dict[str, set[str]] = defaultdict(set)
    for link in links:
        if link.role == "fabric" and link.rail is not None:
            (rails if link.was_up else never_up)[link.node].add(link.rail.value)
    by_pod: dict[str, list[str]] = defaultdict(list)
    for node in rails:
        by_pod[pods.of_node.get(node, "")].append(node)
    found = []
    for nodes in by_pod.values():
        for node, missing, share in _short_of(nodes, rails):
            words = [
                f"{rail} was never up" if rail in never_up[node] else f"no port at {rail}"
                for rail in missing
            ]
            usual = len(rails[node]) + len(missing)
            found.append(
                Doubt(
                    question=Question.RAIL_MISSING,
                    text=(
                        f"{node} has {len(rails[node])} of {counted(usual, 'rail')}, unlike {share} of"
                        f" {counted(len(nodes), 'host')}: {', '.join(words)}."
                    ),
                    ports=tuple((node, rail) for rail in missing),
                )
            )
    return found


def _short_of(
    nodes: Sequence[str], rails: dict[str, set[str]]
) -> Iterator[tuple[str, list[str], int]]:
    """Hosts that lack rails, which ones, and how many hosts have them all."""
    usual, agree = Counter(frozenset(rails[node]) for node in nodes).most_common(1)[0]
    if len(nodes) < HOSTS or agree < AGREE * len(nodes):
        return
    for node in nodes:
        if rails[node] < usual:
            yield node, sorted(usual - rails[node], key=natural), agree
