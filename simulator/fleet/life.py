"""The normal operation of a healthy fleet: nothing here is a fault, though much looks like one.

Rates are chosen so that a week of a few racks has some of each; the order of magnitude of reboots
and drains is that of a cluster under repair (Meta, "Revisiting Reliability", HPCA 2025).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpuvigil.model import EventKind

from . import kernel_log_lines
from .chance import Dice
from .changes import Change, Operation, Quantity
from .jobs import Outage
from .model import FleetSettings
from .site import PlannedEvent
from .topology import Topology
from .workloads import DAY, HOUR, Ending

DRIVER, NEXT_DRIVER = "580.95.05", "580.105.08"
VERSION, NEXT_VERSION = "0.1.0", "0.1.1"

_REBOOT_SECONDS = 360.0
# A longer cut-off is noticed, and is a fault: "cut off".
_LATE_SECONDS = 500.0
UPGRADE_SECONDS = 900.0
_COLLECTOR_SECONDS = 24.0
# The ways in which elastic nodes go away; their last jobs are ended shortly before.
TAKEN_BACK = frozenset({"scaled down", "spot reclaim"})
# Turns in which a machine has no power, or restarts.
AWAY = TAKEN_BACK | {"reboot", "driver upgrade", "maintenance"}
_NOTICE_SECONDS = 120.0
_ELASTIC_MOST = 100  # most elastic nodes
_ELASTIC_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeEvent:
    """One event of normal operation; `subject` as in `site.PlannedEvent`."""

    kind: str
    subject: tuple[str, int]
    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """A collector's loss of its counters; they start at zero again."""

    node: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Restated:
    """The node's inventory from a moment on."""

    node: int
    at: float
    boot: bool = False
    driver: str | None = None
    version: str | None = None


@dataclass(slots=True, kw_only=True)
class Life:
    """The plan of normal operation."""

    changes: list[Change] = field(default_factory=list)
    planned_events: list[PlannedEvent] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    life_events: list[LifeEvent] = field(default_factory=list)
    resets: list[Reset] = field(default_factory=list)
    restated: list[Restated] = field(default_factory=list)

    def away(self, node: int, start: float, end: float, kind: str) -> None:
        """Make the node report nothing."""
        self.deliver("silent", (node,), start, end)
        self.life_events.append(LifeEvent(kind=kind, subject=("node", node), start=start, end=end))

    def deliver(
        self, name: str, nodes: tuple[int, ...], start: float, end: float, value: float = 1.0
    ) -> None:
        self.changes.append(
            Change(
                on=Quantity.DELIVERY,
                name=name,
                targets=nodes,
                start=start,
                end=end,
                how=Operation.SET,
                value=value,
            )
        )

    def closed(self, node: int, start: float, gone: float, end: float) -> None:
        """Take no new jobs from `start` on; jobs that still run at `gone` are ended."""
        self.outages.append(Outage(node=node, start=start, end=end, kills=False))
        self.outages.append(Outage(node=node, start=gone, end=end, kills=True))

    def booted(self, node: int, at: float, driver: str | None = None) -> None:
        self.planned_events.append(PlannedEvent(at=at, kind=EventKind.BOOT, subject=("node", node)))
        self.restated.append(Restated(node=node, at=at, boot=True, driver=driver))


def plan(settings: FleetSettings, topology: Topology) -> Life:
    """Plan normal operation over the horizon; nothing when it is switched off."""
    life = Life()
    if not settings.life:
        return life
    for node in range(topology.nodes):
        for name, (per_node_day, turn) in _TURNS.items():
            dice = Dice(settings.seed, "life", name, node)
            at = dice.gap(DAY / per_node_day)
            while at < settings.days * DAY - HOUR:
                if name not in _CURES or not _sick(settings, node, at):
                    turn(life, topology, node, round(at), dice)
                at += HOUR + dice.gap(DAY / per_node_day)
    _rolling(life, settings, topology)
    _elastic(life, settings, topology)
    _hub(life, settings, topology)
    return life


def _sick(settings: FleetSettings, node: int, at: float) -> bool:
    """Return whether a fault is ordered for the node about then, which a reboot would end."""
    return any(
        order.node == node and order.start_seconds - HOUR < at < order.start_seconds + order.seconds
        for order in settings.faults
    )


def _reboot(life: Life, topology: Topology, node: int, at: float, dice: Dice) -> None:
    life.closed(node, at - 0.5 * HOUR, at, at + _REBOOT_SECONDS)
    if topology.world is not None:
        goes = PlannedEvent(
            at=at - 1.0, kind=EventKind.SHUTDOWN, subject=("node", node), message="reboot"
        )
        life.planned_events.append(goes)
    life.away(node, at, at + _REBOOT_SECONDS, "reboot")
    life.booted(node, at + _REBOOT_SECONDS)


