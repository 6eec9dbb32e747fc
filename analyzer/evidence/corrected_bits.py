"""Links on which error correction (FEC) has far more to do than before, and than on their peers.

A fast link always has bit errors, and FEC puts them right. A cable or transceiver that begins to fail
has more and more of them, until FEC can no longer follow and packets are lost.
"""

from collections.abc import Iterator
from datetime import datetime

import numpy as np

from gpuvigil.model import Evidence, Subject
from gpuvigil.store import Aggregate, Function

from ..window.columns import (
    Floats,
    Mask,
    clusters,
    combined_codes,
    divided,
    per_group,
    port_kinds,
    seconds,
    whole_numbers,
)
from ..window.rows import Row, Rows
from ..window.window import Need, Span, Window
from .port_rates import PEERS

_BITS = Aggregate(function=Function.INCREASE, field="corrected_bits")
_DOWNS = Aggregate(function=Function.INCREASE, field="link_downed")
_SPEED = Aggregate(function=Function.MAX, field="speed_bits_per_second")
NEEDS = (
    Need(measurement="port", span=Span.STEADY, aggregates=(_BITS, _SPEED)),
    Need(measurement="port", span=Span.TREND, aggregates=(_BITS, _DOWNS)),
)
# Links of 50 Gb/s a lane and more may have 2.4e-4 bit errors before FEC (IEEE 802.3, clauses 120 and 124); a
# hundredth of that is the least that is reported [own].
_LEAST = 0.01 * 2.4e-4
_TIMES_BEFORE, _TIMES_PEERS = 10.0, 100.0  # [own]
_COVERAGE = 0.5


def wearing(
    window: Window, condition: str
) -> Iterator[tuple[Subject, datetime, tuple[Evidence, ...]]]:
    """Yield each such port with since when, and with the evidence.

    One with an open incident of this condition is compared with its peers alone: its own past is that
    of the same cable.
    """
    rows, long = window.get("port", Span.STEADY), window.get("port", Span.TREND)
    if not len(rows):
        return
    speed = rows.values(_SPEED.column)
    now = _rate(rows.values(_BITS.column), seconds(rows), speed, window.settings.steady_seconds)
    many = now >= _LEAST
    if not many.any():
        return
    gained = long.beside(rows, _BITS.column) - rows.values(_BITS.column)
    earlier = window.settings.trend_seconds - window.settings.steady_seconds
    before = _rate(gained, seconds(long, rows) - seconds(rows), speed, earlier)
    alike = combined_codes(clusters(rows), port_kinds(window, rows), whole_numbers(speed))
    usual, count = per_group(alike, now)
    many &= (now >= _TIMES_PEERS * usual) & (count >= PEERS)
    # While a link was down it had no errors: that is no past to compare with.
    more = (now >= _TIMES_BEFORE * before) & ~(long.beside(rows, _DOWNS.column) > 0.0)
    many &= more | _stands(window, rows, condition)
    for number in np.flatnonzero(many).tolist():
        yield (
            rows.subjects[number],
            Row(rows, number)["first_at"],
            (
                Evidence(
                    name="bit error rate before FEC",
                    value=f"{now[number]:.1e}",
                    limit=f"{_LEAST:.1e}",
                    peers=f"{usual[number]:.1e}",
                ),
                Evidence(
                    name=f"in the {earlier / 60.0:g} min before",
                    value="not measured" if np.isnan(before[number]) else f"{before[number]:.1e}",
                ),
            ),
        )


def _rate(bits: Floats, lasted: Floats, speed: Floats, span: float) -> Floats:
    """Return the share of a link's bits that were corrected; NaN where too little of the span was measured."""
    known = np.where(lasted >= _COVERAGE * span, lasted, np.nan)
    return divided(bits, known * speed)


def _stands(window: Window, rows: Rows, condition: str) -> Mask:
    stands = {it.subject for it in window.active_incidents if it.condition == condition}
    return np.array([port in stands for port in rows.subjects] if stands else False)
