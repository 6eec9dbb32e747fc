"""An NVSwitch with an active SXid: a fatal one until a boot, another one while it repeats."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from gpuvigil.clock import moment
from gpuvigil.faults import found_by
from gpuvigil.faults.overrides import overridden
from gpuvigil.faults.sxids import Sxid, sxid
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
    """Return one finding per node; the worst of its active codes sets severity, action and source."""
    wanted = tuple(window.settings.sxid_overrides)
    judged, found = _as_wanted(wanted), []
    for subject, events in _SXIDS.active(window):
        heard = [event for event in events if overridden(sxid(event.code), wanted)]
        if heard:
            found.append(judged.finding(window, subject, heard, _evidence(heard, judged)))
    return found


@lru_cache
def _as_wanted(wanted: tuple[str, ...]) -> Coded[Sxid]:
    """Return the SXids with their effective severities: the site's own before the table's."""

    def row(event: Event) -> Sxid:
        known = sxid(event.code)
        return overridden(known, wanted) or known

    return replace(_SXIDS, row=row)


def _evidence(events: Sequence[Event], judged: Coded[Sxid]) -> list[Evidence]:
    row = sxid(judged.worst(events).code)
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
