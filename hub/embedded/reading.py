"""Which lines and roll-ups a question needs: only files whose span and nodes it can touch."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import duckdb

from gpuvigil.metrics import Measurement

from .question import Series, Window
from .schema import quoted, text
from .sql import BUCKET_NS, Relation, can_be_rolled
from .units import Unit, columns_of, units

# Shorter ranges are read line by line.
ROLLED_FROM_NS = 24 * 3_600_000_000_000


def sources(
    cursor: duckdb.DuckDBPyConnection, folder: Path, question: Window | Series
) -> tuple[Relation, list[Relation], list[Relation]]:
    """What is to be read: the hot table, sealed lines, roll-ups.

    Over more than a day whole buckets come from the roll-ups and the two ends from the lines,
    where roll-ups can answer at all. A unit whose lines are gone is read as roll-ups always.
    """
    measurement = question.measurement
    whole = (question.start_ns, question.end_ns)
    inner = _inner(*whole)
    long = whole[1] - whole[0] > ROLLED_FROM_NS and can_be_rolled(question)
    ends = ((whole[0], inner[0]), (inner[1], whole[1])) if long else (whole,)
    touched = [
        unit
        for unit in units(cursor, measurement.name)
        if unit.touches(*whole) and _has_node(unit, question)
    ]
    as_lines = [
        unit
        for unit in touched
        if unit.lines_bytes is not None and any(unit.touches(*end) for end in ends)
    ]
    as_rolled = [
        unit
        for unit in touched
        if (long or unit.lines_bytes is None) and inner[0] < inner[1] and unit.touches(*inner)
    ]
    hot = Relation(
        text=quoted(measurement.name),
        columns=frozenset(columns_of(measurement)),
        spans=(whole,),
    )
    sealed = list(_lines(cursor, folder, as_lines, ends))
    return hot, sealed, list(_rolled(cursor, folder, as_rolled, inner))


def lines_of(
    cursor: duckdb.DuckDBPyConnection,
    folder: Path,
    measurement: Measurement,
    of: Sequence[Unit],
) -> str:
    """All lines of units with the columns of today, as SQL for FROM."""
    whole = ((min(it.first_ns for it in of), max(it.last_ns for it in of) + 1),)
    wanted = columns_of(measurement)
    parts = []
    for relation in _lines(cursor, folder, of, whole):
        there = [quoted(name) for name in wanted if name in relation.columns]
        parts.append(f"SELECT {', '.join(there)} FROM {relation.text}")
    empty = f"SELECT {', '.join(map(quoted, wanted))} FROM {quoted(measurement.name)} LIMIT 0"
    return f"(({empty}) UNION ALL BY NAME {' UNION ALL BY NAME '.join(parts)})"


def _lines(
    cursor: duckdb.DuckDBPyConnection,
    folder: Path,
    of: Iterable[Unit],
    spans: tuple[tuple[int, int], ...],
) -> Iterator[Relation]:
    for columns, group in _by_layout(cursor, of):
        text = _files(unit.lines_file(folder) for unit in group)
        yield Relation(text=text, columns=columns, spans=spans)


def _rolled(
    cursor: duckdb.DuckDBPyConnection, folder: Path, of: Iterable[Unit], span: tuple[int, int]
) -> Iterator[Relation]:
    for columns, group in _by_layout(cursor, of):
        text = _files(unit.rolled_file(folder) for unit in group)
        yield Relation(text=text, columns=columns, spans=(span,))


def _by_layout(
    cursor: duckdb.DuckDBPyConnection, of: Iterable[Unit]
) -> Iterator[tuple[frozenset[str], list[Unit]]]:
    """Units by the columns of their lines: files of different ones are read apart."""
    groups: dict[str, list[Unit]] = {}
    for unit in of:
        groups.setdefault(unit.layout, []).append(unit)
    for layout, group in groups.items():
        rows = cursor.execute("SELECT columns FROM layouts WHERE layout = ?", [layout]).fetchall()
        yield frozenset(rows[0][0].split(",")), group


def _files(paths: Iterable[Path]) -> str:
    names = ", ".join(text(str(path)) for path in paths)
    return f"read_parquet([{names}], hive_partitioning=false)"


def _inner(start_ns: int, end_ns: int) -> tuple[int, int]:
    """The whole buckets of a range."""
    return -(-start_ns // BUCKET_NS) * BUCKET_NS, end_ns // BUCKET_NS * BUCKET_NS


def _has_node(unit: Unit, question: Window | Series) -> bool:
    node = dict(question.where).get("node") if isinstance(question, Series) else None
    return node is None or unit.first_node <= node <= unit.last_node
