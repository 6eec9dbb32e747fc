"""Which switch is at the other end of a port, as its node heard it by LLDP, or the fabric says."""

from collections import Counter
from collections.abc import Iterable, Iterator

from gpuvigil.model import SWITCH_DEVICE, Evidence, Finding, Subject

from ..window.fault_kinds import AT_SWITCHES, SWITCHES
from ..window.window import Window
from .fabric import far_end

# Of a group's ports with a known switch, so many must be at one for the group to be called by it.
_MOST = 0.8
_UNKNOWN = "not known here: look it up by these ports"


def switch_of_all(window: Window, ports: Iterable[Subject]) -> str:
    """The one switch that these ports are at; empty where nobody told, or there are several."""
    names = _switches(window, ports)
    name, count = max(names.items(), key=lambda it: (it[1], it[0]), default=("", 0))
    return name if count >= _MOST * names.total() else ""


def other_end(window: Window, finding: Finding) -> Iterator[Evidence]:
    """What is known of the other end of a port, or of the ports of a switch."""
    if finding.subject.device == SWITCH_DEVICE:
        return  # it says itself which switch it is
    if finding.fault in SWITCHES or (finding.fault in AT_SWITCHES and finding.members):
        names = _switches(window, (finding.subject, *finding.members))
        said = ", ".join(f"{name} ({count} of the ports)" for name, count in sorted(names.items()))
        yield Evidence(name="which switch", value=said or _UNKNOWN)
    elif finding.subject.kind == "port":
        known = plugged_into(window, finding.subject)
        if known is not None:
            switch, port = known
            yield Evidence(name="other end", value=f"{switch} port {port}" if port else switch)


def _switches(window: Window, ports: Iterable[Subject]) -> Counter[str]:
    told = (plugged_into(window, port) for port in set(ports) if port.kind == "port")
    return Counter(known[0] for known in told if known is not None)


def plugged_into(window: Window, port: Subject) -> tuple[str, str | None] | None:
    """The switch, and its port where that was told."""
    whole = window.whole or window
    inventory = whole.inventories.get(port.of_node().key)
    for known in () if inventory is None else inventory.ports:
        if (known.device, known.port) == (port.device, port.port) and known.switch:
            return known.switch, known.switch_port
    return far_end(whole, port)
