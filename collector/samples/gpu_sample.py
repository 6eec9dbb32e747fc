"""The result of one sweep over one GPU."""

from dataclasses import dataclass, field

from .field_values import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class MigDevice:
    """One MIG device: its identity and its values, by metric of measurement `mig`."""

    uuid: str
    profile: str  # "1g.10gb"
    values: Values


@dataclass(slots=True)
class CallCost:
    """How often a call was made, and how long it took: in total, and at worst."""

    calls: int = 0
    seconds: float = 0.0
    slowest_seconds: float = 0.0

    def add(self, other: "CallCost") -> None:
        """Add the counts of another record."""
        self.calls += other.calls
        self.seconds += other.seconds
        self.slowest_seconds = max(self.slowest_seconds, other.slowest_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One GPU in one sweep: raw values by metric name, and the processes that compute on it.

    `slow` holds until the next report: None where none of it is new, or none was read. `links` and
    `costs` are None in sweeps that do not read them.
    """

    values: Values
    processes: tuple[int, ...] | None  # process ids
    slow: Values | None = None
    links: dict[int, Values] | None = None  # by link, by metric of measurement `nvlink`
    migs: tuple[MigDevice, ...] = ()
    costs: dict[str, CallCost] | None = field(default=None)  # by call, since the last time

    @property
    def every(self) -> Values:
        """The values of fast and slow ticks together."""
        return {**(self.slow or {}), **self.values}
