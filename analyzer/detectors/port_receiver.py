"""A host that does not take in time what its network port receives, so that others have to wait.

Its port shows this: it pauses its switch, or has no buffer for arriving packets. The hosts that send to it
wait, and are not reported.
"""

from datetime import datetime

import numpy as np

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding, Incident, Subject
from gpuvigil.store import Aggregate, Function

from ..evidence.port_rates import PEERS
from ..window.columns import Floats, clusters, combined_codes, per_group, port_kinds, seconds
from ..window.rows import Row, Rows
from ..window.window import Need, Span, Window
from . import Detector

_PAUSES, _STORMS, _UNBUFFERED, _DISCARDS = (
    Aggregate(function=Function.INCREASE, field=name)
    for name in ("transmit_pause_microseconds", "pause_storms", "out_of_buffer", "receive_discards")
)
_ASKED = (_PAUSES, _STORMS, _UNBUFFERED, _DISCARDS)
NEEDS = tuple(
    Need(measurement="port", span=span, aggregates=_ASKED) for span in (Span.RECENT, Span.STEADY)
)

_FAULT = FAULTS["port_slow_receiver"]
# Share of the time paused in the last minute, and over the steady span, since a burst comes from a checkpoint
# [own].
_PAUSED_SHARE, _PAUSED_STEADY = 0.05, 0.03
# Packets a second that found no buffer, and that were dropped for want of room; and the factor over the
# port's peers [own].
_UNBUFFERED_PER_SECOND, _DISCARDS_PER_SECOND, _TIMES_PEERS = 100.0, 1.0, 10.0
# mlx5 reports a pause that lasted long enough to be a storm; it takes at least this many [own].
_STORMS_LEAST = 2.0
_COVERAGE = 0.5
# Ports that wait for a host are not reported while the host shows this share of what would be reported about
# it.
_FIRST_SIGN = 0.1


def slow_hosts(window: Window) -> list[Finding]:
    """Return one finding per port whose host does not keep up."""
    return [
        Finding(
            fault="port_slow_receiver",
            subject=port,
            severity=_FAULT.severity,
            since=since,
            evidence=evidence,
            detector="port_receiver",
            action=_FAULT.action,
            source=_FAULT.source,
            own_limit=_FAULT.own_limit,
        )
        for port, (since, evidence) in slow_receivers(window).items()
    ]


def slow_receivers(window: Window) -> dict[Subject, tuple[datetime, tuple[Evidence, ...]]]:
    """Return the ports whose host does not keep up, each with since when, and with the evidence."""
    rows = window.get("port", Span.STEADY)
    if not len(rows):
        return {}
    lately = window.get("port", Span.RECENT)
    alike = combined_codes(clusters(rows), port_kinds(window, rows))
    found: dict[Subject, tuple[datetime, tuple[Evidence, ...]]] = {}
    for one, least, of_least, words in _SIGNS:
        rate = rate_of(rows, one, window.settings.steady_seconds)
        now = rate_of(lately, one, window.settings.window_seconds, beside=rows)
        usual, count = per_group(alike, rate)
        most = np.where(count >= PEERS, np.fmax(least, _TIMES_PEERS * usual), least)
        for number in np.flatnonzero((rate >= of_least * most) & (now >= most)).tolist():
            share = min(float(rate[number] / now[number]), 1.0)
            _add(found, Row(rows, number), rows.subjects[number], share, words(now[number]))
    storms = rows.values(_STORMS.column)
    for number in np.flatnonzero(storms >= _STORMS_LEAST).tolist():
        told = Evidence(name="pause storms", value=f"{storms[number]:.0f}")
        _add(found, Row(rows, number), rows.subjects[number], 1.0, told)
    return found


def _add(
    found: dict[Subject, tuple[datetime, tuple[Evidence, ...]]],
    row: Row,
    port: Subject,
    share: float,
    evidence: Evidence,
) -> None:
    """Add a sign to a port's evidence, and move its start back if this sign began earlier.

    `share` is the part of the row's span for which the sign has been there.
    """
    begun: datetime = row["last_at"] - share * (row["last_at"] - row["first_at"])
    since, before = found.get(port, (begun, ()))
    found[port] = min(since, begun), (*before, evidence)


def rate_of(rows: Rows, one: Aggregate, span: float, beside: Rows | None = None) -> Floats:
    """Return an increase per second of a span, in the order of the rows `beside` where given.

    NaN where the span's lines do not cover enough of it.
    """
    order = rows if beside is None else beside
    length = seconds(rows, order)
    covered = np.where(length >= _COVERAGE * span, length, np.nan)
    found: Floats = rows.beside(order, one.column) / covered
    return found


def stopping(window: Window) -> set[Subject]:
    """Return ports that stop others or have no room for arriving packets, even if too little to report yet."""
    found: set[Subject] = set()
    for span, length, share in (
        (Span.RECENT, window.settings.window_seconds, 1.0),
        (Span.STEADY, window.settings.steady_seconds, _FIRST_SIGN),
    ):
        rows = window.get("port", span)
        if len(rows):
            signs = [rate_of(rows, one, length) >= share * least for one, least, *_ in _SIGNS]
            found.update(port for port, _ in rows.where(np.logical_or.reduce(signs)))
    return found


def would_show_slow_receiver(window: Window, incident: Incident) -> bool:
    """Return whether an open incident is over: its port stopped nobody over the steady span."""
    rows = window.get("port", Span.STEADY)
    number = rows.index.number(incident.subject) if len(rows) else None
    if number is None:
        return False
    span = window.settings.steady_seconds
    rates = [
        float(rate_of(rows, one, span)[number]) / (least * share) for one, least, share, _ in _SIGNS
    ]
    known = [share for share in rates if not np.isnan(share)]
    return bool(known) and max(known) < 1.0


def _paused(rate: float) -> Evidence:
    return Evidence(
        name="pauses its switch",
        value=f"{min(rate / 1e4, 100.0):.0f} % of the time",
        limit=f"{100.0 * _PAUSED_SHARE:g} %",
    )


def _unbuffered(rate: float) -> Evidence:
    return Evidence(
        name="packets without a buffer",
        value=f"{rate:.0f} per second",
        limit=f"{_UNBUFFERED_PER_SECOND:g} per second",
    )


def _discarded(rate: float) -> Evidence:
    return Evidence(
        name="received and dropped",
        value=f"{rate:.1f} packets per second",
        limit=f"{_DISCARDS_PER_SECOND:g} per second",
    )


# The counter; its limit per second in the last minute; the share of that for the steady span; and its
# wording.
_SIGNS = (
    (_PAUSES, _PAUSED_SHARE * 1e6, _PAUSED_STEADY / _PAUSED_SHARE, _paused),
    (_UNBUFFERED, _UNBUFFERED_PER_SECOND, 1.0, _unbuffered),
    (_DISCARDS, _DISCARDS_PER_SECOND, 1.0, _discarded),
)

DETECTOR = Detector(
    name="port_receiver",
    find=slow_hosts,
    faults=found_by("port_receiver"),
    needs=NEEDS,
    sentence="A host that does not take in time what its network port receives.",
    source="pauses that it sends, packets without a buffer, and the cluster's other ports",
    would_show=would_show_slow_receiver,
)
