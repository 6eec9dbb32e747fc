"""The book of incidents, and how a look at the fleet changes it. Nothing here does I/O."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gpuvigil.clock import duration
from gpuvigil.lifecycle import ACTIVE, Patience, Signal, State, step
from gpuvigil.model import (
    Cause,
    CoveredBy,
    Ended,
    EndedBy,
    Incident,
    Severity,
    Transition,
    Uncovered,
)

from ..correlation.observation import Candidate, Hindsight, Observation
from ..evidence.raised import raised_at
from ..window.fault_kinds import SILENCES, SLOW_JOBS
from ..window.out_of_service import Away, why_out_of_service
from .content import (
    SERVICE,
    by_its_name,
    changed,
    in_words_of,
    reason_of,
    suspect,
    updated,
    urgency,
    verdict,
    with_earlier,
)
from .returning import comes_back_within

# An active incident's numbers are updated at most this often, without a transition.
_REFRESH = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The newest incident of a fingerprint, and what the book keeps of its transitions."""

    incident: Incident
    number: int = 0  # of its last transition
    cause: Cause | None = None  # of its last transition
    returned: tuple[datetime, ...] = ()  # when it came back, the last few times
    # Since when looks have not found it; lost in a restart, which only delays its end.
    absent_since: datetime | None = None
    acknowledgements: frozenset[str] = frozenset()  # ids of those applied already
    proposed: str = ""  # the last look's verdict, if it differs from the active one

    @property
    def state(self) -> State:
        return State(self.incident.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """Every incident that is not over or could still come back, by fingerprint.

    A suspect is kept only here, and not written to the hub, until it is confirmed.
    """

    entries: Mapping[str, Entry] = field(default_factory=dict)

    def active(self) -> tuple[Incident, ...]:
        """Return the incidents whose fault is believed to be present now."""
        return tuple(e.incident for e in self.entries.values() if e.state in ACTIVE)

    def believed(self, new_rows: bool) -> frozenset[str]:
        """Return the fingerprints that a finding opens or keeps open; suspects' only with new rows."""
        return frozenset(
            key for key, e in self.entries.items() if new_rows or e.state is not State.SUSPECT
        )

    def written(self) -> dict[str, Incident]:
        """Return the incidents that the hub must have, by id."""
        return {
            e.incident.id: e.incident for e in self.entries.values() if e.state is not State.SUSPECT
        }


def advance(
    book: Book, observation: Observation, now: datetime, patience: Patience
) -> tuple[Book, tuple[Transition, ...]]:
    """Return the book after a look at the fleet, and the transitions it made, oldest first."""
    entries: dict[str, Entry] = {}
    transitions: list[Transition] = []
    kept = _not_over(book.entries.values(), now, patience)
    for print_ in sorted({*book.entries, *observation.candidates}):
        known = book.entries.get(print_)
        before = known if known is not None and known.incident.id in kept else None
        after, made = _next(before, print_, observation, now, patience)
        transitions += made
        if after is not None:
            entries[print_] = after
    return Book(entries=entries), tuple(transitions)


def mark_out_of_service(
    book: Book, away: Away, now: datetime
) -> tuple[Book, tuple[Transition, ...]]:
    """Return the book after a change in which nodes are out of service, and its transitions."""
    entries: dict[str, Entry] = {}
    transitions: list[Transition] = []
    for print_, before in sorted(book.entries.items()):
        entries[print_], made = _marked(before, away, now)
        transitions += made
    return Book(entries=entries), tuple(transitions)


Step = tuple[Entry | None, list[Transition]]


def _next(
    before: Entry | None, print_: str, observation: Observation, now: datetime, patience: Patience
) -> Step:
    """Return what becomes of one fingerprint, and the transitions."""
    candidate = observation.candidates.get(print_)
    if candidate is not None and observation.speaks_of(candidate.finding.subject, print_):
        old, raised = None if before is None else before.incident, now
        subject = candidate.finding.subject
        if before is not None and before.state is not State.RESOLVED:
            raised = raised_at(before.incident)
        urgent = urgency(candidate.severity, candidate.impact)
        members = candidate.members
        out = why_out_of_service(observation.away, old, subject, members, raised, urgent)
        said = candidate if out is None else replace(candidate, out_of_service=out)
        return _found(before, said, observation.new_rows, now, patience)
    if before is not None and observation.speaks_of(before.incident.subject, print_):
        after, made = _not_found(before, print_, observation, now, patience)
        return (after, made) if made or after is None else _marked(after, observation.away, now)
    return before, []


def _marked(before: Entry, away: Away, now: datetime) -> tuple[Entry, list[Transition]]:
    """Mark an active incident that this look has not found as out of service, or no longer."""
    old = before.incident
    urgent = urgency(old.severity, old.impact)
    out = why_out_of_service(away, old, old.subject, old.members, raised_at(old), urgent)
    if out == old.out_of_service or before.state not in ACTIVE:
        return before, []
    said = replace(old, out_of_service=out)
    absent = before.absent_since
    after, made = signalled(before, said, Signal.CHANGED, now, reason_of([SERVICE], said))
    return replace(after, absent_since=absent), made


def rebuild(
    incidents: Iterable[Incident],
    transitions: Iterable[Transition],
    now: datetime,
    patience: Patience,
) -> Book:
    """Return the book that the hub's records give; the newest incident of a fingerprint counts."""
    steps: dict[str, list[Transition]] = {}
    for transition in sorted(transitions, key=lambda t: t.number):
        steps.setdefault(transition.incident, []).append(transition)
    entries: dict[str, Entry] = {}
    for incident in sorted(incidents, key=lambda i: i.id):
        made = steps.get(incident.id, [])
        entry = Entry(
            incident=incident,
            number=made[-1].number if made else 0,
            cause=made[-1].cause if made else None,
            returned=tuple(t.at for t in made if _counts(t))[-patience.flap_returns :],
        )
        entries[incident.fingerprint] = entry
    kept = _not_over(entries.values(), now, patience)
    return Book(entries={key: e for key, e in entries.items() if e.incident.id in kept})


def _counts(transition: Transition) -> bool:
    """Tell whether a transition is a return that counts as flapping."""
    came_back = transition.signal in {Signal.RETURNED.value, Signal.FLAPPED.value}
    return came_back and not isinstance(transition.cause, Uncovered)


def _not_over(entries: Collection[Entry], now: datetime, patience: Patience) -> frozenset[str]:
    """Return the ids of incidents that are not over, or could still come back as the same ones.

    A covered incident can come back as long as its cause can, or what covers that in turn: while
    covered, nobody could see whether its fault was there.
    """
    kept = {e.incident.id: e.incident for e in entries if not _is_over(e, now, patience)}
    waiting = [e for e in entries if e.incident.id not in kept]
    while waiting:
        prints = {i.fingerprint for i in kept.values()}
        more = [e for e in waiting if e.incident.covered_by in prints]
        if not more:
            break
        kept |= {e.incident.id: e.incident for e in more}
        waiting = [e for e in waiting if e.incident.id not in kept]
    return frozenset(kept)


def _is_over(entry: Entry, now: datetime, patience: Patience) -> bool:
    """Tell whether an incident was dismissed, or ended too long ago to come back as the same one."""
    if entry.state is State.DISMISSED:
        return True
    resolved_at = entry.incident.resolved_at
    return (
        entry.state is State.RESOLVED
        and resolved_at is not None
        and now - resolved_at > comes_back_within(entry.incident, patience)
    )


def _found(
    before: Entry | None, candidate: Candidate, new_rows: bool, now: datetime, patience: Patience
) -> Step:
    if before is None:
        before = Entry(incident=suspect(candidate, now))
        new_rows = False
    if before.state is State.SUSPECT:
        if not (new_rows or candidate.finding.certain):
            return replace(before, absent_since=None), []
        reason = "certain at once" if candidate.finding.certain else "seen a second time"
        return signalled(before, updated(before.incident, candidate), Signal.CONFIRMED, now, reason)
    if before.state is State.RESOLVED:
        return _come_back(before, candidate, now, patience)
    return _still_there(before, candidate, now)


def _come_back(before: Entry, candidate: Candidate, now: datetime, patience: Patience) -> Step:
    """Reopen the same incident; too many returns not due to a cover make it flapping."""
    candidate = by_its_name(before.incident, candidate)
    old, within = before.incident, comes_back_within(before.incident, patience)
    reopened = replace(old, severity=Severity.INFO, covers=(), resolved_at=None)
    reopened = replace(reopened, covered_by="")
    reopened = replace(
        reopened, acknowledged_by=""
    )  # whoever acknowledged it may think that it is over
    if candidate.finding.fault != reopened.fault:
        reopened = replace(reopened, members=())  # those of the former fault
    said = replace(updated(reopened, candidate), since=candidate.finding.since)
    said = replace(said, late=candidate.finding.late)
    if isinstance(before.cause, CoveredBy):
        return signalled(before, said, Signal.RETURNED, now, Uncovered())
    returned = (*before.returned, now)[-patience.flap_returns :]
    entry, said = replace(before, returned=returned), with_earlier(old, said)
    lately = [at for at in returned if now - at <= within]
    if len(lately) >= patience.flap_returns:
        reason = f"came back {len(lately)} times in {duration(within)}"
        return signalled(entry, said, Signal.FLAPPED, now, reason)
    return signalled(entry, said, Signal.RETURNED, now, "came back")


def _still_there(before: Entry, candidate: Candidate, now: datetime) -> Step:
    candidate, proposed = _with_verdict(before, candidate)
    entry = before
    if (before.absent_since, before.proposed) != (None, proposed):
        entry = replace(before, absent_since=None, proposed=proposed)
    old, said = before.incident, updated(before.incident, candidate)
    if said is old:
        return entry, []
    news = changed(old, said)
    if news:
        return signalled(entry, said, Signal.CHANGED, now, reason_of(news, said))
    drifted = (said.evidence, said.impact) != (old.evidence, old.impact)
    if drifted and now - old.updated_at >= _REFRESH:
        said = replace(said, updated_at=now, version=old.version + 1)
        return replace(entry, incident=said), []
    return entry, []


# Faults whose condition is a verdict: it rests on other signals, which come and go, or on a cause.
_VERDICTS = SILENCES | SLOW_JOBS


def _with_verdict(before: Entry, candidate: Candidate) -> tuple[Candidate, str]:
    """Return the candidate in the words of the active verdict, and the new verdict it proposes.

    A verdict changes only to another one, which two looks in a row must give: one that can no
    longer be given was not wrong, and nobody believes messages that contradict each other.
    """
    old, said = before.incident, verdict(candidate.finding.condition)
    stands = verdict(old.condition)
    if old.fault not in _VERDICTS or not stands or said == stands:
        return candidate, ""
    if said and said == before.proposed:
        return candidate, ""
    kept = in_words_of(old, candidate)
    return replace(kept, finding=replace(kept.finding, evidence=old.evidence)), said


def _not_found(
    before: Entry, print_: str, observation: Observation, now: datetime, patience: Patience
) -> Step:
    if before.state is State.RESOLVED:
        return before, []
    if print_ in observation.covered:
        return _clear(before, now, observation.covered[print_])
    flapping = before.state is State.FLAPPING
    told = observation.afterwards.get(print_)
    if print_ in observation.cured and not flapping:
        return _cured(before, now, observation.cured[print_], told, patience)
    if print_ in observation.unknown:
        return replace(before, absent_since=None), []
    wait = patience.flap_window if flapping else patience.clear
    wait = max(wait, observation.seldom.get(print_, wait))
    since = before.absent_since or now
    if before.state is State.SUSPECT or now - since >= wait:
        unseen = Ended(by=EndedBy.NOT_SEEN, seconds=(now - since).total_seconds())
        return _settled(before, now, unseen, told if told is not None and told.sure else None)
    return replace(before, absent_since=since), []


def _cured(
    before: Entry, now: datetime, why: Ended, hindsight: Hindsight | None, patience: Patience
) -> Step:
    """End an incident at once, unless more may come that tells what it was."""
    since = before.absent_since or now
    unsure = hindsight is not None and not hindsight.sure and before.state in ACTIVE
    if unsure and now - since < patience.clear:
        return replace(before, absent_since=since), []
    return _settled(before, now, why, hindsight)


def _settled(before: Entry, now: datetime, why: Ended, hindsight: Hindsight | None) -> Step:
    """End an incident; first correct its words while it stands, if hindsight tells better ones."""
    old = before.incident
    if hindsight is None or before.state not in ACTIVE or hindsight.condition == old.condition:
        return _clear(before, now, why)
    said = replace(
        old,
        condition=hindsight.condition,
        title=hindsight.title,
        action=hindsight.action,
        evidence=(*old.evidence, *hindsight.evidence),
    )
    put_right, made = signalled(before, said, Signal.CHANGED, now, reason_of(["title"], said))
    over, last = _clear(put_right, now, why)
    return over, [*made, *last]


def _clear(before: Entry, now: datetime, why: Ended | CoveredBy) -> Step:
    if step(before.state, Signal.CLEARED) is State.DISMISSED:
        return None, []
    by = why.fingerprint if isinstance(why, CoveredBy) else ""
    over = replace(before.incident, resolved_at=now, covered_by=by)
    return signalled(before, over, Signal.CLEARED, now, why)


def signalled(
    before: Entry, changed: Incident, signal: Signal, now: datetime, why: str | Cause
) -> tuple[Entry, list[Transition]]:
    """Return the entry after `signal` and its transition; `changed` is the incident's new content."""
    cause = None if isinstance(why, str) else why
    after = step(before.state, signal)
    incident = replace(changed, state=after.value, updated_at=now, version=changed.version + 1)
    transition = Transition(
        incident=incident.id,
        number=before.number + 1,
        from_state=before.state.value,
        to_state=after.value,
        signal=signal.value,
        at=now,
        reason=why if isinstance(why, str) else why.text,
        subject=incident.subject,
        snapshot=incident.to_record().to_json(),
        cause=cause,
    )
    entry = replace(
        before, incident=incident, number=transition.number, cause=cause, absent_since=None
    )
    return entry, [transition]
