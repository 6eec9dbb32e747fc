"""Random faults: which, where, when and for how long."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..fabric.cabling import CABLES, SPINES, UPLINKS
from .chance import Dice
from .changes import Change, Operation, Quantity
from .hardware import MODELS
from .jobs import Job
from .kinds import kinds_of
from .life import Life
from .model import FaultOrder, FleetSettings
from .site import FaultKind
from .topology import Topology
from .workloads import DAY, HOUR

# Least time between two faults on one node, so that their truths stay apart.
_APART_SECONDS = 2 * HOUR
_TRIES = 40
# Nodes that fail more than others, and their share of all faults (Meta, "Revisiting Reliability",
# HPCA 2025: 1.2 % of the nodes; the share is chosen).
_LEMONS, _LEMONS_FAULTS = 0.012, 0.12
# Nobody can see these on a GPU that does nothing.
_UNDER_LOAD = frozenset(
    {"heatsink", "HW thermal", "stuck clocks", "lowered power limit", "slow GPU", "hung process",
     "zombie memory", "PCIe width", "PCIe generation", "congestion", "rack inlet", "power brake",
     "fan", "PSU", "power feed", "stale mount", "slow receiver", "lossy path", "slow node network"}
)  # fmt: skip
_WHOLE_HORIZON = 1e6  # hours: from the fleet's first moment to its last
# What the fleet's end leaves of a fault at least, if it lasts that long: in a crowded fleet a long one often fits only
# where the end cuts it short, and nobody could have found it in the minutes that are played of it [ours].
_LEFT_SECONDS = HOUR
# The window in which faulty time is counted, as the judge does.
WINDOW_SECONDS = 900.0
# Log-normal, as shares and multiples of the median, like repair times at LANL (Schroeder and Gibson,
# DSN 2006); the spreads follow from their means and medians, 342 and 64 minutes of hardware and 247
# and 70 of the network [the four numbers from memory: unchecked].
_HARDWARE = (
    (0.0, 0.0035), (0.01, 0.0141), (0.05, 0.0492), (0.1, 0.0957), (0.2, 0.2142), (0.3, 0.3829),
    (0.4, 0.6289), (0.5, 1.0), (0.6, 1.5902), (0.7, 2.6119), (0.8, 4.6685), (0.9, 10.4466),
    (0.95, 20.316), (0.98, 42.9492), (0.99, 70.7459), (1.0, 286.0),
)  # fmt: skip
_NETWORK = (
    (0.0, 0.0074), (0.01, 0.0249), (0.05, 0.0734), (0.1, 0.1307), (0.2, 0.2628), (0.3, 0.4348),
    (0.4, 0.6688), (0.5, 1.0), (0.6, 1.4953), (0.7, 2.2996), (0.8, 3.8057), (0.9, 7.6532),
    (0.95, 13.6269), (0.98, 26.0855), (0.99, 40.2163), (1.0, 135.0),
)  # fmt: skip
LENGTHS = {
    "gpu": _HARDWARE, "node": _HARDWARE, "port": _NETWORK, "uplink": _NETWORK, "spine": _NETWORK,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chances:
    """The plan so far, with which the place and time of a random fault have to fit."""

    settings: FleetSettings
    topology: Topology
    jobs: list[Job]
    taken: dict[int, list[tuple[float, float]]]

    def take(self, order: FaultOrder) -> None:
        for node in touched(order, self.topology):
            self.taken[node].append((order.start_seconds, order.start_seconds + order.seconds))


def drawn(
    settings: FleetSettings, topology: Topology, life: Life, jobs: list[Job]
) -> list[FaultOrder]:
    """Draw random faults, never two on a node at a time, nor while normal operation has it away."""
    chances = _Chances(
        settings=settings, topology=topology, jobs=jobs, taken=_taken(settings, topology, life)
    )
    if settings.world is not None:
        return _like_the_world(chances, settings.world.faulty_share)
    count = round(settings.fault_rate * topology.nodes * settings.days / 1000.0)
    known = kinds_of(settings)
    names = list(settings.kinds or known)
    orders = []
    for number in range(count):
        dice = Dice(settings.seed, "drawn", number)
        kind = known[names[number % len(names)]]
        for _ in range(_TRIES):
            order = _draw(kind, settings, topology, dice)
            if _fits(order, kind, chances):
                orders.append(order)
                chances.take(order)
                break
    return orders


def _like_the_world(chances: _Chances, faulty_share: float) -> list[FaultOrder]:
    """Draw faults with any start and log-normal lengths, within the allowed share of faulty windows.

    When the requested faults would fill more, all of them are shortened by the same factor, though none
    below its kind's shortest; faults that still do not fit are left out.
    """
    settings, topology = chances.settings, chances.topology
    horizon = settings.days * DAY
    left = faulty_share * topology.nodes * horizon
    dice = Dice(settings.seed, "faults of the world")
    expected = settings.fault_rate * topology.nodes * settings.days / 1000.0
    count = int(expected + dice.share())
    known = kinds_of(settings)
    names = list(settings.kinds or known)
    said = dict(settings.fault_weights)
    # A kind without a weight is as frequent as the others on average.
    usual = sum(said.values()) / len(said) if said else 1.0
    weights = [said.get(name, usual) for name in names]
    kinds = [known[dice.pick(names, weights)] for _ in range(count)]
    lengths = [_log_normal(kind, dice) for kind in kinds]
    asked = [
        min(length, horizon) * len(_any_place(kind, topology))
        for kind, length in zip(kinds, lengths, strict=True)
    ]
    shorter = min(1.0, left / max(sum(asked), 1.0))
    orders = []
    for kind, length in zip(kinds, lengths, strict=True):
        least = min(kind.hours[0] * HOUR, horizon)
        seconds = round(min(max(length * shorter, least), horizon))
        for _ in range(_TRIES):
            order = _anywhere(kind, seconds, chances, dice)
            cost = _windows_seconds(order) * len(touched(order, topology))
            if cost <= left and _fits(order, kind, chances):
                orders.append(order)
                chances.take(order)
                left -= cost
                break
    return orders


def _log_normal(kind: FaultKind, dice: Dice) -> float:
    """Draw a length in seconds; the median is the kind's."""
    least, usual, most = kind.hours
    return min(max(usual * dice.of(LENGTHS[kind.target]), least), most) * HOUR


