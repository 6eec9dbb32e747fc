"""Which events end a fault at once, whatever the numbers say, and which ended it without effect."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from gpuvigil.clock import moment
from gpuvigil.faults import XID_FAULTS, Scope
from gpuvigil.model import Event, EventKind, Evidence, Finding, Severity, Subject
from gpuvigil.sxids import sxid
from gpuvigil.xid_messages import read

from .window import Window

_OF_GPU = frozenset({EventKind.GPU_BACK, EventKind.GPU_RESET, EventKind.BOOT})
_OF_DRIVER = frozenset({EventKind.DRIVER_BACK, EventKind.BOOT})

CURES: Mapping[str, frozenset[EventKind]] = {
    "gpu_lost": _OF_GPU,
    "gpu_xid": _OF_GPU,
    "gpu_silent": _OF_GPU | _OF_DRIVER,
    "gpu_slow": _OF_GPU,
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


# What people do about a fault; that a GPU or a driver is back is what follows.
_TRIED = frozenset({EventKind.GPU_RESET, EventKind.BOOT})
_IN_VAIN = 2
_INSPECT = (
    "Drain the node and inspect it: it came back after {cures}. Check seating, power and cooling,"
    " then run the field diagnostic."
)
_COUNT = {2: "two", 3: "three", 4: "four"}


def tried(window: Window, finding: Finding) -> Finding:
    """The finding; after two cures without effect it asks for an inspection and names them.

    Asked for something that has been done twice, people do it a third time.
    """
    if finding.fault not in _SPEAKS or finding.severity is Severity.INFO:
        return finding
    cures = in_vain(window, finding)
    if len(cures) < _IN_VAIN:
        return finding
    named = [f"{_WORDS[cure.kind]} at {moment(cure.at)}" for cure in cures]
    count = _COUNT.get(len(cures), str(len(cures)))
    return replace(
        finding,
        action=_INSPECT.format(cures=f"{count} cures"),
        evidence=(*finding.evidence, Evidence(name="came back after", value=", ".join(named))),
        source=f"{finding.source}; two cures without effect are ours",
    )


def in_vain(window: Window, finding: Finding) -> list[Event]:
    """The resets and boots of the last day after which the same fault came back, oldest first.

    Of several with nothing in between the last one is meant: nobody can say what the others did.
    """
    node, speaks = finding.subject.of_node(), _SPEAKS[finding.fault]
    cures: list[Event] = []
    pending: Event | None = None
    told = False
    for event in window.events.get(node.key, ()):
        if event.kind in _TRIED and event.subject in {finding.subject, node}:
            pending = event if told else pending
        elif event.subject == finding.subject and speaks(event):
            if pending is not None:
                cures.append(pending)
            pending, told = None, True
    # Also what numbers tell, or what the driver says without an event, comes back.
    if pending is not None and finding.since >= pending.at:
        cures.append(pending)
    return cures


def _is_sticky(event: Event) -> bool:
    """An Xid that stands until it is cured, and is not told by a detector of its own."""
    xid = event.xid
    if event.kind is not EventKind.XID or xid is None or xid in XID_FAULTS:
        return False
    return read(xid, event.message).scope is Scope.STICKY


def _is_lost(event: Event) -> bool:
    return event.kind is EventKind.GPU_LOST or XID_FAULTS.get(event.xid or 0) == "gpu_lost"


def _is_of_a_switch(event: Event) -> bool:
    return event.kind is EventKind.SXID and sxid(event.sxid or 0).scope is Scope.STICKY


# By fault, the events that tell of it.
_SPEAKS: Mapping[str, Callable[[Event], bool]] = {
    "gpu_xid": _is_sticky,
    "gpu_lost": _is_lost,
    "nvswitch_error": _is_of_a_switch,
    "driver_silent": lambda event: event.kind is EventKind.DRIVER_SILENT,
}
_WORDS: Mapping[EventKind, str] = {EventKind.GPU_RESET: "reset", EventKind.BOOT: "reboot"}
