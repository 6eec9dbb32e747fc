"""Faults between nodes: links, hosts that do not keep up, leaves.

Jobs on several nodes run at the pace of their slowest link, so all of their links carry less. The place
of the fault shows in which port waits, which makes others wait, and what is retransmitted.
"""

from gpuvigil.model import EventKind, Severity

from ..fabric.cabling import UPLINKS
from .changes import Operation, Quantity
from .ports import TICKS_PER_SECOND
from .site import FaultKind, Site
from .switch_faults import beside

_CRITICAL, _WARNING = Severity.CRITICAL, Severity.WARNING
_FLAP_DOWN_SECONDS = 8.0
_SPEAKS_UP = 20.0  # symbol errors per second from which a cable also loses its link [chosen]
_DETOUR = 0.25  # share of pace that jobs lose when a rail is gone [chosen]
_COMMUNICATES = 0.2  # share of its time in which a job on several nodes moves data [chosen]
_STORMS_FROM = 0.5  # share of a job's pace: a host that costs more pauses for long [chosen]
_HARMFUL_CELSIUS = 85.0  # from this temperature on a module's link has errors, too [chosen]


def _port_goes(site: Site, ports: tuple[int, ...], start: float, end: float) -> None:
    site.add_change(Quantity.PORT, "up", ports, Operation.SET, 0.0, span=(start, end))
    site.add_change(Quantity.PORT, "physical_state", ports, Operation.SET, 2.0, span=(start, end))
    site.add_change(Quantity.PORT, "throughput", ports, Operation.SET, 0.0, span=(start, end))
    site.add_change(Quantity.PORT, "link_downed", ports, Operation.STEP, 1.0, span=(start, end))
    for port in ports:
        site.report_event(EventKind.PORT_DOWN, ("port", port), at=start)
        site.report_event(EventKind.PORT_UP, ("port", port), at=end)


def port_down(site: Site) -> None:
    """Take a port down; a job on several nodes hangs until its collectives give up."""
    _port_goes(site, (site.port,), site.start, site.end)
    if site.sends:
        site.stop((site.gpu_of_port,), linger=600.0, shut=False)
        site.wait(600.0)


def port_flap(site: Site) -> None:
    gap = 3600.0 / site.size
    at = site.start
    while at < site.end:
        _port_goes(site, (site.port,), at, min(at + _FLAP_DOWN_SECONDS, site.end))
        at += gap * (0.5 + site.dice.share())


def bad_cable(site: Site) -> None:
    """Count errors all the time; a very bad cable loses the link now and then."""
    site.add_change(Quantity.PORT, "symbol_errors", (site.port,), Operation.COUNT, site.size)
    site.add_change(
        Quantity.PORT, "receive_errors", (site.port,), Operation.COUNT, site.size / 20.0
    )
    if site.size > _SPEAKS_UP:
        at = site.start + 3.0 * 3600.0 * site.dice.share()
        if at + _FLAP_DOWN_SECONDS < site.end:
            _port_goes(site, (site.port,), at, at + _FLAP_DOWN_SECONDS)


def congestion(site: Site) -> None:
    """Congest a rail; jobs on several nodes run at its pace, so the traffic of all their rails falls.

    A leaf over which no job sends has nothing to drop, and no port of a host waits.
    """
    if not site.sends:
        return
    ports = _rail(site)
    site.add_change(Quantity.WORK, "wait", _gpus_of_pod(site), Operation.SET, site.size)
    site.add_change(Quantity.PORT, "transmit_discards", ports, Operation.COUNT, 200.0 * site.size)
    _waits(site, ports, 0.25 + 0.5 * site.size)
    site.affected += [("port", port) for port in ports]
    if site.topology.cabling is not None:
        # The leaf drops packets that it cannot pass on to the spines in time.
        full = [site.cabling.uplink(site.leaf, number) for number in range(UPLINKS)]
        site.add_change(
            Quantity.SWITCH_PORT, "transmit_discards", full, Operation.COUNT, 200.0 * site.size
        )


