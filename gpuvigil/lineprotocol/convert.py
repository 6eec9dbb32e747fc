"""Converts the texts of one column to its values, checking every value, a column at once.

Each function returns None when any text of the column is invalid.
"""

from array import array
from collections.abc import Sequence
from math import isfinite

from gpuvigil.lineprotocol.model import Column
from gpuvigil.lineprotocol.parser import BOOLEANS, FLOAT_CHARACTERS, INTEGER_CHARACTERS

# An escaped delimiter is masked by a control character while the row is cut at the plain ones.
MASKS = {"\\ ": "\x01", "\\,": "\x02", "\\=": "\x03"}


def unmasked(text: str) -> str:
    """Return `text` with every masked delimiter restored."""
    return text.replace("\x01", " ").replace("\x02", ",").replace("\x03", "=")


def tags(column: Sequence[str]) -> list[str] | None:
    """Return the tag values, unmasked; none may be empty or contain a plain equals sign."""
    text = "".join(column)
    if "=" in text or "" in column:
        return None
    if any(mask in text for mask in MASKS.values()):
        return [unmasked(value) for value in column]
    return list(column)


def values(column: Sequence[str]) -> Column | None:
    """Return the field values, all of the type of the first."""
    first = column[0]
    if first.endswith("i"):
        return _integers(column, "i", "q")
    if first.endswith("u"):
        return _integers(column, "u", "Q")
    if first in BOOLEANS:
        known = [BOOLEANS[text] for text in column if text in BOOLEANS]
        return known if len(known) == len(column) else None
    return _floats(column)


def _integers(column: Sequence[str], suffix: str, code: str) -> list[int] | None:
    text = ",".join(column)
    # If every value has its suffix, the rest after the last one is empty and no comma is left.
    digits = f"{text},".split(f"{suffix},")
    if digits.pop() or not _made_of("".join(digits), INTEGER_CHARACTERS):
        return None
    try:
        numbers = list(map(int, digits))
        # An array of 64-bit integers refuses values that do not fit.
        array(code, numbers)
    except (ValueError, OverflowError):
        return None
    return numbers


def _floats(column: Sequence[str]) -> list[float] | None:
    if not _made_of("".join(column), FLOAT_CHARACTERS):
        return None
    try:
        numbers = list(map(float, column))
    except ValueError:
        return None
    # An infinity in a sum cannot be undone.
    return numbers if isfinite(sum(numbers)) else None


def times(column: Sequence[str], scale: int) -> list[int | None] | None:
    """Return Unix times in nanoseconds; if the first time is empty, all are taken as None."""
    if not column[0]:
        return [None] * len(column)
    if not _made_of("".join(column), INTEGER_CHARACTERS):
        return None
    try:
        found = [int(text) * scale for text in column]
        array("q", found)
    except (ValueError, OverflowError):
        return None
    return [*found]


def _made_of(text: str, characters: str) -> bool:
    return not text.encode().translate(None, characters.encode())
