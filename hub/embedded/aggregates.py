"""Partial aggregates of a field, which can be merged."""

from collections.abc import Mapping
from enum import Enum

from gpuvigil.store import Function

from .question import Series, Window

# Lines of a sealed hour are also kept as one row per subject and this long.
BUCKET_NS = 600_000_000_000


class Piece(str, Enum):
    """One of them. All but the first and the last value are in the roll-ups."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    FIRST = "first"
    FIRST_AT = "first_time"
    LAST = "last"
    LAST_AT = "last_time"

    def of(self, field: str) -> str:
        """The name of its column: `power_watts_sum`."""
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
    """What is needed of each field: always how many values it has, since the rest hangs on it."""
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
    """Whether roll-ups of a span answer as its lines would."""
    if isinstance(question, Series):
        return question.step_ns % BUCKET_NS == 0
    unrolled = (Function.FIRST, Function.LAST)
    return all(it.function not in unrolled for it in question.aggregates)
