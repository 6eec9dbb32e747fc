"""The switch at the other end of a port, as its node heard it by LLDP, or by the fabric."""

from collections import Counter
from collections.abc import Iterable, Iterator

from gpuvigil.model import SWITCH_DEVICE, Evidence, Finding, Subject
from gpuvigil.topology.link_names import switch_port_name

from ..window.fault_kinds import AT_SWITCHES, SWITCHES
from ..window.window import Window
from .fabric import far_end

# The share of a group's ports with a known switch that must be at one to name the group after it.
_MOST = 0.8
_UNKNOWN = "not known here: look it up by these ports"


def switch_of_all(window: Window, ports: Iterable[Subject]) -> str:
    """Return the one switch that these ports are at; empty if unknown, or if there are several."""
    names = _switches(window, ports)
    name, count = max(names.items(), key=lambda it: (it[1], it[0]), default=("", 0))
    return name if count >= _MOST * names.total() else ""


def other_end(window: Window, finding: Finding) -> Iterator[Evidence]:
    """Yield evidence of the other end of a port, or of a switch's ports."""
    if finding.subject.device == SWITCH_DEVICE:
        return  # the finding itself names the switch
    if finding.fault in SWITCHES or (finding.fault in AT_SWITCHES and finding.members):
        names = _switches(window, (finding.subject, *finding.members))
        said = ", ".join(f"{name} ({count} of the ports)" for name, count in sorted(names.items()))
        yield Evidence(name="which switch", value=said or _UNKNOWN)
    elif finding.subject.kind == "port":
        known = plugged_into(window, finding.subject)
        if known is not None:
            yield Evidence(name="other end", value=switch_port_name(*known))


def _switches(window: Window, ports: Iterable[Subject]) -> Counter[str]:
    told = (plugged_into(window, port) for port in set(ports) if port.kind == "port")
    return Counter(known[0] for known in told if known is not None)


def plugged_into(window: Window, port: Subject) -> tuple[str, str | None] | None:
    """Return the switch that a port is plugged into, and its port if known; None if neither is."""
    whole = window.whole or window
    inventory = whole.inventories.get(port.of_node().key)
    for known in () if inventory is None else inventory.ports:
        if (known.device, known.port) == (port.device, port.port) and known.switch:
            return known.switch, known.switch_port
    return far_end(whole, port)
