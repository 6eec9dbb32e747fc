"""What ports carry and how long they wait, per second: now, and in the time before in a longer span.

A port that waits is no fault: collectives come in bursts. It is one if the port waits more than
before and carries less, while the same jobs run.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpuvigil.clock import micros
from gpuvigil.model import Allocation, Subject
from gpuvigil.store import Aggregate, Function

from ..window.columns import Floats, Mask, divided, means_before, seconds
from ..window.holdings import holder_key
from ..window.rows import Rows
from ..window.window import Need, Span, Window

PAUSED, TICKS, RECEIVED, SENT, RESENT = (
    Aggregate(function=Function.INCREASE, field=name)
    for name in (
        "receive_pause_microseconds",
        "transmit_wait_ticks",
        "receive_bytes",
        "transmit_bytes",
        "retransmits",
    )
)
QUEUED = Aggregate(function=Function.MEAN, field="transmit_queue_bytes")
DELAY = Aggregate(function=Function.MEAN, field="round_trip_delay_seconds")
HELD_BACK = Aggregate(function=Function.INCREASE, field="transmit_held_back")
_SPEED = Aggregate(function=Function.MAX, field="speed_bits_per_second")
_ASKED = (PAUSED, TICKS, RECEIVED, SENT, RESENT, QUEUED, DELAY, HELD_BACK)
NEEDS = (
    *(
        Need(measurement="port", span=span, aggregates=_ASKED)
        for span in (Span.RECENT, Span.STEADY, Span.TREND)
    ),
    Need(measurement="port", span=Span.NOW, fields=(_SPEED.field,)),
    Need(measurement="port", span=Span.RECENT, aggregates=(_SPEED,)),
)
MICROSECONDS = 1e6
# The share of a span that its lines must cover, and how many there must be.
_COVERAGE, _LINES = 0.5, 3
# With fewer ports of a kind, their median is no measure for one of them.
PEERS = 3
# What a port carries beside jobs: heartbeats, mounts, subnet management; bytes a second [own].
_IDLE_BYTES = 10e6
# A port waits if it does so for this share of the time and this many times as much as before; for
# ticks, whose length no vendor of a card publishes, only the latter counts [own].
PAUSED_SHARE, _TIMES_SHARE, _TIMES_TICKS = 0.05, 3.0, 4.0
_EXPLAINS = 0.5
# By which share of ten minutes the loss and the waits that cause it may begin apart: a job that was slow long
# before its ports waited changed by itself [own].
_APART = 0.5
# A node queues if packets wait this long in its own queue: a round trip through a fabric takes some
# tens of microseconds, and TCP keeps at most a millisecond of each connection there (Linux,
# net/ipv4/tcp_output.c, tcp_small_queue_check) [own].
QUEUED_SECONDS, _TIMES_QUEUED = 1e-3, 4.0
# Answers are late from this delay on, and this many times that of before: it is the time that 32
# MB, the buffer that ports of a switch share, take at 50 Gbit/s; a busy host itself takes a
# millisecond or two [own].
DELAY_SECONDS, _TIMES_DELAY = 5e-3, 4.0
# A single segment that is there at the moment of a look is no queue (Linux, GSO_LEGACY_MAX_SIZE),
# and where next to nothing is sent nothing waits [own].
_QUEUED_BYTES, SENT_BYTES = 65_536.0, 1e6
# This share of that queue in the last minute's mean is enough not to look for the reason elsewhere
# [own].
_BEGUN = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Timescale:
    """A span compared with the time before it in a longer one, and the least fall of traffic."""

    now: Span
    long: Span
    least_fall: float  # a share

    def long_seconds(self, window: Window) -> float:
        """Return how many seconds back it looks."""
        limits = window.settings
        return limits.steady_seconds if self.long is Span.STEADY else limits.trend_seconds


# In a minute every job has its pauses.
TIMESCALES = (
    Timescale(now=Span.STEADY, long=Span.TREND, least_fall=0.07),
    Timescale(now=Span.RECENT, long=Span.STEADY, least_fall=0.15),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rates per port, in the order of `rows`; NaN where nothing was measured."""

    rows: Rows
    paused: Floats  # share of the time for which others paused it, now
    paused_before: Floats
    ticks: Floats  # ticks without credit, per second
    ticks_before: Floats
    traffic: Floats  # bytes per second, both ways
    traffic_before: Floats
    resent: Floats  # packets per second
    resent_before: Floats
    queued: Floats  # seconds for which sent bytes wait in the node's queue
    queued_before: Floats
    queue_before: Floats  # bytes that waited there
    delay: Floats  # seconds by which answers to what it sends are late
    delay_before: Floats
    held_back: Floats  # times per second that a shaper of the node made packets wait
    held_back_before: Floats

    @property
    def measured(self) -> Mask:
        """Which ports have enough recent lines."""
        found: Mask = ~np.isnan(self.traffic)
        return found

    @property
    def fall(self) -> Floats:
        """The share of its former traffic that a port lost; NaN where there was none."""
        before = np.where(self.traffic_before > _IDLE_BYTES, self.traffic_before, np.nan)
        found: Floats = 1.0 - self.traffic / before
        return found

    @property
    def waits(self) -> Mask:
        """Which ports wait more than before, and so much that it explains what they lost."""
        paused = (self.paused >= PAUSED_SHARE) & (self.paused >= _TIMES_SHARE * self.paused_before)
        # A job that lost by waiting must have waited for about as long; else it is slow by itself.
        paused &= self.paused - self.paused_before >= _EXPLAINS * self.fall
        known = np.where(self.ticks_before > 0.0, self.ticks_before, np.nan)
        found: Mask = paused | (self.ticks >= _TIMES_TICKS * known) | self.queues
        return found

    @property
    def queues(self) -> Mask:
        """For which ports more waits in the node's own queue than before."""
        least = np.fmax(QUEUED_SECONDS, _TIMES_QUEUED * self.queued_before)
        found: Mask = self.queued >= least
        return found

    @property
    def delayed(self) -> Mask:
        """Which ports' packets are answered later than before."""
        found: Mask = self.delay >= delay_of(self.delay_before)
        return found

    @property
    def shaped(self) -> Mask:
        """Which of these wait for a shaper of the node, which began to hold back, and nothing else does."""
        begun = self.held_back > _TIMES_QUEUED * np.fmax(self.held_back_before, 0.0)
        others = self.paused >= PAUSED_SHARE
        others |= self.ticks >= _TIMES_TICKS * np.where(
            self.ticks_before > 0.0, self.ticks_before, np.nan
        )
        found: Mask = self.queues & begun & ~others
        return found


