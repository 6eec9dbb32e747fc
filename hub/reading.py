"""From the bodies of a commit to the store's tables, and what became of each body's lines."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pyarrow as pa

from gpuvigil.clock import to_ns
from gpuvigil.lineprotocol import ColumnBlock, Precision, Refusal, parse_columns
from gpuvigil.lineprotocol.model import NANOSECONDS

from .body import Body, Outcome
from .columns import is_plain, read
from .rows import Assembly, fit


def read_bodies(bodies: Sequence[Body]) -> tuple[dict[str, pa.Table], list[Outcome]]:
    """The rows of all bodies by table of the store, and an outcome for each body."""
    work = _Work(bodies)
    plain: dict[Precision, list[int]] = {}
    for index, body in enumerate(bodies):
        if is_plain(body.text):
            plain.setdefault(body.precision, []).append(index)
        else:
            work.read_in_full(index, body.text)
    for precision, indexes in plain.items():
        work.read_together(precision, indexes)
    return work.tables(), [
        Outcome(refused=tuple(refused), lines=lines)
        for refused, lines in zip(work.refused, work.lines, strict=True)
    ]


class _Work:
    """The bodies of one commit, on their way into tables."""

    def __init__(self, bodies: Sequence[Body]) -> None:
        self._bodies = bodies
        self._pieces: dict[str, list[pa.Table]] = {}
        self._assembly = Assembly()
        self.lines = [0] * len(bodies)
        self.refused: list[list[Refusal]] = [[] for _ in bodies]

    def read_together(self, precision: Precision, indexes: Sequence[int]) -> None:
        """Read bodies that are plain, and what is unusual in them one by one."""
        texts = [self._bodies[index].text.rstrip(b"\n") for index in indexes]
        shifts = [self._bodies[index].shift_ns for index in indexes]
        found = read(texts, NANOSECONDS[precision], shifts)
        self._assembly.add(found.beside)
        for name, tables in found.tables.items():
            self._pieces.setdefault(name, []).extend(tables)
        for index, count, rows in zip(indexes, found.lines, found.rest, strict=True):
            self.lines[index] += count
            if rows:
                numbers, texts_left = zip(*rows, strict=True)
                self.read_in_full(index, b"\n".join(texts_left), numbers)

    def read_in_full(self, index: int, text: bytes, numbers: Sequence[int] = ()) -> None:
        """Read the text of a body, or some of its rows, which have these numbers in it."""
        body = self._bodies[index]
        blocks, refused = fit(parse_columns(text, body.precision), to_ns(body.received_at))
        self.lines[index] += sum(len(block.numbers) for block in blocks)
        self._assembly.add(shifted(block, body.shift_ns) for block in blocks)
        if numbers:
            refused = [replace(it, number=numbers[it.number - 1]) for it in refused]
        self.refused[index] = refused

    def tables(self) -> dict[str, pa.Table]:
        for name, table in self._assembly.tables().items():
            self._pieces.setdefault(name, []).append(table)
        return {name: _joined(tables) for name, tables in self._pieces.items()}


def shifted(block: ColumnBlock, shift_ns: int) -> ColumnBlock:
    """The block with `shift_ns` added to every time."""
    if not shift_ns:
        return block
    times = cast("list[int]", block.at_ns)
    return replace(block, at_ns=[at + shift_ns for at in times])


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    if len(tables) == 1:
        return tables[0]
    return pa.concat_tables(tables, promote_options="default")
