"""Contradictions in a fabric, each as a sentence that says where to look."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType

from ..numbers_in_words import counted, natural
from .model import Doubt, Link, Question, Uplink
from .pods import AGREE, HOSTS, Norm, Pods


@dataclass(frozen=True, slots=True)
class _Misfit:
    """A port that is at another switch than nearly all others of its name in its pod."""

    link: Link
    at: str
    norm: Norm
    of: int  # number of its host's ports that can be compared


_PAIR = 2
# More hosts lacking the same rails, or leaves without an uplink, are taken as intended [own].
_FEW, _FEW_SHARE = 2, 0.01


def judged(links: Iterable[Link], pods: Pods) -> frozenset[tuple[str, str]]:
    """Return node and name of each port that can be compared with enough others of its name."""
    return frozenset((link.node, link.name) for link, _, _ in _judged(links, pods))


def _judged(links: Iterable[Link], pods: Pods) -> Iterator[tuple[Link, str, Norm]]:
    for link in links:
        norm = pods.norm(link) if link.role == "fabric" else None
        if link.switch is not None and norm is not None and norm.hosts >= HOSTS:
            yield link, link.switch.value, norm


def miswired(links: Iterable[Link], pods: Pods) -> list[Doubt]:
    """Return cables in the wrong rail; two ports that are each where the other belongs are swapped."""
    judged = list(_judged(links, pods))
    of = Counter(link.node for link, _, _ in judged)
    misfits = [
        _Misfit(link, at, norm, of[link.node]) for link, at, norm in judged if at != norm.leaf
    ]
    found, paired = [], set[int]()
    # Swaps within one host first, since that is where a hand reaches both cables.
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
        # A host that has only these two, and numbers them the other way round, looks the same.
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
    """Return leaves without an uplink where most others have one.

    When nothing is known about the cables between switches, the result is empty.
    """
    known = set(leaves)
    have = known & {end for up in uplinks for end in (up.lower, up.upper)}
    if 2 * len(have) < len(known) or not have:
        return []
    without = sorted(known - have, key=natural)
    others = counted(len(have), "other leaf").replace("leafs", "leaves")
    return [
        Doubt(
            question=Question.NO_UPLINK,
            text=f"{leaf} has ports of nodes and no uplink, unlike {others}.",
            switches=(leaf,),
            basis=others,
            certain=_are_few(without, known),
        )
        for leaf in without
    ]


def rails_missing(
    links: Sequence[Link], pods: Pods, builds: Mapping[str, str] = MappingProxyType({})
) -> list[Doubt]:
    """Return hosts with fewer rails than nearly all others of their pod; `builds`: each host's GPU models.

    If several hosts lack the same rails, or a host is built differently, it may be intended.
    """
    rails, never_up, by_pod = _rails(links, pods)
    short = [
        (node, missing, share, len(nodes), usual)
        for nodes in by_pod.values()
        for node, missing, share, usual in _short_of(nodes, rails, builds)
    ]
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for node, missing, *_ in short:
        alike[tuple(missing)].append(node)
    return [
        _missing(
            node,
            {it: it in never_up[node] for it in missing},
            (len(rails[node]), f"{share} of {counted(hosts, 'host')}"),
            certain=builds.get(node) == usual and _are_few(alike[tuple(missing)], rails),
        )
        for node, missing, share, hosts, usual in short
    ]


def with_rails(links: Iterable[Link], pods: Pods) -> frozenset[str]:
    """Return the hosts whose rails can be compared with enough others."""
    _, _, by_pod = _rails(links, pods)
    return frozenset(node for nodes in by_pod.values() if len(nodes) >= HOSTS for node in nodes)


def _are_few(those: Sequence[str], of: Collection[str]) -> bool:
    return len(those) <= max(_FEW, _FEW_SHARE * len(of))


_Names = Mapping[str, Set[str]]  # names of rails, by node


def _rails(links: Iterable[Link], pods: Pods) -> tuple[_Names, _Names, Mapping[str, list[str]]]:
    """Return each host's rails that were up at some time, those that never were, and hosts by pod."""
    rails: dict[str, set[str]] = defaultdict(set)
    never_up: dict[str, set[str]] = defaultdict(set)
    for link in links:
        if link.role == "fabric" and link.rail is not None:
            (rails if link.was_up else never_up)[link.node].add(link.rail.value)
    by_pod: dict[str, list[str]] = defaultdict(list)
    for node in rails:
        by_pod[pods.of_node.get(node, "")].append(node)
    return rails, never_up, by_pod


def _short_of(
    nodes: Sequence[str], rails: _Names, builds: Mapping[str, str]
) -> Iterator[tuple[str, list[str], int, str | None]]:
    """Yield hosts that lack rails, the rails, how many hosts have all, and how most of these are built."""
    usual, agree = Counter(frozenset(rails[node]) for node in nodes).most_common(1)[0]
    if len(nodes) < HOSTS or agree < AGREE * len(nodes):
        return
    whole = Counter(builds.get(node) for node in nodes if rails[node] == usual)
    ((build, _),) = whole.most_common(1)
    for node in nodes:
        if rails[node] < usual:
            yield node, sorted(usual - rails[node], key=natural), agree, build


def _missing(
    node: str, missing: Mapping[str, bool], have: tuple[int, str], *, certain: bool
) -> Doubt:
    """Return the doubt; `missing` says for each rail whether there is a port that was never up."""
    words = (
        f"{rail} was never up" if is_there else f"no port at {rail}"
        for rail, is_there in missing.items()
    )
    number, others = have
    details, rails = ", ".join(words), counted(number + len(missing), "rail")
    return Doubt(
        question=Question.RAIL_MISSING,
        text=f"{node} has {number} of {rails}, unlike {others}: {details}.",
        ports=tuple((node, rail) for rail in missing),
        rails=tuple(missing),
        basis=others,
        details=details,
        certain=certain,
    )