def slow_link(site: Site) -> None:
    """Retrain a link with fewer lanes, or slower ones."""
    site.add_change(
        Quantity.PORT, "speed_bits_per_second", (site.port,), Operation.TIMES, site.size
    )
    if site.dice.share() < 0.5:
        site.add_change(Quantity.PORT, "width_lanes", (site.port,), Operation.TIMES, site.size)
    site.add_change(Quantity.PORT, "link_recoveries", (site.port,), Operation.STEP)
    _waits(site, (site.port,), 0.3 * (1.0 - site.size))
    time = 1.0 - _COMMUNICATES + _COMMUNICATES / site.size
    _slows(site, 1.0 - 1.0 / time)


def slow_receiver(site: Site) -> None:
    """Let a host not keep up with its traffic: it pauses its switch, or lacks buffers."""
    if not site.sends:
        return
    port = (site.port,)
    site.add_change(
        Quantity.PORT, "transmit_pause_microseconds", port, Operation.COUNT, 1e6 * 0.6 * site.size
    )
    site.add_change(Quantity.PORT, "out_of_buffer", port, Operation.COUNT, 2000.0 * site.size)
    site.add_change(Quantity.PORT, "receive_discards", port, Operation.COUNT, 20.0 * site.size)
    if site.size > _STORMS_FROM:
        site.add_change(Quantity.PORT, "pause_storms", port, Operation.COUNT, 0.05)
    _slows(site, site.size)
    _waits(site, _others(site), 0.2 * site.size)


def lossy_path(site: Site) -> None:
    """Lose packets somewhere beyond the port: they are retransmitted, and jobs wait for them."""
    if not site.sends:
        return
    site.add_change(Quantity.PORT, "retransmits", (site.port,), Operation.COUNT, site.size)
    site.add_change(
        Quantity.PORT, "out_of_sequence", _others(site), Operation.COUNT, site.size / 8.0
    )
    _slows(site, min(0.05 + site.size / 1000.0, 0.5))


def hot_module(site: Site) -> None:
    """Heat up a module, by blocked air or wear; a very hot one causes errors."""
    site.add_change(Quantity.PORT, "module_celsius", (site.port,), Operation.SET, site.size)
    if site.size >= _HARMFUL_CELSIUS:
        site.add_change(Quantity.PORT, "symbol_errors", (site.port,), Operation.COUNT, 1.0)


def slow_node_network(site: Site) -> None:
    """Let everything that a node sends wait, on all of its ports: a setting of the host or its switch."""
    if not site.sends:
        return
    topology = site.topology
    first = site.node * topology.ports_per_node
    ports = tuple(range(first, first + topology.per_node))
    site.add_change(Quantity.PORT, "throughput", ports, Operation.TIMES, 1.0 - site.size / 2.0)
    _waits(site, ports, 0.2 + 0.5 * site.size)
    _slows(site, site.size)
    site.affected += [("port", port) for port in ports]


def _slows(site: Site, lost: float) -> None:
    """Let the jobs on several nodes on the fault's GPUs lose this share of their pace."""
    if site.peers:
        site.add_change(Quantity.WORK, "wait", site.peers, Operation.SET, min(lost, 0.9))


def _waits(site: Site, ports: tuple[int, ...], share: float) -> None:
    """Let ports wait for this share of the time, for credits or because their switch pauses them."""
    site.add_change(
        Quantity.PORT, "transmit_wait_ticks", ports, Operation.COUNT, share * TICKS_PER_SECOND
    )
    site.add_change(
        Quantity.PORT, "receive_pause_microseconds", ports, Operation.COUNT, share * 1e6
    )
    site.add_change(Quantity.PORT, "cnp_handled", ports, Operation.COUNT, share * 1e4)


