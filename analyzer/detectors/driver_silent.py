"""A node on which no call to the NVIDIA driver comes back."""

from gpuvigil.clock import moment
from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Event, EventKind, Evidence, Finding, Subject

from ..evidence.cures import cured_at
from ..window.rows import Row
from ..window.window import Need, Span, Window
from . import Detector

NEEDS = (
    Need(
        measurement="node",
        span=Span.NOW,
        fields=("driver_answering", "driver_silent_seconds", "gpus_answering", "gpus_expected"),
    ),
)

_FAULT = FAULTS["driver_silent"]


def silent_drivers(window: Window) -> list[Finding]:
    """Nodes whose collector says, by event or by its newest line, that the driver hangs."""
    # About one GPU the same event says only that this GPU's calls hang.
    events = {
        event.subject: event
        for event in window.all_events(EventKind.DRIVER_SILENT)
        if event.subject.kind == "node"
    }
    rows = window.get("node", Span.NOW)
    hung = dict(rows.where(rows.values("driver_answering") == 0))
    found = (
        _finding(window, node, events.get(node), hung.get(node))
        for node in sorted({*events, *hung}, key=lambda node: node.key)
    )
    return [finding for finding in found if finding is not None]


def _finding(window: Window, node: Subject, event: Event | None, row: Row | None) -> Finding | None:
    back_at = cured_at(window, "driver_silent", node)
    if event is not None and not _stands(window, event):
        event = None
    if row is not None and back_at is not None and row["at"] <= back_at:
        row = None
    if event is None and row is None:
        return None
    return Finding(
        fault="driver_silent",
        subject=node,
        severity=_FAULT.severity,
        since=min([*([event.at] if event else []), *([row["at"]] if row else [])]),
        evidence=_evidence(event, row),
        detector="driver_silent",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
        certain=True,
        late=row is None and window.came_late([event] if event else []),
    )


def _stands(window: Window, event: Event) -> bool:
    node = event.subject.of_node()
    back_at = cured_at(window, "driver_silent", node)
    if back_at is not None and event.at < back_at:
        return False
    row = window.newest(node)
    return row is None or row.get("driver_answering") != 1 or row["at"] <= event.at


def _evidence(event: Event | None, row: Row | None) -> tuple[Evidence, ...]:
    evidence = []
    if event is not None:
        evidence.append(Evidence(name="silent since", value=moment(event.at)))
        if event.message:
            evidence.append(Evidence(name="message", value=event.message, detail=True))
    if row is not None:
        seconds = row.get("driver_silent_seconds")
        if seconds is not None:
            evidence.append(Evidence(name="no call came back for", value=f"{seconds:.0f} s"))
        if row.get("gpus_answering") is not None:
            expected = row.get("gpus_expected")
            evidence.append(
                Evidence(
                    name="GPUs that answer",
                    value=str(row["gpus_answering"]),
                    limit=None if expected is None else str(expected),
                )
            )
    return tuple(evidence) or (Evidence(name="driver", value="does not answer"),)


DETECTOR = Detector(
    name="driver_silent",
    find=silent_drivers,
    faults=found_by("driver_silent"),
    needs=NEEDS,
    reads_events=True,
    sentence="A node on which no call to the NVIDIA driver comes back.",
    source="the supervisor's clock beside the reader",
)