def rates_of(window: Window, scale: Timescale) -> Rates:
    """Return every port's rates on a timescale."""
    rows, long = window.get("port", scale.now), window.get("port", scale.long)
    spans = {
        Span.RECENT: window.settings.window_seconds,
        Span.STEADY: window.settings.steady_seconds,
        Span.TREND: window.settings.trend_seconds,
    }
    lines, every = rows.values("samples"), long.beside(rows, "samples")
    now = seconds(rows)
    spanned = seconds(long, rows)
    known = (now >= _COVERAGE * spans[scale.now]) & (lines >= _LINES)
    then = spanned - now
    before = known & (then >= _COVERAGE * (spans[scale.long] - spans[scale.now]))
    before &= every - lines >= _LINES
    now, then = np.where(known, now, np.nan), np.where(before, then, np.nan)

    def both(one: Aggregate) -> tuple[Floats, Floats]:
        gained, in_all = rows.values(one.column), long.beside(rows, one.column)
        return gained / now, np.fmax(in_all - gained, 0.0) / then

    (paused, was_paused), (ticks, were_ticks) = both(PAUSED), both(TICKS)
    (received, was_received), (sent, was_sent) = both(RECEIVED), both(SENT)
    resent, was_resent = both(RESENT)
    held_back, was_held_back = both(HELD_BACK)
    means = means_before(rows, long, (QUEUED.column, DELAY.column))
    return Rates(
        rows=rows,
        paused=paused / MICROSECONDS,
        paused_before=was_paused / MICROSECONDS,
        ticks=ticks,
        ticks_before=were_ticks,
        traffic=received + sent,
        traffic_before=was_received + was_sent,
        resent=resent,
        resent_before=was_resent,
        queued=_waited(rows.values(QUEUED.column), sent),
        queued_before=divided(means[QUEUED.column], was_sent),
        queue_before=means[QUEUED.column],
        delay=rows.values(DELAY.column),
        delay_before=means[DELAY.column],
        held_back=held_back,
        held_back_before=was_held_back,
    )


def delay_of(before: Floats) -> Floats:
    """Return the delay from which on answers are late, given that of before, in seconds."""
    found: Floats = np.fmax(DELAY_SECONDS, _TIMES_DELAY * before)
    return found


def _waited(queued: Floats, sent: Floats) -> Floats:
    """Return how many seconds sent bytes wait by Little's law: the queue is what comes in meanwhile."""
    some = (queued >= _QUEUED_BYTES) & (sent >= SENT_BYTES)
    found: Floats = np.where(some, divided(queued, sent), np.where(np.isnan(queued), np.nan, 0.0))
    return found


def lately(window: Window, rates: Rates, one: Aggregate) -> Floats:
    """Return a rate per second in the last minute, given two lines: a burst that is over is gone."""
    rows = window.get("port", Span.RECENT)
    length = seconds(rows, rates.rows)
    found: Floats = rows.beside(rates.rows, one.column) / np.where(length > 0.0, length, np.nan)
    return found


