"""Whether the window would show an open incident's fault, so that its absence says that it is over; pure."""

from collections.abc import Mapping
from datetime import datetime

from gpuvigil.model import SWITCH_DEVICE, Incident, Subject

from ..detectors.node_silent import Hearing, hearing
from ..evidence.fabric import is_fresh
from ..window.fault_kinds import SHARED, SILENCES
from ..window.window import Window
from .all_detectors import DETECTORS, Detector
from .causes import multi_node
from .hindsight import nodes_of

# A node that is more ticks late may be silent: what it no longer shows need not be over.
_TICKS = 3

_DETECTORS: Mapping[str, Detector] = {fault: it for it in DETECTORS for fault in it.faults}


def is_visible(window: Window, incident: Incident) -> bool:
    """Tell whether the window would show the incident's fault if it were there.

    Without trustworthy data about a subject that its node still has, nothing can be said. Any of
    several nodes can tell about a fault that they share.
    """
    subject, node = incident.subject, incident.subject.of_node()
    if subject.device == SWITCH_DEVICE:  # a switch that is no longer read counts as visible
        switch = window.switches.get(node.key)
        return switch is None or is_fresh(window, switch)
    heard = hearing(window, node)
    is_over = incident.marked and heard is Hearing.NOT_EXPECTED
    if incident.fault in SHARED and multi_node(incident) and not is_over:
        return _is_visible_on_any(window, incident)
    if incident.fault in SILENCES or heard is Hearing.NOT_EXPECTED:
        # A node that is not expected any more is not late again just because nobody tells of it.
        return heard in {Hearing.HEARD, Hearing.NOT_EXPECTED}
    if not _reports(window, node):
        return False
    if (shows := _would_show(window, incident)) is not None and window.has(subject):
        return shows
    return window.newest(subject) is not None or not window.has(subject)


def _is_visible_on_any(window: Window, incident: Incident) -> bool:
    """Tell the same for several nodes: silence must be decided for all, a fault shown by any."""
    if incident.fault in SILENCES:
        return all(hearing(window, node) is not Hearing.UNSURE for node in nodes_of(incident))
    heard_of = any(_reports(window, node) for node in nodes_of(incident))
    return heard_of and _would_show(window, incident) is not False


def _would_show(window: Window, incident: Incident) -> bool | None:
    detector = _DETECTORS.get(incident.fault)
    says = None if detector is None else detector.would_show
    return None if says is None else says(window, incident)


def _reports(window: Window, node: Subject) -> bool:
    return hearing(window, node) is Hearing.HEARD and _is_punctual(window, node)


def _is_punctual(window: Window, node: Subject) -> bool:
    """Tell whether the node's samples still arrive: it may have fallen silent only now."""
    missing = window.now - window.last_seen[node.key]
    return missing.total_seconds() <= _TICKS * window.tick_seconds(node)


def lapsed(window: Window, incident: Incident) -> datetime | None:
    """Return when an incident was last seen that nothing can show any more."""
    detector = _DETECTORS.get(incident.fault)
    last_shown = None if detector is None else detector.lapsed
    return None if last_shown is None else last_shown(window, incident)
