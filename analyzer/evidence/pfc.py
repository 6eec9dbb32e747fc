"""Links of which one side alone takes part in priority flow control (PFC), by what both ends count.

A side that is not set up for it neither stops nor counts what it is asked. Counters of a switch may be five
minutes old, so what a host asked for must have gone on before and since.
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
# A host's own counter may be so old in its newest line [own].
_TOLD_AFTER = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSided:
    """A host's port whose link lacks PFC at one end."""

    port: Subject
    since: datetime
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    """What both ends count; None is not measured."""

    number: int
    end: End
    asks: bool  # the host does, all the time
    taken: float  # microseconds that the host let itself be stopped; NaN is not measured
    heard: int | None  # frames that came to the switch, and that it sent
    sent: int | None


def one_sided(window: Window) -> Iterator[OneSided]:
    """Only where another port of the same switch shows that the counter of that side counts."""
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
                    taken=float(taken[number]),
                    heard=grown_lately(end, "pause_frames_received"),
                    sent=grown_lately(end, "pause_frames_sent"),
                )
            )
    for links in by_switch.values():
        yield from _deaf_switch(rows, links, share)
        yield from _deaf_hosts(rows, links)


def _share(window: Window, rows: Rows) -> Floats:
    """Of the time that a host asked its switch to stop, of late and before that: the lesser of the two."""
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
    count = sum(bool(it.sent) and it.taken > 0.0 for it in links)
    for it in links if count else ():
        deaf = it.sent is not None and it.sent >= _FRAMES and it.taken == 0.0
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
    """What was sent so long before the host's newest line that it would have told of it."""
    until: datetime = Row(rows, link.number)["last_at"] - _TOLD_AFTER
    return grown_lately(link.end, "pause_frames_sent", until) or 0


def _found(rows: Rows, link: _Link, side: str, *evidence: Evidence) -> OneSided:
    return OneSided(
        port=rows.subjects[link.number],
        since=Row(rows, link.number)["first_at"],
        evidence=(Evidence(name="side without PFC", value=side), *evidence),
    )
