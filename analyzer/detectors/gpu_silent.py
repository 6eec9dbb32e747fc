"""One GPU whose driver calls do not return, while the driver answers for others."""

from datetime import datetime

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.faults.symptoms import HANGS_AFTER_SECONDS
from gpuvigil.model import Event, EventKind, Evidence, Finding, Subject, Unmeasured
from gpuvigil.store import Aggregate, Function

from ..evidence.cures import cured_at
from ..window.rows import Row
from ..window.window import Need, Span, Window
from . import Detector

NEEDS = (
    Need(
        measurement="gpu", span=Span.NOW, fields=("up", "unmeasured_reason", "unmeasured_seconds")
    ),
    Need(
        measurement="gpu",
        span=Span.RECENT,
        aggregates=(Aggregate(function=Function.COUNT, field="unmeasured_reason"),),
    ),
)

_FAULT = FAULTS["gpu_silent"]
# One slow call is not a hang.
_TICKS = 2


def silent_gpus(window: Window) -> list[Finding]:
    """Return GPUs that do not answer now, and did not a tick before or by the collector's earlier event.

    The event alone is not enough: a driver that begins to hang may show its GPUs one by one. With a line from
    after the event the finding is certain, for by then the driver's own silence would have been reported.
    """
    rows = window.get("gpu", Span.NOW)
    silent = rows.values("unmeasured_reason") == Unmeasured.DRIVER_NOT_ANSWERING
    pairs = sorted(rows.where(silent), key=lambda pair: pair[0].key)
    found = (_finding(window, subject, row) for subject, row in pairs)
    return [finding for finding in found if finding is not None]


def _finding(window: Window, subject: Subject, row: Row) -> Finding | None:
    back_at = cured_at(window, "gpu_silent", subject)
    if back_at is not None and row["at"] <= back_at:
        return None
    event = _event(window, subject, back_at)
    certain = event is not None and row["at"] > event.at
    if not certain and not _lasts(window, subject, row):
        return None
    return Finding(
        fault="gpu_silent",
        subject=subject,
        severity=_FAULT.severity,
        since=row["at"] if event is None else event.at,
        evidence=(Evidence(name="driver calls", value="do not come back"),),
        detector="gpu_silent",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
        certain=certain,
    )


def _event(window: Window, subject: Subject, back_at: datetime | None) -> Event | None:
    """Return the collector's event on the GPU falling silent, since it was last back; None without one."""
    for event in window.node_events(subject.of_node(), EventKind.DRIVER_SILENT):
        if event.subject == subject and (back_at is None or event.at >= back_at):
            return event
    return None


def _lasts(window: Window, subject: Subject, row: Row) -> bool:
    """Return whether the GPU is silent for so long that the event must have been lost.

    A GPU that is slow in one tick after the other is unknown in each, which is no fault. The event comes when a
    call should have returned, after two seconds by default; without it, only a silence that counts as a hang
    for the node check as well is believed.
    """
    limit = max(_TICKS * window.tick_seconds(subject.of_node()), HANGS_AFTER_SECONDS)
    seconds = row.get("unmeasured_seconds")
    if seconds is not None and seconds < limit:
        return False
    recent = window.get("gpu", Span.RECENT).get(subject)
    return recent is not None and recent["unmeasured_reason_count"] >= _TICKS


DETECTOR = Detector(
    name="gpu_silent",
    find=silent_gpus,
    faults=found_by("gpu_silent"),
    needs=NEEDS,
    reads_events=True,
    sentence="One GPU whose driver calls do not come back, by event and line or for two ticks.",
    source="NVIDIA Xid catalogue, Xid 119",
)
