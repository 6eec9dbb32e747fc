"""Faults between a node's GPUs: PCIe and NVLink."""

from gpuvigil.model import EventKind, Severity

from . import kernel_log_lines
from .changes import Operation, Quantity
from .site import FaultKind, Site
from .topology import LINKS

_CRITICAL, _WARNING = Severity.CRITICAL, Severity.WARNING
# NVIDIA, Fabric Manager guide: "link micro-controller halted", always fatal.
_FATAL_SXID = 22003
# Bytes per second that a lane of PCIe 5.0 carries after the protocol's share.
_LANE_BYTES = 3.4e9
# Per replay: the link error counters that grow with it, and by how much [chosen].
_REPLAYED = {"pcie_replays": 1.0, "pcie_correctable_errors": 1.0, "pcie_naks_received": 1.0,
             "pcie_bad_tlps": 0.3, "pcie_lcrc_errors": 0.3, "pcie_receiver_errors": 0.2,
             "pcie_replay_rollovers": 0.01, "pcie_recoveries": 0.004}  # fmt: skip
_BUS_ERROR_SECONDS = 900.0  # the kernel reports one kind at most this often


def _slower(site: Site, lanes: float, generation: float) -> None:
    """Limit the traffic of a link with fewer or slower lanes: only heavy copies feel it."""
    most = _LANE_BYTES * lanes / 2.0 ** (5.0 - generation)
    for way in ("receive", "transmit"):
        name = f"pcie_{way}_bytes_per_second"
        site.add_change(Quantity.GPU, name, (site.gpu,), Operation.MOST, most)


def pcie_width(site: Site) -> None:
    """Retrain the link with fewer lanes."""
    site.add_change(Quantity.GPU, "pcie_width", (site.gpu,), Operation.SET, site.size)
    site.add_change(Quantity.GPU, "pcie_recoveries", (site.gpu,), Operation.STEP)
    site.add_change(Quantity.GPU, "pcie_lane_errors", (site.gpu,), Operation.STEP, 3.0)
    _slower(site, site.size, _generation(site))


def pcie_generation(site: Site) -> None:
    site.add_change(Quantity.GPU, "pcie_generation", (site.gpu,), Operation.MOST, site.size)
    site.add_change(Quantity.GPU, "pcie_recoveries", (site.gpu,), Operation.STEP, 2.0)
    _slower(site, 16.0, site.size)


def _generation(site: Site) -> float:
    return float(site.topology.places[site.node].model.pcie_generation)


def pcie_replays(site: Site) -> None:
    """Let the far end refuse packets; the link is retrained after too many replays."""
    rate = site.size / 60.0
    for name, share in _REPLAYED.items():
        site.add_change(Quantity.GPU, name, (site.gpu,), Operation.COUNT, rate * share)
    at = site.start + 60.0
    while at < site.end:
        site.bus_error("Corrected", at)
        at += max(_BUS_ERROR_SECONDS, 100.0 / rate) * (0.5 + site.dice.share())


def _on_link(site: Site, rates: dict[str, float]) -> None:
    """Let one link count errors; the GPU's own row sums them up and names the link."""
    link = site.dice.below(site.topology.places[site.node].model.links)
    for name, rate in rates.items():
        site.add_change(Quantity.LINK, name, (site.gpu * LINKS + link,), Operation.COUNT, rate)
        for of_gpu in (f"nvlink_{name}", "nvlink_errors", "nvlink_worst_link_errors"):
            site.add_change(Quantity.GPU, of_gpu, (site.gpu,), Operation.COUNT, rate)
    site.add_change(Quantity.GPU, "nvlink_worst_link", (site.gpu,), Operation.SET, float(link))


def nvlink_crc(site: Site) -> None:
    _on_link(site, {"crc_errors": site.size})


def nvlink_replay(site: Site) -> None:
    rate = site.size / 60.0
    _on_link(site, {"replay_errors": rate, "recovery_errors": rate / 10.0})


