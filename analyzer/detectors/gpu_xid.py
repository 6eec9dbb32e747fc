"""A GPU with an Xid that stands: sticky until it is cured, passing while it repeats."""

from collections import Counter

from gpuvigil.faults import XID_FAULTS, xid
from gpuvigil.model import Event, EventKind, Evidence, Finding

from ..coded import Coded
from ..window import Need, Span, Window
from .gpu_lost import xid_evidence

# A boot has cured a GPU once its newest line says that it answers.
NEEDS = (Need(measurement="gpu", span=Span.NOW, fields=("up",)),)

_XIDS = Coded(
    fault="gpu_xid",
    kind=EventKind.XID,
    # Some are told by a detector of their own.
    code=lambda event: None if event.xid in XID_FAULTS else event.xid,
    row=xid,
)


def xid_faults(window: Window) -> list[Finding]:
    """One finding per GPU; the worst of its standing codes gives severity, action and source."""
    return [
        _XIDS.finding(
            window,
            subject,
            events,
            _evidence(events),
            confined=all(xid(event.xid or 0).confined for event in events),
        )
        for subject, events in _XIDS.standing(window)
    ]


def _evidence(events: list[Event]) -> list[Evidence]:
    worst = _XIDS.worst(events)
    counts = Counter[int | None]()
    for event in events:
        counts[event.xid] += event.count
    evidence = xid_evidence([event for event in events if event.xid == worst.xid])
    others = ", ".join(f"{code} x{n}" for code, n in sorted(counts.items()) if code != worst.xid)
    if others:
        evidence.append(Evidence(name="other Xids", value=others))
    return evidence
