"""Partial aggregates of a field, which can be merged."""

from collections.abc import Mapping
from enum import Enum

from gpuvigil.store import Function

from .question import Series, Window

# Length of a roll-up bucket: sealed lines are also kept as one row per subject and bucket.
BUCKET_NS = 600_000_000_000


class Piece(str, Enum):
    """One partial aggregate. Roll-ups have all but the first and the last value."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    FIRST = "first"
    FIRST_AT = "first_time"
    LAST = "last"
    LAST_AT = "last_time"

    def of(self, field: str) -> str:
        """Return the name of a field's column, such as `power_watts_sum`."""
        return f"{field}_{self.value}"


ROLLED = (Piece.COUNT, Piece.SUM, Piece.MIN, Piece.MAX)
_OF_FUNCTION: Mapping[Function, tuple[Piece, ...]] = {
    Function.COUNT: (),
    Function.MEAN: (Piece.SUM,),
    Function.MIN: (Piece.MIN,),
    Function.MAX: (Piece.MAX,),
    Function.FIRST: (Piece.FIRST, Piece.FIRST_AT),
    Function.LAST: (Piece.LAST, Piece.LAST_AT),
    Function.INCREASE: (Piece.MIN, Piece.MAX),
}


def pieces_of(question: Window | Series) -> dict[str, tuple[Piece, ...]]:
    """Return the pieces a question needs of each field: always the count, on which others rest."""
    if isinstance(question, Series):
        wanted = [(name, Function.MEAN) for name in question.fields]
    else:
        wanted = [(it.field, it.function) for it in question.aggregates]
    found: dict[str, tuple[Piece, ...]] = {}
    for field, function in wanted:
        known = found.get(field, (Piece.COUNT,))
        found[field] = tuple(dict.fromkeys((*known, *_OF_FUNCTION[function])))
    return found


def can_be_rolled(question: Window | Series) -> bool:
    """Return whether the roll-ups of a span give the same answer as its lines."""
    if isinstance(question, Series):
        return question.step_ns % BUCKET_NS == 0
    unrolled = (Function.FIRST, Function.LAST)
    return all(it.function not in unrolled for it in question.aggregates)
