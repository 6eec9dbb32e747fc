"""Statistics of the store: how much it holds, since when, and what was lost."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import duckdb

from gpuvigil.clock import from_ns
from gpuvigil.metrics import MEASUREMENTS

from ..bodies.tables import EXTRA
from .damage import logs_of
from .database import Database
from .schema import quoted
from .sealed_files import Unit, units

# Share of the store's limit that is left to sealed files, however much the rest holds.
SEALED_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedLines:
    """What was dropped because the store was full: lines, and the time of the newest of them."""

    lines: int = 0
    until_ns: int | None = None

    def and_then(self, later: "DroppedLines") -> "DroppedLines":
        """Return the sum of both."""
        times = [it for it in (self.until_ns, later.until_ns) if it is not None]
        return DroppedLines(lines=self.lines + later.lines, until_ns=max(times, default=None))


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationResult:
    """The result of `Embedded.verify`: sealed units and lines that it read, and damaged units."""

    units: int
    lines: int
    damaged: int


def sizes(database: Database) -> tuple[dict[str, int], int]:
    """Return the lines per table, sealed ones included, and the bytes on disk."""
    rows, sealed = database.transaction(_counted)
    size = database.path.stat().st_size + _log_bytes(database)
    for unit in sealed:
        if unit.lines_bytes is not None:
            rows[unit.measurement] += unit.lines
        size += unit.bytes
    return rows, size


def _counted(cursor: duckdb.DuckDBPyConnection) -> tuple[dict[str, int], list[Unit]]:
    """Count recent lines and list sealed units at one moment: sealing moves lines between the two."""
    tables = (*MEASUREMENTS, EXTRA)
    counts = ", ".join(f"(SELECT count(*) FROM {quoted(table)})" for table in tables)
    (found,) = cursor.execute(f"SELECT {counts}").fetchall()
    return dict(zip(tables, found, strict=True)), units(cursor)


def held_bytes(database: Database) -> int:
    """Return the bytes in use of the DuckDB file and its log: recent lines, and all tables.

    The file itself never shrinks; freed blocks are written again. Blocks of sealed lines stay in
    use until the next checkpoint, and the log as long: see `reclaim`.
    """
    (told,) = database.ask(
        "SELECT block_size * used_blocks AS bytes FROM pragma_database_size()"
        " WHERE database_name = current_database()"
    )["bytes"].to_pylist()
    return int(told) + _log_bytes(database)


def reclaim(database: Database) -> None:
    """Free the blocks of deleted lines, and shorten the log.

    While a question is being answered the blocks stay; then they are freed by the first call that
    comes after another change of their table.
    """
    database.ask("CHECKPOINT")


def _log_bytes(database: Database) -> int:
    return sum(log.stat().st_size for log in logs_of(database.path) if log.exists())


def room_bytes(most_bytes: int, held: int) -> int:
    """Return the bytes for sealed files in a store of `most_bytes` whose DuckDB file holds `held`.

    At least `SEALED_SHARE` of the limit: dropping sealed files makes no DuckDB file smaller.
    """
    return max(most_bytes - held, int(most_bytes * SEALED_SHARE))


def is_crowded(most_bytes: int, held: int) -> bool:
    """Return whether the DuckDB file holds so much that the store takes more than `most_bytes`."""
    return most_bytes - held < int(most_bytes * SEALED_SHARE)


def beyond(room_bytes: int, sealed: Iterable[Unit]) -> list[Unit]:
    """Return the oldest units to drop so that the others have room; `sealed`: the oldest first."""
    known = list(sealed)
    over = sum(unit.bytes for unit in known) - room_bytes
    gone = []
    for unit in known:
        if over <= 0:
            break
        over -= unit.bytes
        gone.append(unit)
    return gone


def damaged(database: Database) -> list[dict[str, Any]]:
    """Return what was set aside as unreadable: `at_ns, file, reason, moved_to, lines`."""
    found: list[dict[str, Any]] = database.ask("SELECT * FROM damaged ORDER BY at_ns").to_pylist()
    return found


def oldest(database: Database) -> datetime | None:
    """Return the time of the oldest line of a node; None in an empty store."""
    found = database.ask(
        "SELECT min(least_ns) AS oldest FROM ("
        'SELECT epoch_ns(min("at")) AS least_ns FROM node UNION ALL SELECT min(first_ns)'
        " FROM sealed WHERE measurement = 'node' AND lines_bytes IS NOT NULL)"
    )["oldest"][0].as_py()
    return None if found is None else from_ns(found)
