"""Normal operation of a healthy fleet with world settings, beside `life`: much of it looks like a fault.

Rates per node-day are chosen so that a few hundred node-days have some of each, as in `life`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpuvigil.model import EventKind

from .chance import Dice
from .changes import Change, Operation, Quantity
from .jobs import Job
from .life import DRIVER, NEXT_DRIVER, UPGRADE_SECONDS, Life, LifeEvent
from .model import FleetSettings, WorldSettings
from .ports import TICKS_PER_SECOND
from .site import PlannedEvent
from .topology import Topology
from .workloads import DAY, HOUR, MINUTE

_DRIVERS = (DRIVER, NEXT_DRIVER, "580.126.09", "590.44.01", "590.48.01")
# One rack goes first, and the others after it has run for a day.
_CANARY_SECONDS = DAY
_ROLLED_OUT_SECONDS = 12 * HOUR
# Share of nodes that a busy hub keeps waiting, and for how long [chosen].
_WAITING, _BUSY_SECONDS = (0.4, 0.95), (60.0, 600.0)
# Jobs that slow down of their own making: the share of those of an hour and more that do, and to
# which pace [chosen: a loader that waits for storage, a longer sequence, a debugger].
_OWN_SLOWS, _OWN_PACE = 0.1, (0.3, 0.85)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAlike:
    """A harmless event; `like` are the kinds of fault that it resembles."""

    per_node_day: float
    do: Callable[[Life, Topology, int, float, Dice], None]
    like: tuple[str, ...]


def add(life: Life, settings: FleetSettings, topology: Topology) -> None:
    """Add all of it to `life`; nothing when normal operation is switched off."""
    world = settings.world
    if world is None or not settings.life:
        return
    for node in range(topology.nodes):
        for name, it in LOOK_ALIKES.items():
            rate = it.per_node_day * world.look_alikes
            dice = Dice(settings.seed, "look-alike", name, node)
            for at in _times(dice, rate, settings):
                it.do(life, topology, node, at, dice)
    _maintain(life, settings, topology, world)
    _roll_out(life, settings, topology, world)
    _busy_hub(life, settings, topology, world)


def slow_jobs(life: Life, settings: FleetSettings, jobs: Iterable[Job]) -> None:
    """Slow some jobs down for a while although nothing is wrong with their GPUs."""
    world = settings.world
    if world is None or not settings.life:
        return
    for job in jobs:
        dice = Dice(settings.seed, "own pace", job.number)
        if job.end - job.start < HOUR or dice.share() >= _OWN_SLOWS * world.look_alikes:
            continue
        start = round(dice.between(job.start, job.end - 30 * MINUTE))
        end = start + round(dice.between(10.0, 30.0) * MINUTE)
        _bend(
            life,
            (Quantity.WORK, "pace"),
            job.gpus,
            Operation.TIMES,
            dice.between(*_OWN_PACE),
            (start, end),
        )
        _turn(life, "slow job", ("gpu", job.gpus[0]), start, end)


def _times(dice: Dice, per_day: float, settings: FleetSettings) -> Iterable[float]:
    """Yield the times of independent events with that mean rate per day."""
    if per_day <= 0.0:
        return
    at = dice.gap(DAY / per_day)
    while at < settings.days * DAY - HOUR:
        yield round(at)
        at += HOUR + dice.gap(DAY / per_day)


def _turn(life: Life, kind: str, subject: tuple[str, int], start: float, end: float) -> None:
    if end > 0.0:
        life.life_events.append(
            LifeEvent(kind=kind, subject=subject, start=max(start, 0.0), end=end)
        )


def _bend(
    life: Life,
    what: tuple[Quantity, str],
    targets: Iterable[int],
    how: Operation,
    value: float,
    span: tuple[float, float],
) -> None:
    (on, name), (start, end) = what, span
    life.changes.append(
        Change(on=on, name=name, targets=tuple(targets), start=start, end=end, how=how, value=value)
    )


def _gpus(topology: Topology, nodes: Iterable[int]) -> list[int]:
    each = topology.per_node
    return [gpu for node in nodes for gpu in range(node * each, (node + 1) * each)]


def _rack(topology: Topology, node: int) -> list[int]:
    return topology.nodes_of_rack(topology.places[node].rack)


def _hot_room(life: Life, topology: Topology, node: int, at: float, dice: Dice) -> None:
    """Switch over a chiller: the room is slightly warmer, within what is allowed."""
    end = at + round(dice.between(1.0, 6.0) * HOUR)
    warmer = dice.between(2.0, 4.5)
    everywhere = _gpus(topology, range(topology.nodes))
    _bend(life, (Quantity.PHYSICS, "inlet"), everywhere, Operation.ADD, warmer, (at, end))
    _turn(life, "hot room", ("node", node), at, end)


def _power_budget(life: Life, topology: Topology, node: int, at: float, dice: Dice) -> None:
    """Save power in a rack: every GPU of it has the same lower limit."""
    end = at + round(dice.between(2.0, 12.0) * HOUR)
    gpus, value = _gpus(topology, _rack(topology, node)), dice.between(0.6, 0.9)
    _bend(life, (Quantity.PHYSICS, "limit_watts"), gpus, Operation.TIMES, value, (at, end))
    _bend(
        life, (Quantity.GPU, "power_limit_requested_watts"), gpus, Operation.TIMES, value, (at, end)
    )
    _turn(life, "power budget", ("node", node), at, end)


def _fixed_clocks(life: Life, topology: Topology, node: int, at: float, dice: Dice) -> None:
    """Fix the clocks of a whole node, as a person does to compare runs."""
    end = at + round(dice.between(0.5, 3.0) * HOUR)
    value = dice.between(0.6, 0.9)
    _bend(
        life,
        (Quantity.PHYSICS, "ceiling"),
        _gpus(topology, (node,)),
        Operation.MOST,
        value,
        (at, end),
    )
    _turn(life, "fixed clocks", ("node", node), at, end)


def _sliced(life: Life, topology: Topology, node: int, at: float, dice: Dice) -> None:
    """Cut all GPUs of a free node into slices."""
    end = at + round(dice.between(3.0, 12.0) * HOUR)
    life.closed(node, at - HOUR, at, end)
    for name in ("mig_mode", "mig_mode_pending", "sliced"):
        _bend(life, (Quantity.GPU, name), _gpus(topology, (node,)), Operation.SET, 1.0, (at, end))
    _turn(life, "cut into slices", ("node", node), at, end)


def _starved(life: Life, topology: Topology, node: int, at: float, dice: Dice) -> None:
    """Overload the host: the collector is late, misses ticks, and reads slowly."""
    end = at + round(dice.between(3.0, 30.0) * MINUTE)
    _bend(
        life,
        (Quantity.NODE, "load_average"),
        (node,),
        Operation.ADD,
        dice.between(250.0, 900.0),
        (at, end),
    )
    _bend(
        life,
        (Quantity.NODE, "sweep_seconds"),
        (node,),
        Operation.ADD,
        dice.between(0.5, 4.0),
        (at, end),
    )
    life.deliver("lost", (node,), at, end, dice.between(0.2, 0.7))
    life.deliver("late", (node,), at, min(end, at + 3 * MINUTE))
    _turn(life, "starved collector", ("node", node), at, end)


def _switched_off(life: Life, topology: Topology, node: int, at: float, dice: Dice) -> None:
    """Work on a cable, with its port disabled first."""
    port = node * topology.ports_per_node + dice.below(topology.per_node)
    end = at + round(dice.between(10.0, 60.0) * MINUTE)
    for name, value in (("enabled", 0.0), ("up", 0.0), ("physical_state", 3.0)):
        _bend(life, (Quantity.PORT, name), (port,), Operation.SET, value, (at, end))
    _bend(life, (Quantity.PORT, "throughput"), (port,), Operation.SET, 0.0, (at, end))
    life.planned_events.append(
        PlannedEvent(at=at, kind=EventKind.PORT_DOWN, subject=("port", port))
    )
    life.planned_events.append(PlannedEvent(at=end, kind=EventKind.PORT_UP, subject=("port", port)))
    _turn(life, "port switched off", ("port", port), at, end)


def _discards(life: Life, topology: Topology, node: int, at: float, dice: Dice) -> None:
    """Send a burst that the switch cannot take at once: some packets are sent twice, and no job waits."""
    port = node * topology.ports_per_node + dice.below(topology.per_node)
    end = at + round(dice.between(1.0, 5.0) * MINUTE)
    rate = dice.between(2.0, 20.0)
    for name in ("transmit_discards", "retransmits", "out_of_sequence"):
        _bend(life, (Quantity.PORT, name), (port,), Operation.COUNT, rate, (at, end))
    _turn(life, "burst of discards", ("port", port), at, end)


def _uneven(life: Life, topology: Topology, node: int, at: float, dice: Dice) -> None:
    """Change the pattern of collectives: senders wait more on the node's ports, without less progress."""
    first = node * topology.ports_per_node
    ports = range(first, first + topology.per_node)
    end = at + round(dice.between(1.0, 30.0) * MINUTE)
    share = dice.between(0.05, 0.3)
    waits = (("transmit_wait_ticks", TICKS_PER_SECOND), ("receive_pause_microseconds", 1e6))
    for name, unit in waits:
        _bend(life, (Quantity.PORT, name), ports, Operation.COUNT, share * unit, (at, end))
    _turn(life, "uneven collectives", ("node", node), at, end)


