"""A GPU with an Xid that stands: sticky until it is cured, passing while it repeats."""

from collections import Counter, defaultdict
from datetime import timedelta

from gpuvigil.faults import XID_FAULTS, Scope, Xid, xid
from gpuvigil.model import Event, EventKind, Evidence, Finding, Subject

from ..cures import cured_at
from ..window import Need, Span, Window
from .gpu_lost import xid_evidence

# A boot has cured a GPU once its newest line says that it answers.
NEEDS = (Need(measurement="gpu", span=Span.NOW, fields=("up",)),)


def xid_faults(window: Window) -> list[Finding]:
    """One finding per GPU; the worst of its standing codes gives severity, action and source."""
    events: dict[Subject, list[Event]] = defaultdict(list)
    for event in window.all_events(EventKind.XID):
        if event.xid is not None and event.xid not in XID_FAULTS:
            events[event.subject].append(event)
    findings = []
    for subject in sorted(events, key=lambda subject: subject.key):
        standing = _standing(window, subject, events[subject])
        if standing:
            findings.append(_finding(window, subject, standing))
    return findings


def _standing(window: Window, subject: Subject, events: list[Event]) -> list[Event]:
    cured = cured_at(window, "gpu_xid", subject)
    kept = timedelta(seconds=window.settings.passing_xid_seconds)
    last = {event.xid: event.at for event in events}
    return [
        event
        for event in events
        if (cured is None or event.at >= cured)
        and (_row(event).scope is Scope.STICKY or window.now - last[event.xid] < kept)
    ]


def _finding(window: Window, subject: Subject, events: list[Event]) -> Finding:
    worst = min(events, key=lambda e: (_row(e).severity.rank, -e.at.timestamp()))
    row = _row(worst)
    counts = Counter[int | None]()
    for event in events:
        counts[event.xid] += event.count
    same = [event for event in events if event.xid == worst.xid]
    evidence = xid_evidence(same)
    others = ", ".join(f"{code} x{n}" for code, n in sorted(counts.items()) if code != worst.xid)
    if others:
        evidence.append(Evidence(name="other Xids", value=others))
    return Finding(
        fault="gpu_xid",
        subject=subject,
        severity=row.severity,
        since=events[0].at,
        evidence=tuple(evidence),
        detector="gpu_xid",
        action=row.action,
        source=row.source,
        certain=True,
        late=window.came_late(events),
        title=row.title,
        confined=all(_row(event).confined for event in events),
    )


def _row(event: Event) -> Xid:
    return xid(event.xid or 0)
