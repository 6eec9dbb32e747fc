"""A network port with physical errors that its peers do not have, or that drops packets."""

from datetime import datetime

import numpy as np

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding, Subject
from gpuvigil.store import Aggregate, Function

from ..window.columns import clusters, per_group, port_kinds, together
from ..window.window import Need, Span, Window
from . import Detector

_SYMBOLS, _RECEIVE, _DISCARDS = (
    Aggregate(function=Function.INCREASE, field=name)
    for name in ("symbol_errors", "receive_errors", "transmit_discards")
)
NEEDS = (
    Need(measurement="port", span=Span.STEADY, aggregates=(_SYMBOLS, _RECEIVE)),
    Need(measurement="port", span=Span.RECENT, aggregates=(_DISCARDS,)),
)

# NVSentinel: fatal at more than 120 symbol errors in an hour, degraded at 10 receive errors/s.
_SYMBOLS_PER_HOUR, _RECEIVE_PER_SECOND = 120.0, 10.0
# Fast links always have raw errors: only what peers have not is the cable's.
_TIMES_PEERS = 10.0
# NVSentinel: degraded at more than 100 discards a second.
_DISCARDS_PER_SECOND = 100.0


def bad_ports(window: Window) -> list[Finding]:
    """One finding per port and fault: physical errors, or congestion."""
    return [*_physical(window), *_congested(window)]


def _physical(window: Window) -> list[Finding]:
    rows = window.get("port", Span.STEADY)
    seconds = window.settings.steady_seconds
    symbols, received = rows.values(_SYMBOLS.column), rows.values(_RECEIVE.column)
    peers, _ = per_group(together(clusters(rows), port_kinds(window, rows)), symbols)
    most = np.fmax(_SYMBOLS_PER_HOUR * seconds / 3600.0, _TIMES_PEERS * peers)
    bad = (symbols > most) | (received > _RECEIVE_PER_SECOND * seconds)
    return [
        _finding(
            "port_errors",
            port,
            row["last_at"],
            (
                Evidence(
                    name="symbol errors",
                    value=f"{row[_SYMBOLS.column]} in {seconds / 60.0:g} min",
                    limit=f"{_SYMBOLS_PER_HOUR:g} in an hour",
                    peers=None if np.isnan(usual) else f"{usual:g}",
                ),
                Evidence(name="receive errors", value=str(row[_RECEIVE.column])),
            ),
        )
        for (port, row), usual in zip(rows.where(bad), peers[bad], strict=True)
    ]


def _congested(window: Window) -> list[Finding]:
    rows = window.get("port", Span.RECENT)
    seconds = window.settings.window_seconds
    bad = rows.values(_DISCARDS.column) > _DISCARDS_PER_SECOND * seconds
    return [
        _finding(
            "port_congested",
            port,
            row["first_at"],
            (
                Evidence(
                    name="discards",
                    value=f"{row[_DISCARDS.column] / seconds:.0f} per second",
                    limit=f"{_DISCARDS_PER_SECOND:g} per second at most",
                ),
            ),
        )
        for port, row in rows.where(bad)
    ]


def _finding(fault: str, port: Subject, since: datetime, evidence: tuple[Evidence, ...]) -> Finding:
    known = FAULTS[fault]
    return Finding(
        fault=fault,
        subject=port,
        severity=known.severity,
        since=since,
        evidence=evidence,
        detector="port_errors",
        action=known.action,
        source=known.source,
        own_limit=known.own_limit,
    )


DETECTOR = Detector(
    name="port_errors",
    find=bad_ports,
    faults=found_by("port_errors"),
    needs=NEEDS,
    sentence="A network port with physical errors that its peers do not have, or that drops packets.",
    source="NVSentinel's limits, and the cluster's other ports",
)
