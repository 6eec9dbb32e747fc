"""`gpuvigil top` at a terminal: the table again every few seconds, and keys that sort it."""

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
# A key sorts by the column with this name for programs; numbers and lengths largest first.
SORTS = {"g": "gpus", "i": "idle_gpus", "u": "user", "f": "held_for_seconds", "w": "power_watts"}
_HELP = "q quit   p pause   sort by: g GPUs  i idle  u user  f for how long  w watts"
_END = frozenset({"q", "\x03", "\x04", ""})


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What somebody who looks has chosen."""

    sort: str = "gpus"
    paused: bool = False
    over: bool = False


def pressed(view: View, key: str | None) -> View:
    """After a key; one that means nothing, and none, change nothing. "" is a terminal that went away."""
    if key in _END:
        return replace(view, over=True)
    if key == "p":
        return replace(view, paused=not view.paused)
    return replace(view, sort=SORTS.get(key or " ", view.sort))


def ordered(grid: Grid, view: View) -> Grid:
    """The rows by the chosen column; those without a value come last, equals stay as they were."""
    place = next(i for i, column in enumerate(grid.columns) if column.key == view.sort)
    known = [row for row in grid.rows if row[place] is not None]
    unknown = [row for row in grid.rows if row[place] is None]

    def value(row: Sequence[Value]) -> Value:
        return row[place]

    largest_first = bool(known) and not isinstance(known[0][place], str)
    known.sort(key=value, reverse=largest_first)  # type: ignore[arg-type]  # a column is of one type
    return replace(grid, rows=[*known, *unknown])


def state_line(view: View, age: timedelta, trouble: str | None) -> str:
    """Below the table: what the keys do, or why no newer table came, and how old this one is."""
    if trouble is not None:
        return f"{duration(age)} old: {trouble}"
    return f"Paused, {duration(age)} old. p goes on, q ends it." if view.paused else _HELP


def watch(look: Callable[[], Grid]) -> None:
    """Show the table until somebody ends it; GpuvigilError of the first look alone.

    Of a hub that is away later the last table stays, and a line says so.
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
    """As many lines as a terminal has: the table's first, and the line below it last."""
    lines = said.splitlines()[: max(height - 2, 1)]
    return "\n".join([*lines, *[""] * (height - 1 - len(lines)), below])


@contextmanager
def _keys(terminal: int) -> Iterator[Callable[[float], str | None]]:
    """Asks for a key: waits at most so many seconds; None for none, "" for a terminal that went away."""

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
        with suppress(termios.error):  # a terminal that went away has nothing to restore
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)
