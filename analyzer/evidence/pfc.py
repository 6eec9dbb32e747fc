"""Links with priority flow control (PFC) on one side only, by what both ends count.

A side that is not set up for it neither stops nor counts pause frames. A switch's counters may be
five minutes old, so a host's requests must have gone on before and since.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from gpuvigil.model import Evidence, Subject
from gpuvigil.numbers_in_words import counted
from gpuvigil.store import Aggregate, Function

from ..window.columns import Floats, divided, seconds
from ..window.rows import Row, Rows
from ..window.window import Need, Span, Window
from .fabric import End, end_of
from .fabric_links import grown_lately

_ASKED, _TAKEN = (
    Aggregate(function=Function.INCREASE, field=name)
    for name in ("transmit_pause_microseconds", "receive_pause_microseconds")
)
NEEDS = (
    Need(measurement="port", span=Span.STEADY, aggregates=(_ASKED,)),
    Need(measurement="port", span=Span.TREND, aggregates=(_ASKED, _TAKEN)),
)
# Share of the time that a host asks its switch to stop, and frames by which a switch asks its host within ten
# minutes: a frame stops a port of 400 Gb/s for 84 us at most (IEEE 802.1Qbb, 65,535 quanta of 512 bits) [own].
_SHARE, _FRAMES = 0.01, 1000
_COVERAGE, _MICRO = 0.8, 1e6
# A host's own counter may be this old in its newest line [own].
_TOLD_AFTER = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSided:
    """A host's port whose link lacks PFC at one end."""

    port: Subject
    since: datetime
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    """What both ends of a link count; None is not measured."""

    number: int
    end: End
    asks: bool  # the host asks the switch to stop, all the time
    received: float  # microseconds for which the host was paused; NaN is not measured
    heard: int | None  # pause frames that the switch received
    sent: int | None  # pause frames that the switch sent


def one_sided(window: Window) -> Iterator[OneSided]:
    """Yield one-sided links, if another port of the same switch shows that the side's counter works."""
    rows = window.get("port", Span.TREND)
    if not window.switches or not len(rows):
        return
    share = _share(window, rows)
    taken = rows.values(_TAKEN.column)
    by_switch: dict[str, list[_Link]] = defaultdict(list)
    covered = seconds(rows) >= _COVERAGE * window.settings.trend_seconds
    for number, port in enumerate(rows.subjects):
        end = end_of(window, port)
        if end is not None and end.port.up and covered[number]:
            by_switch[end.switch.subject.key].append(
                _Link(
                    number=number,
                    end=end,
                    asks=bool(share[number] >= _SHARE),
                    received=float(taken[number]),
                    heard=grown_lately(end, "pause_frames_received"),
                    sent=grown_lately(end, "pause_frames_sent"),
                )
            )
    for links in by_switch.values():
        yield from _deaf_switch(rows, links, share)
        yield from _deaf_hosts(rows, links)


def _share(window: Window, rows: Rows) -> Floats:
    """Return the share of time for which a host asked its switch to stop.

    It is 0 unless the host did so both in the steady span and before that.
    """
    steady = window.get("port", Span.STEADY)
    late, of_late = steady.beside(rows, _ASKED.column), seconds(steady, beside=rows) * _MICRO
    before = rows.values(_ASKED.column) - late
    of_before = seconds(rows) * _MICRO - of_late
    goes_on = (late >= _SHARE * of_late) & (before >= _SHARE * of_before) & (of_late > 0.0)
    asked = np.where(goes_on, rows.values(_ASKED.column), 0.0)
    return divided(asked, seconds(rows) * _MICRO)


def _deaf_switch(rows: Rows, links: Sequence[_Link], share: Floats) -> Iterator[OneSided]:
    count = sum(bool(it.heard) for it in links)
    for it in links if count else ():
        if it.asks and it.heard == 0:
            asked = f"{100.0 * share[it.number]:.1f} % of the time"
            yield _found(
                rows,
                it,
                f"switch, {it.end.name}",
                Evidence(name="host pauses the switch for", value=asked),
                Evidence(
                    name=f"pause frames received at {it.end.name}",
                    value="none in 10 min",
                    peers=f"some at {counted(count, 'other port')} of it",
                ),
            )


def _deaf_hosts(rows: Rows, links: Sequence[_Link]) -> Iterator[OneSided]:
    count = sum(bool(it.sent) and it.received > 0.0 for it in links)
    for it in links if count else ():
        deaf = it.sent is not None and it.sent >= _FRAMES and it.received == 0.0
        if deaf and _sent_before(rows, it) >= _FRAMES:
            yield _found(
                rows,
                it,
                f"host, {rows.subjects[it.number].device}",
                Evidence(name=f"pause frames sent at {it.end.name}", value=f"{it.sent} in 10 min"),
                Evidence(
                    name="host was paused for",
                    value="no time",
                    peers=f"some at {counted(count, 'other port')} of that switch",
                ),
            )


def _sent_before(rows: Rows, link: _Link) -> int:
    """Return the frames that were sent long enough before the host's newest line to show in it."""
    until: datetime = Row(rows, link.number)["last_at"] - _TOLD_AFTER
    return grown_lately(link.end, "pause_frames_sent", until) or 0


def _found(rows: Rows, link: _Link, side: str, *evidence: Evidence) -> OneSided:
    return OneSided(
        port=rows.subjects[link.number],
        since=Row(rows, link.number)["first_at"],
        evidence=(Evidence(name="side without PFC", value=side), *evidence),
    )
