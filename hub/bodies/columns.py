"""Columns of text, parsed into numbers and names by Arrow."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .schema import Field, unescaped
from .tables import arrow_type

_DIGITS = b"-0123456789"
_FLOAT = b"+-.0123456789eE"
_INTEGER_LOOKS = r"^-?(0*[0-9]{1,18}|0*[0-8][0-9]{18})$"
_FLOAT_LOOKS = r"^-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$"
# Whole numbers beyond this are not exact in a float.
_EXACT = float(2**53)


def names(column: pa.StringArray, suffix: str, wrong: Any) -> pa.Array:
    """Return the values of a tag; rows with an empty one are marked in `wrong`."""
    found = column.dictionary_encode()
    values = [unescaped(text) + suffix for text in found.dictionary.to_pylist()]
    if "" in values:
        wrong |= found.indices.to_numpy() == values.index("")
    return pa.DictionaryArray.from_arrays(found.indices, pa.array(values, pa.string())).cast(
        pa.string()
    )


def numbers(column: pa.StringArray, it: Field, wrong: Any) -> pa.Array | None:
    """Return the values of a field in its metric's type; None when some cannot be converted.

    Rows with an invalid value are marked in `wrong`.
    """
    numbers = integers(column, wrong) if it.integer else _floats(column, wrong)
    if numbers is None or it.metric is None:
        return numbers
    if it.metric.integer and not it.integer:
        values = numbers.to_numpy()
        odd = (np.floor(values) != values) | (np.abs(values) > _EXACT)
        wrong |= odd
        return None if odd.any() else numbers.cast(pa.int64())
    # As Python does it, a whole number beyond 2**53 becomes the nearest float.
    return numbers.cast(arrow_type(it.metric), safe=False)


def integers(column: pa.StringArray, wrong: Any) -> pa.Array | None:
    return _cast(column, pa.int64(), _DIGITS, _INTEGER_LOOKS, wrong)


def _floats(column: pa.StringArray, wrong: Any) -> pa.Array | None:
    found = _cast(column, pa.float64(), _FLOAT, _FLOAT_LOOKS, wrong)
    if found is not None:
        endless = ~np.isfinite(found.to_numpy())
        wrong |= endless
    return found


def _cast(
    column: pa.StringArray, kind: pa.DataType, signs: bytes, looks: str, wrong: Any
) -> pa.Array | None:
    """Return the column as numbers of type `kind`; None, with wrong rows marked, if it cannot."""
    content = column.buffers()[2]
    if content is not None and not content.to_pybytes().translate(None, signs):
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            pass
    wrong |= ~pc.match_substring_regex(column, looks).to_numpy(zero_copy_only=False)
    return None
