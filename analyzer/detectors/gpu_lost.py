"""A GPU that is gone: the driver says that it is lost, or an Xid says so."""

from collections import defaultdict
from datetime import datetime

import pyarrow.compute as pc

from gpuvigil.clock import to_text
from gpuvigil.faults import FAULTS, XID_FAULTS, xid
from gpuvigil.model import Event, EventKind, Evidence, Finding, Subject, Unmeasured

from ..cures import cured_at
from ..rows import Row
from ..window import Need, Span, Window

NEEDS = (Need(measurement="gpu", span=Span.NOW, fields=("up", "unmeasured_reason", "index")),)

_FAULT = FAULTS["gpu_lost"]


def lost_gpus(window: Window) -> list[Finding]:
    """One finding per lost GPU, whichever of Xid, event and row said it first.

    A lost-event is over once a younger row says that the GPU answers; an Xid needs a cure.
    """
    events: dict[Subject, list[Event]] = defaultdict(list)
    for event in window.all_events(EventKind.XID, EventKind.GPU_LOST):
        if event.kind is EventKind.GPU_LOST or XID_FAULTS.get(event.xid or 0) == "gpu_lost":
            events[event.subject].append(event)
    rows = window.get("gpu", Span.NOW)
    down = dict(rows.where(pc.equal(rows["up"], 0))) if len(rows) else {}
    subjects = sorted({*events, *down}, key=lambda subject: subject.key)
    found = (_finding(window, subject, events[subject], down.get(subject)) for subject in subjects)
    return [finding for finding in found if finding is not None]


def _finding(
    window: Window, subject: Subject, events: list[Event], row: Row | None
) -> Finding | None:
    cured = cured_at(window, "gpu_lost", subject)
    standing = [e for e in events if _stands(window, e, cured)]
    if row is not None and cured is not None and row["at"] <= cured:
        row = None
    if not standing and row is None:
        return None
    codes = [event for event in standing if event.xid is not None]
    known = xid(codes[-1].xid or 0) if codes else None
    return Finding(
        fault="gpu_lost",
        subject=subject,
        severity=_FAULT.severity,
        since=min([*(e.at for e in standing), *([row["at"]] if row else [])]),
        evidence=_evidence(standing, row),
        detector="gpu_lost",
        action=_FAULT.action,
        source=known.source if known else _FAULT.source,
        certain=True,
        late=row is None and window.came_late(standing),
    )


def _stands(window: Window, event: Event, cured: datetime | None) -> bool:
    if cured is not None and event.at < cured:
        return False
    row = window.newest(event.subject)
    contradicted = row is not None and row.get("up") == 1 and row["at"] > event.at
    return event.kind is EventKind.XID or not contradicted


def _evidence(events: list[Event], row: Row | None) -> tuple[Evidence, ...]:
    evidence = []
    codes = [event for event in events if event.xid is not None]
    lost = [event for event in events if event.xid is None]
    if codes:
        evidence += xid_evidence(codes[-1])
    if len(codes) > 1:
        seen = f"{len(codes)} times since {to_text(codes[0].at)}"
        evidence.append(Evidence(name="seen", value=seen))
    if lost:
        evidence.append(Evidence(name="driver", value=f"lost since {to_text(lost[0].at)}"))
    if row is not None:
        reason = row.get("unmeasured_reason")
        text = Unmeasured(reason).text if reason in set(Unmeasured) else "no reason given"
        evidence.append(Evidence(name="answers", value=f"no: {text}", limit="every tick"))
    return tuple(evidence)


def xid_evidence(event: Event) -> list[Evidence]:
    """What one Xid says: code and name, meaning, the driver's own words, when."""
    row = xid(event.xid or 0)
    evidence = [
        Evidence(name="Xid", value=f"{row.code} ({row.mnemonic})"),
        Evidence(name="meaning", value=row.summary),
        Evidence(name="time", value=to_text(event.at)),
    ]
    if event.message:
        evidence.append(Evidence(name="message", value=event.message))
    return evidence
