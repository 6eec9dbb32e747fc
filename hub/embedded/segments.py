"""Compaction: from the hot table to hourly files, from these to daily ones, and out again.

Every function is the work of one transaction: it removes from the hot table what it has read, so
lines that are committed meanwhile stay there. Lines that come late for a sealed hour become a unit
of their own beside it, and are merged with it when the day is joined.
"""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import duckdb

from gpuvigil.metrics import Measurement

from .aggregates import BUCKET_NS
from .schema import quoted, text
from .sealed_files import BESIDE, Unit, enter, strike, units
from .sealed_sql import lines_of
from .segment_writer import DAY, HOUR, HOUR_NS, SegmentWriter

DAY_NS = 24 * HOUR_NS

# Late lines wait in the hot table until there are this many, or for this long.
_MANY_LATE = 50_000
_LATE_NS = HOUR_NS
# A day is joined again for late units when the oldest of them has waited for this long.
_LATE_DAY_NS = 6 * HOUR_NS


def due_hours(
    cursor: duckdb.DuckDBPyConnection, measurement: Measurement, before_ns: int, now_ns: int
) -> list[int]:
    """Return the starts of hours that end before `before_ns` and are due now, oldest first."""
    rows = cursor.execute(
        f'SELECT epoch_ns("at") // {HOUR_NS} AS hour, count(*) FROM {quoted(measurement.name)}'
        ' WHERE "at" < make_timestamp_ns(?::BIGINT) GROUP BY hour ORDER BY hour',
        [before_ns // HOUR_NS * HOUR_NS],
    ).fetchall()
    sealed: dict[int, int] = {}
    for unit in units(cursor, measurement.name) if rows else ():
        for hour in range(unit.first_ns // HOUR_NS, unit.last_ns // HOUR_NS + 1):
            sealed[hour] = max(sealed.get(hour, 0), unit.sealed_ns)
    return [
        hour * HOUR_NS
        for hour, lines in rows
        if hour not in sealed or lines >= _MANY_LATE or now_ns - sealed[hour] >= _LATE_NS
    ]


def seal(
    cursor: duckdb.DuckDBPyConnection,
    writer: SegmentWriter,
    measurement: Measurement,
    start_ns: int,
    now_ns: int,
) -> None:
    """Move the lines of the hour that starts at `start_ns` from the hot table into a unit."""
    span = (
        f'"at" >= make_timestamp_ns({start_ns}) AND "at" < make_timestamp_ns({start_ns + HOUR_NS})'
    )
    table = quoted(measurement.name)
    lines = f"(SELECT * FROM {table} WHERE {span})"
    unit = writer.make(cursor, measurement, lines, (HOUR, start_ns, now_ns))
    if unit is not None:
        enter(cursor, unit)
        cursor.execute(f"DELETE FROM {table} WHERE {span}")
        writer.after_step("moved")


def due_days(
    found: Sequence[Unit], before_ns: int, now_ns: int
) -> Iterator[tuple[int, list[Unit]]]:
    """Yield the days that end before `before_ns` and have more units than they need; see `join`."""
    with_lines = [unit for unit in found if unit.lines_bytes is not None]
    for day, group in groupby(with_lines, key=lambda unit: unit.first_ns // DAY_NS):
        pieces = list(group)
        hours = [unit for unit in pieces if unit.level == HOUR]
        if (day + 1) * DAY_NS > before_ns or not hours or len(pieces) < 2:
            continue
        first = len(hours) == len(pieces)
        if first or now_ns - min(unit.sealed_ns for unit in hours) >= _LATE_DAY_NS:
            yield day * DAY_NS, pieces


def join(
    cursor: duckdb.DuckDBPyConnection,
    writer: SegmentWriter,
    measurement: Measurement,
    day: tuple[int, Sequence[Unit]],
    now_ns: int,
) -> Sequence[Unit]:
    """Merge the units of a day into as few as possible, split by node; return those replaced."""
    start_ns, pieces = day
    source = lines_of(cursor, writer.folder, measurement, pieces)
    conditions = list(_parts(cursor, source, writer.most_lines))
    beside = (secrets.token_hex(4), len(conditions))
    for condition in conditions:
        lines = f"(SELECT * FROM {source} WHERE {condition})"
        unit = writer.make(cursor, measurement, lines, (DAY, start_ns, now_ns), pieces, beside)
        if unit is not None:
            enter(cursor, unit)
    strike(cursor, pieces)
    writer.after_step("joined")
    return pieces


def cut(
    cursor: duckdb.DuckDBPyConnection,
    writer: SegmentWriter,
    measurement: Measurement,
    before_ns: int,
    now_ns: int,
) -> list[Unit]:
    """Leave no sealed line older than `before_ns`; return the units that are gone or replaced."""
    gone = []
    for unit in units(cursor, measurement.name):
        if unit.first_ns >= before_ns:
            continue
        gone.append(unit)
        strike(cursor, [unit])
        if unit.last_ns >= before_ns and unit.lines_bytes is not None:
            source = lines_of(cursor, writer.folder, measurement, [unit])
            rest = f'(SELECT * FROM {source} WHERE "at" >= make_timestamp_ns({before_ns}))'
            start_ns = unit.first_ns // DAY_NS * DAY_NS
            kept = writer.make(cursor, measurement, rest, (unit.level, start_ns, now_ns), [unit])
            if kept is not None:
                enter(cursor, kept)
    return gone


def expire(
    cursor: duckdb.DuckDBPyConnection, lines_before_ns: int, rolled_before_ns: int
) -> tuple[list[Unit], list[Unit]]:
    """Drop what is wholly past its retention: (units that lost their lines, units that are gone)."""
    stripped, gone = expiring(units(cursor), lines_before_ns, rolled_before_ns)
    strike(cursor, [*stripped, *gone])
    for unit in stripped:
        enter(cursor, unit.without_lines())
    return stripped, gone


def expiring(
    found: Iterable[Unit], lines_before_ns: int, rolled_before_ns: int
) -> tuple[list[Unit], list[Unit]]:
    """Return what is wholly past its retention: (units that lose their lines, units that go)."""
    stripped, gone = [], []
    for unit in found:
        # Nobody asks for roll-ups of what the catalogue does not know.
        only_lines = unit.measurement == BESIDE.name and unit.last_ns < lines_before_ns
        if only_lines or unit.last_ns < rolled_before_ns - BUCKET_NS:
            gone.append(unit)
        elif unit.last_ns < lines_before_ns and unit.lines_bytes is not None:
            stripped.append(unit)
    return stripped, gone


def _parts(cursor: duckdb.DuckDBPyConnection, source: str, most_lines: int) -> Iterator[str]:
    """Yield conditions on the node that split lines into parts small enough to be sorted."""
    rows = cursor.execute(
        f"SELECT node, count(*) FROM {source} GROUP BY node ORDER BY node"
    ).fetchall()
    total, start = 0, None
    for node, lines in rows:
        if start is not None and total + lines > most_lines:
            yield f"node >= {text(start)} AND node < {text(node)}"
            start, total = None, 0
        start, total = node if start is None else start, total + lines
    if start is not None:
        yield f"node >= {text(start)}"
