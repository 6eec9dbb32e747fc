"""A network port whose packets are lost on their way and have to be sent again."""

from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding, Subject

from ..evidence.fabric_links import beyond
from ..evidence.port_rates import (
    LOOKS,
    NEEDS,
    PEERS,
    RESENT,
    Rates,
    jobs_through,
    lately,
    rates_of,
    resent_for,
)
from ..window.columns import Floats, Mask, clusters, per_group, port_kinds, together
from ..window.rows import Row
from ..window.window import Span, Window
from . import Detector

_FAULT = FAULTS["port_packet_loss"]
# Packets sent again per second, now and before; and so many times those of the port's peers [own].
_PER_SECOND, _TIMES_PEERS = 1.0, 10.0
# A burst of some packets a second may fall into a pause of the job; of so many it is felt [own].
_FELT_PER_SECOND = 50.0


def lossy_ports(window: Window) -> list[Finding]:
    """One finding per port that sends again and again: for longer than a burst, or so that jobs feel it."""
    found: dict[Subject, Finding] = {}
    if not len(window.get("port", Span.STEADY)):
        return []
    for look in LOOKS:
        rates = window.once(rates_of, look)
        losing, usual = _losing(window, rates)
        lasts = losing & (rates.resent_before >= _PER_SECOND) & (look.now is Span.STEADY)
        lasts &= lately(window, rates, RESENT) >= _PER_SECOND
        felt = losing & (rates.resent >= _FELT_PER_SECOND) & (rates.fall >= look.least_fall)
        share = resent_for(window, rates)
        for number in np.flatnonzero(lasts | felt).tolist():
            port = rates.rows.subjects[number]
            if lasts[number] or jobs_through(window, port, look):
                one = _finding(window, rates, number, usual[number])
                since = _since(Row(rates.rows, number), float(share[number]))
                lost = float(rates.fall[number]) if felt[number] else 0.0
                found.setdefault(port, replace(one, since=since, lost=lost))
    return [found[port] for port in sorted(found)]


def _since(row: Row, share: float) -> datetime:
    """When a port began to send again as it does now."""
    last: datetime = row["last_at"]
    span: timedelta = last - row["first_at"]
    return last - share * span


def _losing(window: Window, rates: Rates) -> tuple[Mask, Floats]:
    peers = together(clusters(rates.rows), port_kinds(window, rates.rows))
    usual, count = per_group(peers, rates.resent)
    usual = np.where(count >= PEERS, usual, np.nan)
    return rates.resent >= np.fmax(_PER_SECOND, _TIMES_PEERS * usual), usual


def _finding(window: Window, rates: Rates, number: int, usual: float) -> Finding:
    row = Row(rates.rows, number)
    fall = rates.fall[number]
    less = (
        ()
        if not fall > 0.0
        else (Evidence(name="traffic", value=f"{100.0 * fall:.0f} % less than before"),)
    )
    return Finding(
        fault="port_packet_loss",
        subject=rates.rows.subjects[number],
        severity=_FAULT.severity,
        since=row["first_at"],
        evidence=(
            Evidence(
                name="packets sent again",
                value=f"{rates.resent[number]:.1f} per second",
                limit=f"{_PER_SECOND:g} per second",
                peers=None if np.isnan(usual) else f"{usual:.2g}",
            ),
            *less,
            *beyond(window, rates.rows.subjects[number]),
        ),
        detector="port_losses",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
    )


DETECTOR = Detector(
    name="port_losses",
    find=lossy_ports,
    faults=found_by("port_losses"),
    needs=NEEDS,
    sentence="A network port whose packets have to be sent again.",
    source="retransmissions that its network card counts, and the cluster's other ports",
)
