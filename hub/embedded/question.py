"""The questions that the store answers: those of `gpuvigil.store.Store`, checked, as values.

Times are nanoseconds since 1970; ranges are `[start_ns, end_ns)`.
"""

from dataclasses import dataclass

from gpuvigil.errors import StoreError
from gpuvigil.metrics import Measurement
from gpuvigil.store import Aggregate


class TooLarge(StoreError):
    """The answer would take more memory than one answer may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The question of `Store.window`; each aggregate occurs once."""

    measurement: Measurement
    aggregates: tuple[Aggregate, ...]
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The question of `Store.series`; each field occurs once."""

    measurement: Measurement
    fields: tuple[str, ...]
    where: tuple[tuple[str, str], ...]
    start_ns: int
    end_ns: int
    step_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """The question of `Store.latest`; each field occurs once."""

    measurement: Measurement
    fields: tuple[str, ...]
    since_ns: int


Question = Window | Series | Latest
