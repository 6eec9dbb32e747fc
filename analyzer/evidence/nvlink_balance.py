"""How much a job's GPUs on one node send over NVLink for what they receive, each beside the others.

In a collective every rank sends about as much as it receives, and all do the same; pipeline stages, experts and
uneven data do not, and are left alone. Only a single GPU is found that begins to send far less than the others
while it receives as much as they do, and while its job slows down.
"""

from dataclasses import dataclass

import numpy as np

from gpuvigil.model import Subject
from gpuvigil.store import Aggregate, Function

from ..window.columns import Floats, Mask, combined_codes, group_count, models, nodes, per_group
from ..window.rows import Rows
from ..window.window import Need, Span, Window
from .job_pace import MOST_LOSS, NVLINK_BYTES, PEERS, TIMESCALES, change_of, jobs
from .job_pace import NEEDS as OF_PACE

_RECEIVED, _SENT = (
    Aggregate(function=Function.INCREASE, field=f"nvlink_{way}_bytes")
    for way in ("receive", "transmit")
)
NEEDS = (
    *OF_PACE,
    *(
        Need(measurement="gpu", span=span, aggregates=(_RECEIVED, _SENT))
        for span in (Span.RECENT, Span.STEADY, Span.TREND)
    ),
)

# As natural logarithms of ratios: the most that GPUs doing the same differ, and how far off one is that sends
# half as much as they do.
ALIKE, _HALF = 0.1, float(np.log(2.0))
_TIMESCALE = TIMESCALES[0]  # ten minutes, which no checkpoint or evaluation fills


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """NVLink traffic per GPU of the steady span, as logarithms of ratios; NaN where it moved too little."""

    share: Floats  # sent over received, relative to the job's GPUs on its node
    received: Floats  # bytes received, relative to the same
    count: Floats  # of those GPUs, itself among them


def uneven(window: Window) -> list[tuple[Subject, float]]:
    """Return GPUs that now send at most half as much as their peers, with the share that they send."""
    change = window.once(change_of, _TIMESCALE)
    if change is None:
        return []
    rows, lost = change.rows, -change.pace
    fell = (lost >= _TIMESCALE.least_loss) & (lost <= MOST_LOSS) & np.isfinite(change.peers)
    if not fell.any():
        return []
    now = window.once(_steadily, None)
    fell &= now.share <= -_HALF
    if not fell.any():
        return []
    before = _balance(window, rows, rows, _TIMESCALE.long)
    last = _balance(window, rows, window.get("gpu", Span.RECENT), None)
    group = combined_codes(jobs(window, rows), models(window, rows), nodes(rows))
    fell &= last.share <= -_HALF
    # All the others must be alike now and before; the one GPU was, too.
    odd = ~(np.abs(before.share) <= ALIKE) | ~(np.abs(now.received) <= ALIKE)
    odd |= ~(np.abs(before.received) <= ALIKE) | (~(np.abs(now.share) <= ALIKE) & ~fell)
    fell &= (
        (group_count(group, odd) == 0.0) & (group_count(group, fell) == 1.0) & (now.count >= PEERS)
    )
    return [
        (rows.subjects[row], float(np.exp(now.share[row]))) for row in np.flatnonzero(fell).tolist()
    ]


def is_even(window: Window, gpu: Subject) -> bool:
    """Tell whether a GPU has enough peers in its job, and sends as much as they do."""
    rows = window.get("gpu", _TIMESCALE.now)
    place = rows.index.number(gpu) if len(rows) else None
    if place is None:
        return False
    now = window.once(_steadily, None)
    return bool(now.count[place] >= PEERS and abs(now.share[place]) <= ALIKE)


def _steadily(window: Window, _: None) -> Balance:
    """Return the balance over the steady span, cached for each GPU that was uneven."""
    rows = window.get("gpu", _TIMESCALE.now)
    return _balance(window, rows, rows, None)


def _balance(window: Window, rows: Rows, of: Rows, long: Span | None) -> Balance:
    """Return a span's balance in the order of `rows`, or that of the time before it in `long`."""
    received, sent = (_rate(window, rows, of, it.column, long) for it in (_RECEIVED, _SENT))
    job = jobs(window, rows)
    known = (job != 0) & (received > NVLINK_BYTES) & (sent > 0.0)
    group = combined_codes(job, models(window, rows), nodes(rows))
    told = np.stack([_log(sent, known) - _log(received, known), _log(received, known)])
    usual, count = per_group(group, told)
    share, of_received = told - usual
    return Balance(share=share, received=of_received, count=count[0])


def _rate(window: Window, rows: Rows, of: Rows, column: str, long: Span | None) -> Floats:
    """Return bytes per second over a span, or over the time before it in `long`."""
    moved = of.beside(rows, column)
    length = (of.beside(rows, "last_at") - of.beside(rows, "first_at")) / 1e6
    if long is not None:
        whole = window.get("gpu", long)
        moved = whole.beside(rows, column) - moved
        length = (whole.beside(rows, "last_at") - whole.beside(rows, "first_at")) / 1e6 - length
    found: Floats = moved / np.where(length > 0.0, length, np.nan)
    return found


def _log(values: Floats, known: Mask) -> Floats:
    found: Floats = np.log(np.where(known, values, np.nan))
    return found