def _drain(life: Life, topology: Topology, node: int, at: float, dice: Dice) -> None:
    end = at + round(dice.between(2.0, 10.0) * HOUR)
    life.outages.append(Outage(node=node, start=at, end=end, kills=False))
    life.life_events.append(LifeEvent(kind="drain", subject=("node", node), start=at, end=end))


def _partition(life: Life, topology: Topology, node: int, at: float, dice: Dice) -> None:
    end = at + round(dice.between(20.0, _LATE_SECONDS))
    life.deliver("late", (node,), at, end)
    life.life_events.append(LifeEvent(kind="late data", subject=("node", node), start=at, end=end))


def _clock_step(life: Life, topology: Topology, node: int, at: float, dice: Dice) -> None:
    end = at + round(dice.between(0.2, 4.0) * HOUR)
    # No more than the hub corrects (`hub.clock_wrong_seconds`); a larger step would have to be reported.
    ahead = dice.pick((-1.0, 1.0)) * dice.between(1.0, 9.0)
    life.deliver("step", (node,), at, end, round(ahead, 3))
    life.life_events.append(LifeEvent(kind="clock step", subject=("node", node), start=at, end=end))


def _forgotten(life: Life, topology: Topology, node: int, at: float, dice: Dice) -> None:
    life.away(node, at, at + 20.0, "counter reset")
    life.resets.append(Reset(node=node, at=at))


def _blip(life: Life, topology: Topology, node: int, at: float, dice: Dice) -> None:
    """Take a port down and up again, once: somebody moved a cable, a switch restarted."""
    port = node * topology.ports_per_node + dice.below(topology.per_node)
    end = at + round(dice.between(3.0, 20.0))
    values = (
        ("up", Operation.SET, 0.0),
        ("physical_state", Operation.SET, 2.0),
        ("link_downed", Operation.STEP, 1.0),
    )
    for name, how, value in values:
        life.changes.append(
            Change(
                on=Quantity.PORT,
                name=name,
                targets=(port,),
                start=at,
                end=end,
                how=how,
                value=value,
            )
        )
    life.planned_events.append(
        PlannedEvent(at=at, kind=EventKind.PORT_DOWN, subject=("port", port))
    )
    life.planned_events.append(PlannedEvent(at=end, kind=EventKind.PORT_UP, subject=("port", port)))
    life.life_events.append(
        LifeEvent(kind="benign flap", subject=("port", port), start=at, end=end)
    )


def _lowered(life: Life, topology: Topology, node: int, at: float, dice: Dice) -> None:
    """Let the kernel end a user's process for lack of memory, and report it."""
    life.planned_events.append(
        PlannedEvent(
            at=at,
            kind=EventKind.OOM_KILL,
            subject=("node", node),
            message="process killed: Out of memory: Killed process 4711 (python)",
        )
    )
    life.life_events.append(LifeEvent(kind="OOM kill", subject=("node", node), start=at, end=at))


def _cosmic(life: Life, topology: Topology, node: int, at: float, dice: Dice) -> None:
    """Let host memory correct one error, and none for weeks after it."""
    life.planned_events.append(
        PlannedEvent(
            at=at,
            kind=EventKind.MACHINE_CHECK,
            subject=("node", node),
            message=kernel_log_lines.memory_error(
                f"DIMM_{'ABCDEFGH'[dice.below(8)]}{dice.below(2)}"
            ),
        )
    )
    life.life_events.append(
        LifeEvent(kind="single memory error", subject=("node", node), start=at, end=at)
    )


def _bus(life: Life, topology: Topology, node: int, at: float, dice: Dice) -> None:
    """Let the kernel report one corrected PCIe error."""
    gpu = node * topology.per_node + dice.below(topology.per_node)
    message = kernel_log_lines.bus_error(topology.pci_address(gpu), "Corrected")
    life.planned_events.append(
        PlannedEvent(at=at, kind=EventKind.PCIE_ERROR, subject=("gpu", gpu), message=message)
    )
    life.life_events.append(
        LifeEvent(kind="single PCIe error", subject=("gpu", gpu), start=at, end=at)
    )


def _maintained(life: Life, topology: Topology, node: int, at: float, dice: Dice) -> None:
    """Let somebody reset a free GPU, as after every change of a mode."""
    gpu = node * topology.per_node + dice.below(topology.per_node)
    end = at + 40.0
    life.closed(node, at - HOUR, at, end)
    flag = Change(
        on=Quantity.GPU,
        name="mute",
        targets=(gpu,),
        start=at,
        end=at + 12.0,
        how=Operation.SET,
        value=7.0,
    )
    life.changes.append(flag)
    life.planned_events.append(PlannedEvent(at=end, kind=EventKind.GPU_RESET, subject=("gpu", gpu)))
    life.life_events.append(LifeEvent(kind="GPU reset", subject=("gpu", gpu), start=at, end=end))


