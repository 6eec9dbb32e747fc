"""A table of the report, which every output writes in its own form."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from . import formatting

Range = tuple[float, float]
Trend = tuple[float | None, ...]
Cell = str | float | Range | Trend | None


_LITTLE = 0.01


class Kind(str, Enum):
    """The kind of values in a column; None in any column means not measured."""

    TEXT = "text"
    HOURS = "GPU-hours"  # one number, or a range when no single one is known
    PERCENT = "percent"
    MONEY = "money"
    COUNT = "count"
    LASTING = "hours"
    ENERGY = "kWh"
    MORE_ENERGY = "kWh more"  # a change of kWh
    CARBON = "kg CO2e"
    POINTS = "percentage points"  # a change of percentages
    MORE = "GPU-hours more"  # a change of GPU-hours
    TREND = "percent by span"  # the oldest first

    @property
    def is_text(self) -> bool:
        return self is Kind.TEXT

    @property
    def is_change(self) -> bool:
        return self in {Kind.MORE, Kind.MORE_ENERGY, Kind.POINTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: its key for programs, its head for people."""

    key: str
    label: str
    kind: Kind = Kind.TEXT
    bar: bool = False  # drawn beside a percentage
    more_is: str = ""  # for a change: "better" or "worse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """One table; `total` is a row below the others."""

    key: str
    heading: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    total: tuple[Cell, ...] | None = None
    note: str = ""
    currency: str = ""

    @property
    def shown(self) -> "Sheet":
        """The table for people: without columns of changes that are all unknown."""
        listed = [row for _, row in self.cells()]
        return self.without(
            one.key
            for n, one in enumerate(self.columns)
            if one.kind.is_change and all(row[n] is None for row in listed)
        )

    def without(self, keys: Iterable[str]) -> "Sheet":
        """Return the table without some columns."""
        left_out = set(keys)
        kept = [n for n, one in enumerate(self.columns) if one.key not in left_out]
        return replace(
            self,
            columns=tuple(self.columns[n] for n in kept),
            rows=tuple(tuple(row[n] for n in kept) for row in self.rows),
            total=None if self.total is None else tuple(self.total[n] for n in kept),
        )

    def name(self, number: int) -> str:
        """Return the name by which sentences refer to a row: `teams/vision`."""
        return f"{self.key}/{self.rows[number][0]}"

    def cells(self) -> Iterator[tuple[str, tuple[Cell, ...]]]:
        """Yield each row with its number, from 1, and the total as `all`."""
        for number, row in enumerate(self.rows, 1):
            yield str(number), row
        if self.total is not None:
            yield "all", self.total


def said(column: Column, cell: Cell) -> str:
    """Format a cell for people."""
    if cell is None:
        return formatting.NONE
    if isinstance(cell, str):
        return cell
    if isinstance(cell, tuple):
        return _several(column, cell)
    return _NUMBERS[column.kind](cell)


def hours(value: float) -> str:
    """Format GPU-hours with about two significant digits: `19,400`, `120`, `9.4`, `0.35`."""
    return f"{value:,.{decimals(value)}f}"


def decimals(value: float) -> int:
    """Return how many decimals are meaningful for a number by itself."""
    size = abs(value)
    return 0 if size >= 10 or size == 0 else 1 if size >= 1 else 2


def exact(value: float) -> float:
    """Round a number as it is shown, so that every output has the same."""
    return round(value, decimals(value)) + 0.0


def moved(now: float, before: float) -> float:
    """Return the change; 0 when it is less than a hundredth of the larger value."""
    change = now - before
    return 0.0 if abs(change) < _LITTLE * max(abs(now), abs(before)) else exact(change)


def _several(column: Column, cell: tuple[float | None, ...]) -> str:
    if column.kind is Kind.TREND:
        return " ".join(formatting.NONE if one is None else f"{one:.0f}" for one in cell)
    low, high = cell[0] or 0.0, cell[1] or 0.0
    if low == high:
        return hours(low)
    return f"up to {hours(high)}" if low == 0 else f"{hours(low)}–{hours(high)}"


def _signed(value: float, text: str) -> str:
    return text if value == 0 else f"{'+' if value > 0 else '−'}{text}"


_NUMBERS: dict[Kind, Callable[[float], str]] = {
    Kind.TEXT: str,
    Kind.HOURS: hours,
    Kind.PERCENT: lambda value: formatting.percent(value, 0 if value == round(value) else 1),
    Kind.MONEY: hours,
    Kind.COUNT: lambda value: f"{value:,.0f}",
    Kind.LASTING: formatting.lasting,
    Kind.ENERGY: formatting.energy,
    Kind.MORE_ENERGY: lambda value: _signed(value, formatting.energy(abs(value))),
    Kind.CARBON: formatting.carbon,
    Kind.POINTS: lambda value: _signed(value, f"{abs(value):.0f}") + " pts",
    Kind.MORE: lambda value: _signed(value, hours(abs(value))),
    Kind.TREND: lambda value: f"{value:.0f}",
}
