"""Parses the bodies of a commit into the store's tables, and returns the outcome of each."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import pyarrow as pa

from gpuvigil.clock import to_ns
from gpuvigil.lineprotocol import ColumnBlock, Precision, Refusal, parse_columns
from gpuvigil.lineprotocol.model import NANOSECONDS
from gpuvigil.store import EARLIEST_NS, LATEST_NS

from ..bodies.bulk_parser import is_plain, read
from ..bodies.tables import Assembly, fit, without
from ..http.bearer import Bearer, foreign
from .body import Body, Outcome
from .series_limit import SeriesLimiter, head_of, node_of

_MOST_PIECES = 8


def read_bodies(
    bodies: Sequence[Body], series: SeriesLimiter | None = None
) -> tuple[dict[str, pa.Table], list[Outcome]]:
    """Return the rows of all bodies by table of the store, and an outcome for each body.

    Without `series` their number is not limited.
    """
    work = _Work(bodies, series)
    plain: dict[Precision, list[int]] = {}
    for index, body in enumerate(bodies):
        if is_plain(body.text):
            plain.setdefault(body.precision, []).append(index)
        else:
            work.read_in_full(index, body.text)
    for precision, indexes in plain.items():
        work.read_together(precision, indexes)
    return work.tables(), work.outcomes()


class _Work:
    """The bodies of one commit, being turned into tables."""

    def __init__(self, bodies: Sequence[Body], series: SeriesLimiter | None) -> None:
        self._bodies = bodies
        self._series = series
        self._pieces: dict[str, list[pa.Table]] = {}
        self._assembly = Assembly()
        self._lines = [0] * len(bodies)
        self._refused: list[list[Refusal]] = [[] for _ in bodies]
        self._forbidden: dict[int, str] = {}

    def read_together(self, precision: Precision, indexes: Sequence[int]) -> None:
        """Read plain bodies together, and the unusual lines in them one by one."""
        texts = [self._bodies[index].text.rstrip(b"\n") for index in indexes]
        shifts = [self._bodies[index].shift_ns for index in indexes]
        found = read(texts, NANOSECONDS[precision], shifts, partial(self._refusals, indexes))
        self._assembly.add(found.beside)
        for name, tables in found.tables.items():
            self._pieces.setdefault(name, []).extend(tables)
        for text, index in enumerate(indexes):
            self._lines[index] += found.lines[text]
            self._refused[index] += [
                Refusal(number=number, reason=reason) for number, reason in found.refused[text]
            ]
            if found.rest[text]:
                numbers, rows = zip(*found.rest[text], strict=True)
                self.read_in_full(index, b"\n".join(rows), numbers)

    def read_in_full(self, index: int, text: bytes, numbers: Sequence[int] = ()) -> None:
        """Read the text of a body, or some of its rows, whose line numbers are `numbers`."""
        body = self._bodies[index]
        blocks, refused = fit(parse_columns(text, body.precision), to_ns(body.received_at))
        reason = None if numbers else _foreign(body.bearer, blocks)
        if reason is not None:
            self._forbidden[index] = reason
            return
        if self._series is not None:
            blocks, more = _admitted(self._series, blocks)
            refused += more
        self._lines[index] += sum(len(block.numbers) for block in blocks)
        self._assembly.add(shifted(block, body.shift_ns) for block in blocks)
        if numbers:
            refused = [replace(it, number=numbers[it.number - 1]) for it in refused]
        self._refused[index] += refused

    def _refusals(
        self, indexes: Sequence[int], heads: Sequence[tuple[int, str, int]]
    ) -> list[str | None]:
        """Return why the lines of each head are refused; `indexes`: which bodies its texts are.

        Of a body that has a line of another node, all lines are.
        """
        bound = {
            text
            for text, index in enumerate(indexes)
            if not self._bodies[index].bearer.writes_for_any_node
        }
        if bound:
            self._forbid((indexes[text], head) for text, head, _ in heads if text in bound)
        admit = self._series.admit if self._series is not None else lambda _head, _lines: None
        forbidden = [self._forbidden.get(index) for index in indexes]
        return [forbidden[text] or admit(head, lines) for text, head, lines in heads]

    def _forbid(self, heads: Iterable[tuple[int, str]]) -> None:
        """Forbid each body of which a head names a node that its bearer may not write for."""
        in_full: set[int] = set()
        for index, head in heads:
            if index in self._forbidden:
                continue
            body = self._bodies[index]
            node = node_of(head)
            if node is not None:
                reason = _foreign_node(body.bearer, node)
            elif index in in_full:
                continue
            else:
                # The parser may still accept such a line; it reads the whole body, once.
                in_full.add(index)
                reason = _foreign(body.bearer, parse_columns(body.text, body.precision).tables)
            if reason is not None:
                self._forbidden[index] = reason

    def tables(self) -> dict[str, pa.Table]:
        for name, table in self._assembly.tables().items():
            self._pieces.setdefault(name, []).append(table)
        return {name: _joined(tables) for name, tables in self._pieces.items()}

    def outcomes(self) -> list[Outcome]:
        return [
            Outcome(forbidden=self._forbidden[index])
            if index in self._forbidden
            else Outcome(refused=tuple(sorted(refused, key=lambda it: it.number)), lines=lines)
            for index, (refused, lines) in enumerate(zip(self._refused, self._lines, strict=True))
        ]


def _foreign_node(bearer: Bearer, node: tuple[str, str]) -> str | None:
    if node == (bearer.cluster, bearer.node):
        return None
    return foreign(bearer, "/".join(node) if any(node) else "lines that name no node")


def _foreign(bearer: Bearer, blocks: Sequence[ColumnBlock]) -> str | None:
    """Return why a bearer may not write these lines; None when they all are of its node."""
    if bearer.writes_for_any_node:
        return None
    for block in blocks:
        tags = dict(zip(block.tag_keys, block.tags, strict=True))
        nothing = [""] * len(block.numbers)
        nodes = zip(tags.get("cluster", nothing), tags.get("node", nothing), strict=True)
        for node in set(nodes):
            reason = _foreign_node(bearer, node)
            if reason is not None:
                return reason
    return None


def _admitted(
    series: SeriesLimiter, blocks: Sequence[ColumnBlock]
) -> tuple[list[ColumnBlock], list[Refusal]]:
    """Return the lines of series that are admitted, and a refusal for each other line."""
    kept, refused = [], []
    for block in blocks:
        struck = {}
        for index, values in enumerate(zip(*block.tags, strict=True)):
            reason = series.admit(head_of(block.measurement, block.tag_keys, values))
            if reason is not None:
                struck[index] = reason
        refused += [Refusal(number=block.numbers[i], reason=struck[i]) for i in struck]
        left = without(block, struck) if struck else block
        if left.numbers:
            kept.append(left)
    return kept, refused


def shifted(block: ColumnBlock, shift_ns: int) -> ColumnBlock:
    """Return the block with `shift_ns` added to all times, clamped to those that lines can have."""
    if not shift_ns:
        return block
    times = cast("list[int]", block.at_ns)
    moved: list[int | None] = [min(max(at + shift_ns, EARLIEST_NS), LATEST_NS) for at in times]
    return replace(block, at_ns=moved)


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    if len(tables) == 1:
        return tables[0]
    joined = pa.concat_tables(tables, promote_options="default")
    # To the store, each of many small pieces costs as much as a large one.
    return joined if len(tables) <= _MOST_PIECES else joined.combine_chunks()
