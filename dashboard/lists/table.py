"""Tables as text for a terminal, a pipe or a file, and as JSON or CSV for programs."""

import csv
import io
import json
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gpuvigil.clock import duration, to_text
from gpuvigil.errors import HubRefused, StoreError, StoreUnavailable
from gpuvigil.model import SIMULATED_CLUSTER, GpuState, Severity

Value = str | int | float | bool | datetime | timedelta | None
# Colours a cell for a terminal, from its text and tone (a value of `TONES`, "title" or None).
Paint = Callable[[str, str | None], str]
# The tone of each word in a column that has tones.
TONES = {
    Severity.CRITICAL.value: "bad",
    GpuState.UNAVAILABLE.value: "bad",
    Severity.WARNING.value: "warn",
    GpuState.IDLE.value: "warn",
    GpuState.UNKNOWN.value: "dim",
}
FORMS = ("table", "json", "csv")
_GAP = "  "
_SIMULATED = "(simulated)"
_SHORTEST = 8  # characters; a text is not cut shorter than this


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column. `key` is its name for programs; `show` formats a value for people, never None.

    `short` formats a value for a terminal if that differs.
    """

    key: str
    title: str
    show: Callable[[Any], str] = str
    short: Callable[[Any], str] | None = None
    right: bool = False
    flexible: bool = False  # whether it may be cut if the table is too wide
    toned: bool = False  # whether its words have a tone


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """One table and the lines around it; at a terminal only its first columns and rows are shown."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    for_people: int | None = None  # number of columns at a terminal
    piped: int | None = (
        None  # number of columns in a pipe or a file, if not all: JSON and CSV have the rest
    )
    # From this column on every row has the same values, which are written once, below the table.
    same_from: int | None = None
    rows_for_people: int | None = None  # number of rows at a terminal
    head: Sequence[str] = ()  # lines above the table
    notes: Sequence[str] = ()  # lines below the table
    empty: str = "nothing"  # the line instead of a table without rows; "" for none

    @property
    def simulated(self) -> bool:
        """Whether a row is of the simulated cluster."""
        places = [i for i, column in enumerate(self.columns) if column.key == "cluster"]
        return any(row[i] == SIMULATED_CLUSTER for row in self.rows for i in places)


def or_why(make: Callable[[], Grid], columns: Sequence[Column]) -> Grid:
    """Return the table, or an empty one that says why it is not known; an unavailable hub or store raises."""
    try:
        return make()
    except StoreUnavailable:
        raise
    except (HubRefused, StoreError) as error:
        return Grid(columns=columns, rows=[], empty=f"Not known: {error}")


def _plainly(cell: str, _: str | None) -> str:
    return cell


def text(grid: Grid, width: int | None, paint: Paint = _plainly) -> str:
    """Return the table for people. `width` None: nothing is cut or wrapped, as in a pipe or a file."""
    lines = [*_wrapped(grid.head, width), *([""] if grid.head and grid.rows else [])]
    if grid.rows:
        lines += _table(grid, width, paint)
    elif grid.empty:
        lines.append(grid.empty)
    if grid.rows and width is None:
        lines += _once(grid)
    notes = [*grid.notes, *(_less(grid) if width is None else _left_out(grid)), *_marked(grid)]
    if notes:
        lines += ["", *_wrapped(notes, width)]
    return "".join(line.rstrip() + "\n" for line in lines)


def _once(grid: Grid) -> Iterable[str]:
    """Yield the values that all rows share, a line per column; unknown ones are left out."""
    if grid.same_from is None:
        return
    pairs = zip(grid.columns[grid.same_from :], grid.rows[0][grid.same_from :], strict=True)
    known = [(column.title, _line(column.show(it))) for column, it in pairs if it is not None]
    widest = max((len(title) for title, _ in known), default=0)
    yield ""
    yield from (f"{title.ljust(widest)}{_GAP}{said}" for title, said in known)


def _less(grid: Grid) -> Iterable[str]:
    """Yield a line that names the columns that a pipe or a file lacks."""
    names = [column.key for column in grid.columns[grid.piped :]] if grid.piped else []
    if names and grid.rows:
        yield f"-o csv and -o json also have {', '.join(names)}."


def _left_out(grid: Grid) -> Iterable[str]:
    more = len(grid.rows) - len(grid.rows[: grid.rows_for_people])
    if more:
        yield f"{more:,} more are not shown here: -o json and -o csv have them."


def _marked(grid: Grid) -> Iterable[str]:
    """Yield a line that marks simulated rows, unless another line already does."""
    if grid.simulated and not any(_SIMULATED in line for line in (*grid.head, *grid.notes)):
        yield f"{_SIMULATED}: cluster {SIMULATED_CLUSTER} is no real hardware."


