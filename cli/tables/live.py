"""`gpuvigil top` at a terminal: a table that is read again every few seconds, and keys that sort it."""

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from rich.console import Console
from rich.text import Text

from dashboard.lists.table import Grid, Value, text
from gpuvigil.clock import duration
from gpuvigil.errors import GpuvigilError

from .terminal import painter, width_of

REFRESH_SECONDS = 5.0
# The key of the column that each keyboard key sorts by; numbers and durations sort largest first.
SORTS = {"g": "gpus", "i": "idle_gpus", "u": "user", "f": "held_for_seconds", "w": "power_watts"}
_HELP = "q quit   p pause   sort by: g GPUs  i idle  u user  f for how long  w watts"
_END = frozenset({"q", "\x03", "\x04", ""})


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the person at the terminal has chosen."""

    sort: str = "gpus"
    paused: bool = False
    over: bool = False


def pressed(view: View, key: str | None) -> View:
    """Return the view after a key; None and unknown keys change nothing, "" means the terminal is gone."""
    if key in _END:
        return replace(view, over=True)
    if key == "p":
        return replace(view, paused=not view.paused)
    return replace(view, sort=SORTS.get(key or " ", view.sort))


def ordered(grid: Grid, view: View) -> Grid:
    """Sort the rows by the chosen column, stably; rows without a value come last."""
    place = next(i for i, column in enumerate(grid.columns) if column.key == view.sort)
    known = [row for row in grid.rows if row[place] is not None]
    unknown = [row for row in grid.rows if row[place] is None]

    def value(row: Sequence[Value]) -> Value:
        return row[place]

    largest_first = bool(known) and not isinstance(known[0][place], str)
    known.sort(key=value, reverse=largest_first)  # type: ignore[arg-type]  # a column is of one type
    return replace(grid, rows=[*known, *unknown])


def state_line(view: View, age: timedelta, trouble: str | None) -> str:
    """Return the line below the table: the keys, or the table's age with the reason why it is old."""
    if trouble is not None:
        return f"{duration(age)} old: {trouble}"
    return f"Paused, {duration(age)} old. p resumes, q quits." if view.paused else _HELP


def watch(look: Callable[[], Grid]) -> None:
    """Show the table until a key ends it. Only the first look raises GpuvigilError.

    If the hub does not answer later, the last table stays and a line says so.
    """
    console, view, trouble = Console(), View(), None
    grid, last, asked = look(), time.monotonic(), time.monotonic()
    with _keys(sys.stdin.fileno()) as key, console.screen() as screen:
        while not view.over:
            if not view.paused and time.monotonic() - asked >= REFRESH_SECONDS:
                asked = time.monotonic()
                try:
                    grid, last, trouble = look(), asked, None
                except GpuvigilError as error:
                    trouble = str(error)
            said = text(ordered(grid, view), width_of(sys.stdout.fileno()), painter(console))
            below = state_line(view, timedelta(seconds=time.monotonic() - last), trouble)
            screen.update(Text.from_ansi(page(said, below, console.height)))
            view = pressed(view, key(1.0))


def page(said: str, below: str, height: int) -> str:
    """Return as many lines as the terminal has: the table's first lines, and the state line last."""
    lines = said.splitlines()[: max(height - 2, 1)]
    return "\n".join([*lines, *[""] * (height - 1 - len(lines)), below])


@contextmanager
def _keys(terminal: int) -> Iterator[Callable[[float], str | None]]:
    """Yield a function that waits so many seconds for a key: None if none came, "" if the terminal is gone."""

    def key(seconds: float) -> str | None:
        try:
            ready, _, _ = select.select([terminal], [], [], seconds)
            return os.read(terminal, 1).decode("utf-8", "replace") if ready else None
        except OSError:
            return ""

    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield key
    finally:
        with suppress(termios.error):  # a terminal that is gone has nothing to restore
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)
