"""Damaged files: how they are recognised, and how they are set aside."""

import itertools
import re
import shutil
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import duckdb
import pyarrow as pa

# Errors of DuckDB 1.5 for a file that was truncated or garbled, each of them observed; not those
# for a full disk, a lock or a newer format.
_SIGNS = (
    "is not a valid DuckDB database file",
    "Could not read enough bytes from file",
    "Corrupt database file",
    "Corrupt WAL file",
    "replaying checkpoint WAL file",
    # Of the first bytes of a log that a kill during a checkpoint has left.
    "Failed to deserialize",
)
# The log, the log of commits during a checkpoint, and the one that a start has merged from both.
_LOGS = (".wal", ".wal.checkpoint", ".wal.recovery")
# The first bytes of a DuckDB 1.5 log: its version, as an entry. DuckDB silently ignores a log that
# begins otherwise, and overwrites it with the next commit.
_LOG_BEGINS = b"\x64\x00\x62\x65\x00"

# Errors of reading a sealed file that is missing, truncated or garbled.
OF_SCAN = (OSError, ValueError, LookupError, pa.ArrowException)

_NO_FILE = (
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.ParserException,
    duckdb.OutOfMemoryException,
    duckdb.InterruptException,
    duckdb.TransactionException,
)

# How DuckDB 1.5 names the first damaged entry of a log: by the offset of its content, which follows
# its length and its checksum.
_ENTRY = re.compile(r"entry at byte position (\d+)")
_ENTRY_HEAD_BYTES = 16


class Unreadable(Exception):
    """A sealed file that a question needs is missing, truncated, garbled, or cannot be opened now."""


def of_file(error: duckdb.Error) -> bool:
    """Return whether an error says that the DuckDB file itself, or its log, is damaged."""
    text = str(error)
    return any(sign in text for sign in _SIGNS) and ".parquet" not in text


def of_sealed_file(error: duckdb.Error) -> bool:
    """Return whether a question may have failed because of a sealed file, and not because of what
    it asked, a lack of memory or an interruption.
    """
    return not isinstance(error, _NO_FILE)


def logs_of(path: Path) -> list[Path]:
    """Return the paths where a DuckDB file's log may be; usually there is one file, or none."""
    return [path.with_name(path.name + suffix) for suffix in _LOGS]


def of_log(path: Path) -> str | None:
    """Return what is wrong with the beginning of a DuckDB file's log; None if it is fine or
    missing.

    A log that is shorter was cut off by a kill before anything was committed to it.
    """
    log = logs_of(path)[0]
    if not log.exists():
        return None
    with log.open("rb") as file:
        begins = file.read(len(_LOG_BEGINS))
    fine = len(begins) < len(_LOG_BEGINS) or begins == _LOG_BEGINS
    return None if fine else f'Corrupt WAL file "{log}": it does not begin as a log'


def files_of(path: Path, reason: str) -> list[Path]:
    """Return the files of a DuckDB store that an error is about: its logs alone, or all."""
    logs = logs_of(path)
    of_log = "WAL file" in reason
    # Where the error does not say, the rarest log is set aside first; the next start handles the
    # rest.
    of_log |= "Failed to deserialize" in reason and logs[1].exists()
    return logs if of_log else [path, *logs]


def put_away(path: Path, reason: str, now: datetime) -> dict[Path, Path]:
    """Set aside the files that an error is about; return where each is now.

    Of a log that is damaged from some entry on, as a power loss may leave it, only that end is set
    aside: what comes before it was committed, and stays.
    """
    log, *others = logs_of(path)
    found = _ENTRY.search(reason)
    whole = int(found[1]) - _ENTRY_HEAD_BYTES if found else 0
    is_its = f'"{log}"' in reason and not any(it.exists() for it in others)
    if not is_its or not len(_LOG_BEGINS) < whole < log.stat().st_size:
        return moved_away(files_of(path, reason), now)
    end = _unused(_damaged(log, now))
    with log.open("r+b") as file:
        file.seek(whole)
        with end.open("wb") as to:
            shutil.copyfileobj(file, to)
        file.truncate(whole)
    return {log: end}


def moved_away(paths: Iterable[Path], now: datetime) -> dict[Path, Path]:
    """Rename the files that exist to `<name>.damaged-<time>`; return where each is now."""
    return {path: path.rename(_unused(_damaged(path, now))) for path in paths if path.exists()}


def _damaged(path: Path, now: datetime) -> Path:
    return path.with_name(f"{path.name}.damaged-{now:%Y%m%dT%H%M%S}")


def _unused(path: Path) -> Path:
    """Return the path, with a number appended when there is such a file already."""
    numbered = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return next(it for it in itertools.chain([path], numbered) if not it.exists())
