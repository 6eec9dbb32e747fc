"""Where the ranks of a job stand, put together from what its nodes' collectors report.

NCCL's RAS answers any node for the whole job, but names ranks by address and number: only the
rank's own node knows which GPU that is. PyTorch's dumps are per rank, and may lie on different
nodes.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuvigil.model import (
    MOST_RANKS,
    Collective,
    Event,
    EventKind,
    Evidence,
    RankState,
    RankStatus,
    Severity,
    Source,
    Subject,
    pod_holder,
    ranks_in,
    spans,
)

from ..window import subject_names
from ..window.holdings import holder_key
from ..window.window import Window

_GRAVITY = {stand: number for number, stand in enumerate(RankState)}
# The stands that name ranks to blame; the others do not.
_NAMES = frozenset(
    {
        *(RankState.DEAD, RankState.UNREACHABLE, RankState.FAILED),
        *(RankState.BEHIND, RankState.DIFFERENT, RankState.NO_DUMP),
    }
)
# A node reads its ranks' dumps within a minute and reports each change: a rank of which nothing has come by then
# wrote none (ours).
_ALL_WRITTEN_SECONDS = 60.0
_NAMED = 4
_Reports = Sequence[tuple[Subject, Collective]]  # reports with the node that made them


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveState:
    """The state of a job's collective, and the places of the ranks that are named."""

    of: Collective
    places: tuple[Subject | None, ...] = ()  # of its ranks, each a GPU or at least its node
    sources: frozenset[Source] = frozenset()
    silent: tuple[Subject, ...] = ()  # nodes whose own process does not answer

    @property
    def names(self) -> bool:
        """Whether it names the ranks that hold up the others: some, and not most of them."""
        return self.of.stand in _NAMES and 0 < 2 * self.of.count <= max(self.of.size, 2)


def collective_state(
    window: Window, gpus: Iterable[Subject], seconds: float
) -> CollectiveState | None:
    """Return what was reported of these GPUs' holder since it stalled, `seconds` ago; None: nothing."""
    reports, nodes, all_written = _last_reports(window, gpus, seconds)
    if not reports:
        return None
    ras = [it for it in reports if it[1].by is Source.RAS]
    dumps = [it for it in reports if it[1].by is Source.FLIGHT_RECORDER]
    found = [of for of in (_by_dumps(dumps, all_written), _most_severe(ras)) if of is not None]
    if not found:
        return None
    silent = sorted({node for node, of in ras if of.stand is RankState.SILENT})
    of = min(found, key=lambda it: _GRAVITY[it.stand])
    return CollectiveState(
        of=of,
        places=tuple(_places(window, of, reports, nodes)),
        sources=frozenset(it.by for it in found if it.stand is of.stand),
        silent=tuple(silent),
    )


def _last_reports(
    window: Window, gpus: Iterable[Subject], seconds: float
) -> tuple[_Reports, frozenset[Subject], bool]:
    """Return the last report of each source by each node of the holder, and all the holder's nodes.

    And whether each of these nodes reported dumps, the last of them a while ago.
    """
    whole = window.whole or window
    keys = {holder_key(a) for gpu in gpus for a in window.held(gpu)} & window.holdings.keys()
    held = [a for key in keys for gpu in window.holdings[key].gpus for a in window.held(gpu)]
    nodes = {a.subject.of_node() for a in held}
    # A node names a pod by the pod's own name, even if the hub knows its job.
    names = {str(a.holder) for a in held} | {str(pod_holder(a.pod)) for a in held if a.pod}
    last: dict[tuple[Subject, Source], Event] = {}
    for node in nodes:
        for event in whole.node_events(node, EventKind.COLLECTIVE):
            young = (window.now - event.at).total_seconds() <= seconds
            if young and event.collectives and event.collectives[0].holder in names:
                last[node, event.collectives[0].by] = event
    reports = [
        (node, of)
        for (node, _), event in sorted(last.items(), key=lambda it: it[0])
        for of in event.collectives
    ]
    wrote = {node: e.at for (node, by), e in last.items() if by is Source.FLIGHT_RECORDER}
    all_written = nodes == wrote.keys() and all(
        (window.now - at).total_seconds() >= _ALL_WRITTEN_SECONDS for at in wrote.values()
    )
    return reports, frozenset(nodes), all_written


def _most_severe(reports: _Reports) -> Collective | None:
    return min(
        (of for _, of in reports), key=lambda it: (_GRAVITY[it.stand], -it.size), default=None
    )