def still_waits(window: Window, rates: Rates) -> Mask:
    """Tell which ports wait in the last minute, too, as far as two lines of it tell."""
    paused = lately(window, rates, PAUSED) / MICROSECONDS
    ticks = lately(window, rates, TICKS)
    before = np.where(rates.ticks_before > 0.0, rates.ticks_before, np.nan)
    waiting = window.get("port", Span.RECENT).beside(rates.rows, QUEUED.column)
    queued = _waited(waiting, lately(window, rates, SENT))
    found: Mask = (paused >= PAUSED_SHARE) | (ticks >= _TIMES_TICKS * before)
    found |= queued >= np.fmax(QUEUED_SECONDS, _TIMES_QUEUED * rates.queued_before)
    return found


def loses_speed(window: Window, rates: Rates) -> Mask:
    """Tell which links became slower within the minute: then the link's speed is told, not the waits."""
    now, lately = (window.get("port", span) for span in (Span.NOW, Span.RECENT))
    found: Mask = now.beside(rates.rows, _SPEED.field) < lately.beside(rates.rows, _SPEED.column)
    return found


def queue_begins(window: Window, rates: Rates) -> Mask:
    """Tell for which ports the node's own queue is longer than before, even if only for a moment.

    Answers are late from the first packet on; the mean of a queue shows it some passes later.
    """
    waiting = window.get("port", Span.RECENT).beside(rates.rows, QUEUED.column)
    least = np.fmax(_BEGUN * _QUEUED_BYTES, _TIMES_QUEUED * rates.queue_before)
    found: Mask = rates.queues | (waiting >= least)
    return found


def still_slow(window: Window, rates: Rates) -> Mask:
    """Tell whose traffic is still low in the last minute, and fell at about the time when the waits began.

    `rates` are over `Span.STEADY`. A job's own pause of minutes, such as an evaluation, may fall by
    chance into waits that cost nothing, and so may waits into minutes in which a job is slow by itself.
    """
    share = window.settings.window_seconds / window.settings.steady_seconds

    def of_rest(before: Floats, now: Floats, last: Floats) -> Floats:
        """Return for which share of the minutes before the last one the rate was as in that one."""
        rest = (now - share * last) / (1.0 - share)
        found: Floats = np.clip(divided(rest - before, last - before), 0.0, 1.0)
        return found

    traffic = lately(window, rates, RECEIVED) + lately(window, rates, SENT)
    slow = of_rest(-rates.traffic_before, -rates.traffic, -traffic)
    paused, ticks = lately(window, rates, PAUSED) / MICROSECONDS, lately(window, rates, TICKS)
    found: Mask = traffic <= (1.0 - TIMESCALES[0].least_fall) * rates.traffic_before
    for before, now, last, waits in (
        (rates.paused_before, rates.paused, paused, paused >= PAUSED_SHARE),
        (rates.ticks_before, rates.ticks, ticks, ticks >= _TIMES_TICKS * rates.ticks_before),
    ):
        found &= ~(waits & (np.abs(of_rest(before, now, last) - slow) > _APART))
    return found


def waiting_share(window: Window, rates: Rates) -> Floats:
    """Return for which share of its span each port waited as in the last minute; 1 if unknown."""
    paused = MICROSECONDS * rates.paused_before, MICROSECONDS * rates.paused
    found: Floats = np.fmin(
        _lasted(window, rates, PAUSED, *paused),
        _lasted(window, rates, TICKS, rates.ticks_before, rates.ticks),
    )
    return found


def resent_for(window: Window, rates: Rates) -> Floats:
    """Return for which share of its span each port sent again as in the last minute; 1 if unknown."""
    return _lasted(window, rates, RESENT, rates.resent_before, rates.resent)


def _lasted(window: Window, rates: Rates, one: Aggregate, before: Floats, now: Floats) -> Floats:
    last = lately(window, rates, one)
    more = (now > before) & (last > before)
    share = divided(np.where(more, now - before, np.nan), last - before)
    found: Floats = np.fmin(np.where(np.isnan(share), 1.0, share), 1.0)
    return found


def jobs_through(window: Window, port: Subject, scale: Timescale) -> Mapping[str, Allocation]:
    """Return by `holder_key` the jobs over several nodes that had GPUs of the port's node all that time."""
    return window.once(_jobs_through, (port.of_node(), scale))


def _jobs_through(window: Window, asked: tuple[Subject, Timescale]) -> Mapping[str, Allocation]:
    node, scale = asked
    begun = micros(window.now) - scale.long_seconds(window) * 1e6
    inventory = (window.whole or window).inventories.get(node.key)
    found: dict[str, Allocation] = {}
    for known in () if inventory is None else inventory.gpus:
        for held in window.held(Subject(cluster=node.cluster, node=node.node, gpu=known.uuid)):
            holding = window.holdings.get(key := holder_key(held))
            if micros(held.started_at) <= begun and holding is not None and len(holding.nodes) > 1:
                found.setdefault(key, held)
    return found
