"""What goes wrong between GPUs and between nodes."""

from gpuvigil.model import EventKind, Severity

from .changes import How, On
from .site import FaultKind, Site

_CRITICAL, _WARNING, _INFO = Severity.CRITICAL, Severity.WARNING, Severity.INFO
# NVIDIA, Fabric Manager guide: "link micro-controller halted", always fatal.
_FATAL_SXID = 22003
_FLAP_DOWN_SECONDS = 8.0


def pcie_width(site: Site) -> None:
    site.bend(On.GPU, "pcie_width", (site.gpu,), How.SET, site.size)
    for way in ("receive", "transmit"):
        name = f"pcie_{way}_bytes_per_second"
        site.bend(On.GPU, name, (site.gpu,), How.TIMES, site.size / 16.0)


def pcie_generation(site: Site) -> None:
    site.bend(On.GPU, "pcie_generation", (site.gpu,), How.SET, site.size)


def pcie_replays(site: Site) -> None:
    site.bend(On.GPU, "pcie_replays", (site.gpu,), How.COUNT, site.size / 60.0)
    site.bend(On.GPU, "pcie_correctable_errors", (site.gpu,), How.COUNT, site.size / 60.0)


def nvlink_crc(site: Site) -> None:
    for name in ("nvlink_crc_errors", "nvlink_errors", "nvlink_worst_link_errors"):
        site.bend(On.GPU, name, (site.gpu,), How.COUNT, site.size)
    site.bend(On.GPU, "nvlink_worst_link", (site.gpu,), How.SET, 7.0)


def nvlink_replay(site: Site) -> None:
    rate = site.size / 60.0
    for name in ("nvlink_replay_errors", "nvlink_errors", "nvlink_worst_link_errors"):
        site.bend(On.GPU, name, (site.gpu,), How.COUNT, rate)
    site.bend(On.GPU, "nvlink_recovery_errors", (site.gpu,), How.COUNT, rate / 10.0)


def nvlink_down(site: Site) -> None:
    site.bend(On.GPU, "nvlink_links_up", (site.gpu,), How.ADD, -site.size)
    site.xid(74)
    site.stop((site.gpu,), shut=False)


def nvswitch(site: Site) -> None:
    message = f"SXid: {_FATAL_SXID}, Fatal (simulated)"
    site.tell(EventKind.SXID, ("node", site.node), sxid=_FATAL_SXID, message=message)
    for gpu in site.gpus():
        site.xid(74, gpu=gpu, at=site.start + 1.0)
        site.affected.append(("gpu", gpu))
    site.stop(site.gpus())


def fabric_manager(site: Site) -> None:
    site.bend(On.GPU, "fabric_state", site.gpus(), How.SET, 2.0)  # in progress, for ever
    site.bend(On.GPU, "fabric_health", site.gpus(), How.SET, 0.0)
    site.stop(site.gpus())
    site.affected += [("gpu", gpu) for gpu in site.gpus()]


def _port_goes(site: Site, ports: tuple[int, ...], start: float, end: float) -> None:
    site.bend(On.PORT, "up", ports, How.SET, 0.0, span=(start, end))
    site.bend(On.PORT, "physical_state", ports, How.SET, 2.0, span=(start, end))
    site.bend(On.PORT, "link_downed", ports, How.STEP, 1.0, span=(start, end))
    for port in ports:
        site.tell(EventKind.PORT_DOWN, ("port", port), at=start)
        site.tell(EventKind.PORT_UP, ("port", port), at=end)


def port_down(site: Site) -> None:
    _port_goes(site, (site.port,), site.start, site.end)
    site.stop((site.gpu_of_port,), linger=300.0, shut=False)


def port_flap(site: Site) -> None:
    gap = 3600.0 / site.size
    at = site.start
    while at < site.end:
        _port_goes(site, (site.port,), at, at + _FLAP_DOWN_SECONDS)
        at += gap * (0.5 + site.dice.share())


def bad_cable(site: Site) -> None:
    site.bend(On.PORT, "symbol_errors", (site.port,), How.COUNT, site.size)
    site.bend(On.PORT, "receive_errors", (site.port,), How.COUNT, site.size / 20.0)


def congestion(site: Site) -> None:
    ports = _rail(site)
    site.bend(On.PORT, "throughput", ports, How.TIMES, 1.0 - site.size)
    site.bend(On.PORT, "transmit_discards", ports, How.COUNT, 200.0 * site.size)
    site.affected += [("port", port) for port in ports]


