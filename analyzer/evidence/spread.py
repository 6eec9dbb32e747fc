"""Whether samples stand for a whole span, although some are missing.

On shared clusters only a third of the samples may come. They are enough if they are spread over the
whole span: they begin at its beginning, and its last part was measured about as often as the rest.
"""

from dataclasses import dataclass

import numpy as np

from gpuvigil.clock import micros

from ..window.columns import Floats, Mask
from ..window.rows import Rows
from ..window.window import Window

# This share of the expected samples is enough; with fewer they must lie evenly.
_PLENTY = 0.8
# With fewer samples than these nothing is known, however they lie.
_LEAST_SHARE, _LEAST_SAMPLES = 0.2, 6.0
# One part of the span must have this share of the other's rate of samples: less than six of ten
# minutes are a gap.
_EVEN = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The number of samples of each row in a span that ends now."""

    counted: Floats
    seconds: float


def stands_for(window: Window, rows: Rows, whole: Part, last: Part) -> Mask:
    """Tell for each row whether its samples stand for the whole span; `last` is its last part."""
    tick = window.ticks(rows)
    begun = micros(window.now) - whole.seconds * 1e6
    from_begin = rows.values("first_at") - begun <= (whole.seconds - _PLENTY * whole.seconds) * 1e6
    plenty = whole.counted >= _PLENTY * np.maximum(whole.seconds / tick, 1.0)
    some = whole.counted >= np.maximum(_LEAST_SHARE * whole.seconds / tick, _LEAST_SAMPLES)
    found: Mask = from_begin & (plenty | (some & _evenly(whole, last)))
    return found


def _evenly(whole: Part, last: Part) -> Mask:
    """Tell whether neither the last part nor the time before it was measured much more rarely."""
    seconds_before = whole.seconds - last.seconds
    if seconds_before <= 0.0:
        return np.zeros(len(whole.counted), dtype=bool)
    newer = np.nan_to_num(last.counted) / last.seconds
    older = (whole.counted - np.nan_to_num(last.counted)) / seconds_before
    found: Mask = np.minimum(newer, older) >= _EVEN * np.maximum(newer, older)
    return found
