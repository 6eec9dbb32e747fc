"""What of a cluster is out of service in a quarter of an hour, and from when to when: pure, from records.

Schedulers tell how things are, and not how they were an hour ago: so it is judged when the quarter is
counted first, by the last word that was said by then, and stands in its record. That word says since when
a node is as it is and what it was shortly before, as far as somebody looked then (`NodeTurns`): where
nobody did, it is taken for all of the quarter.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from gpuvigil.faults.affected import struck
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

LENGTH = 900.0  # seconds of a quarter of an hour


class Part(NamedTuple):
    """Of a quarter, in seconds from its beginning: what something is out of service for in it."""

    to: LostTo
    since: float = 0.0
    until: float = LENGTH


# By node and GPU, in order; a node as a whole has no GPU.
Out = Mapping[tuple[str, str], tuple[Part, ...]]

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
    """What of these nodes was out of service in a quarter from `start` to `end`, when, and for what.

    A GPU stands for itself only where it is in repair: then it is out once it cannot be used. Where a
    scheduler is asked that said nothing of this time it is as it was at the end of the quarter `before` if
    it answered shortly before, else None. What it is out for is judged at the end of each part.
    """
    told = _told(words.schedulers, start, end)
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
    """A span cut at each turn, and joined again where what it was lost to is the same on both sides."""
    start, end = span
    inside = {at for at in turns if at is not None and start < at < end}
    found: list[Part] = []
    for since, until in pairwise([start, *sorted(inside), end]):
        if (to := loss(until)) is None:
            continue
        # Of the quarter that still runs nobody counts what is to come.
        last = LENGTH if until == end else (until - start).total_seconds()
        begin = (since - start).total_seconds()
        if found and (found[-1].to, found[-1].until) == (to, begin):
            begin = found.pop().since
        found.append(Part(to, begin, last))
    return tuple(found)


def _loss_of(
    said: Sequence[ScheduledNode],
    incidents: Sequence[Incident],
    repairs: Sequence[Sequence[Rma]],
    checks: Checks,
) -> Callable[[datetime], LostTo | None]:
    """What a node is out of service for, by the end of a part of the quarter."""

    def loss(at: datetime) -> LostTo | None:
        word = next((one for one in said if _was_so(one, at)), None)
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


def _told(
    schedulers: Iterable[Scheduler], start: datetime, end: datetime
) -> Mapping[tuple[str, str], Sequence[ScheduledNode]] | None:
    """What is said of each node, now and of shortly before."""
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
    """Whether those that do not answer now did so shortly before the quarter began."""
    last = [one.answered_at for one in schedulers if one.nodes is None and one.at >= start - _ASKED]
    return bool(last) and all(at is not None and at >= start - SPEAKS_FOR for at in last)


def _faults(incidents: Iterable[Incident]) -> Mapping[str, Sequence[Incident]]:
    """By node, the critical incidents of it and its GPUs."""
    found: defaultdict[str, list[Incident]] = defaultdict(list)
    for one in incidents:
        if one.severity is Severity.CRITICAL:
            for node in {Subject.parse(key).node for key in struck(one)}:
                found[node].append(one)
    return found


def _stood(one: Incident, at: datetime) -> bool:
    return one.since < at and (one.resolved_at is None or one.resolved_at >= at)


def _ends(one: Incident) -> tuple[datetime, datetime | None]:
    return one.since, one.resolved_at


def _repairs(rmas: Iterable[Rma]) -> Mapping[Subject, Sequence[Rma]]:
    """Of each GPU the steps on its way to the maker and back."""
    found: defaultdict[Subject, list[Rma]] = defaultdict(list)
    for one in rmas:
        if one.subject.gpu:
            found[one.subject].append(one)
    return found


def _in_repair(steps: Iterable[Rma], at: datetime) -> LostTo | None:
    """Whether one of a GPU's cases was open then."""
    known = newest(one for one in steps if one.at < at).values()
    return LostTo.REPAIR if any(one.state is not RmaState.REPLACED for one in known) else None


def written(out: Out) -> list[list[str]]:
    """What is out at the end of the quarter, as versions before `written_parts` read it: for all of it."""
    return [
        [node, gpu, parts[-1].to.value]
        for (node, gpu), parts in sorted(out.items())
        if parts[-1].until == LENGTH
    ]


def written_parts(out: Out) -> list[list[str | float]]:
    """Each part of what is not out for all of the quarter, or not for one thing."""
    return [
        [node, gpu, one.to.value, one.since, one.until]
        for (node, gpu), parts in sorted(out.items())
        if parts != (Part(parts[-1].to),)
        for one in parts
    ]


def read(rows: Iterable[Sequence[Any]], parts: Iterable[Sequence[Any]] = ()) -> Out:
    """What `written` and `written_parts` wrote; ValueError or TypeError for anything else.

    For a while parts stood among the rows.
    """
    return _by_unit(rows) | _by_unit(parts)


def _by_unit(rows: Iterable[Sequence[Any]]) -> dict[tuple[str, str], tuple[Part, ...]]:
    found: defaultdict[tuple[str, str], list[Part]] = defaultdict(list)
    for node, gpu, loss, *times in rows:
        found[str(node), str(gpu)].append(Part(LostTo(loss), *map(float, times)))
    return {unit: tuple(of_unit) for unit, of_unit in found.items()}