def leaf_down(site: Site) -> None:
    ports = _rail(site)
    _port_goes(site, ports, site.start, site.end)
    site.affected += [("port", port) for port in ports]


def _rail(site: Site) -> tuple[int, ...]:
    """The ports at the same leaf."""
    topology, rail = site.topology, site.order.port or 0
    site.group = topology.leaf(site.node, rail)
    nodes = topology.nodes_of_pod(topology.places[site.node].pod)
    return tuple(node * topology.ports_per_node + rail for node in nodes)


_LINK = "Drain the node and reset its GPUs; if it comes back, ask support."
_CABLE = "Reseat or replace the cable or transceiver; check the switch port's counters."

KINDS = (
    FaultKind(key="PCIe width", target="gpu", make=pcie_width, severity=_WARNING,
              action="Drain the node; reseat the GPU or its riser.",
              cause="the PCIe link runs with fewer lanes", symptoms=("slow host copies",),
              sizes=(8.0, 4.0, 2.0, 1.0), unit="lanes", discrete=True, hours=(6.0, 72.0),
              nvidia=False),
    FaultKind(key="PCIe generation", target="gpu", make=pcie_generation, severity=_WARNING,
              action="Drain the node; reseat the GPU or its riser.",
              cause="the PCIe link runs at a lower generation under load",
              symptoms=("slow host copies",), sizes=(3.0, 2.0, 1.0), unit="generation",
              discrete=True, hours=(6.0, 72.0), nvidia=False),
    FaultKind(key="PCIe replays", target="gpu", make=pcie_replays, severity=_WARNING,
              action="Drain the node; check seating, riser and power.",
              cause="the PCIe link repeats packets", sizes=(5.0, 3000.0), unit="replays/min",
              hours=(3.0, 48.0), nvidia=False),
    FaultKind(key="NVLink CRC", target="gpu", make=nvlink_crc, severity=_WARNING, action=_LINK,
              cause="an NVLink receives broken flits", sizes=(0.05, 200.0), unit="errors/s"),
    FaultKind(key="NVLink replay", target="gpu", make=nvlink_replay, severity=_WARNING,
              action=_LINK, cause="an NVLink repeats and recovers", sizes=(0.5, 300.0),
              unit="replays/min"),
    FaultKind(key="NVLink down", target="gpu", make=nvlink_down, severity=_CRITICAL, action=_LINK,
              cause="NVLinks of the GPU are down", symptoms=("job failed",), sizes=(1.0, 2.0, 6.0),
              unit="links", discrete=True),
    FaultKind(key="NVSwitch", target="node", make=nvswitch, severity=_CRITICAL,
              action="Drain the node and reset all its GPUs and switches, or reboot it.",
              cause="an NVSwitch reports a fatal SXid", symptoms=("Xid 74 on its GPUs", "jobs failed")),
    FaultKind(key="fabric manager", target="node", make=fabric_manager, severity=_CRITICAL,
              action="Restart the fabric manager when no job runs.",
              cause="the fabric manager does not bring the NVLink fabric up",
              symptoms=("programs do not start",)),
    FaultKind(key="port down", target="port", make=port_down, severity=_WARNING,
              action="Check the cable and the switch port at the other end.",
              cause="the port has lost its link", symptoms=("job hangs",), nvidia=False),
    FaultKind(key="port flap", target="port", make=port_flap, severity=_WARNING, action=_CABLE,
              cause="the port loses its link again and again", sizes=(2.0, 30.0), unit="flaps/h",
              nvidia=False),
    FaultKind(key="bad cable", target="port", make=bad_cable, severity=_WARNING, action=_CABLE,
              cause="the link has physical errors", sizes=(0.05, 100.0), unit="symbol errors/s",
              hours=(3.0, 48.0), nvidia=False),
    FaultKind(key="congestion", target="port", make=congestion, severity=_WARNING,
              action="Look at what else runs on this leaf, and at its uplinks.",
              cause="a leaf is congested", symptoms=("jobs slow",), sizes=(0.1, 0.7),
              unit="share of the throughput", nvidia=False),
    FaultKind(key="leaf down", target="port", make=leaf_down, severity=_CRITICAL,
              action="Check the leaf switch and its power.", cause="a leaf switch is down",
              symptoms=("port down", "jobs slow"), hours=(0.5, 2.0), nvidia=False),
)  # fmt: skip
