"""Aggregates of many lines, in arrays: one row for each subject and time step.

Every question is reduced in two steps: each source (lines, roll-ups, the hot table) gives one row
per subject and step with counts, sums and bounds, and these rows are merged. So sources of
different spans of time add up to exactly what all the lines would have given.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .aggregates import Piece

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Values = npt.NDArray[Any]  # int64 or float64

REDUCED_BY: Mapping[Piece, Any] = {
    Piece.COUNT: np.add,
    Piece.SUM: np.add,
    Piece.MIN: np.minimum,
    Piece.MAX: np.maximum,
    Piece.FIRST_AT: np.minimum,
    Piece.LAST_AT: np.maximum,
}
_ONE: Ints = np.ones(1, np.int64)
# The value that has a time, and that time.
_TIME_OF = {Piece.FIRST: Piece.FIRST_AT, Piece.LAST: Piece.LAST_AT}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialAggregates:
    """Arrays of equal length. Where a field's count is 0, its other pieces are those of `nothing`."""

    subject: Ints  # the subject's place in the order of the tags
    step_ns: Ints | None  # start of the step; None for a question without steps
    lines: Ints
    first_ns: Ints
    last_ns: Ints
    offset_ns: Floats | None  # sum of how far the lines' times are after the start of their step
    fields: Mapping[str, Mapping[Piece, Values]]

    @property
    def bytes(self) -> int:
        """The memory of the arrays, in bytes."""
        columns = 4 + 2 * (self.step_ns is not None)
        columns += sum(len(pieces) for pieces in self.fields.values())
        return 8 * columns * len(self.subject)

    def changed(self, by: Callable[[Values], Values]) -> "PartialAggregates":
        """Return the parts with `by` applied to every array."""
        return PartialAggregates(
            subject=by(self.subject),
            step_ns=None if self.step_ns is None else by(self.step_ns),
            lines=by(self.lines),
            first_ns=by(self.first_ns),
            last_ns=by(self.last_ns),
            offset_ns=None if self.offset_ns is None else by(self.offset_ns),
            fields={
                field: {piece: by(values) for piece, values in pieces.items()}
                for field, pieces in self.fields.items()
            },
        )


def nothing(piece: Piece, kind: Any) -> Any:
    """Return a piece's value for "no value", which any value replaces in a merge."""
    number: Any = np.dtype(kind).type
    if piece in {Piece.COUNT, Piece.SUM, Piece.FIRST, Piece.LAST}:
        return number(0)
    least = piece in {Piece.MIN, Piece.FIRST_AT}
    if np.issubdtype(kind, np.floating):
        return number(np.inf if least else -np.inf)
    return number(np.iinfo(np.int64).max if least else np.iinfo(np.int64).min)


def together(parts: Sequence[PartialAggregates]) -> PartialAggregates | None:
    """Merge parts, ordered by subject and step, with one row for each; None if there are none."""
    if not parts:
        return None
    whole = parts[0] if len(parts) == 1 else one_after_another(parts)
    keys = [whole.subject] if whole.step_ns is None else [whole.step_ns, whole.subject]
    if not _in_order(keys):
        order = np.lexsort(keys)
        whole = whole.changed(lambda values: values[order])
    return collapsed(whole)


def collapsed(parts: PartialAggregates) -> PartialAggregates:
    """Merge neighbouring rows of the same subject and step."""
    starts = runs(parts.subject, parts.step_ns)
    if len(starts) == len(parts.subject):
        return parts
    return reduced(parts, starts, {})


def runs(subject: Ints, step_ns: Ints | None) -> Ints:
    """Return the indexes of the rows whose subject or step differs from the row before."""
    new = np.ones(len(subject), np.bool_)
    new[1:] = subject[1:] != subject[:-1]
    if step_ns is not None:
        new[1:] |= step_ns[1:] != step_ns[:-1]
    return np.flatnonzero(new)


