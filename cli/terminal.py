"""Tables at a terminal: width, colours, and a sign that a command is still at work."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.style import Style
from rich.text import Text

from dashboard.lists.table import Grid, Paint, text

WIDTH = 80  # of a terminal that does not say, and at least
_STYLES = {
    "title": Style(bold=True),
    "bad": Style(color="red", bold=True),
    "warn": Style(color="yellow"),
    "dim": Style(dim=True),
}
# Who waits for longer than this wants to know that something happens.
_PATIENCE_SECONDS = 1.0


def drawn(grid: Grid) -> str:
    """The table as standard output takes it: whole into a pipe or a file, as wide as a terminal, and with
    colours where it has any and `NO_COLOR` is not set.
    """
    if not sys.stdout.isatty():
        return text(grid, None)
    return text(grid, width_of(sys.stdout.fileno()), painter(Console()))


def width_of(terminal: int) -> int:
    """Of the terminal with this descriptor, in columns."""
    try:
        return max(os.get_terminal_size(terminal).columns, WIDTH)
    except OSError:
        return WIDTH


def painter(console: Console) -> Paint:
    """Colours as this console shows them."""

    def paint(cell: str, tone: str | None) -> str:
        if tone is None:
            return cell
        with console.capture() as seen:
            console.print(Text(cell, style=_STYLES[tone]), end="", soft_wrap=True)
        return seen.get()

    return paint


@contextmanager
def at_work(what: str) -> Iterator[None]:
    """A line on a terminal's standard error while what is inside takes longer than a second."""
    if not sys.stderr.isatty():
        yield
        return
    status = Console(stderr=True).status(what)
    after = threading.Timer(_PATIENCE_SECONDS, status.start)
    after.daemon = True
    after.start()
    try:
        yield
    finally:
        after.cancel()
        after.join()
        status.stop()