def nvlink_down(site: Site) -> None:
    """Take links down; the driver reports it as Xid 149 on NVLink 5, and as 74 before."""
    model = site.topology.places[site.node].model
    first = site.dice.below(model.links)
    links = [(first + i) % model.links for i in range(int(site.size))]
    where = [site.gpu * LINKS + link for link in links]
    site.add_change(Quantity.LINK, "up", where, Operation.SET, 0.0)
    site.add_change(Quantity.GPU, "nvlink_links_up", (site.gpu,), Operation.ADD, -float(len(links)))
    site.add_change(Quantity.GPU, "fabric_health", (site.gpu,), Operation.SET, 2.0)
    site.add_change(
        Quantity.GPU, "fabric_health_mask", (site.gpu,), Operation.ADD, -1.0
    )  # bandwidth degraded
    for link in links:
        site.xid(149 if model.nvlink_5 else 74, link=link)
    site.stop((site.gpu,), shut=False)


def nvswitch(site: Site) -> None:
    message = kernel_log_lines.sxid(_FATAL_SXID, site.dice.below(64))
    site.report_event(EventKind.SXID, ("node", site.node), sxid=_FATAL_SXID, message=message)
    model = site.topology.places[site.node].model
    for gpu in site.gpus():
        code, link = (149 if model.nvlink_5 else 74), site.dice.below(model.links)
        site.xid(code, gpu, site.start + 1.0, link=link, registers=kernel_log_lines.ECHO)
        site.affected.append(("gpu", gpu))
    site.stop(site.gpus())


def fabric_manager(site: Site) -> None:
    site.add_change(
        Quantity.GPU, "fabric_state", site.gpus(), Operation.SET, 2.0
    )  # stays in progress
    for name in ("fabric_health", "fabric_health_mask"):
        site.add_change(Quantity.GPU, name, site.gpus(), Operation.SET, 0.0)
    site.stop(site.gpus())
    site.affected += [("gpu", gpu) for gpu in site.gpus()]


_LINK = "Drain the node and reset its GPUs; if it comes back, ask support."

KINDS = (
    FaultKind(key="PCIe width", target="gpu", make=pcie_width, severity=_WARNING,
              action="Drain the node; reseat the GPU or its riser.",
              cause="the PCIe link runs with fewer lanes", symptoms=("slow host copies",),
              sizes=(8.0, 4.0, 2.0, 1.0), unit="lanes", discrete=True, hours=(0.5, 24.0, 240.0),
              nvidia=False, names_itself=True),
    FaultKind(key="PCIe generation", target="gpu", make=pcie_generation, severity=_WARNING,
              action="Drain the node; reseat the GPU or its riser.",
              cause="the PCIe link runs at a lower generation under load",
              symptoms=("slow host copies",), sizes=(3.0, 2.0, 1.0), unit="generation",
              discrete=True, hours=(0.5, 24.0, 240.0), nvidia=False, names_itself=True),
    FaultKind(key="PCIe replays", target="gpu", make=pcie_replays, severity=_WARNING,
              action="Drain the node; check seating, riser and power.",
              cause="the PCIe link repeats packets", sizes=(5.0, 3000.0), unit="replays/min",
              hours=(0.2, 12.0, 168.0), nvidia=False, names_itself=True),
    FaultKind(key="NVLink CRC", target="gpu", make=nvlink_crc, severity=_WARNING, action=_LINK,
              cause="an NVLink receives broken flits", sizes=(0.05, 200.0), unit="errors/s",
              hours=(0.1, 6.0, 120.0), names_itself=True),
    FaultKind(key="NVLink replay", target="gpu", make=nvlink_replay, severity=_WARNING,
              action=_LINK, cause="an NVLink repeats and recovers", sizes=(0.5, 300.0),
              unit="replays/min", hours=(0.1, 6.0, 120.0), names_itself=True),
    FaultKind(key="NVLink down", target="gpu", make=nvlink_down, severity=_CRITICAL, action=_LINK,
              cause="NVLinks of the GPU are down", symptoms=("job failed",), sizes=(1.0, 2.0, 6.0),
              unit="links", discrete=True, hours=(0.2, 3.0, 72.0), names_itself=True),
    FaultKind(key="NVSwitch", target="node", make=nvswitch, severity=_CRITICAL,
              action="Drain the node and reset all its GPUs and switches, or reboot it.",
              cause="an NVSwitch reports a fatal SXid", symptoms=("Xid 74 on its GPUs", "jobs failed"),
              hours=(0.2, 2.0, 48.0), names_itself=True),
    FaultKind(key="fabric manager", target="node", make=fabric_manager, severity=_CRITICAL,
              action="Restart the fabric manager when no job runs.",
              cause="the fabric manager does not bring the NVLink fabric up",
              symptoms=("programs do not start",), hours=(0.2, 1.5, 24.0), names_itself=True),
)  # fmt: skip
