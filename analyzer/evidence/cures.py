"""Events that end a fault at once, whatever its samples say, and those that did so in vain."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from gpuvigil.clock import moment
from gpuvigil.faults import FAULTS, XID_FAULTS, Scope
from gpuvigil.faults.sxids import sxid
from gpuvigil.faults.xid_messages import read
from gpuvigil.model import Event, EventKind, Evidence, Finding, Severity, Subject

from ..window.window import Span, Window


def last_cure(window: Window, fault: str, subject: Subject) -> Event | None:
    """Return the newest event that ended a fault on a subject, None when there was none."""
    found = None
    for event in window.node_events(subject.of_node(), *_cures_of(fault)):
        if event.subject in {subject, subject.of_node()} and _counts(window, event, subject):
            found = event
    return found


def _cures_of(fault: str) -> frozenset[EventKind]:
    return FAULTS[fault].cured_by if fault in FAULTS else frozenset()


def cured_at(window: Window, fault: str, subject: Subject) -> datetime | None:
    """Return when an event last ended a fault on a subject, None if none did."""
    cure = last_cure(window, fault, subject)
    return None if cure is None else cure.at


def _counts(window: Window, event: Event, subject: Subject) -> bool:
    """Tell whether an event counts as a cure: a boot only once the GPU has answered after it."""
    if event.kind is not EventKind.BOOT or subject.kind != "gpu":
        return True
    row = window.newest(subject)
    if row is None:
        return _was_back(window, subject.of_node(), event.at)
    return bool(row.get("up") == 1 and row["at"] > event.at)


def _was_back(window: Window, node: Subject, boot: datetime) -> bool:
    """Tell whether a node that says nothing now told its state for a while after a boot.

    Its numbers are late: what the boot ended does not begin anew because of that.
    """
    if len(window.get("gpu", Span.NOW).of_node(node)):
        return False
    told = timedelta(seconds=window.settings.window_seconds)
    heard = window.last_seen.get(node.key)
    return heard is not None and heard >= boot + told


# What people do about a fault; the return of a GPU or a driver only follows from it.
_TRIED = frozenset({EventKind.GPU_RESET, EventKind.BOOT})
_IN_VAIN = 2
_INSPECT = (
    "Drain the node and inspect it: it came back after {cures}. Check seating, power and cooling,"
    " then run the field diagnostic."
)
_COUNT = {2: "two", 3: "three", 4: "four"}


def with_failed_cures(window: Window, finding: Finding) -> Finding:
    """Return a finding, which after two cures without effect names them and asks for an inspection.

    People who are asked for something that was done twice would do it a third time.
    """
    if _cures_of(finding.fault).isdisjoint(_TRIED) or finding.severity is Severity.INFO:
        return finding
    cures = failed_cures(window, finding)
    if len(cures) < _IN_VAIN:
        return finding
    named = [f"{_WORDS[cure.kind]} at {moment(cure.at)}" for cure in cures]
    count = _COUNT.get(len(cures), str(len(cures)))
    return replace(
        finding,
        action=_INSPECT.format(cures=f"{count} cures"),
        evidence=(*finding.evidence, Evidence(name="came back after", value=", ".join(named))),
        source=f"{finding.source}; two cures without effect are ours",
        own_limit=True,
    )


def failed_cures(window: Window, finding: Finding) -> list[Event]:
    """Return the resets and boots of the last day after which a fault came back, oldest first.

    Of several with nothing in between only the last one counts: what the others did is unknown.
    """
    node = finding.subject.of_node()
    cures: list[Event] = []
    pending: Event | None = None
    told = False
    for event in window.events.get(node.key, ()):
        if event.kind in _TRIED and event.subject in {finding.subject, node}:
            pending = event if told else pending
        elif event.subject == finding.subject and _reports(event, finding.fault):
            if pending is not None:
                cures.append(pending)
            pending, told = None, True
    # A fault that shows in samples or in the driver's state, without an event, can come back, too.
    if pending is not None and finding.since >= pending.at:
        cures.append(pending)
    return cures


def _reports(event: Event, fault: str) -> bool:
    """Tell whether an event reports this fault: by a code of its own, or by one that stands."""
    own = XID_FAULTS.get(event.code) if event.kind is EventKind.XID else None
    if own is not None:
        return own == fault
    if event.kind not in FAULTS[fault].told_by:
        return False
    if event.kind is EventKind.XID:
        return event.xid is not None and read(event.xid, event.message).scope is Scope.STICKY
    return event.kind is not EventKind.SXID or sxid(event.code).scope is Scope.STICKY


_WORDS: Mapping[EventKind, str] = {EventKind.GPU_RESET: "reset", EventKind.BOOT: "reboot"}
