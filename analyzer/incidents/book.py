"""The book of incidents, and how a look at the fleet changes it. Nothing here does I/O."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from gpuvigil.clock import duration
from gpuvigil.faults import FAULTS
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.lifecycle import STANDING, Patience, Signal, State, step
from gpuvigil.model import (
    Cause,
    CoveredBy,
    Ended,
    EndedBy,
    Impact,
    Incident,
    OutOfService,
    Severity,
    Transition,
    Uncovered,
)
from gpuvigil.silence_conditions import PLAIN

from ..correlation.breaker import is_cluster_wide
from ..correlation.observation import Candidate, Hindsight, Observation
from ..evidence.raised import raised_at
from ..window.fault_kinds import SILENCES, SLOW_JOBS
from ..window.out_of_service import Away, why_held
from .returning import comes_back_within, is_repaired

# A standing incident's numbers are updated at most this often, without a transition.
_REFRESH = timedelta(seconds=60)
# More covered incidents would make the record of a large outage unreadable.
_MOST_COVERS = 100
# Nobody reads more dates of earlier failures than that.
_MOST_EARLIER = 20


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
    proposed: str = ""  # the last look's verdict, if it differs from the standing one

    @property
    def state(self) -> State:
        return State(self.incident.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """Every incident that is not over or could still come back, by fingerprint.

    A suspect is kept only here, and not written to the hub, until it is confirmed.
    """

    entries: Mapping[str, Entry] = field(default_factory=dict)

    def standing(self) -> tuple[Incident, ...]:
        """Return the incidents whose fault is believed to be present now."""
        return tuple(e.incident for e in self.entries.values() if e.state in STANDING)

    def believed(self, fresh: bool) -> frozenset[str]:
        """Return the fingerprints that a finding opens or keeps open; suspects' only if `fresh`."""
        return frozenset(
            key for key, e in self.entries.items() if fresh or e.state is not State.SUSPECT
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


def hold(book: Book, away: Away, now: datetime) -> tuple[Book, tuple[Transition, ...]]:
    """Return the book after a change in which nodes are out of service, and its transitions."""
    entries: dict[str, Entry] = {}
    transitions: list[Transition] = []
    for print_, before in sorted(book.entries.items()):
        entries[print_], made = _held(before, away, now)
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
        urgency = _urgency(candidate.severity, candidate.impact)
        held = why_held(observation.away, old, subject, candidate.members, raised, urgency)
        said = replace(candidate, held=held) if held != candidate.held else candidate
        return _found(before, said, observation.fresh, now, patience)
    if before is not None and observation.speaks_of(before.incident.subject, print_):
        after, made = _not_found(before, print_, observation, now, patience)
        return (after, made) if made or after is None else _held(after, observation.away, now)
    return before, []


def _held(before: Entry, away: Away, now: datetime) -> tuple[Entry, list[Transition]]:
    """Hold or release a standing incident that this look has not found."""
    old = before.incident
    urgency = _urgency(old.severity, old.impact)
    held = why_held(away, old, old.subject, old.members, raised_at(old), urgency)
    if held == old.out_of_service or before.state not in STANDING:
        return before, []
    text, state = _hold(held)
    said = replace(old, held=text, held_state=state)
    absent = before.absent_since
    after, made = signalled(before, said, Signal.CHANGED, now, _changes(["hold"], said))
    return replace(after, absent_since=absent), made


def _hold(out: OutOfService | None) -> tuple[str, str]:
    """Return `held` and `held_state` of an incident."""
    return ("", "") if out is None else (out.text, out.state)


def _urgency(severity: Severity, impact: Impact) -> tuple[bool, bool]:
    """Tell whether an incident stops jobs now, and whether it is critical."""
    critical = severity is Severity.CRITICAL
    return critical and impact.running, critical


def _changes(changed: Iterable[str], said: Incident) -> str:
    """Return the reason of a change in words."""
    names = [name for name in changed if name != "hold"]
    parts = [", ".join(names) + " changed"] if names else []
    if "hold" in changed:
        parts.append(f"held: {said.held}" if said.held else "no longer held: in service again")
    return "; ".join(parts)


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
    before: Entry | None, candidate: Candidate, fresh: bool, now: datetime, patience: Patience
) -> Step:
    if before is None:
        before = Entry(incident=_suspect(candidate, now))
        fresh = False
    if before.state is State.SUSPECT:
        if not (fresh or candidate.finding.certain):
            return replace(before, absent_since=None), []
        reason = "certain at once" if candidate.finding.certain else "seen a second time"
        return signalled(before, _say(before.incident, candidate), Signal.CONFIRMED, now, reason)
    if before.state is State.RESOLVED:
        return _come_back(before, candidate, now, patience)
    return _still_there(before, candidate, now)


