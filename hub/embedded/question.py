"""What can be asked of the store: `gpuvigil.store.Store`'s questions, checked, as values.

Times are nanoseconds since 1970; ranges are `[start_ns, end_ns)`.
"""

from dataclasses import dataclass

from gpuvigil.errors import StoreError
from gpuvigil.metrics import Measurement
from gpuvigil.store import Aggregate


class TooLarge(StoreError):
    """The answer would take more memory than one may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """See `Store.window`; each aggregate once."""

    measurement: Measurement
    aggregates: tuple[Aggregate, ...]
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """See `Store.series`; each field once."""

    measurement: Measurement
    fields: tuple[str, ...]
    where: tuple[tuple[str, str], ...]
    start_ns: int
    end_ns: int
    step_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """See `Store.latest`; each field once."""

    measurement: Measurement
    fields: tuple[str, ...]
    since_ns: int


Question = Window | Series | Latest
