"""Normal operation of the switches of a healthy fleet: much of it looks like a switch fault.

Rates are chosen so that some tens of fleet-days have some of each.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ..fabric.cabling import CABLES, SPINES, UPLINKS, Cabling
from .chance import Dice
from .changes import Change, Operation, Quantity
from .life import Life, LifeEvent
from .model import FleetSettings
from .topology import Topology
from .workloads import DAY, MINUTE

# A person who takes a spine out of service first disables its cables, at the leaves [chosen].
_BEFORE_SECONDS = 5 * MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAlike:
    """A harmless event; `like` are the kinds of fault that it resembles."""

    per_day: float
    do: Callable[[Life, Cabling, float, Dice], None]
    like: tuple[str, ...]


def add(life: Life, settings: FleetSettings, topology: Topology) -> None:
    """Add the switches' normal operation to `life`, unless switches are not read or normal operation is off."""
    if topology.cabling is None or not settings.life:
        return
    times = 1.0 if settings.world is None else settings.world.look_alikes
    for name, it in LOOK_ALIKES.items():
        dice = Dice(settings.seed, "switches", name)
        at = dice.gap(DAY / max(it.per_day * times, 1e-9))
        while at < settings.days * DAY:
            it.do(life, topology.cabling, float(round(at)), dice)
            at += dice.gap(DAY / max(it.per_day * times, 1e-9))


def _bend(
    life: Life,
    what: tuple[Quantity, str],
    targets: tuple[int, ...],
    value: tuple[Operation, float],
    span: tuple[float, float],
) -> None:
    (on, name), (how, amount), (start, end) = what, value, span
    life.changes.append(
        Change(on=on, name=name, targets=targets, start=start, end=end, how=how, value=amount)
    )


def _turn(life: Life, kind: str, subject: tuple[str, int], start: float, end: float) -> None:
    life.life_events.append(LifeEvent(kind=kind, subject=subject, start=start, end=end))


def _any_uplink(cabling: Cabling, dice: Dice) -> int:
    return cabling.uplink(dice.below(cabling.leaves), dice.below(UPLINKS))


def _maintained(life: Life, cabling: Cabling, at: float, dice: Dice) -> None:
    """Give a spine new firmware or a new power supply: its cables are disabled, then it goes down."""
    number = dice.below(SPINES)
    spine, end = cabling.spine(number), at + round(dice.between(10.0, 60.0) * MINUTE)
    ends = tuple(
        cabling.uplink(leaf, number * CABLES + cable)
        for leaf in range(cabling.leaves)
        for cable in range(CABLES)
    )
    off = (at, end + _BEFORE_SECONDS)
    _bend(life, (Quantity.SWITCH_PORT, "disabled"), ends, (Operation.SET, 1.0), off)
    gone = (at + _BEFORE_SECONDS, end)
    _bend(life, (Quantity.SWITCH, "lost"), (spine,), (Operation.SET, 1.0), gone)
    _turn(life, "switch maintenance", ("switch", spine), *off)


def _taken_out(life: Life, cabling: Cabling, at: float, dice: Dice) -> None:
    """Work on a cable between switches, with its port disabled first."""
    place, end = _any_uplink(cabling, dice), at + round(dice.between(10.0, 120.0) * MINUTE)
    ends = (place, cabling.far(place))
    _bend(
        life,
        (Quantity.SWITCH_PORT, "disabled"),
        ends[dice.below(2) :][:1],
        (Operation.SET, 1.0),
        (at, end),
    )
    _turn(life, "cable taken out", ("switch port", place), at, end)


def _some_errors(life: Life, cabling: Cabling, at: float, dice: Dice) -> None:
    """Touch a cable: some symbol errors at once, and none after that."""
    place, count = _any_uplink(cabling, dice), float(1 + dice.below(15))
    _bend(
        life,
        (Quantity.SWITCH_PORT, "symbol_errors"),
        (place,),
        (Operation.STEP, count),
        (at, at + MINUTE),
    )
    _turn(life, "burst of symbol errors", ("switch port", place), at, at + MINUTE)


def _some_drops(life: Life, cabling: Cabling, at: float, dice: Dice) -> None:
    """Let many hosts send to one at once: its leaf drops some packets, and nobody waits for long."""
    place, end = _any_uplink(cabling, dice), at + round(dice.between(1.0, 5.0) * MINUTE)
    rate = dice.between(1.0, 20.0)
    _bend(
        life,
        (Quantity.SWITCH_PORT, "transmit_discards"),
        (place,),
        (Operation.COUNT, rate),
        (at, end),
    )
    _turn(life, "burst of drops", ("switch port", place), at, end)


def _unread(life: Life, cabling: Cabling, at: float, dice: Dice) -> None:
    """Stop the reader of the switches, or its answers."""
    end = at + round(dice.between(3.0, 30.0) * MINUTE)
    _bend(
        life,
        (Quantity.SWITCH, "unread"),
        tuple(range(len(cabling.names))),
        (Operation.SET, 1.0),
        (at, end),
    )
    _turn(life, "switches unread", ("switch", 0), at, end)


LOOK_ALIKES: dict[str, LookAlike] = {
    "switch maintenance": LookAlike(
        per_day=0.5, do=_maintained, like=("spine lost", "uplink down")
    ),
    "cable taken out": LookAlike(per_day=2.0, do=_taken_out, like=("uplink down",)),
    "burst of symbol errors": LookAlike(per_day=6.0, do=_some_errors, like=("bad uplink",)),
    "burst of drops": LookAlike(per_day=4.0, do=_some_drops, like=("congestion",)),
    "switches unread": LookAlike(per_day=1.0, do=_unread, like=("spine lost", "leaf down")),
}