def _swamped(life: Life, topology: Topology, node: int, at: float, dice: Dice) -> None:
    """Read a checkpoint or a data set at once: the host pauses its switch for some seconds."""
    port = node * topology.ports_per_node + dice.below(topology.per_node)
    end = at + round(dice.between(5.0, 25.0))
    share = dice.between(0.05, 0.3)
    _bend(
        life,
        (Quantity.PORT, "transmit_pause_microseconds"),
        (port,),
        Operation.COUNT,
        1e6 * share,
        (at, end),
    )
    _bend(
        life, (Quantity.PORT, "out_of_buffer"), (port,), Operation.COUNT, 500.0 * share, (at, end)
    )
    _turn(life, "burst of pauses", ("port", port), at, end)


def _warm_module(life: Life, topology: Topology, node: int, at: float, dice: Dice) -> None:
    """Warm a module, within its specification."""
    port = node * topology.ports_per_node + dice.below(topology.per_node)
    end = at + round(dice.between(1.0, 12.0) * HOUR)
    value = float(round(dice.between(62.0, 70.0)))
    _bend(life, (Quantity.PORT, "module_celsius"), (port,), Operation.SET, value, (at, end))
    _turn(life, "warm module", ("port", port), at, end)


def _corrected(life: Life, topology: Topology, node: int, at: float, dice: Dice) -> None:
    """Let a memory cell lose its charge: some corrected errors within a minute, and none after that."""
    gpu = node * topology.per_node + dice.below(topology.per_node)
    count = float(2 + dice.below(40))
    for name in ("ecc_corrected_errors", "ecc_corrected_dram_errors"):
        _bend(life, (Quantity.GPU, name), (gpu,), Operation.STEP, count, (at, at + MINUTE))
    _turn(life, "burst of corrected errors", ("gpu", gpu), at, at + MINUTE)


