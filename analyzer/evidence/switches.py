"""Which switch is at the other end of a port, as far as its node heard it by LLDP."""

from collections import Counter
from collections.abc import Iterable, Iterator

from gpuvigil.model import Evidence, Finding, PortIdentity, Subject

from ..window.fault_kinds import SWITCHES
from ..window.window import Window

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
    if finding.fault in SWITCHES:
        names = _switches(window, (finding.subject, *finding.members))
        said = ", ".join(f"{name} ({count} of the ports)" for name, count in sorted(names.items()))
        yield Evidence(name="which switch", value=said or _UNKNOWN)
    elif finding.subject.kind == "port":
        known = _identity(window, finding.subject)
        if known is not None and known.switch:
            place = f" port {known.switch_port}" if known.switch_port else ""
            yield Evidence(name="other end", value=f"{known.switch}{place}")


def _switches(window: Window, ports: Iterable[Subject]) -> Counter[str]:
    told = (_identity(window, port) for port in set(ports) if port.kind == "port")
    return Counter(known.switch for known in told if known is not None and known.switch)


def _identity(window: Window, port: Subject) -> PortIdentity | None:
    inventory = (window.whole or window).inventories.get(port.of_node().key)
    known = () if inventory is None else inventory.ports
    return next((it for it in known if (it.device, it.port) == (port.device, port.port)), None)
