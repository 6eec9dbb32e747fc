"""What of a cluster is out of service in a quarter of an hour: pure, from records.

Schedulers tell how things are, and not how they were: so it is judged when the quarter is counted
first, by the last word that was said by then, and stands in its record.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuvigil.faults.affected import struck
from gpuvigil.model import Incident, Rma, RmaState, ScheduledNode, Scheduler, Severity, Subject
from gpuvigil.schedulers.out_of_service import SPEAKS_FOR, USUAL, Checks, LostTo, lost_to, name_of

from ..hardware.returns import newest

# Node and GPU; a node as a whole has no GPU.
Out = Mapping[tuple[str, str], LostTo]

# A quarter is counted two minutes after its end; what is said much later is not of it any more.
SAID_AFTER = timedelta(minutes=15)
# A scheduler that nobody asked for longer is asked no more: another one took its place, or none.
_ASKED = timedelta(hours=24)


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What is said of one cluster, in records of any age; the incidents are confirmed ones."""

    schedulers: Sequence[Scheduler] = ()
    incidents: Sequence[Incident] = ()
    rmas: Sequence[Rma] = ()
    checks: Checks = USUAL


def out_of(
    words: Words,
    nodes: Iterable[Subject],
    start: datetime,
    end: datetime,
    before: Out | None = None,
) -> Out | None:
    """What of these nodes was out of service in a quarter from `start` to `end`, and for what.

    A GPU stands for itself only where it is in repair: then it is out once it cannot be used. Where a
    scheduler is asked that said nothing of this time it is as it was in the quarter `before` if it
    answered shortly before, else None.
    """
    told = _told(words.schedulers, start, end)
    if told is None:
        return before if _answered_lately(words.schedulers, start) else None
    faults = _standing(words.incidents, end)
    repairs = _repairs(words.rmas, end)
    in_repair = {gpu.of_node() for gpu in repairs}
    found: dict[tuple[str, str], LostTo] = {
        (one.node, one.gpu or ""): LostTo.REPAIR for one in repairs
    }
    for node in nodes:
        loss = lost_to(
            told.get(name_of(node)),
            faults.get(node.node, ()),
            in_repair=node in in_repair,
            checks=words.checks,
        )
        if loss is not None:
            found[node.node, ""] = loss
    return found


def _told(
    schedulers: Iterable[Scheduler], start: datetime, end: datetime
) -> Mapping[tuple[str, str], ScheduledNode] | None:
    found: dict[tuple[str, str], ScheduledNode] = {}
    for said in schedulers:
        if said.at < end - _ASKED:
            continue
        if said.nodes is None or not start - SPEAKS_FOR <= said.at <= end + SAID_AFTER:
            return None
        cluster = said.told_by.cluster
        found |= {name_of(Subject(cluster=cluster, node=one.name)): one for one in said.nodes}
    return found


def _answered_lately(schedulers: Iterable[Scheduler], start: datetime) -> bool:
    """Whether those that do not answer now did so shortly before the quarter began."""
    last = [one.answered_at for one in schedulers if one.nodes is None and one.at >= start - _ASKED]
    return bool(last) and all(at is not None and at >= start - SPEAKS_FOR for at in last)


def _standing(incidents: Iterable[Incident], at: datetime) -> Mapping[str, set[str]]:
    """By node, the critical faults of it and its GPUs that stood at that time."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for one in incidents:
        stood = one.since < at and (one.resolved_at is None or one.resolved_at >= at)
        if stood and one.severity is Severity.CRITICAL:
            for key in struck(one):
                found[Subject.parse(key).node].add(one.fault)
    return found


def _repairs(rmas: Iterable[Rma], at: datetime) -> list[Subject]:
    """The GPUs that were on their way to the maker and back at that time."""
    steps = newest(one for one in rmas if one.at <= at).values()
    return [one.subject for one in steps if one.subject.gpu and one.state is not RmaState.REPLACED]


def written(out: Out) -> list[list[str]]:
    """As a record has it."""
    return [[node, gpu, loss.value] for (node, gpu), loss in sorted(out.items())]


def read(rows: Iterable[Sequence[str]]) -> Out:
    """What `written` wrote; ValueError or TypeError for anything else."""
    return {(node, gpu): LostTo(loss) for node, gpu, loss in rows}