def _replays(life: Life, topology: Topology, node: int, at: float, dice: Dice) -> None:
    """Let a link repeat some packets when the load comes, on PCIe and on NVLink."""
    gpu = node * topology.per_node + dice.below(topology.per_node)
    for name in ("pcie_replays", "pcie_correctable_errors"):
        _bend(
            life,
            (Quantity.GPU, name),
            (gpu,),
            Operation.STEP,
            float(1 + dice.below(20)),
            (at, at + MINUTE),
        )
    _turn(life, "burst of replays", ("gpu", gpu), at, at + MINUTE)


LOOK_ALIKES: dict[str, LookAlike] = {
    "hot room": LookAlike(
        per_node_day=1 / 600, do=_hot_room, like=("rack inlet", "heatsink", "HW thermal", "fan")
    ),
    "power budget": LookAlike(
        per_node_day=1 / 300,
        do=_power_budget,
        like=("lowered power limit", "power brake", "power feed", "PSU"),
    ),
    "fixed clocks": LookAlike(
        per_node_day=1 / 150, do=_fixed_clocks, like=("stuck clocks", "slow GPU")
    ),
    "cut into slices": LookAlike(
        per_node_day=1 / 200, do=_sliced, like=("MIG mode drift", "zombie memory")
    ),
    "starved collector": LookAlike(
        per_node_day=1 / 25,
        do=_starved,
        like=("dead collector", "dead node", "driver hang", "disk full", "stale mount"),
    ),
    "port switched off": LookAlike(
        per_node_day=1 / 60, do=_switched_off, like=("port down", "port flap", "leaf down")
    ),
    "burst of discards": LookAlike(
        per_node_day=1 / 30, do=_discards, like=("congestion", "bad cable", "lossy path")
    ),
    "uneven collectives": LookAlike(
        per_node_day=1 / 30, do=_uneven, like=("congestion", "slow node network")
    ),
    "burst of pauses": LookAlike(per_node_day=1 / 30, do=_swamped, like=("slow receiver",)),
    "warm module": LookAlike(per_node_day=1 / 60, do=_warm_module, like=("hot module",)),
    "burst of corrected errors": LookAlike(
        per_node_day=1 / 50, do=_corrected, like=("SBE storm", "SBE growth")
    ),
    "burst of replays": LookAlike(
        per_node_day=1 / 40, do=_replays, like=("PCIe replays", "PCIe width", "PCIe generation")
    ),
}