def _wrapped(lines: Sequence[str], width: int | None) -> list[str]:
    if width is None:
        return [_line(line) for line in lines]
    return [
        part for line in lines for part in textwrap.wrap(_line(line), width, subsequent_indent="  ")
    ]


def json_text(grid: Grid) -> str:
    """Return a JSON list with an object per row; times are in UTC, durations in seconds."""
    keys = [column.key for column in grid.columns]
    rows = [dict(zip(keys, map(_plain, row), strict=True)) for row in grid.rows]
    return json.dumps(rows, indent=2, ensure_ascii=False) + "\n"


def csv_text(grid: Grid) -> str:
    """Return CSV with a header and a line per row; unknown values are empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(column.key for column in grid.columns)
    for row in grid.rows:
        writer.writerow(_unspoken(_plain(value)) for value in row)
    return out.getvalue()


class AtLeast(timedelta):
    """A duration that may be longer, since its start was not seen."""


def length(value: timedelta) -> str:
    """Return a duration for people, with `≥` if it may be longer."""
    return f"≥ {duration(value)}" if isinstance(value, AtLeast) else duration(value)


def held_for(since: datetime, now: datetime, *, began_before: bool) -> timedelta:
    """Return how long something is held; an `AtLeast` if it was already held when first seen."""
    span = now - since
    return AtLeast(seconds=span.total_seconds()) if began_before else span


def yes_or_no(value: bool) -> str:
    """Return "yes" or "no"."""
    return "yes" if value else "no"


def whole(value: float) -> str:
    """Return a number without decimals."""
    return f"{value:,.0f}"


def tenths(value: float) -> str:
    """Return a number with one decimal."""
    return f"{value:,.1f}"


def percents(value: float) -> str:
    """Return a share in percent."""
    return f"{value:.0f} %"


def _plain(value: Value) -> Any:
    if isinstance(value, datetime):
        return to_text(value)
    if isinstance(value, timedelta):
        return round(value.total_seconds(), 3)
    return round(value, 3) if isinstance(value, float) else value


def _unspoken(value: Any) -> Any:
    """Return a CSV value with texts that look like a spreadsheet formula quoted, as names come from outside."""
    if isinstance(value, str):
        said = _line(value)
        return f"'{said}" if said.startswith(("=", "+", "-", "@")) else said
    return "" if value is None else value


def _table(grid: Grid, width: int | None, paint: Paint) -> Iterable[str]:
    last = grid.same_from if width is not None or grid.piped is None else grid.piped
    columns = grid.columns[:last]
    shows = [
        column.short if column.short and width is not None else column.show for column in columns
    ]
    cells = [
        [
            "-" if value is None else _line(show(value))
            for show, value in zip(shows, row[:last], strict=True)
        ]
        for row in grid.rows[: None if width is None else grid.rows_for_people]
    ]
    titles = [column.title for column in columns]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    if width is not None:
        columns = columns[: _how_many(widths, grid.for_people, width)]
        widths = widths[: len(columns)]
        _shrink(widths, columns, width)
    for row in (titles, *cells):
        yield _GAP.join(
            paint(_fit(cell, size, right=column.right), _tone(column, cell, row is titles))
            for cell, size, column in zip(row, widths, columns, strict=False)
        )


def _tone(column: Column, cell: str, of_titles: bool) -> str | None:
    if of_titles:
        return "title"
    return TONES.get(cell) if column.toned else None


def _how_many(widths: Sequence[int], least: int | None, width: int) -> int:
    """Return how many columns fit without cutting, but at least those for people."""
    fit = [n for n in range(1, len(widths) + 1) if sum(widths[:n]) + len(_GAP) * (n - 1) <= width]
    return max(fit[-1] if fit else 0, len(widths) if least is None else least)


def _shrink(widths: list[int], columns: Sequence[Column], width: int) -> None:
    """Make the widest flexible column narrower until the table fits or none is wide."""
    flexible = [place for place, column in enumerate(columns) if column.flexible]
    while flexible and sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        widest = max(flexible, key=lambda place: widths[place])
        if widths[widest] <= _SHORTEST:
            return
        widths[widest] -= 1


def _fit(cell: str, size: int, *, right: bool) -> str:
    cut = cell if len(cell) <= size else cell[: size - 1] + "…"
    return cut.rjust(size) if right else cut.ljust(size)


def _line(said: str) -> str:
    """Replace unprintable characters, as names come from outside and must not move the cursor."""
    return "".join(ch if ch.isprintable() else "?" for ch in said)
