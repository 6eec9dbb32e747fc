"""What is out of service in a cluster in a quarter of an hour, and when: pure, from records.

Schedulers report how things are, not how they were an hour ago. So this is judged when the quarter is first
counted, by the last report up to then, and is kept in its record. That report says since when a node has
its state, and what it was shortly before if somebody looked then (`NodeTurns`); where nobody did, the
state is assumed for the whole quarter.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from gpuvigil.faults.affected import affected_keys
from gpuvigil.model import Incident, Rma, RmaState, ScheduledNode, Scheduler, Severity, Subject
from gpuvigil.schedulers.out_of_service import (
    SPEAKS_FOR,
    STOPS_NODE,
    USUAL,
    Checks,
    LostTo,
    lost_to,
    name_of,
)

from ..hardware.returns import newest

LENGTH = 900.0  # seconds in a quarter of an hour


class Part(NamedTuple):
    """A part of a quarter, in seconds from its beginning, and the cause of being out of service in it."""

    to: LostTo
    since: float = 0.0
    until: float = LENGTH


# By node and GPU, in order; a whole node has an empty GPU.
Out = Mapping[tuple[str, str], tuple[Part, ...]]

# A quarter is counted two minutes after its end; a report much later than that no longer applies to it.
SAID_AFTER = timedelta(minutes=15)
# A scheduler that was not asked for longer than this is gone: another one replaced it, or none.
_ASKED = timedelta(hours=24)


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The reports on one cluster, in records of any age; the incidents are confirmed ones."""

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
    """Return what of these nodes was out of service from `start` to `end`, when, and for what.

    A GPU has an entry of its own only while it is in repair: it is out of service once it cannot be used. If a
    scheduler said nothing about this time, the state at the end of the quarter `before` is taken if it answered
    shortly before, else the result is None. The cause is judged at the end of each part.
    """
    told = _reports(words.schedulers, start, end)
    if told is None:
        return _as_at_the_end(before) if _answered_lately(words.schedulers, start) else None
    faults, repairs = _faults(words.incidents), _repairs(words.rmas)
    found = {
        (gpu.node, gpu.gpu or ""): _parts(
            (start, end), [one.at for one in steps], partial(_in_repair, steps)
        )
        for gpu, steps in repairs.items()
    }
    for node in nodes:
        said, stood = told.get(name_of(node), ()), faults.get(node.node, ())
        of_node = [steps for gpu, steps in repairs.items() if gpu.of_node() == node]
        if said or stood:
            turns = [at for one in said for at in (one.since, one.until)]
            turns += [at for one in stood if one.fault in STOPS_NODE for at in _ends(one)]
            found[node.node, ""] = _parts(
                (start, end), turns, _loss_of(said, stood, of_node, words.checks)
            )
    return {key: parts for key, parts in found.items() if parts}


def _parts(
    span: tuple[datetime, datetime],
    turns: Iterable[datetime | None],
    loss: Callable[[datetime], LostTo | None],
) -> tuple[Part, ...]:
    """Cut a span at each turn, and join parts again where the cause is the same on both sides."""
    start, end = span
    inside = {at for at in turns if at is not None and start < at < end}
    found: list[Part] = []
    for since, until in pairwise([start, *sorted(inside), end]):
        if (to := loss(until)) is None:
            continue
        # In a quarter that still runs, what is to come is not counted.
        last = LENGTH if until == end else (until - start).total_seconds()
        begin = (since - start).total_seconds()
        if found and (found[-1].to, found[-1].until) == (to, begin):
            begin = found.pop().since
        found.append(Part(to, begin, last))
    return tuple(found)


def _loss_of(
    reports: Sequence[ScheduledNode],
    incidents: Sequence[Incident],
    repairs: Sequence[Sequence[Rma]],
    checks: Checks,
) -> Callable[[datetime], LostTo | None]:
    """Return a function that gives the cause of a node being out of service at a time, None if it is not."""

    def loss(at: datetime) -> LostTo | None:
        word = next((one for one in reports if _was_so(one, at)), None)
        faults = {one.fault for one in incidents if _stood(one, at)}
        mended = any(_in_repair(steps, at) for steps in repairs)
        return lost_to(word, faults, in_repair=mended, checks=checks)

    return loss


