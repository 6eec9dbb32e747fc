"""Files that cannot be read: how they are told from other trouble, and how they are put away."""

import itertools
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import duckdb

# What DuckDB 1.5 says of a file that was cut short or garbled, seen with each of them; not of a
# full disk, a lock or a newer format.
_SIGNS = (
    "is not a valid DuckDB database file",
    "Could not read enough bytes from file",
    "Corrupt database file",
    "Corrupt WAL file",
)

_NO_FILE = (
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.ParserException,
    duckdb.OutOfMemoryException,
    duckdb.InterruptException,
    duckdb.TransactionException,
)


def of_file(error: duckdb.Error) -> bool:
    """Whether an error says that the DuckDB file itself, or its log, is damaged."""
    text = str(error)
    return any(sign in text for sign in _SIGNS) and ".parquet" not in text


def of_sealed_file(error: duckdb.Error) -> bool:
    """Whether a question may have failed because of a sealed file: not for what it asked, for lack
    of memory, or because somebody stopped it.
    """
    return not isinstance(error, _NO_FILE)


def files_of(path: Path, reason: str) -> list[Path]:
    """The files of a DuckDB store that a reason speaks of: its log alone, or both."""
    log = path.with_name(path.name + ".wal")
    return [log] if "WAL file" in reason else [path, log]


def moved_away(paths: Iterable[Path], now: datetime) -> dict[Path, Path]:
    """Rename the files that are there to `<name>.damaged-<time>`; returns where each is now."""
    return {
        path: path.rename(_unused(path.with_name(f"{path.name}.damaged-{now:%Y%m%dT%H%M%S}")))
        for path in paths
        if path.exists()
    }


def _unused(path: Path) -> Path:
    """The path, with a number behind it when there is such a file already."""
    numbered = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return next(it for it in itertools.chain([path], numbered) if not it.exists())
