"""Faults between switches: no host sees them, since traffic takes the other cables."""

from gpuvigil.model import Severity

from ..fabric.cabling import Cabling
from .changes import Operation, Quantity
from .site import FaultKind, Site

_WARNING = Severity.WARNING
# Of a bad cable's errors at one end, the share that the other end counts [chosen].
_OTHER_WAY = 0.1
_NARROW = 0.5  # share of slow cables that lost lanes; the others' lanes are slower [chosen]


def bad_uplink(site: Site) -> None:
    """Count errors all the time, most of them at the end that receives worse."""
    ends = _ends(site)
    worse = site.dice.below(len(ends))
    for end in ends:
        rate = site.size * (1.0 if end == ends[worse] else _OTHER_WAY)
        site.add_change(Quantity.SWITCH_PORT, "symbol_errors", (end,), Operation.COUNT, rate)
        site.add_change(
            Quantity.SWITCH_PORT, "receive_errors", (end,), Operation.COUNT, rate / 20.0
        )


def slow_uplink(site: Site) -> None:
    """Retrain the link with fewer lanes, or slower ones."""
    ends = _ends(site)
    site.add_change(Quantity.SWITCH_PORT, "speed", ends, Operation.TIMES, site.size)
    if site.dice.share() < _NARROW:
        site.add_change(Quantity.SWITCH_PORT, "lanes", ends, Operation.TIMES, site.size)
    site.add_change(Quantity.SWITCH_PORT, "link_recoveries", ends[:1], Operation.STEP)


def uplink_down(site: Site) -> None:
    site.add_change(Quantity.SWITCH_PORT, "up", _ends(site), Operation.SET, 0.0)


def spine_lost(site: Site) -> None:
    site.add_change(Quantity.SWITCH, "lost", (site.spine,), Operation.SET)
    site.group = site.cabling.names[site.spine]
    site.affected += beside(site.cabling, site.spine)


def _ends(site: Site) -> tuple[int, int]:
    near = site.uplink
    far = site.cabling.far(near)
    site.also.append(("switch port", far))
    return near, far


def beside(cabling: Cabling, switch: int) -> list[tuple[str, int]]:
    """Return the ports of other switches that lose their link when this switch goes down."""
    ports = (cabling.ports[place] for place in cabling.of(switch))
    return [("switch port", port.far) for port in ports if port.far is not None]


_CABLE = "Reseat or replace the cable or transceiver; check the switch port's counters."

KINDS = (
    FaultKind(key="bad uplink", target="uplink", make=bad_uplink, severity=_WARNING, action=_CABLE,
              cause="a cable between switches has physical errors", sizes=(0.05, 100.0),
              unit="symbol errors/s", hours=(1.0, 48.0, 336.0), nvidia=False, names_itself=True),
    FaultKind(key="slow uplink", target="uplink", make=slow_uplink, severity=_WARNING, action=_CABLE,
              cause="a link between switches runs with fewer or slower lanes",
              sizes=(0.5, 0.25, 0.1), unit="share of its speed", discrete=True,
              hours=(0.3, 12.0, 168.0), nvidia=False, names_itself=True),
    FaultKind(key="uplink down", target="uplink", make=uplink_down, severity=_WARNING,
              action="Check the cable between these two switch ports.",
              cause="a link between switches is down", hours=(0.1, 2.0, 72.0), nvidia=False,
              names_itself=True),
    FaultKind(key="spine lost", target="spine", make=spine_lost, severity=_WARNING,
              action="Check the switch and its power.", cause="a spine does not answer",
              symptoms=("uplink down",), hours=(0.1, 0.7, 8.0), nvidia=False),
)  # fmt: skip
