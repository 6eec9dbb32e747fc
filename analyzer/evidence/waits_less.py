"""Whether ports that waited or dropped packets do so much less by now: then their incident is over."""

from collections.abc import Callable, Sequence

from gpuvigil.model import Incident, Subject
from gpuvigil.store import Aggregate, Function

from ..window.rows import Row
from ..window.window import Span, Window
from .port_rates import (
    DELAY,
    DELAY_SECONDS,
    PAUSED,
    QUEUED,
    RECEIVED,
    SENT,
    TICKS,
    TIMESCALES,
    jobs_through,
)

# The condition of a port that drops packets and does not wait.
DROPS = "drops"
DISCARDS = Aggregate(function=Function.INCREASE, field="transmit_discards")
# NVSentinel: degraded at more than 100 discards a second.
DISCARDS_PER_SECOND = 100.0
# An incident is over once its ports wait at most this share of what they did over the whole span.
_LESS = 0.5
# An incident of drops is over at half of that rate over ten minutes, or at next to none in the last
# one: minutes of a port near the limit scatter by half of it [own].
_FEW, _NEXT_TO_NONE = 0.5, 0.05


def _per_second(row: Row, column: str) -> float | None:
    gained = row.get(column)
    span = (row["last_at"] - row["first_at"]).total_seconds()
    return None if gained is None or not span else gained / span


_Sign = tuple[str, Callable[[Row, str], float | None]]
# The signs of how much a port waits; the first one that is counted is used.
_SIGNS: tuple[_Sign, ...] = (
    (PAUSED.column, _per_second),
    (TICKS.column, _per_second),
    (QUEUED.column, Row.get),
    (DELAY.column, Row.get),
)


def would_show_waiting(window: Window, incident: Incident) -> bool:
    """Tell whether an active incident would show: only if half of its ports wait or drop much less.

    An incident that lasts as long as the spans look back shows no change any more, and is not over.
    Nor is one whose ports do not wait only because their job rests, as at a checkpoint.
    """
    told = [
        _waits_less(window, port, incident.condition)
        for port in {incident.subject, *map(Subject.parse, incident.members)}
        if port.kind == "port"
    ]
    known = [one for one in told if one is not None]
    return not known or 2 * sum(known) >= len(known)


def _waits_less(window: Window, port: Subject, condition: str) -> bool | None:
    """Tell whether a port waits or drops much less; None if it does not count what it is said to do."""
    lately = window.get("port", Span.RECENT).get(port)
    steady, long = (window.get("port", span).get(port) for span in (Span.STEADY, Span.TREND))
    if condition == DROPS:
        return _drops_few(lately, steady)
    if _rests(window, port):
        return False
    if condition == "slow_link":
        # A link is also named by others' late answers; then its own port never had any.
        was_late = any(
            (0.0 if it is None else it.get(DELAY.column) or 0.0) >= DELAY_SECONDS
            for it in (steady, long)
        )
        return _is_back(lately, long, _SIGNS[-1:]) if was_late else None
    return _is_back(lately, long, _SIGNS)


def _rests(window: Window, port: Subject) -> bool:
    """Tell whether a port carries so much less that it cannot wait, though its jobs have not ended."""
    spans = (window.get("port", span).get(port) for span in (Span.RECENT, Span.TREND))
    lately, long = (None if row is None else _carried(row) for row in spans)
    few = lately is not None and long is not None and lately < _LESS * long
    return few and bool(jobs_through(window, port, TIMESCALES[0]))


def _carried(row: Row) -> float | None:
    """Return the bytes per second that a port carries both ways, None if not measured."""
    told = [_per_second(row, it.column) for it in (RECEIVED, SENT)]
    return None if None in told else sum(it or 0.0 for it in told)


def _drops_few(lately: Row | None, steady: Row | None) -> bool | None:
    """Tell whether a port drops few packets; None if drops are not counted, False without new data."""
    if steady is None or steady.get(DISCARDS.column) is None:
        return None
    now = None if lately is None else _per_second(lately, DISCARDS.column)
    if now is None:
        return False
    mean = _per_second(steady, DISCARDS.column)
    few = mean is not None and mean < _FEW * DISCARDS_PER_SECOND
    return few or now < _NEXT_TO_NONE * DISCARDS_PER_SECOND


def _is_back(lately: Row | None, long: Row | None, signs: Sequence[_Sign]) -> bool | None:
    """Tell whether a port waits much less; None if waits are not counted, False without new data."""
    for column, of in signs:
        usual = None if long is None else of(long, column)
        if usual:
            now = None if lately is None else of(lately, column)
            return now is not None and now <= _LESS * usual
    return None
