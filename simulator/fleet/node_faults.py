"""Faults of a node, or of a rack of nodes."""

from gpuvigil.model import EventKind, Severity, Unmeasured

from . import kernel_log_lines
from .changes import Operation, Quantity
from .site import FaultKind, Site

_CRITICAL, _WARNING, _INFO = Severity.CRITICAL, Severity.WARNING, Severity.INFO
# Tasks of each GPU's processes that wait in the driver forever [chosen].
_STUCK_TASKS = 3.0


def driver_hang(site: Site) -> None:
    site.add_change(
        Quantity.GPU, "mute", site.gpus(), Operation.SET, float(Unmeasured.DRIVER_NOT_ANSWERING)
    )
    site.add_change(Quantity.NODE, "driver_answering", (site.node,), Operation.SET, 0.0)
    site.add_change(Quantity.NODE, "driver_silent_seconds", (site.node,), Operation.CLOCK)
    site.add_change(Quantity.NODE, "gpus_answering", (site.node,), Operation.SET, 0.0)
    stuck = _STUCK_TASKS * site.topology.per_node
    site.add_change(Quantity.NODE, "load_average", (site.node,), Operation.ADD, stuck)
    site.report_event(EventKind.DRIVER_SILENT, ("node", site.node), at=site.start + 12.0)
    site.stop(site.gpus(), linger=600.0)
    site.wait(600.0, besides=site.gpus())
    site.affected += [("gpu", gpu) for gpu in site.gpus()]
    site.reboot(site.end)


def rack_inlet(site: Site) -> None:
    _of_rack(site)
    gpus = [gpu for node in site.rack() for gpu in site.gpus(node)]
    rise = (site.start, site.start + site.order.seconds / 3.0)
    site.add_change(Quantity.PHYSICS, "inlet", gpus, Operation.RAMP, site.size, span=rise)
    site.add_change(
        Quantity.PHYSICS, "inlet", gpus, Operation.ADD, site.size, span=(rise[1], site.end)
    )
    site.delay = site.order.seconds / 10.0


def _of_rack(site: Site) -> None:
    site.group = site.topology.rack_name(site.topology.places[site.node].rack)
    for node in site.rack():
        site.affected.append(("node", node))
        site.affected += [("gpu", gpu) for gpu in site.gpus(node)]


def power_brake(site: Site) -> None:
    site.add_change(Quantity.PHYSICS, "brake", site.gpus(), Operation.SET)
    site.affected += [("gpu", gpu) for gpu in site.gpus()]


def power_feed(site: Site) -> None:
    _of_rack(site)
    gpus = [gpu for node in site.rack() for gpu in site.gpus(node)]
    site.add_change(Quantity.PHYSICS, "brake", gpus, Operation.SET)


def power_supply(site: Site) -> None:
    """Fail one of several power supplies: the others cannot carry the peaks."""
    site.add_change(Quantity.NODE, "power_supplies_failed", (site.node,), Operation.ADD)
    at = site.start
    while at < site.end:
        seconds = site.dice.between(40.0, 400.0)
        span = (at, min(at + seconds, site.end))
        site.add_change(Quantity.PHYSICS, "brake", site.gpus(), Operation.SET, span=span)
        at += seconds + site.dice.between(100.0, 1500.0)
    site.affected += [("gpu", gpu) for gpu in site.gpus()]


