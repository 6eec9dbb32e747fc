"""Problems of a recording, each with the file, the line and the column."""

import csv
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

_MOST = 40


class BadRecording(ValueError):
    """A recording that cannot be played; its text has a line for each problem."""


@dataclass(slots=True)
class Problems:
    """All errors and notes about a recording, in the order in which they were found."""

    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def error(self, path: Path, text: str, line: int | None = None, column: str = "") -> None:
        """Add an error, which has to be fixed before the recording is played."""
        self.errors.append(_placed(path, text, line, column))

    def note(self, path: Path, text: str, line: int | None = None, column: str = "") -> None:
        """Add a note on something the reader did or left out; equal notes are kept once."""
        said = _placed(path, text, line, column)
        if said not in self.notes:
            self.notes.append(said)

    def check(self) -> None:
        """Raise BadRecording when there is any error."""
        if self.errors:
            more = len(self.errors) - _MOST
            cut = [f"and {more} more"] if more > 0 else []
            raise BadRecording("\n".join([*self.notes, *self.errors[:_MOST], *cut]))


def _placed(path: Path, text: str, line: int | None, column: str) -> str:
    place = str(path) if line is None else f"{path}:{line}"
    return f"{place}: column {column}: {text}" if column else f"{place}: {text}"


def line_of(path: Path, row: int, torn: Collection[int] = ()) -> int | None:
    """Return the line in which a row of a CSV begins, the header being line 1; None for other files.

    `torn` holds the numbers of lines that are no rows, counted from the header on, without empty lines.
    """
    if path.suffix.lower() != ".csv":
        return None
    rows = (line for number, line in lines_of(path) if number > 1 and number not in torn)
    return next(islice(rows, row, None), None)


def lines_of(path: Path) -> Iterator[tuple[int, int]]:
    """Yield the number and the line of each non-empty CSV record, except for repeated headers."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        reader, number, before, header = csv.reader(file), 0, 0, None
        for cells in reader:
            line, before = before + 1, reader.line_num
            number += bool(cells)
            if cells and cells != header:
                yield number, line
            header = header or cells


def meant(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?`, or "" where no known name is similar."""
    near = get_close_matches(word.lower(), list(known), n=1, cutoff=0.72)
    return f"; did you mean {near[0]}?" if near else ""


def reason(error: OSError) -> str:
    """Return why a file cannot be read."""
    return os.strerror(error.errno) if error.errno else str(error)
