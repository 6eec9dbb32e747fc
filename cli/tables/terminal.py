"""Tables at a terminal: width, colours, and a status line while a command is at work."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.style import Style
from rich.text import Text

from dashboard.lists.table import Grid, Paint, text

WIDTH = 80  # columns: the least, also of a terminal that does not report its width
_STYLES = {
    "title": Style(bold=True),
    "bad": Style(color="red", bold=True),
    "warn": Style(color="yellow"),
    "dim": Style(dim=True),
}
# A command that takes longer than this shows a status line.
_PATIENCE_SECONDS = 1.0


def drawn(grid: Grid) -> str:
    """Return the table for standard output: in full for a pipe or a file. At a terminal it is as wide as
    the terminal, and coloured if the terminal has colours and `NO_COLOR` is not set.
    """
    if not sys.stdout.isatty():
        return text(grid, None)
    return text(grid, width_of(sys.stdout.fileno()), painter(Console()))


def width_of(terminal: int) -> int:
    """Return the width of the terminal with this descriptor, in columns, at least 80."""
    try:
        return max(os.get_terminal_size(terminal).columns, WIDTH)
    except OSError:
        return WIDTH


def painter(console: Console) -> Paint:
    """Return a function that colours text for this console."""

    def paint(cell: str, tone: str | None) -> str:
        if tone is None:
            return cell
        with console.capture() as seen:
            console.print(Text(cell, style=_STYLES[tone]), end="", soft_wrap=True)
        return seen.get()

    return paint


@contextmanager
def at_work(what: str) -> Iterator[None]:
    """Show a line on standard error, if that is a terminal, once the block takes longer than a second."""
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