def fan(site: Site) -> None:
    half = site.gpus()[: max(site.topology.per_node // 2, 1)]
    site.add_change(Quantity.NODE, "fans_failed", (site.node,), Operation.ADD)
    site.add_change(Quantity.PHYSICS, "resistance", half, Operation.TIMES, 1.0 + site.size)
    site.add_change(Quantity.PHYSICS, "inlet", site.gpus(), Operation.ADD, 12.0 * site.size)
    site.affected += [("gpu", gpu) for gpu in half]


def driver_drift(site: Site) -> None:
    site.driver = "570.124.06"


def dead_collector(site: Site) -> None:
    """Stop reporting for longer than late data of healthy nodes takes, as when the node is cut off."""
    site.add_change(Quantity.DELIVERY, "silent", (site.node,), Operation.SET)


def cut_off(site: Site) -> None:
    site.add_change(Quantity.DELIVERY, "late", (site.node,), Operation.SET)


def dead_node(site: Site) -> None:
    site.add_change(Quantity.DELIVERY, "silent", (site.node,), Operation.SET)
    hangs = site.dice.between(30.0, 600.0)
    site.stop(site.gpus(), linger=hangs)
    site.wait(hangs, besides=site.gpus())
    site.report_event(EventKind.BOOT, ("node", site.node), at=site.end)
    site.boots.append(site.end)
    site.machine_down = True
    site.affected += [("gpu", gpu) for gpu in site.gpus()]


def dimm(site: Site) -> None:
    at = site.start
    message = kernel_log_lines.memory_error(
        f"DIMM_{'ABCDEFGH'[site.dice.below(8)]}{site.dice.below(2)}"
    )
    while at < site.end:
        site.report_event(EventKind.MACHINE_CHECK, ("node", site.node), at=at, message=message)
        counted = (at, site.end)
        site.add_change(
            Quantity.NODE, "memory_errors_corrected", (site.node,), Operation.STEP, span=counted
        )
        at += 3600.0 / site.size * (0.2 + 1.6 * site.dice.share())


def disk_full(site: Site) -> None:
    site.add_change(Quantity.NODE, "spool_writable", (site.node,), Operation.SET, 0.0)
    site.add_change(Quantity.NODE, "space_used_share", (site.node,), Operation.SET)
    site.add_change(Quantity.NODE, "dropped_bodies", (site.node,), Operation.COUNT, 0.05)
    site.add_change(Quantity.DELIVERY, "lost", (site.node,), Operation.SET, 0.4)
    site.add_change(
        Quantity.WORK, "stall", site.gpus(), Operation.SET, span=(site.start + 600.0, site.end)
    )
    site.affected += [("gpu", gpu) for gpu in site.gpus()]


def stale_mount(site: Site) -> None:
    site.add_change(Quantity.NODE, "load_average", (site.node,), Operation.RAMP, site.size)
    site.add_change(Quantity.NODE, "mounts_hung", (site.node,), Operation.ADD)
    site.add_change(Quantity.WORK, "stall", site.gpus(), Operation.SET)
    site.affected += [("gpu", gpu) for gpu in site.gpus()]


KINDS = (
    FaultKind(key="driver hang", target="node", make=driver_hang, severity=_CRITICAL,
              action="Drain the node; read the kernel log, then reboot it.",
              cause="no call to the driver comes back", symptoms=("GPUs silent", "jobs hang"),
              hours=(0.2, 1.5, 24.0)),
    FaultKind(key="rack inlet", target="node", make=rack_inlet, severity=_WARNING,
              action="Check the rack's cooling.", cause="the rack's inlet air is too warm",
              symptoms=("GPUs hot", "clocks give way"), sizes=(5.0, 25.0), unit="K",
              hours=(0.5, 4.0, 48.0), nvidia=False),
    FaultKind(key="power brake", target="node", make=power_brake, severity=_CRITICAL,
              action="Check the node's power supplies and cables.",
              cause="the board is told to slow down", symptoms=("clocks halved", "jobs slow"),
              hours=(0.1, 2.0, 48.0), names_itself=True),
    FaultKind(key="power feed", target="node", make=power_feed, severity=_CRITICAL,
              action="Check the rack's power feed.", cause="a rack has lost one of its feeds",
              symptoms=("power brake on its nodes", "jobs slow"), hours=(0.1, 1.0, 12.0)),
    FaultKind(key="PSU", target="node", make=power_supply, severity=_WARNING,
              action="Replace the power supply.", cause="one power supply of the node is gone",
              symptoms=("power brake now and then",), hours=(1.0, 36.0, 240.0)),
    FaultKind(key="fan", target="node", make=fan, severity=_WARNING, action="Replace the fan.",
              cause="a fan of the node is gone", symptoms=("half of its GPUs hot",),
              sizes=(0.1, 0.5), unit="share of thermal resistance", hours=(1.0, 36.0, 240.0),
              nvidia=False),
    FaultKind(key="driver drift", target="node", make=driver_drift, severity=_INFO,
              action="Bring the node to the driver version of its rack.",
              cause="the node has another driver version than its rack", hours=(6.0, 72.0, 480.0),
              names_itself=True),
    FaultKind(key="dead collector", target="node", make=dead_collector, severity=_WARNING,
              action="Look at the collector's log and start it.", cause="the collector is dead",
              symptoms=("node silent",), hours=(0.2, 1.5, 48.0), nvidia=False),
    FaultKind(key="cut off", target="node", make=cut_off, severity=_WARNING,
              action="Look for the way from the node to the hub.",
              cause="the node does not reach the hub", symptoms=("node silent",),
              hours=(0.2, 0.7, 12.0), nvidia=False),
    FaultKind(key="dead node", target="node", make=dead_node, severity=_CRITICAL,
              action="Look at the node's console.", cause="the node is dead",
              symptoms=("node silent", "jobs failed"), hours=(0.1, 2.0, 48.0), nvidia=False),
    FaultKind(key="DIMM errors", target="node", make=dimm, severity=_WARNING,
              action="Replace the DIMM at the next maintenance.",
              cause="host memory corrects errors", sizes=(1.0, 60.0), unit="errors/h",
              hours=(4.0, 72.0, 480.0), nvidia=False, names_itself=True),
    FaultKind(key="disk full", target="node", make=disk_full, severity=_WARNING,
              action="Free space on the node.", cause="the node's disk is full",
              symptoms=("telemetry with holes", "jobs stall"), hours=(0.3, 2.0, 24.0), nvidia=False),
    FaultKind(key="stale mount", target="node", make=stale_mount, severity=_WARNING,
              action="Remount the file system.", cause="a network file system does not answer",
              symptoms=("GPUs idle", "load high"), sizes=(40.0, 400.0), unit="tasks",
              hours=(0.3, 1.5, 24.0), nvidia=False),
)  # fmt: skip