def _away(
    life: Life, topology: Topology, node: int, span: tuple[float, float], words: tuple[str, str]
) -> None:
    """Shut a node down properly; `words` are the kind of turn and the machine's message."""
    start, end = span
    kind, message = words
    life.closed(node, start - HOUR, start, end)
    life.planned_events.append(
        PlannedEvent(
            at=start - 1.0, kind=EventKind.SHUTDOWN, subject=("node", node), message=message
        )
    )
    life.away(node, start, end, kind)


def _maintain(
    life: Life, settings: FleetSettings, topology: Topology, world: WorldSettings
) -> None:
    """Plan maintenance of racks: drained before, off for hours."""
    for rack in range(topology.places[-1].rack + 1):
        dice = Dice(settings.seed, "maintenance", rack)
        for at in _times(dice, world.maintenance / 1000.0, settings):
            end = at + round(dice.between(1.0, 4.0) * HOUR)
            for node in topology.nodes_of_rack(rack):
                _away(life, topology, node, (at, end), ("maintenance", "power off"))
                life.booted(node, end)


def _roll_out(
    life: Life, settings: FleetSettings, topology: Topology, world: WorldSettings
) -> None:
    """Roll out new drivers: one rack first, then all, node after node."""
    dice = Dice(settings.seed, "roll-outs")
    racks = list(range(topology.places[-1].rack + 1))
    per_rack = min(_ROLLED_OUT_SECONDS / len(racks), HOUR)
    for number, at in enumerate(_times(dice, world.driver_rollouts / 30.0, settings)):
        driver = _DRIVERS[min(number + 1, len(_DRIVERS) - 1)]
        first = dice.below(len(racks))
        for turn, rack in enumerate([*racks[first:], *racks[:first]]):
            begin = at if turn == 0 else at + _CANARY_SECONDS + per_rack * turn
            for place, node in enumerate(topology.nodes_of_rack(rack)):
                start = round(begin + 0.2 * UPGRADE_SECONDS * place)
                span = (start, start + UPGRADE_SECONDS)
                if span[1] < settings.days * DAY:
                    _away(life, topology, node, span, ("driver upgrade", "reboot"))
                    life.booted(node, span[1], driver)


def _busy_hub(
    life: Life, settings: FleetSettings, topology: Topology, world: WorldSettings
) -> None:
    """Make the hub, or what is in front of it, busy: most nodes are late at once."""
    dice = Dice(settings.seed, "busy hub")
    for at in _times(dice, world.busy_hub, settings):
        share = dice.between(*_WAITING)
        nodes = tuple(node for node in range(topology.nodes) if dice.share() < share)
        end = at + round(dice.between(*_BUSY_SECONDS))
        if nodes:
            life.deliver("late", nodes, at, end)
            _turn(life, "busy hub", ("node", nodes[0]), at, end)