def _any_place(kind: FaultKind, topology: Topology) -> list[int]:
    return touched(FaultOrder(kind=kind.key, node=0, start_seconds=0.0, seconds=1.0), topology)


def _anywhere(kind: FaultKind, seconds: int, chances: _Chances, dice: Dice) -> FaultOrder:
    """Draw a fault at any moment of the fleet's time; it ends before the fleet's quiet end at the latest."""
    world = chances.settings.world
    quiet = 0.0 if world is None else world.quiet_end_hours * HOUR
    drawn = _draw(kind, chances.settings, chances.topology, dice)
    if kind.hours[0] >= _WHOLE_HORIZON:
        return drawn
    least = min(max(kind.hours[0] * HOUR, _LEFT_SECONDS), seconds)
    last = max(chances.settings.days * DAY - quiet, least)
    start = round(dice.share() * (last - least))
    return replace(drawn, start_seconds=float(start), seconds=float(min(seconds, last - start)))


def _windows_seconds(order: FaultOrder) -> float:
    """Return the time of a node's windows that the fault touches, in seconds."""
    first = order.start_seconds // WINDOW_SECONDS
    last = -(-(order.start_seconds + order.seconds) // WINDOW_SECONDS)
    return (last - first) * WINDOW_SECONDS


def _taken(
    settings: FleetSettings, topology: Topology, life: Life
) -> dict[int, list[tuple[float, float]]]:
    """Return when each node, or spine, is away or has an ordered fault."""
    taken: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for order in settings.faults:
        place = order.node if order.uplink is order.spine is None else touched(order, topology)[0]
        taken[place].append((order.start_seconds, order.start_seconds + order.seconds))
    for change in life.changes:
        for place in _away(change, topology):
            taken[place].append((change.start, change.end))
    return taken


def _away(change: Change, topology: Topology) -> Iterable[int]:
    """Return the nodes, and the spines numbered after them, that a change takes away."""
    if change.on is Quantity.DELIVERY and change.name == "silent" and change.how is Operation.SET:
        return change.targets
    if change.on is Quantity.SWITCH and change.name == "lost" and topology.cabling is not None:
        first = topology.nodes - topology.cabling.leaves
        return [first + switch for switch in change.targets]
    if change.on is Quantity.GPU and change.name == "mute":
        return [gpu // topology.per_node for gpu in change.targets]
    return ()


def _draw(kind: FaultKind, settings: FleetSettings, topology: Topology, dice: Dice) -> FaultOrder:
    horizon = settings.days * DAY
    seconds = min(round(_hours(kind, dice) * HOUR), horizon / 3.0)
    start = round(dice.between(0.05, 0.95) * (horizon - seconds))
    if kind.hours[0] >= _WHOLE_HORIZON:
        start, seconds = 0, horizon
    slot = dice.below(topology.per_node)
    return FaultOrder(
        kind=kind.key,
        node=_where(settings, topology, dice),
        start_seconds=float(start),
        seconds=float(seconds),
        gpu=slot if kind.target == "gpu" else None,
        port=slot if kind.target in {"port", "uplink"} else None,
        uplink=dice.below(UPLINKS) if kind.target == "uplink" else None,
        spine=dice.below(SPINES) if kind.target == "spine" else None,
    )


def _hours(kind: FaultKind, dice: Dice) -> float:
    """Draw hours: half of the faults are over by the median, a few last to the longest."""
    least, usual, most = kind.hours
    return dice.of(((0.0, least), (0.5, usual), (0.85, min(3.0 * usual, most)), (1.0, most)))


def _where(settings: FleetSettings, topology: Topology, dice: Dice) -> int:
    """Draw a node: any, or one of the lemons, which fail repeatedly."""
    if dice.share() >= _LEMONS_FAULTS:
        return dice.below(topology.nodes)
    lemons = max(round(topology.nodes * _LEMONS), 1)
    return Dice(settings.seed, "lemon", dice.below(lemons)).below(topology.nodes)


def touched(order: FaultOrder, topology: Topology) -> list[int]:
    """Return the nodes that a fault touches; for one between switches the spine, numbered after the nodes."""
    if order.spine is not None or order.uplink is not None:
        spine = order.spine if order.uplink is None else order.uplink // CABLES
        return [topology.nodes + (spine or 0)]
    place = topology.places[order.node]
    if order.kind in {"rack inlet", "power feed", "driver drift"}:
        return topology.nodes_of_rack(place.rack)
    if order.kind in {"congestion", "leaf down"}:
        return topology.nodes_of_pod(place.pod)
    return [order.node]


def _fits(order: FaultOrder, kind: FaultKind, chances: _Chances) -> bool:
    topology = chances.topology
    if kind.nvidia and not MODELS[topology.places[order.node].model.key].nvidia:
        return False
    start, end = (
        order.start_seconds - _APART_SECONDS,
        order.start_seconds + order.seconds + _APART_SECONDS,
    )
    for node in touched(order, topology):
        if any(first < end and last > start for first, last in chances.taken[node]):
            return False
    if kind.key not in _UNDER_LOAD and not kind.needs_work:
        return True
    gpu = order.node * topology.per_node + (order.gpu or order.port or 0)
    soon = order.start_seconds + min(order.seconds, HOUR)
    return any(
        job.start <= order.start_seconds and job.end >= soon and gpu in job.gpus
        for job in chances.jobs
    )