def _come_back(before: Entry, candidate: Candidate, now: datetime, patience: Patience) -> Step:
    """Reopen the same incident; too many returns not due to a cover make it flapping."""
    candidate = _by_its_name(before.incident, candidate)
    old, within = before.incident, comes_back_within(before.incident, patience)
    fresh = replace(old, severity=Severity.INFO, covers=(), resolved_at=None)
    fresh = replace(fresh, covered_by="")
    fresh = replace(fresh, acknowledged_by="")  # whoever acknowledged it may think that it is over
    if candidate.finding.fault != fresh.fault:
        fresh = replace(fresh, members=())  # those of the former fault
    said = replace(_say(fresh, candidate), since=candidate.finding.since)
    said = replace(said, late=candidate.finding.late)
    if isinstance(before.cause, CoveredBy):
        return signalled(before, said, Signal.RETURNED, now, Uncovered())
    returned = (*before.returned, now)[-patience.flap_returns :]
    entry, said = replace(before, returned=returned), _again(old, said)
    lately = [at for at in returned if now - at <= within]
    if len(lately) >= patience.flap_returns:
        reason = f"came back {len(lately)} times in {duration(within)}"
        return signalled(entry, said, Signal.FLAPPED, now, reason)
    return signalled(entry, said, Signal.RETURNED, now, "came back")


def _again(old: Incident, said: Incident) -> Incident:
    """Add the previous time it began to `earlier`, if it is a fault that a repair was to end."""
    if not is_repaired(old):
        return said
    return replace(said, earlier=(*old.earlier, old.since)[-_MOST_EARLIER:])


def _by_its_name(old: Incident, candidate: Candidate) -> Candidate:
    """Keep the known reason of a slow job that comes back, unless the new finding names another."""
    unnamed = candidate.finding.condition in PLAIN
    if old.fault not in SLOW_JOBS or old.condition in PLAIN or not unnamed:
        return candidate
    return _in_words_of(old, candidate)


def _in_words_of(old: Incident, candidate: Candidate) -> Candidate:
    finding = replace(
        candidate.finding,
        condition=old.condition,
        action=old.action,
        source=old.source,
        own_limit=old.own_limit,
    )
    return replace(candidate, title=old.title, finding=finding)


def _still_there(before: Entry, candidate: Candidate, now: datetime) -> Step:
    candidate, proposed = _with_verdict(before, candidate)
    entry = before
    if (before.absent_since, before.proposed) != (None, proposed):
        entry = replace(before, absent_since=None, proposed=proposed)
    old, said = before.incident, _say(before.incident, candidate)
    if said is old:
        return entry, []
    changed = [name for name, read in _MATERIAL.items() if read(old) != read(said)]
    if changed:
        return signalled(entry, said, Signal.CHANGED, now, _changes(changed, said))
    drifted = (said.evidence, said.impact) != (old.evidence, old.impact)
    if drifted and now - old.updated_at >= _REFRESH:
        said = replace(said, updated_at=now, version=old.version + 1)
        return replace(entry, incident=said), []
    return entry, []


# Faults whose condition is a verdict: it rests on other signals, which come and go, or on a cause.
_VERDICTS = SILENCES | SLOW_JOBS


def _with_verdict(before: Entry, candidate: Candidate) -> tuple[Candidate, str]:
    """Return the candidate in the words of the standing verdict, and the new verdict it proposes.

    A verdict changes only to another one, which two looks in a row must give: one that can no
    longer be given was not wrong, and nobody believes messages that contradict each other.
    """
    old, said = before.incident, _verdict(candidate.finding.condition)
    stands = _verdict(old.condition)
    if old.fault not in _VERDICTS or not stands or said == stands:
        return candidate, ""
    if said and said == before.proposed:
        return candidate, ""
    kept = _in_words_of(old, candidate)
    return replace(kept, finding=replace(kept.finding, evidence=old.evidence)), said


def _verdict(condition: str) -> str:
    """Return the verdict in a condition, empty where it only says that the fault is there."""
    return "" if condition in PLAIN else condition


def _who_is_hit(incident: Incident) -> Any:
    """Return who is hit, for comparison; None for a whole cluster, whose jobs change every minute."""
    hit = incident.impact
    return None if is_cluster_wide(incident) else (hit.gpus, hit.holders, hit.users)


# Changes that make a transition; numbers in the evidence drift without one.
_MATERIAL: Mapping[str, Any] = {
    "severity": lambda incident: incident.severity,
    "title": lambda incident: incident.title,
    "impact": _who_is_hit,
    "members": lambda incident: incident.members,
    "covers": lambda incident: incident.covers,
    "lateness": lambda incident: incident.late,
    "hold": lambda incident: incident.held,
}


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
    since = before.absent_since or now
    if before.state is State.SUSPECT or now - since >= wait:
        unseen = Ended(by=EndedBy.NOT_SEEN, seconds=(now - since).total_seconds())
        return _settled(before, now, unseen, told if told is not None and told.sure else None)
    return replace(before, absent_since=since), []


