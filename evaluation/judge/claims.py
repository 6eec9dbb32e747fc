"""An incident as the judge sees it: its words, its subject, and when it stood."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from gpuvigil.faults.trial import STARTS_ON_TRIAL
from gpuvigil.lifecycle import ACTIVE, State
from gpuvigil.model import Incident, Record, Severity, Subject, Transition

# Start and end; an end of None means that it still stood when the run ended.
Span = tuple[datetime, datetime | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentText:
    """What an incident states beyond its fault, for people and as values."""

    title: str
    condition: str = ""
    xid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One incident over its life."""

    id: str
    fault: str
    subject: Subject
    severity: Severity  # the gravest severity it ever had
    texts: tuple[tuple[datetime, IncidentText], ...]  # each text, and since when it was shown
    action: str  # the first advised step, as first stated
    spans: tuple[Span, ...]  # when it stood
    pages: tuple[datetime, ...] = ()  # when it paged somebody: opened, returned or became critical
    members: tuple[str, ...] = ()  # keys of all subjects it ever covered
    source: str = ""
    # Since when it was a message: no note (info), and not on trial as shipped; None means never.
    loud_from: datetime | None = None

    @property
    def text(self) -> IncidentText:
        """The last text it had."""
        return self.texts[-1][1]

    @property
    def title(self) -> str:
        return self.text.title

    @property
    def opened_at(self) -> datetime:
        return self.spans[0][0]

    def stood(self, start: datetime, end: datetime) -> bool:
        """Return whether the incident stood at any moment of `[start, end)`."""
        return any(since < end and (until is None or until > start) for since, until in self.spans)

    def messages(self) -> Iterator["Claim"]:
        """Yield one claim for each span in which the incident stood: readers were notified each time."""
        for since, until in self.spans:
            yield replace(self, spans=((since, until),))

    @property
    def read_at(self) -> datetime | None:
        """When its last span became a warning or critical; None when it never did."""
        since, until = self.spans[-1]
        if self.loud_from is None or (until is not None and self.loud_from >= until):
            return None
        return max(since, self.loud_from)


def claims(transitions: Iterable[Transition]) -> list[Claim]:
    """Return the incidents of a run, in the order in which they were opened."""
    found: dict[str, Claim] = {}
    for step in sorted(transitions, key=lambda t: (t.at, t.incident, t.number)):
        incident = Incident.from_record(Record.from_json(step.snapshot))
        before = found.get(step.incident)
        stands = State(step.to_state) in ACTIVE
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
        texts=((step.at, _said(incident)),),
        action=incident.action,
        spans=((step.at, None),),
        pages=(step.at,) if _wakes(incident) else (),
        members=tuple(sorted({incident.subject.key, *incident.members})),
        source=incident.source,
        loud_from=step.at if _is_loud(incident) else None,
    )


def _followed(before: Claim, step: Transition, incident: Incident, stands: bool) -> Claim:
    """Return the claim after one more transition."""
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
        texts=before.texts
        if not stands or _said(incident) == before.text
        else (*before.texts, (step.at, _said(incident))),
        spans=spans,
        pages=pages,
        members=tuple(sorted({*before.members, *incident.members})),
        loud_from=step.at
        if before.loud_from is None and stands and _is_loud(incident)
        else before.loud_from,
    )


def _said(incident: Incident) -> IncidentText:
    return IncidentText(title=incident.title, condition=incident.condition, xid=incident.xid)


def _is_loud(incident: Incident) -> bool:
    """Return whether people are notified as shipped: a fault on trial only appears in the digest."""
    return incident.severity is not Severity.INFO and incident.fault not in STARTS_ON_TRIAL


def _wakes(incident: Incident) -> bool:
    return incident.severity is Severity.CRITICAL and _is_loud(incident) and not incident.late