def _was_so(node: ScheduledNode, at: datetime) -> bool:
    return (node.since is None or node.since < at) and (node.until is None or node.until >= at)


def _as_at_the_end(before: Out | None) -> Out | None:
    if before is None:
        return None
    last = {key: parts[-1] for key, parts in before.items()}
    return {key: (Part(one.to),) for key, one in last.items() if one.until == LENGTH}


def _reports(
    schedulers: Iterable[Scheduler], start: datetime, end: datetime
) -> Mapping[tuple[str, str], Sequence[ScheduledNode]] | None:
    """Return the reports on each node, current and recent; None where a scheduler said nothing in time."""
    found: dict[tuple[str, str], list[ScheduledNode]] = {}
    for said in schedulers:
        if said.at < end - _ASKED:
            continue
        if said.nodes is None or not start - SPEAKS_FOR <= said.at <= end + SAID_AFTER:
            return None
        cluster = said.told_by.cluster
        of_this: defaultdict[tuple[str, str], list[ScheduledNode]] = defaultdict(list)
        for one in (*said.nodes, *said.left):
            of_this[name_of(Subject(cluster=cluster, node=one.name))].append(one)
        found |= of_this
    return found


def _answered_lately(schedulers: Iterable[Scheduler], start: datetime) -> bool:
    """Return whether the schedulers that do not answer now did so shortly before the quarter began."""
    last = [one.answered_at for one in schedulers if one.nodes is None and one.at >= start - _ASKED]
    return bool(last) and all(at is not None and at >= start - SPEAKS_FOR for at in last)


def _faults(incidents: Iterable[Incident]) -> Mapping[str, Sequence[Incident]]:
    """Return, by node, the critical incidents of the node and its GPUs."""
    found: defaultdict[str, list[Incident]] = defaultdict(list)
    for one in incidents:
        if one.severity is Severity.CRITICAL:
            for node in {Subject.parse(key).node for key in affected_keys(one)}:
                found[node].append(one)
    return found


def _stood(one: Incident, at: datetime) -> bool:
    return one.since < at and (one.resolved_at is None or one.resolved_at >= at)


def _ends(one: Incident) -> tuple[datetime, datetime | None]:
    return one.since, one.resolved_at


def _repairs(rmas: Iterable[Rma]) -> Mapping[Subject, Sequence[Rma]]:
    """Return the RMA steps of each GPU."""
    found: defaultdict[Subject, list[Rma]] = defaultdict(list)
    for one in rmas:
        if one.subject.gpu:
            found[one.subject].append(one)
    return found


def _in_repair(steps: Iterable[Rma], at: datetime) -> LostTo | None:
    """Return `LostTo.REPAIR` if one of the GPU's cases was open at that time, else None."""
    known = newest(one for one in steps if one.at < at).values()
    return LostTo.REPAIR if any(one.state is not RmaState.REPLACED for one in known) else None


def written(out: Out) -> list[list[str]]:
    """Return what is out of service at the end of the quarter; versions before `written_parts` assume all of it."""
    return [
        [node, gpu, parts[-1].to.value]
        for (node, gpu), parts in sorted(out.items())
        if parts[-1].until == LENGTH
    ]


def written_parts(out: Out) -> list[list[str | float]]:
    """Return the parts of everything that is not out of service for the whole quarter and one cause."""
    return [
        [node, gpu, one.to.value, one.since, one.until]
        for (node, gpu), parts in sorted(out.items())
        if parts != (Part(parts[-1].to),)
        for one in parts
    ]


def read(rows: Iterable[Sequence[Any]], parts: Iterable[Sequence[Any]] = ()) -> Out:
    """Read what `written` and `written_parts` wrote; ValueError or TypeError for anything else.

    Some versions wrote the parts among the rows.
    """
    return _by_unit(rows) | _by_unit(parts)


def _by_unit(rows: Iterable[Sequence[Any]]) -> dict[tuple[str, str], tuple[Part, ...]]:
    found: defaultdict[tuple[str, str], list[Part]] = defaultdict(list)
    for node, gpu, loss, *times in rows:
        found[str(node), str(gpu)].append(Part(LostTo(loss), *map(float, times)))
    return {unit: tuple(of_unit) for unit, of_unit in found.items()}
