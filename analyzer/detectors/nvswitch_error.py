"""An NVSwitch with an SXid that stands: fatal ones until a boot, others while they repeat."""

from collections import defaultdict
from datetime import timedelta

from gpuvigil.clock import moment
from gpuvigil.faults import Scope
from gpuvigil.model import Event, EventKind, Evidence, Finding, Subject
from gpuvigil.sxids import Sxid, sxid

from ..cures import cured_at
from ..window import Window


def sxid_faults(window: Window) -> list[Finding]:
    """One finding per node; the worst of its standing codes gives severity, action and source."""
    events: dict[Subject, list[Event]] = defaultdict(list)
    for event in window.all_events(EventKind.SXID):
        if event.sxid is not None:
            events[event.subject].append(event)
    findings = []
    for subject in sorted(events, key=lambda subject: subject.key):
        standing = _standing(window, subject, events[subject])
        if standing:
            findings.append(_finding(window, subject, standing))
    return findings


def _standing(window: Window, subject: Subject, events: list[Event]) -> list[Event]:
    cured = cured_at(window, "nvswitch_error", subject)
    kept = timedelta(seconds=window.settings.passing_xid_seconds)
    last = {event.sxid: event.at for event in events}
    return [
        event
        for event in events
        if (cured is None or event.at >= cured)
        and (_row(event).scope is Scope.STICKY or window.now - last[event.sxid] < kept)
    ]


def _finding(window: Window, subject: Subject, events: list[Event]) -> Finding:
    worst = min(events, key=lambda e: (_row(e).severity.rank, -e.at.timestamp()))
    row = _row(worst)
    return Finding(
        fault="nvswitch_error",
        subject=subject,
        severity=row.severity,
        since=events[0].at,
        evidence=tuple(_evidence(events, row)),
        detector="nvswitch_error",
        action=row.action,
        source=row.source,
        certain=True,
        late=window.came_late(events),
        title=row.title,
    )


def _evidence(events: list[Event], row: Sxid) -> list[Evidence]:
    same = [event for event in events if event.sxid == row.code]
    count, at = sum(event.count for event in same), moment(same[-1].at)
    times = f"{count} times, last at" if count > 1 else "reported at"
    others = sorted({event.sxid for event in events if event.sxid != row.code}, key=str)
    return [
        Evidence(name=f"SXid {row.code}", value=f"{times} {at}"),
        Evidence(name="meaning", value=row.summary.rstrip("."), detail=True),
        Evidence(name="called by the driver", value=row.mnemonic, detail=True),
        Evidence(name="message", value=same[-1].message, detail=True),
        *([Evidence(name="other SXids", value=", ".join(map(str, others)))] if others else []),
    ]


def _row(event: Event) -> Sxid:
    return sxid(event.sxid or 0)
