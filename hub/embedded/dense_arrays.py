"""Aggregates by slot: arrays of one length, with `nothing` where a slot has no line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .aggregates import Piece
from .line_arrays import REDUCED_BY, Ints, PartialAggregates, Values, nothing

_NARROW = (np.int8, np.int16, np.int32)
# A value that has a time, that time, and the comparison that selects it.
_ENDS = ((Piece.FIRST, Piece.FIRST_AT, np.less), (Piece.LAST, Piece.LAST_AT, np.greater))
_FIRST = np.int64(np.iinfo(np.int64).max)
_LAST = np.int64(np.iinfo(np.int64).min)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotAggregates:
    """The count, first and last time of each slot's lines, and the pieces of its fields."""

    lines: Values
    first_ns: Values
    last_ns: Values
    fields: Mapping[str, Mapping[Piece, Values]]

    @property
    def bytes(self) -> int:
        """The memory of the arrays, in bytes."""
        arrays = [self.lines, self.first_ns, self.last_ns]
        arrays += [values for pieces in self.fields.values() for values in pieces.values()]
        return sum(it.nbytes if it.strides[0] else it.itemsize for it in arrays)

    def packed(self) -> "SlotAggregates":
        """Return the same values in less memory."""
        return SlotAggregates(
            lines=_packed(self.lines),
            first_ns=_packed(self.first_ns),
            last_ns=_packed(self.last_ns),
            fields={
                name: {piece: _packed(values) for piece, values in pieces.items()}
                for name, pieces in self.fields.items()
            },
        )

    def parts(self, places: Ints) -> PartialAggregates:
        """Return one row for each slot that has a line; `places` holds the place of each slot."""
        there = np.flatnonzero(self.lines)
        return PartialAggregates(
            subject=places[there],
            step_ns=None,
            lines=self.lines[there],
            first_ns=self.first_ns[there],
            last_ns=self.last_ns[there],
            offset_ns=None,
            fields={
                name: {piece: values[there] for piece, values in pieces.items()}
                for name, pieces in self.fields.items()
            },
        )


def dense(parts: PartialAggregates, size: int) -> SlotAggregates:
    """Return rows by slot, in arrays of `size` slots; each row's subject is its own slot."""

    def spread(values: Values, none: Any) -> Values:
        found = np.full(size, none)
        found[parts.subject] = values
        return found

    return SlotAggregates(
        lines=spread(parts.lines, np.int64(0)),
        first_ns=spread(parts.first_ns, _FIRST),
        last_ns=spread(parts.last_ns, _LAST),
        fields={
            name: {
                piece: spread(values, nothing(piece, values.dtype))
                for piece, values in pieces.items()
            }
            for name, pieces in parts.fields.items()
        },
    )


def summed(like: SlotAggregates, others: Sequence[SlotAggregates]) -> SlotAggregates:
    """Merge others into new arrays like those of `like`, which has as many slots as any of them."""
    whole = SlotAggregates(
        lines=np.zeros_like(like.lines),
        first_ns=np.full_like(like.first_ns, _FIRST),
        last_ns=np.full_like(like.last_ns, _LAST),
        fields={
            name: {
                piece: np.full_like(values, nothing(piece, values.dtype))
                for piece, values in pieces.items()
            }
            for name, pieces in like.fields.items()
        },
    )
    together(whole, others)
    return whole.packed()


def together(whole: SlotAggregates, others: Sequence[SlotAggregates]) -> None:
    """Merge others, none of which has more slots, into the first, whose arrays are not shared."""
    for other in others:
        _into(np.add, whole.lines, other.lines)
        _into(np.minimum, whole.first_ns, other.first_ns)
        _into(np.maximum, whole.last_ns, other.last_ns)
        for name, pieces in whole.fields.items():
            _pieces_into(pieces, other.fields[name])


def _pieces_into(whole: Mapping[Piece, Values], other: Mapping[Piece, Values]) -> None:
    for piece, time, is_nearer in _ENDS:
        if piece in whole:
            size = len(other[time])
            nearer = is_nearer(other[time], whole[time][:size])
            np.copyto(whole[piece][:size], other[piece], where=nearer)
    for piece, how in REDUCED_BY.items():
        if piece in whole:
            _into(how, whole[piece], other[piece])


def _into(how: Any, whole: Values, other: Values) -> None:
    mine = whole[: len(other)]
    how(mine, other, out=mine)


def _packed(values: Values) -> Values:
    """Return the values in less memory: equal ones once, whole numbers in the fewest bytes."""
    if not len(values):
        return values
    least, most = values.min(), values.max()
    if least == most:
        return np.broadcast_to(values[:1].copy(), values.shape)
    if values.dtype == np.int64:
        for kind in _NARROW:
            if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max:
                return values.astype(kind)
    return values
