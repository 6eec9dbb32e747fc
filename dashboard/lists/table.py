"""Tables: as wide as a terminal, whole into a pipe or a file, or as JSON or CSV for programs."""

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
# Writes a cell in a terminal's colour: what stands there, and its tone (a key of `TONES`, "title", or none).
Paint = Callable[[str, str | None], str]
# What a word says to somebody who glances at a column that has tones.
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
_SHORTEST = 8  # a text is not cut shorter than this


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """`key` is its name for programs; `show` writes a value for people, who never see None.

    `short` is for a terminal, where it is something else.
    """

    key: str
    title: str
    show: Callable[[Any], str] = str
    short: Callable[[Any], str] | None = None
    right: bool = False
    flexible: bool = False  # is cut first where the table is too wide
    toned: bool = False  # its words have a tone


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """One table, and the lines about it; at a terminal its first columns and rows are shown."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    for_people: int | None = None  # so many columns
    piped: int | None = (
        None  # so many of them into a pipe or a file, where not all: programs get the rest
    )
    # From this column on every row says the same: that is written once, below the table.
    same_from: int | None = None
    rows_for_people: int | None = None  # so many rows; programs get all of them
    head: Sequence[str] = ()  # lines above it
    notes: Sequence[str] = ()  # lines below it
    empty: str = "nothing"  # said where there is no row, unless it is empty

    @property
    def simulated(self) -> bool:
        """Whether a row of it is of the simulated cluster."""
        places = [i for i, column in enumerate(self.columns) if column.key == "cluster"]
        return any(row[i] == SIMULATED_CLUSTER for row in self.rows for i in places)


def or_why(make: Callable[[], Grid], columns: Sequence[Column]) -> Grid:
    """The table, or an empty one that says why there is none; who does not answer at all raises."""
    try:
        return make()
    except StoreUnavailable:
        raise
    except (HubRefused, StoreError) as error:
        return Grid(columns=columns, rows=[], empty=f"Not known: {error}")


def _plainly(cell: str, _: str | None) -> str:
    return cell


def text(grid: Grid, width: int | None, paint: Paint = _plainly) -> str:
    """For people. `width` None: nothing is cut, wrapped or left out, as in a pipe or a file."""
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
    """What every row says, a line for each column; what is not known has none."""
    if grid.same_from is None:
        return
    pairs = zip(grid.columns[grid.same_from :], grid.rows[0][grid.same_from :], strict=True)
    known = [(column.title, _line(column.show(it))) for column, it in pairs if it is not None]
    widest = max((len(title) for title, _ in known), default=0)
    yield ""
    yield from (f"{title.ljust(widest)}{_GAP}{said}" for title, said in known)


def _less(grid: Grid) -> Iterable[str]:
    """Which columns a pipe or a file lacks."""
    names = [column.key for column in grid.columns[grid.piped :]] if grid.piped else []
    if names and grid.rows:
        yield f"-o csv and -o json also have {', '.join(names)}."


def _left_out(grid: Grid) -> Iterable[str]:
    more = len(grid.rows) - len(grid.rows[: grid.rows_for_people])
    if more:
        yield f"{more:,} more are not shown here: -o json and -o csv have them."


def _marked(grid: Grid) -> Iterable[str]:
    """What is simulated is marked as such, unless the lines about the table do so."""
    if grid.simulated and not any(_SIMULATED in line for line in (*grid.head, *grid.notes)):
        yield f"{_SIMULATED}: what is of cluster {SIMULATED_CLUSTER} is of no real hardware."


def _wrapped(lines: Sequence[str], width: int | None) -> list[str]:
    if width is None:
        return [_line(line) for line in lines]
    return [
        part for line in lines for part in textwrap.wrap(_line(line), width, subsequent_indent="  ")
    ]


def json_text(grid: Grid) -> str:
    """One object per row, in a list; times in UTC, lengths in seconds."""
    keys = [column.key for column in grid.columns]
    rows = [dict(zip(keys, map(_plain, row), strict=True)) for row in grid.rows]
    return json.dumps(rows, indent=2, ensure_ascii=False) + "\n"


def csv_text(grid: Grid) -> str:
    """A header, then a line per row; what was not measured is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(column.key for column in grid.columns)
    for row in grid.rows:
        writer.writerow(_unspoken(_plain(value)) for value in row)
    return out.getvalue()


class AtLeast(timedelta):
    """A span that may be longer: nobody saw its begin."""


def length(value: timedelta) -> str:
    """A span as people read it."""
    return f"≥ {duration(value)}" if isinstance(value, AtLeast) else duration(value)


def held_for(since: datetime, now: datetime, *, began_before: bool) -> timedelta:
    """How long something is held; at least so long when it was held already at the first look."""
    span = now - since
    return AtLeast(seconds=span.total_seconds()) if began_before else span


def yes_or_no(value: bool) -> str:
    """A fact as people read it."""
    return "yes" if value else "no"


def whole(value: float) -> str:
    """A number without decimals."""
    return f"{value:,.0f}"


def tenths(value: float) -> str:
    """A number with one decimal."""
    return f"{value:,.1f}"


def percents(value: float) -> str:
    """A share in percent."""
    return f"{value:.0f} %"


def _plain(value: Value) -> Any:
    if isinstance(value, datetime):
        return to_text(value)
    if isinstance(value, timedelta):
        return round(value.total_seconds(), 3)
    return round(value, 3) if isinstance(value, float) else value


def _unspoken(value: Any) -> Any:
    """A spreadsheet takes a text that begins like a formula for one: names come from outside."""
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
    """As many columns as there is room for without cutting, and those for people in any case."""
    fit = [n for n in range(1, len(widths) + 1) if sum(widths[:n]) + len(_GAP) * (n - 1) <= width]
    return max(fit[-1] if fit else 0, len(widths) if least is None else least)


def _shrink(widths: list[int], columns: Sequence[Column], width: int) -> None:
    """Make the widest of the flexible columns narrower until the table fits, or none is wide."""
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
    """Names come from outside: nothing in them moves a cursor."""
    return "".join(ch if ch.isprintable() else "?" for ch in said)