_TURNS: dict[str, tuple[float, Callable[[Life, Topology, int, float, Dice], None]]] = {
    "reboot": (1 / 30, _reboot),
    "drain": (1 / 40, _drain),
    "late data": (1 / 25, _partition),
    "clock step": (1 / 120, _clock_step),
    "counter reset": (1 / 150, _forgotten),
    "benign flap": (1 / 30, _blip),
    "OOM kill": (1 / 20, _lowered),
    "single memory error": (1 / 25, _cosmic),
    "single PCIe error": (1 / 40, _bus),
    "GPU reset": (1 / 60, _maintained),
}


# These end most faults, so they do not happen near ordered ones.
_CURES = frozenset({"reboot", "GPU reset"})


def _rolling(life: Life, settings: FleetSettings, topology: Topology) -> None:
    """Roll out a new driver rack by rack, and a new collector everywhere within minutes."""
    dice = Dice(settings.seed, "rolling")
    horizon = settings.days * DAY
    driver = round(dice.between(0.2, 0.5) * horizon)
    collector = round(dice.between(0.6, 0.9) * horizon)
    for place in topology.places:
        at = driver + place.rack * 1800.0 + 60.0 * (place.number % settings.nodes_per_rack)
        # World settings have roll-outs of their own.
        due = settings.world is None and settings.days >= 2.0 and at + UPGRADE_SECONDS < horizon
        if due and not _sick(settings, place.number, at):
            life.closed(place.number, at - HOUR, at, at + UPGRADE_SECONDS)
            life.away(place.number, at, at + UPGRADE_SECONDS, "driver upgrade")
            life.booted(place.number, at + UPGRADE_SECONDS, NEXT_DRIVER)
        at = collector + 2.0 * place.number
        if at + _COLLECTOR_SECONDS < horizon:
            life.away(place.number, at, at + _COLLECTOR_SECONDS, "collector upgrade")
            life.restated.append(
                Restated(node=place.number, at=at + _COLLECTOR_SECONDS, version=NEXT_VERSION)
            )


def elastic_nodes(topology: Topology) -> Sequence[int]:
    """Return the elastic nodes, at most a tenth of all: the last ones, or with world settings any."""
    count = min(int(topology.nodes * _ELASTIC_SHARE), _ELASTIC_MOST)
    if topology.world is not None:
        some = np.flatnonzero(topology.nodes_with(_ELASTIC_SHARE, "elastic"))
        return [int(node) for node in some[:count]]
    return range(topology.nodes - count, topology.nodes)


def _elastic(life: Life, settings: FleetSettings, topology: Topology) -> None:
    """Remove elastic nodes at night, and now and then when their owner takes them back at two minutes' notice."""
    for node in elastic_nodes(topology):
        dice = Dice(settings.seed, "elastic", node)
        for day in range(int(settings.days)):
            down = round((day * 24.0 + 20.0 + dice.share()) * HOUR)
            up = min(round((day * 24.0 + 31.0 + dice.share()) * HOUR), settings.days * DAY)
            if down < up and not _sick(settings, node, down):
                life.closed(node, down - 0.5 * HOUR, down - _NOTICE_SECONDS, up)
                _says_so(life, topology, node, down)
                life.away(node, down, up, "scaled down")
                life.booted(node, up)
            if dice.share() < 0.1:
                at = round((day * 24.0 + dice.between(10.0, 18.0)) * HOUR)
                if _sick(settings, node, at):
                    continue
                life.outages.append(
                    Outage(node=node, start=at, end=at + HOUR, kills=True, ending=Ending.PREEMPTED)
                )
                _says_so(life, topology, node, at + _NOTICE_SECONDS)
                life.away(node, at + _NOTICE_SECONDS, at + HOUR, "spot reclaim")
                life.booted(node, at + HOUR)


def _says_so(life: Life, topology: Topology, node: int, at: float) -> None:
    """Report the shutdown of a node: a cloud tells a machine first when it takes it back (EC2 and GCE document it)."""
    if topology.world is not None:
        word = PlannedEvent(
            at=at - 1.0, kind=EventKind.SHUTDOWN, subject=("node", node), message="power off"
        )
        life.planned_events.append(word)


def _hub(life: Life, settings: FleetSettings, topology: Topology) -> None:
    """Restart the hub: all bodies wait."""
    dice = Dice(settings.seed, "hub")
    everybody = tuple(range(topology.nodes))
    at = dice.gap(3 * DAY)
    while at < settings.days * DAY:
        start, end = round(at), round(at + dice.between(30.0, 180.0))
        life.deliver("late", everybody, start, end)
        life.life_events.append(
            LifeEvent(kind="hub restart", subject=("node", 0), start=start, end=end)
        )
        at += dice.gap(3 * DAY)