def _cured(
    before: Entry, now: datetime, why: Ended, told: Hindsight | None, patience: Patience
) -> Step:
    """End an incident at once, unless more may come that tells what it was."""
    since = before.absent_since or now
    unsure = told is not None and not told.sure and before.state in STANDING
    if unsure and now - since < patience.clear:
        return replace(before, absent_since=since), []
    return _settled(before, now, why, told)


def _settled(before: Entry, now: datetime, why: Ended, told: Hindsight | None) -> Step:
    """End an incident; first correct its words while it stands, if hindsight tells better ones."""
    old = before.incident
    if told is None or before.state not in STANDING or told.condition == old.condition:
        return _clear(before, now, why)
    said = replace(
        old,
        condition=told.condition,
        title=told.title,
        action=told.action,
        evidence=(*old.evidence, *told.evidence),
    )
    put_right, made = signalled(before, said, Signal.CHANGED, now, _changes(["title"], said))
    over, last = _clear(put_right, now, why)
    return over, [*made, *last]


def _clear(before: Entry, now: datetime, why: Ended | CoveredBy) -> Step:
    if step(before.state, Signal.CLEARED) is State.DISMISSED:
        return None, []
    by = why.fingerprint if isinstance(why, CoveredBy) else ""
    over = replace(before.incident, resolved_at=now, covered_by=by)
    return signalled(before, over, Signal.CLEARED, now, why)


def signalled(
    before: Entry, said: Incident, signal: Signal, now: datetime, why: str | Cause
) -> tuple[Entry, list[Transition]]:
    """Return the entry after `signal` and its transition; `said` is the incident's new content."""
    cause = None if isinstance(why, str) else why
    after = step(before.state, signal)
    incident = replace(said, state=after.value, updated_at=now, version=said.version + 1)
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


def _suspect(candidate: Candidate, now: datetime) -> Incident:
    finding = candidate.finding
    opened = now.astimezone(timezone.utc).strftime("%Y%m%dT%H%M%S%fZ")
    return Incident(
        id=f"{finding.fingerprint}-{opened}",
        fingerprint=finding.fingerprint,
        fault=finding.fault,
        subject=finding.subject,
        severity=candidate.severity,
        state=State.SUSPECT.value,
        title=candidate.title,
        since=finding.since,
        updated_at=now,
        version=0,
        late=finding.late,
        condition=finding.condition,
        xid=finding.xid,
        sxid=finding.sxid,
        group=finding.group,
    )


def _rank_of_words(incident: Incident) -> int:
    """Return the severity rank of the incident's words: its own may come from what it covers."""
    row = CONDITIONS.get(incident.condition) or FAULTS.get(incident.condition)
    if incident.condition in PLAIN and (incident.xid, incident.sxid) == (None, None):
        row = FAULTS.get(incident.fault)
    return max(incident.severity.rank, 0 if row is None else row.severity.rank)


def _say(incident: Incident, candidate: Candidate) -> Incident:
    """Return the incident in the candidate's words; the same object if nothing changes.

    While an incident stands, its severity only rises and what it covers only grows, as covered
    faults can often not be seen any more. So the graver words stay, too: a memory with a storm of
    corrected errors and then fewer is not one with only a few. `late` ends for good with the first
    data that is in time.
    """
    finding = candidate.finding
    said: dict[str, Any] = {
        "severity": min(incident.severity, candidate.severity, key=lambda s: s.rank),
        "since": min(incident.since, finding.since),
        "impact": candidate.impact,
        "evidence": finding.evidence,
        "members": _with(incident.members, candidate.members),
        "covers": _with(incident.covers, candidate.covers)[:_MOST_COVERS],
        "label": candidate.label,
        "gpus": candidate.gpus,
        "late": incident.late and finding.late,
    }
    said["held"], said["held_state"] = _hold(candidate.held)
    if min(candidate.severity.rank, finding.severity.rank) <= _rank_of_words(incident):
        said |= {"title": candidate.title, "action": finding.action, "source": finding.source}
        said["own_limit"] = finding.own_limit
        said |= {"condition": finding.condition, "xid": finding.xid, "sxid": finding.sxid}
        said["fault"] = finding.fault  # a port's may have become that of its leaf
    # Most standing incidents say the same at every look.
    if all(getattr(incident, name) == value for name, value in said.items()):
        return incident
    return replace(incident, **said)


def _with(names: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """Return the union of two sorted tuples of names, sorted."""
    return names if names == more else tuple(sorted({*names, *more}))
