"""An NVSwitch with an SXid that stands: fatal ones until a boot, others while they repeat."""

from gpuvigil.clock import moment
from gpuvigil.faults import found_by
from gpuvigil.faults.sxids import sxid
from gpuvigil.model import Event, EventKind, Evidence, Finding

from ..evidence.coded_events import Coded
from ..window.window import Window
from . import Detector

_SXIDS = Coded(
    fault="nvswitch_error",
    kind=EventKind.SXID,
    code=lambda event: event.sxid,
    row=lambda event: sxid(event.code),
)


def sxid_faults(window: Window) -> list[Finding]:
    """One finding per node; the worst of its standing codes gives severity, action and source."""
    return [
        _SXIDS.finding(window, subject, events, _evidence(events))
        for subject, events in _SXIDS.standing(window)
    ]


def _evidence(events: list[Event]) -> list[Evidence]:
    row = sxid(_SXIDS.worst(events).code)
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


DETECTOR = Detector(
    name="nvswitch_error",
    find=sxid_faults,
    faults=found_by("nvswitch_error"),
    needs=(),
    reads_events=True,
    sentence="A node with an SXid that no boot has cured, or that repeats.",
    source="NVIDIA Fabric Manager guide, a class per SXid",
)
