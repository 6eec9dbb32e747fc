"""What comes out of one sweep over one GPU."""

from dataclasses import dataclass, field

from .field_values import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class MigDevice:
    """One MIG device: who it is and its numbers, by metric of measurement `mig`."""

    uuid: str
    profile: str  # "1g.10gb"
    values: Values


@dataclass(slots=True)
class CallCost:
    """How often a call was made, and how long it took: in all, and at worst."""

    calls: int = 0
    seconds: float = 0.0
    slowest_seconds: float = 0.0

    def add(self, other: "CallCost") -> None:
        """Count what somebody else has counted."""
        self.calls += other.calls
        self.seconds += other.seconds
        self.slowest_seconds = max(self.slowest_seconds, other.slowest_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one GPU said in one sweep: raw values by metric name, and who computes on it.

    `slow` stands until it is told again: None where nothing of it is new, or was read. `links` and
    `costs` are None in the sweeps that do not read them.
    """

    values: Values
    processes: tuple[int, ...] | None  # process ids
    slow: Values | None = None
    links: dict[int, Values] | None = None  # by link, by metric of measurement `nvlink`
    migs: tuple[MigDevice, ...] = ()
    costs: dict[str, CallCost] | None = field(default=None)  # by call, since the last time

    @property
    def every(self) -> Values:
        """The fast and the slow numbers together."""
        return {**(self.slow or {}), **self.values}
