"""What opened, what is open and what was done in a shift; pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from accounting.hardware.returns import step_line as rma_said
from gpuvigil.clock import moment
from gpuvigil.lifecycle import State
from gpuvigil.model import (
    Acceptance,
    Acknowledgement,
    Act,
    Incident,
    NodeAction,
    Retirement,
    Rma,
    Silence,
    with_kind,
)
from gpuvigil.model.annotation import Annotation

SHIFT = timedelta(hours=12)
_SUSPICION = frozenset({State.SUSPECT.value, State.DISMISSED.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The records that a shift is made from, of any age."""

    incidents: Sequence[Incident] = ()
    acknowledgements: Sequence[Acknowledgement] = ()
    actions: Sequence[NodeAction] = ()
    rmas: Sequence[Rma] = ()
    acceptances: Sequence[Acceptance] = ()
    retirements: Sequence[Retirement] = ()
    silences: Sequence[Silence] = ()
    annotations: Sequence[Annotation] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One thing that somebody did; `incident` is empty if it concerns none."""

    at: datetime
    who: str
    text: str
    incident: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A shift; every list is newest first, except `stands`, which is worst first."""

    start: datetime
    end: datetime
    opened: Sequence[Incident]
    ended: Sequence[Incident]
    still_open: Sequence[Incident]
    done: Sequence[Done]
    silences: Sequence[Silence]  # active at the end
    untaken: int  # open incidents that nobody has acknowledged


def shift(records: Records, end: datetime) -> Shift:
    """Return the twelve hours up to `end`, as far as records tell how they were."""
    start = end - SHIFT
    told = [
        one
        for one in records.incidents
        if one.state not in _SUSPICION and not one.marked and one.since <= end
    ]
    stands = [one for one in told if one.resolved_at is None or one.resolved_at > end]
    # Incidents that another one covers are left out, as that one includes them.
    over = [one for one in told if one.resolved_at is not None and not one.covered_by]
    return Shift(
        start=start,
        end=end,
        opened=_newest((one for one in (*stands, *over) if one.since > start), lambda it: it.since),
        ended=_newest(
            (one for one in over if start < (one.resolved_at or start) <= end),
            lambda it: it.resolved_at or it.since,
        ),
        still_open=sorted(stands, key=lambda it: (it.severity.rank, it.since)),
        done=_newest((one for one in _done(records) if start < one.at <= end), lambda it: it.at),
        silences=[one for one in records.silences if one.holds(end)],
        untaken=sum(not one.acknowledged_by for one in stands),
    )


def _newest(found: Iterable, key: Callable) -> Sequence:  # type: ignore[type-arg]
    return sorted(found, key=key, reverse=True)


def _done(records: Records) -> Iterable[Done]:
    """Yield everything that a person or gpuvigil did, in words."""
    for ack in records.acknowledgements:
        did = f"handed over to {ack.to}" if ack.to else "" if ack.note else "took it"
        text = ": ".join(part for part in (did, ack.note) if part)
        yield Done(at=ack.at, who=ack.by, text=text, incident=ack.incident)
    for action in records.actions:
        did = "drained" if action.act is Act.DRAIN else "gave back"
        yield Done(
            at=action.at,
            who="gpuvigil",
            text=f"{did} {action.node.node}",
            incident=action.incident,
        )
    for rma in records.rmas:
        text = f"return to the maker: {rma_said(rma)}"
        yield Done(at=rma.at, who=rma.by, text=text, incident=rma.incident)
    for one in records.acceptances:
        yield Done(at=one.at, who=one.by, text=f"accepted {one.node.node}: {one.note}", incident="")
    for gone in records.retirements:
        text = f"retired {gone.node.node}" + (f": {gone.note}" if gone.note else "")
        yield Done(at=gone.at, who=gone.by, text=text, incident="")
    for said in (it for it in records.annotations if not it.deleted):
        where = (
            f" on {', '.join(said.nodes)}"
            if said.nodes
            else f" in {with_kind('cluster', said.cluster)}"
        )
        until = "" if said.until is None else f", until {moment(said.until)}"
        yield Done(at=said.at, who=said.by, text=said.note + where + until, incident="")
    for silence in records.silences:
        text = f"silenced {' '.join(silence.matchers)}: {silence.reason}"
        yield Done(at=silence.at, who=silence.by, text=text, incident="")


def sentence(one: Shift) -> str:
    """Return the shift's counts in one line."""
    waits = f", {one.untaken} not acknowledged" if one.untaken else ""
    return f"{len(one.opened)} opened, {len(one.ended)} ended, {len(one.still_open)} still open{waits}."