def _by_dumps(reports: _Reports, all_written: bool) -> Collective | None:
    """Return which ranks have not entered what others wait in, over all groups, None if unknown.

    A rank that waits in one group is late in another, and so not to blame. If all dumps are written, a
    rank without one has died, or is stuck outside PyTorch.
    """
    groups: dict[str, list[Collective]] = defaultdict(list)
    for _, of in reports:
        groups[of.group].append(of)
    found = [_group(them) for _, them in sorted(groups.items())]
    unlike = [of for of in found if of.stand is RankState.DIFFERENT]
    gaps = [of for of in found if of.stand is RankState.BEHIND]
    waits = {rank for of in gaps for rank in ranks_in(of.waiting)}
    blamed = [(of, ranks_in(of.late)) for of in gaps]
    free = [(of, them - waits) for of, them in blamed]
    left = [(of, them) for of, them in free if them] or blamed
    if unlike or not left:
        whole = [of for of in found if of.stand is RankState.TOGETHER]
        absent = [_without_dumps(max(found, key=lambda it: it.size))] if found else []
        absent = [of for of in absent if all_written and of.ranks]
        return next(iter([*unlike, *absent, *sorted(whole, key=lambda it: -it.size)]), None)
    of, them = min(left, key=lambda it: (len(it[1]), it[0].count, -it[0].size, it[0].group))
    known = {rank.rank: rank for rank in of.ranks}
    named = [
        known.get(rank, RankStatus(rank=rank, stand=RankState.BEHIND))
        for rank in sorted(them)[:MOST_RANKS]
    ]
    return replace(of, ranks=tuple(named), count=len(them))


def _without_dumps(of: Collective) -> Collective:
    """Return the job's largest group with its ranks that wrote no dump; none unless all others wait in it."""
    waits = ranks_in(of.waiting)
    everybody = set(range(of.size))
    absent = sorted(everybody - waits)
    others_wait = of.stand is RankState.WAITING and not of.left and not of.late
    if not others_wait or not waits < everybody or 2 * len(absent) > of.size:
        absent = []
    ranks = [RankStatus(rank=rank, stand=RankState.NO_DUMP) for rank in absent[:MOST_RANKS]]
    return replace(of, stand=RankState.NO_DUMP, ranks=tuple(ranks), count=len(absent))


def _group(reports: Sequence[Collective]) -> Collective:
    """Return one group's state from all its reports: who waits and who is late, beyond named ranks."""
    unlike = next((of for of in reports if of.stand is RankState.DIFFERENT), None)
    if unlike is not None:
        return unlike
    first = max(reports, key=lambda of: of.entered or 0)
    size = max(of.size for of in reports)
    waits, gone, late = _sets(reports, first.entered or 0)
    stand = RankState.BEHIND if late else RankState.TOGETHER
    if not waits or (not late and len(waits) < size):
        stand = RankState.WAITING  # no rank waits any more, or some ranks are unknown
    named = {rank.rank: rank for of in reports for rank in of.ranks if rank.rank in late}
    return replace(
        first,
        stand=stand,
        size=size,
        ranks=tuple(replace(it, stand=RankState.BEHIND) for _, it in sorted(named.items())),
        count=len(late),
        waiting=spans(waits),
        left=spans(gone),
        late=spans(late),
    )


def _sets(
    reports: Sequence[Collective], top: int
) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
    """Return which ranks wait in the last collective, which left it, and which are late.

    A rank that came there by any dump is not late. Nodes that share a directory report the same,
    which counts once.
    """
    sets: dict[str, set[int]] = {"waiting": set(), "left": set(), "late": set()}
    for entered, *them in {(of.entered, of.waiting, of.left, of.late) for of in reports}:
        for name, ranks in zip(sets, them, strict=True):
            sets[name if entered == top else "late"] |= ranks_in(ranks)
    waits = frozenset(sets["waiting"] - sets["left"])
    gone = frozenset(sets["left"])
    return waits, gone, frozenset(sets["late"] - waits - gone)


def _places(
    window: Window, of: Collective, reports: _Reports, nodes: frozenset[Subject]
) -> Iterator[Subject | None]:
    """Yield the place of each rank: as its own node reported, or by its address and GPU index."""
    by_host = _by_host(window, reports, nodes)
    own = {
        (rank.host, rank.rank): replace(node, gpu=rank.gpu)
        for node, it in reports
        for rank in it.ranks
        if rank.gpu is not None
    }
    strange = {rank.host for rank in of.ranks if rank.host} - {
        *(h for _, it in reports for h in it.hosts),
        *by_host,
    }
    unheard = nodes - {node for node, it in reports if it.hosts}
    if len(strange) == len(unheard) == 1:
        by_host |= {strange.pop(): next(iter(unheard))}
    tellers: dict[int, set[Subject]] = defaultdict(set)
    for node, it in reports:
        if it.by is Source.FLIGHT_RECORDER:
            for rank in it.ranks:
                tellers[rank.rank].add(node)
    for rank in of.ranks:
        place = by_host.get(rank.host)
        if of.by is Source.FLIGHT_RECORDER and len(tellers[rank.rank]) == 1:
            place = next(iter(tellers[rank.rank]))
        yield own.get((rank.host, rank.rank)) or _on_node(window, place, rank)


