"""An incident as the judge sees it: what was said, about what, and from when to when."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from gpuvigil.faults.trial import STARTS_ON_TRIAL
from gpuvigil.lifecycle import STANDING, State
from gpuvigil.model import Incident, Record, Severity, Subject, Transition

# From when to when; None is "still, when the run ended".
Span = tuple[datetime, datetime | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What it says beyond its fault, for people and as a value."""

    title: str
    condition: str = ""
    xid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One incident over its life."""

    id: str
    fault: str
    subject: Subject
    severity: Severity  # the gravest it ever had
    words: tuple[tuple[datetime, Said], ...]  # while it stood, from when each was said
    action: str  # the first thing to do, as it was first said
    spans: tuple[Span, ...]  # when it stood
    pages: tuple[datetime, ...] = ()  # when it woke somebody: opened, returned or became critical
    members: tuple[str, ...] = ()  # keys of all subjects that it was ever about
    source: str = ""
    # From when on it was a message and no note (info), nor on trial as shipped; None is never.
    loud_from: datetime | None = None

    @property
    def said(self) -> Said:
        """What it said at last."""
        return self.words[-1][1]

    @property
    def title(self) -> str:
        return self.said.title

    @property
    def opened_at(self) -> datetime:
        return self.spans[0][0]

    def stood(self, start: datetime, end: datetime) -> bool:
        """Whether it stood at any moment of `[start, end)`."""
        return any(since < end and (until is None or until > start) for since, until in self.spans)

    def messages(self) -> Iterator["Claim"]:
        """One for each time that it began to stand: whoever reads was told each time."""
        for since, until in self.spans:
            yield replace(self, spans=((since, until),))

    @property
    def read_at(self) -> datetime | None:
        """When its last span was told as a warning or critical; None when it never was."""
        since, until = self.spans[-1]
        if self.loud_from is None or (until is not None and self.loud_from >= until):
            return None
        return max(since, self.loud_from)


def claims(transitions: Iterable[Transition]) -> list[Claim]:
    """The incidents of a run, in the order in which they were opened."""
    found: dict[str, Claim] = {}
    for step in sorted(transitions, key=lambda t: (t.at, t.incident, t.number)):
        incident = Incident.from_record(Record.from_json(step.snapshot))
        before = found.get(step.incident)
        stands = State(step.to_state) in STANDING
        if before is None:
            if stands:
                found[step.incident] = _opened(step, incident)
            continue
        found[step.incident] = _followed(before, step, incident, stands)
    return sorted(found.values(), key=lambda claim: (claim.opened_at, claim.id))


def _opened(step: Transition, incident: Incident) -> Claim:
    return Claim(
        id=step.incident,
        fault=incident.fault,
        subject=incident.subject,
        severity=incident.severity,
        words=((step.at, _said(incident)),),
        action=incident.action,
        spans=((step.at, None),),
        pages=(step.at,) if _wakes(incident) else (),
        members=tuple(sorted({incident.subject.key, *incident.members})),
        source=incident.source,
        loud_from=step.at if _is_loud(incident) else None,
    )


def _followed(before: Claim, step: Transition, incident: Incident, stands: bool) -> Claim:
    """The claim after one more step of its life."""
    since, until = before.spans[-1]
    spans, pages = before.spans, before.pages
    if stands and until is not None:
        spans = (*spans, (step.at, None))
        pages = (*pages, step.at) if _wakes(incident) else pages
    elif stands and _wakes(incident) and before.severity is not Severity.CRITICAL:
        pages = (*pages, step.at)
    elif not stands and until is None:
        spans = (*spans[:-1], (since, step.at))
    return replace(
        before,
        severity=min(before.severity, incident.severity, key=lambda s: s.rank),
        words=before.words
        if not stands or _said(incident) == before.said
        else (*before.words, (step.at, _said(incident))),
        spans=spans,
        pages=pages,
        members=tuple(sorted({*before.members, *incident.members})),
        loud_from=step.at
        if before.loud_from is None and stands and _is_loud(incident)
        else before.loud_from,
    )


def _said(incident: Incident) -> Said:
    return Said(title=incident.title, condition=incident.condition, xid=incident.xid)


def _is_loud(incident: Incident) -> bool:
    """Whether it is told as a message as shipped: what is on trial is in the digest."""
    return incident.severity is not Severity.INFO and incident.fault not in STARTS_ON_TRIAL


def _wakes(incident: Incident) -> bool:
    return incident.severity is Severity.CRITICAL and _is_loud(incident) and not incident.late