# Reduced arrays, by reduction and array: for lines, several pieces are one and the same array.
Known = dict[tuple[Any, int], Values]


def ones(count: int) -> Ints:
    """Return an array of ones, one for each line, that takes no memory."""
    return np.broadcast_to(_ONE, count)


def known_of_lines(lines: Ints, starts: Ints, at: Ints | None = None) -> Known:
    """Return what `reduced` need not compute, where rows are lines in the order of time.

    `lines`: the array that `ones` made for them.
    """
    ends = np.append(starts[1:], len(lines))
    known: Known = {(np.add, id(lines)): ends - starts}
    if at is not None:
        known[np.minimum, id(at)], known[np.maximum, id(at)] = at[starts], at[ends - 1]
    return known


def reduced(parts: PartialAggregates, starts: Ints, known: Known) -> PartialAggregates:
    """Reduce the rows from each start to the next to one row."""

    def by(how: Any, values: Values) -> Values:
        return _by(how, values, starts, known)

    return PartialAggregates(
        subject=parts.subject[starts],
        step_ns=None if parts.step_ns is None else parts.step_ns[starts],
        lines=by(np.add, parts.lines),
        first_ns=by(np.minimum, parts.first_ns),
        last_ns=by(np.maximum, parts.last_ns),
        offset_ns=None if parts.offset_ns is None else by(np.add, parts.offset_ns),
        fields=reduced_fields(parts.fields, starts, known),
    )


def reduced_fields(
    fields: Mapping[str, Mapping[Piece, Values]], starts: Ints, known: Known
) -> Mapping[str, Mapping[Piece, Values]]:
    """Return the fields for `reduced`."""

    def one(piece: Piece, pieces: Mapping[Piece, Values]) -> Values:
        if piece not in _TIME_OF:
            return _by(REDUCED_BY[piece], pieces[piece], starts, known)
        times = pieces[_TIME_OF[piece]]
        key = piece, id(times)
        if key not in known:
            lengths = np.diff(starts, append=len(times))
            nearest = _by(REDUCED_BY[_TIME_OF[piece]], times, starts, known)
            hit = times == np.repeat(nearest, lengths)
            last = len(hit) - 1
            known[key] = np.minimum.reduceat(np.where(hit, np.arange(last + 1), last), starts)
        return pieces[piece][known[key]]

    return {
        field: {piece: one(piece, pieces) for piece in pieces} for field, pieces in fields.items()
    }


def _by(how: Any, values: Values, starts: Ints, known: Known) -> Values:
    key = how, id(values)
    if key not in known:
        known[key] = how.reduceat(values, starts)
    return known[key]


def one_after_another(parts: Sequence[PartialAggregates]) -> PartialAggregates:
    """Concatenate the rows of all parts, in the given order."""

    def joined(of: Callable[[PartialAggregates], Any]) -> Any:
        return np.concatenate([of(one) for one in parts])

    def field(name: str, piece: Piece) -> Values:
        found: Values = joined(lambda it: it.fields[name][piece])
        return found

    first = parts[0]
    return PartialAggregates(
        subject=joined(lambda it: it.subject),
        step_ns=None if first.step_ns is None else joined(lambda it: it.step_ns),
        lines=joined(lambda it: it.lines),
        first_ns=joined(lambda it: it.first_ns),
        last_ns=joined(lambda it: it.last_ns),
        offset_ns=None if first.offset_ns is None else joined(lambda it: it.offset_ns),
        fields={
            name: {piece: field(name, piece) for piece in pieces}
            for name, pieces in first.fields.items()
        },
    )


def _in_order(keys: Sequence[Ints]) -> bool:
    """Return whether rows are sorted by the last key, and by the first where the last is equal."""
    last = keys[-1]
    later = last[1:] > last[:-1]
    for key in reversed(keys[:-1]):
        later |= (last[1:] == last[:-1]) & (key[1:] >= key[:-1])
    if len(keys) == 1:
        later |= last[1:] == last[:-1]
    return bool(later.all())
