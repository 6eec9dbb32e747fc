"""A network port with physical errors that its peers do not have, or with many more that FEC corrects."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

import numpy as np

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.model import SWITCH_DEVICE, Evidence, Finding, Subject
from gpuvigil.store import Aggregate, Function

from ..evidence import corrected_bits, fabric, fabric_links
from ..window.columns import Mask, clusters, combined_codes, per_group, port_kinds
from ..window.rows import Rows
from ..window.window import Need, Span, Window
from . import Detector
from .port_module import HOT_CELSIUS

_SYMBOLS, _RECEIVE, _RECOVERIES, _INTEGRITY = (
    Aggregate(function=Function.INCREASE, field=name)
    for name in ("symbol_errors", "receive_errors", "link_recoveries", "local_integrity_errors")
)
_HOTTEST = Aggregate(function=Function.MAX, field="module_celsius")
NEEDS = (
    Need(
        measurement="port",
        span=Span.STEADY,
        aggregates=(_SYMBOLS, _RECEIVE, _RECOVERIES, _INTEGRITY, _HOTTEST),
    ),
    *corrected_bits.NEEDS,
)
_WEARS = CONDITIONS["corrects_more"]

# NVSentinel: fatal at more than 120 symbol errors in an hour, degraded at 10 receive errors/s.
_SYMBOLS_PER_HOUR, _RECEIVE_PER_SECOND = 120.0, 10.0
# Fast links always have raw errors: only those that peers do not have are the cable's.
_TIMES_PEERS = 10.0
# Each receive error is a lost packet: where peers have nearly none, a tenth of NVSentinel's rate already
# points at the cable [own].
_RECEIVE_APART_PER_SECOND = 1.0
# A link is retrained when it comes up, and once more by chance; local integrity errors are symbol errors that
# became too many for the receiver's buffer [own].
_RECOVERIES_MOST, _INTEGRITY_MOST = 3.0, 10.0

# A switch's counts are read from it, and compared over ten minutes.
_MINUTES = 10.0
_AT_SWITCHES = {
    "symbol_errors": _SYMBOLS_PER_HOUR * _MINUTES / 60.0,
    "receive_errors": _RECEIVE_PER_SECOND * _MINUTES * 60.0,
    "link_recoveries": _RECOVERIES_MOST - 1.0,
    "local_integrity_errors": _INTEGRITY_MOST - 1.0,
}


def bad_ports(window: Window) -> list[Finding]:
    """Return one finding per port, and one per cable on which a switch counts errors.

    A link whose many errors FEC still corrects is a note. An incident that a switch's counts opened continues
    while the host's port counts errors: it is the same cable.
    """
    cables, told = list(_of_cables(window)), _reported_by_switches(window)
    named = {it.subject for it in cables}
    hosts = [(it, told.get(it.subject)) for it in _of_hosts(window)]
    found = [
        *(it if end is None else _at(it, end) for it, end in hosts if end not in named),
        *cables,
    ]
    return [*found, *_notes(window, {port for it in found for port in (it.subject, *it.members)})]


def _notes(window: Window, bad: Collection[Subject]) -> Iterator[Finding]:
    """Yield findings on links that lose nothing yet; not on those that are `bad` or have a hot module."""
    rows = window.get("port", Span.STEADY)
    for port, since, evidence in corrected_bits.wearing(window, _WEARS.key):
        row = rows.get(port)
        hot = row is not None and (row.get(_HOTTEST.column) or 0.0) >= HOT_CELSIUS
        if port not in bad and not hot:
            yield replace(
                _finding("port_errors", port, since, evidence),
                severity=_WEARS.severity,
                title=_WEARS.title,
                condition=_WEARS.key,
                action=_WEARS.action,
                source=_WEARS.source,
                own_limit=_WEARS.own_limit,
            )


def _reported_by_switches(window: Window) -> Mapping[Subject, Subject]:
    """Return the switch end of each host port whose cable has an open incident of a switch.

    Cables that were moved since are left out.
    """
    told = {
        Subject.parse(member): it.subject
        for it in window.recent_incidents
        if it.fault == "port_errors" and it.subject.device == SWITCH_DEVICE and not it.resolved_at
        for member in it.members
    }
    now = {host: fabric.end_of(window, host) for host in told}
    return {
        host: end for host, end in told.items() if (at := now[host]) is None or at.subject == end
    }


def _at(found: Finding, end: Subject) -> Finding:
    return replace(found, subject=end, members=(found.subject,))


def _of_hosts(window: Window) -> list[Finding]:
    rows = window.get("port", Span.STEADY)
    seconds = window.settings.steady_seconds
    symbols, received = rows.values(_SYMBOLS.column), rows.values(_RECEIVE.column)
    kinds = combined_codes(clusters(rows), port_kinds(window, rows))
    (peers, receiving), _ = per_group(kinds, np.stack([symbols, received]))
    most = np.fmax(_SYMBOLS_PER_HOUR * seconds / 3600.0, _TIMES_PEERS * peers)
    apart = np.fmax(_RECEIVE_APART_PER_SECOND * seconds, _TIMES_PEERS * receiving)
    bad = (symbols > most) | (received > np.fmin(apart, _RECEIVE_PER_SECOND * seconds))
    more = {
        "link recoveries": (rows.values(_RECOVERIES.column), _RECOVERIES_MOST),
        "local integrity errors": (rows.values(_INTEGRITY.column), _INTEGRITY_MOST),
    }
    for counts, limit in more.values():
        bad |= counts >= limit
    bad &= ~_is_hot(rows)
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
                *(
                    Evidence(name=name, value=f"{counts[number]:.0f}", limit=f"{limit:g}")
                    for name, (counts, limit) in more.items()
                    if counts[number] >= limit
                ),
            ),
        )
        for number, (port, row), usual in zip(
            np.flatnonzero(bad).tolist(), rows.where(bad), peers[bad], strict=True
        )
    ]


def _is_hot(rows: Rows) -> Mask:
    """Return for each row whether its module is too hot: the errors that this causes at either end are
    reported as heat.
    """
    hot: Mask = rows.values(_HOTTEST.column) >= HOT_CELSIUS
    return hot


def _of_cables(window: Window) -> Iterator[Finding]:
    """Yield findings on cables from the errors that switches count."""
    rows = window.get("port", Span.STEADY)
    hot = {rows.subjects[it] for it in np.flatnonzero(_is_hot(rows)).tolist()}
    for trouble in fabric_links.cables_with_errors(window, _AT_SWITCHES):
        if not hot.isdisjoint(trouble.members):
            continue
        found = _finding("port_errors", trouble.subject, trouble.since, trouble.evidence)
        yield replace(found, members=trouble.members)


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
    sentence="A network port with physical errors that its peers do not have, or with many more that FEC corrects.",
    source="NVSentinel's limits, and the cluster's other ports",
)
