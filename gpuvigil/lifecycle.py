"""The life cycle of an incident. Everything that affects its state is in this one table.

There are two rules. A pair that is not in the table is an error in our code, not in the data. A
change of state is a `Transition` with a number, a time and a reason, and alerts hears of nothing else.

A *suspect* was seen once and must be seen again, unless its fault is certain at first sight.
A *flapping* incident came back within the flap window after clearing too often: it stays open as
one incident until it has been clear for long.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from .errors import LifecycleError


class State(str, Enum):
    """The state of an incident."""

    SUSPECT = "suspect"
    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    FLAPPING = "flapping"
    RESOLVED = "resolved"
    DISMISSED = "dismissed"  # a suspect that was not seen again


class Signal(str, Enum):
    """A signal that can change an incident."""

    CONFIRMED = "confirmed"  # seen again, or certain at first sight
    CHANGED = "changed"  # still there, with another severity, impact or members
    ACKNOWLEDGED = "acknowledged"  # a person took it on
    RETURNED = "returned"  # it came back soon after it had cleared
    FLAPPED = "flapped"  # it came back too often within the flap window
    CLEARED = "cleared"  # not seen for the clear time, or a cure was observed


TRANSITIONS: dict[tuple[State, Signal], State] = {
    (State.SUSPECT, Signal.CONFIRMED): State.OPEN,
    (State.SUSPECT, Signal.CLEARED): State.DISMISSED,
    (State.OPEN, Signal.CHANGED): State.OPEN,
    (State.OPEN, Signal.ACKNOWLEDGED): State.ACKNOWLEDGED,
    (State.OPEN, Signal.FLAPPED): State.FLAPPING,
    (State.OPEN, Signal.CLEARED): State.RESOLVED,
    (State.ACKNOWLEDGED, Signal.CHANGED): State.ACKNOWLEDGED,
    (State.ACKNOWLEDGED, Signal.CLEARED): State.RESOLVED,
    (State.FLAPPING, Signal.CHANGED): State.FLAPPING,
    (State.FLAPPING, Signal.ACKNOWLEDGED): State.ACKNOWLEDGED,
    (State.FLAPPING, Signal.CLEARED): State.RESOLVED,
    (State.RESOLVED, Signal.RETURNED): State.OPEN,
    (State.RESOLVED, Signal.FLAPPED): State.FLAPPING,
}

# States in which the fault is believed to be present.
ACTIVE = frozenset({State.OPEN, State.ACKNOWLEDGED, State.FLAPPING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The time, and the number of returns, needed before an incident changes its state."""

    clear: timedelta = timedelta(seconds=30)
    flap_window: timedelta = timedelta(minutes=30)
    # What a reset or a reboot ends is the same again for so long: a node of eight GPUs is back after a
    # quarter of an hour, and a bad part shows under its next job. Ours.
    repair_window: timedelta = timedelta(hours=2)
    # Three changes of state in half an hour is one flapping incident, not six messages.
    flap_returns: int = 3


def step(state: State, signal: Signal) -> State:
    """Return the state after `signal`; raise LifecycleError for a pair that is not in the table."""
    try:
        return TRANSITIONS[state, signal]
    except KeyError:
        raise LifecycleError(
            f"an incident that is {state.value} cannot be {signal.value}"
        ) from None


def diagram() -> str:
    """Return the table as a Mermaid state diagram, for the documentation."""
    arrows = [f"    {a.value} --> {b.value}: {s.value}" for (a, s), b in TRANSITIONS.items()]
    return "\n".join(["stateDiagram-v2", "    [*] --> suspect", *arrows])
