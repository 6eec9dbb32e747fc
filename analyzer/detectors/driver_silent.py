"""A node on which no NVIDIA driver call returns, or whose GPUs nobody reads any more."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import numpy as np

from gpuvigil.clock import moment
from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Event, EventKind, Evidence, Finding, Incident, Subject
from gpuvigil.store import Aggregate, Function

from ..evidence.claims import Claim, findings
from ..evidence.cures import cured_at
from ..window.columns import group_maximum, nodes
from ..window.rows import Row
from ..window.window import Need, Span, Window
from . import Detector

NEEDS = (
    Need(
        measurement="node",
        span=Span.NOW,
        fields=("driver_answering", "driver_silent_seconds", "gpus_answering", "gpus_expected"),
    ),
    *(
        Need(
            measurement="node",
            span=span,
            aggregates=(Aggregate(function=Function.MIN, field="driver_answering"),),
        )
        for span in (Span.RECENT, Span.STEADY)
    ),
    Need(
        measurement="gpu",
        span=Span.TREND,
        aggregates=(Aggregate(function=Function.MAX, field="power_watts"),),
    ),
)

_FAULT = FAULTS["driver_silent"]
# For a GPU exporter that runs beside another exporter of the machine: as long as a node may be late, since
# upgrading the exporter takes minutes on each node. The other one must have been heard all that time, and
# have sent this many recent lines. Ours.
_UNREAD, _LINES_NOW = timedelta(minutes=9), 3


def silent_drivers(window: Window) -> list[Finding]:
    """Return nodes whose driver hangs, by the collector's event or newest line, and those whose GPUs are no
    longer read.
    """
    # The same event about a single GPU says only that this GPU's calls hang.
    events = {
        event.subject: event
        for event in window.all_events(EventKind.DRIVER_SILENT)
        if event.subject.kind == "node"
    }
    rows = window.get("node", Span.NOW)
    hung = dict(rows.where(rows.values("driver_answering") == 0))
    found = (
        _finding(window, node, events.get(node), hung.get(node))
        for node in sorted({*events, *hung}, key=lambda node: node.key)
    )
    told = [finding for finding in found if finding is not None]
    known = {finding.subject for finding in told}
    unread = findings("driver_silent", (it for it in _unread(window) if it.subject not in known))
    return [*told, *unread]


def _unread(window: Window) -> Iterator[Claim]:
    """Yield nodes that still send lines about themselves, but none about their GPUs.

    Our own collector sends a line for each GPU, whatever the driver does.
    """
    rows = window.get("gpu", Span.TREND)
    if not len(rows):
        return
    last = group_maximum(nodes(rows), rows.values("last_at"))
    unread_from = window.now - _UNREAD
    ended = last <= unread_from.timestamp() * 1e6
    for node in sorted({rows.subjects[it].of_node() for it in np.flatnonzero(ended).tolist()}):
        heard = window.get("node", Span.RECENT).get(node)
        long = window.get("node", Span.STEADY).get(node)
        since = max(row["last_at"] for _, row in _of(window, node))
        if (
            heard is not None
            and heard["samples"] >= _LINES_NOW
            and long is not None
            and long["first_at"] <= unread_from
            and not _booted(window, node, since)
        ):
            said = Evidence(name="GPUs last read", value=moment(since), peers="the node since")
            yield Claim(condition="driver_unread", subject=node, since=since, evidence=(said,))


def _of(window: Window, node: Subject) -> Iterator[tuple[Subject, Row]]:
    rows = window.get("gpu", Span.TREND).of_node(node)
    return rows.where(np.ones(len(rows), dtype=bool))


def _booted(window: Window, node: Subject, since: datetime) -> bool:
    """Return whether the node has rebooted since; reading its GPUs takes minutes then."""
    return any(event.at >= since for event in window.node_events(node, EventKind.BOOT))


def _finding(window: Window, node: Subject, event: Event | None, row: Row | None) -> Finding | None:
    back_at = cured_at(window, "driver_silent", node)
    if event is not None and not _is_current(window, event):
        event = None
    if row is not None and back_at is not None and row["at"] <= back_at:
        row = None
    if event is None and row is None:
        return None
    return Finding(
        fault="driver_silent",
        subject=node,
        severity=_FAULT.severity,
        since=min([*([event.at] if event else []), *([row["at"]] if row else [])]),
        evidence=_evidence(event, row),
        detector="driver_silent",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
        certain=True,
        late=row is None and window.came_late([event] if event else []),
    )


def _is_current(window: Window, event: Event) -> bool:
    node = event.subject.of_node()
    back_at = cured_at(window, "driver_silent", node)
    if back_at is not None and event.at < back_at:
        return False
    row = window.newest(node)
    return row is None or row.get("driver_answering") != 1 or row["at"] <= event.at


def _evidence(event: Event | None, row: Row | None) -> tuple[Evidence, ...]:
    evidence = []
    if event is not None:
        evidence.append(Evidence(name="silent since", value=moment(event.at)))
        if event.message:
            evidence.append(Evidence(name="message", value=event.message, detail=True))
    if row is not None:
        seconds = row.get("driver_silent_seconds")
        if seconds is not None:
            evidence.append(Evidence(name="no call came back for", value=f"{seconds:.0f} s"))
        if row.get("gpus_answering") is not None:
            expected = row.get("gpus_expected")
            evidence.append(
                Evidence(
                    name="GPUs that answer",
                    value=str(row["gpus_answering"]),
                    limit=None if expected is None else str(expected),
                )
            )
    return tuple(evidence) or (Evidence(name="driver", value="does not answer"),)


def would_show_unread_driver(window: Window, incident: Incident) -> bool | None:
    """Return whether GPUs that nobody read are read again; None for an incident of another condition."""
    if incident.condition != "driver_unread":
        return None
    return bool(len(window.get("gpu", Span.NOW).of_node(incident.subject)))


DETECTOR = Detector(
    name="driver_silent",
    find=silent_drivers,
    faults=found_by("driver_silent"),
    needs=NEEDS,
    reads_events=True,
    sentence="A node on which no call to the NVIDIA driver comes back, or that goes on telling of itself and of no GPU.",
    source="the supervisor's clock beside the reader",
    would_show=would_show_unread_driver,
)