def _others(site: Site) -> tuple[int, ...]:
    """Return the ports of the job's other GPUs, which send to the one at fault."""
    topology = site.topology
    nodes = {gpu // topology.per_node for gpu in site.peers} - {site.node}
    rail = site.order.port or 0
    return tuple(node * topology.ports_per_node + rail for node in sorted(nodes))


def leaf_down(site: Site) -> None:
    """Take a leaf down: traffic of this rail takes NVLink and the other rails, slower."""
    ports = _rail(site)
    _port_goes(site, ports, site.start, site.end)
    site.add_change(Quantity.WORK, "wait", _gpus_of_pod(site), Operation.SET, _DETOUR)
    site.affected += [("port", port) for port in ports]
    if site.topology.cabling is not None:
        site.add_change(Quantity.SWITCH, "lost", (site.leaf,), Operation.SET)
        site.also.append(("switch", site.leaf))
        site.affected += beside(site.cabling, site.leaf)


def _rail(site: Site) -> tuple[int, ...]:
    """Return the ports at the same leaf."""
    topology, rail = site.topology, site.order.port or 0
    site.group = topology.leaf(site.node, rail)
    nodes = topology.nodes_of_pod(topology.places[site.node].pod)
    return tuple(node * topology.ports_per_node + rail for node in nodes)


def _gpus_of_pod(site: Site) -> tuple[int, ...]:
    nodes = site.topology.nodes_of_pod(site.topology.places[site.node].pod)
    return tuple(gpu for node in nodes for gpu in site.gpus(node))


_CABLE = "Reseat or replace the cable or transceiver; check the switch port's counters."

KINDS = (
    FaultKind(key="port down", target="port", make=port_down, severity=_WARNING,
              action="Check the cable and the switch port at the other end.",
              cause="the port has lost its link", symptoms=("job hangs",), hours=(0.05, 1.5, 72.0),
              nvidia=False, names_itself=True),
    FaultKind(key="port flap", target="port", make=port_flap, severity=_WARNING, action=_CABLE,
              cause="the port loses its link again and again", sizes=(2.0, 30.0), unit="flaps/h",
              hours=(0.3, 6.0, 120.0),              nvidia=False, names_itself=True),
    FaultKind(key="bad cable", target="port", make=bad_cable, severity=_WARNING, action=_CABLE,
              cause="the link has physical errors", sizes=(0.05, 100.0), unit="symbol errors/s",
              hours=(1.0, 48.0, 336.0), nvidia=False, names_itself=True),
    FaultKind(key="congestion", target="port", make=congestion, severity=_WARNING,
              action="Look at what else runs on this leaf, and at its uplinks.",
              cause="a leaf is congested", symptoms=("jobs slow",), sizes=(0.1, 0.7),
              unit="share of the throughput",
              hours=(0.05, 0.4, 12.0),  # GREYHOUND, ATC 2025: slow communication, 24 minutes

              nvidia=False),
    FaultKind(key="leaf down", target="port", make=leaf_down, severity=_CRITICAL,
              action="Check the leaf switch and its power.", cause="a leaf switch is down",
              symptoms=("port down", "jobs slow"), hours=(0.1, 0.7, 8.0), nvidia=False),
    FaultKind(key="slow link", target="port", make=slow_link, severity=_WARNING, action=_CABLE,
              cause="the link runs with fewer or slower lanes", symptoms=("jobs slow",),
              sizes=(0.5, 0.25, 0.1), unit="share of its speed", discrete=True,
              hours=(0.3, 12.0, 168.0), nvidia=False, names_itself=True),
    FaultKind(key="slow receiver", target="port", make=slow_receiver, severity=_WARNING,
              action="Look at the host: PCIe link of the network card, CPUs, memory, its settings.",
              cause="the host does not take what it receives", symptoms=("jobs slow",),
              sizes=(0.1, 0.7), unit="share of the job's pace", hours=(0.2, 3.0, 48.0),
              nvidia=False),
    FaultKind(key="lossy path", target="port", make=lossy_path, severity=_WARNING, action=_CABLE,
              cause="packets are lost beyond the port", symptoms=("jobs slow",),
              sizes=(5.0, 500.0), unit="packets sent again/s", hours=(0.3, 6.0, 120.0),
              nvidia=False),
    FaultKind(key="hot module", target="port", make=hot_module, severity=_WARNING,
              action="Check the transceiver's cooling; replace it.",
              cause="the transceiver is too hot", sizes=(78.0, 95.0), unit="°C",
              hours=(0.5, 24.0, 336.0), nvidia=False, names_itself=True),
    FaultKind(key="slow node network", target="node", make=slow_node_network, severity=_WARNING,
              action="Look at the node's network settings and at its leaf's.",
              cause="the node's network is slow", symptoms=("job slow",), sizes=(0.1, 0.5),
              unit="share of the job's pace", hours=(0.2, 3.0, 48.0), nvidia=False),
)  # fmt: skip
