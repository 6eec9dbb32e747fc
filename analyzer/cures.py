"""Which events end a fault at once, whatever the numbers say."""

from collections.abc import Mapping
from datetime import datetime

from gpuvigil.model import Event, EventKind, Subject

from .window import Window

_OF_GPU = frozenset({EventKind.GPU_BACK, EventKind.GPU_RESET, EventKind.BOOT})
_OF_DRIVER = frozenset({EventKind.DRIVER_BACK, EventKind.BOOT})

CURES: Mapping[str, frozenset[EventKind]] = {
    "gpu_lost": _OF_GPU,
    "gpu_xid": _OF_GPU,
    "gpu_silent": _OF_GPU | _OF_DRIVER,
    "driver_silent": _OF_DRIVER,
    # A reset of all GPUs and switches at once cures it, too, but no single GPU's tells of that.
    "nvswitch_error": frozenset({EventKind.BOOT}),
    "port_down": frozenset({EventKind.PORT_UP}),
}


def last_cure(window: Window, fault: str, subject: Subject) -> Event | None:
    """The newest event that ended this fault on this subject, None when there was none."""
    found = None
    for event in window.node_events(subject.of_node(), *CURES.get(fault, ())):
        if event.subject in {subject, subject.of_node()} and _counts(window, event, subject):
            found = event
    return found


def cured_at(window: Window, fault: str, subject: Subject) -> datetime | None:
    """When this fault on this subject was last ended by an event."""
    cure = last_cure(window, fault, subject)
    return None if cure is None else cure.at


def _counts(window: Window, event: Event, subject: Subject) -> bool:
    """A boot cures a GPU only once the GPU has answered after it."""
    if event.kind is not EventKind.BOOT or subject.kind != "gpu":
        return True
    row = window.newest(subject)
    return row is not None and row.get("up") == 1 and row["at"] > event.at