def _by_host(window: Window, reports: _Reports, nodes: frozenset[Subject]) -> dict[str, Subject]:
    """Return nodes by the addresses that they report as theirs; shared addresses are left out."""
    found: dict[str, set[Subject]] = defaultdict(set)
    for node in nodes:
        inventory = (window.whole or window).inventories.get(node.key)
        for port in () if inventory is None else inventory.ports:
            for address in port.addresses:
                found[address].add(node)
    for node, of in reports:
        for host in of.hosts:
            found[host].add(node)
    return {host: next(iter(them)) for host, them in found.items() if len(them) == 1}


def _on_node(window: Window, node: Subject | None, rank: RankStatus) -> Subject | None:
    inventory = None if node is None else (window.whole or window).inventories.get(node.key)
    if node is None or inventory is None or rank.device is None:
        return node
    found = [gpu.uuid for gpu in inventory.gpus if gpu.index == rank.device]
    return replace(node, gpu=found[0]) if len(found) == 1 else node


# --- in words ------------------------------------------------------------------------------------

_BY = {
    Source.RAS: "NCCL's RAS",
    Source.FLIGHT_RECORDER: "PyTorch's Flight Recorder",
}
_SAID: Mapping[RankState, str] = {
    RankState.DEAD: "{who} dead",
    RankState.UNREACHABLE: "{who} unreachable from the other ranks",
    RankState.FAILED: "{who} reporting an NCCL error",
    RankState.STARTING: "{who} still creating a communicator",
}
_NOBODY: Mapping[RankState, str] = {
    RankState.TOGETHER: "all {size} ranks stand at the same collective: stalled or idle",
    RankState.SILENT: "the job's own process does not answer",
    RankState.WAITING: "some ranks wait, and of the others nothing is known",
}


def evidence(window: Window, it: CollectiveState) -> Evidence:
    """Return one line like `rank 17 (node-3 GPU 4) never entered AllReduce 4711, it is at 4710`."""
    by = " and ".join(_BY[source] for source in sorted(it.sources, key=lambda s: s.value))
    return Evidence(name="ranks", value=f"{_sentence(window, it)}, by {by}")


def _sentence(window: Window, it: CollectiveState) -> str:
    of = it.of
    if of.stand is RankState.TOGETHER and Source.FLIGHT_RECORDER in it.sources:
        return f"all {of.size} ranks entered {of.operation} {of.entered}, and none has left it"
    if of.stand in _NOBODY:
        on = f" on {', '.join(node.node for node in it.silent[:_NAMED])}" if it.silent else ""
        return _NOBODY[of.stand].format(size=of.size) + (on if of.stand is RankState.SILENT else "")
    who = _who(window, it)
    if of.stand is RankState.DIFFERENT:
        return f"{who} called another collective than the other ranks at number {of.entered}"
    if of.stand is RankState.NO_DUMP:
        others = of.size - of.count
        wait = "other waits" if others == 1 else f"other {others} wait"
        return f"{who} wrote no dump, and the {wait} in {of.operation} {of.entered}"
    if of.stand is not RankState.BEHIND:
        return _SAID[of.stand].format(who=who + (" is" if of.count == 1 else " are"))
    reached = {rank.reached for rank in of.ranks}
    at = f", last entered {reached.pop()}" if len(reached - {None}) == len(reached) == 1 else ""
    return f"{who} never entered {of.operation} {of.entered}{at}"


def _who(window: Window, it: CollectiveState) -> str:
    """Return the ranks like `rank 17 (node-3 GPU 4)` or `5 of 64 ranks (1 (node-1 GPU 1), ...)`."""
    ranks = list(zip(it.of.ranks, it.places, strict=True))[:_NAMED]
    named = [
        f"{rank.rank}" + (f" ({where})" if (where := _where(window, rank, place)) else "")
        for rank, place in ranks
    ]
    if it.of.count == 1 and named:
        return f"rank {named[0]}"
    more = ", ..." if it.of.count > len(named) else ""
    return f"{it.of.count} of {it.of.size} ranks ({', '.join(named)}{more})"


def _where(window: Window, rank: RankStatus, place: Subject | None) -> str:
    if place is None:
        return rank.host
    return subject_names.label(window.whole or window, place)


def action(window: Window, it: CollectiveState, otherwise: str) -> str:
    """Return an action that says which named ranks to look at first, else `otherwise`."""
    if not it.names:
        return otherwise
    return f"Look at {_who(window, it)} first: its process, GPU and node. {otherwise}"


def severity(it: CollectiveState | None, otherwise: Severity) -> Severity:
    """Return a warning instead of an info if ranks are named: then it is no mere suspicion."""
    named = it is not None and it.names
    return Severity.WARNING if named and otherwise is Severity.INFO else otherwise
