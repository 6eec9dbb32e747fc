"""A network port that was seen up and is down, or that goes down again and again.

A port that is back within half a minute alerts nobody: a cable was moved, a driver reloaded, a switch
restarted. By then it is also known whether its switch went down, and whether somebody switched the port off,
which only its measurements show. Where a job stopped with the link, people already wait, and are told at once.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gpuvigil.clock import moment
from gpuvigil.faults import FAULTS, found_by
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.faults.symptoms import PORT_DOWN, STARTS_WITHIN_SECONDS
from gpuvigil.model import Event, EventKind, Evidence, Finding, Inventory, Severity, Subject
from gpuvigil.store import Aggregate, Function
from gpuvigil.topology.link_names import device_name

from ..evidence.back_with_switch import is_awaited
from ..evidence.cures import cured_at
from ..evidence.port_drops import OTHER_NAME, drop_of, fabric_ports, is_leaving, role_of
from ..evidence.stopped_job import NEEDS as STOPPED
from ..evidence.stopped_job import is_alone, stopped_jobs
from ..evidence.uplinks_down import cables_down
from ..window.holdings import holder_key
from ..window.index import Numbers
from ..window.rows import Row, Rows
from ..window.window import Need, Span, Window
from . import Detector

_TIMES = Aggregate(function=Function.INCREASE, field="link_downed")
_LAST_UP = Aggregate(function=Function.LAST, field="up")
_DOWN_IN = (
    Aggregate(function=Function.MAX, field="up"),
    Aggregate(function=Function.MIN, field="enabled"),
)
NEEDS = (
    *STOPPED,
    Need(measurement="port", span=Span.NOW, fields=("up", "enabled", "physical_state")),
    Need(measurement="port", span=Span.TREND, aggregates=(_TIMES,)),
    Need(
        measurement="port",
        span=Span.FLAP,
        aggregates=(
            _TIMES,
            Aggregate(function=Function.MAX, field="speed_bits_per_second"),
            *(*_DOWN_IN, _LAST_UP),
        ),
    ),
    Need(measurement="port", span=Span.RECENT, aggregates=_DOWN_IN),
)
# A single line that says so does not make a port down.
_LINES = 2
# Factor on the patience for a port that is rarely measured, or not at all since its event.
_WITHOUT_NUMBERS = 6.0
# Factor for a port that is measured, but late since its event: the measurement says whether somebody switched
# it off.
_NUMBERS_LATE = 10.0
# An InfiniBand port whose link is up only lacks a subnet manager to make it active.
_LINK_UP, _UNMANAGED = 5, CONDITIONS["no_subnet_manager"]
_Counted = tuple[float, Row]  # the span in seconds, and the port's row for it
NO_FABRIC = "Node lost all its fabric ports"
_CHECK_HOST = (
    "Check the node's network card and cables, then the switch at their other end;"
    " the node itself still reports."
)


def broken_ports(window: Window) -> list[Finding]:
    """Return one finding per port that flaps or is down; a port never seen up is not provisioned yet.

    A node that lost all of its fabric ports is one finding about the node. Cables between switches are judged
    by what the fabric's reader reports.
    """
    downs: dict[Subject, list[Event]] = defaultdict(list)
    for event in window.all_events(EventKind.PORT_DOWN):
        downs[event.subject].append(event)
    rows = window.get("port", Span.NOW)
    down = dict(rows.where((rows.values("up") == 0) & _may_have_been_up(window, rows)))
    counted = _counted(window)
    found = []
    for port in sorted({*downs, *down, *counted}, key=lambda port: port.key):
        finding = _flapping(window, port, downs[port], counted.get(port)) or _down(
            window, port, downs[port], down.get(port)
        )
        if finding is not None:
            found.append(finding)
    return [*_by_host(window, found), *cables_down(window, FAULTS["port_down"])]


def _counted(window: Window) -> Mapping[Subject, _Counted]:
    """Return the ports that went down often enough by their own counters, in a short span or else a long one.

    Not every collector reports each time by an event.
    """
    found: dict[Subject, _Counted] = {}
    limits = window.settings
    spans = ((Span.TREND, limits.trend_seconds), (Span.FLAP, limits.port_flap_window_seconds))
    for span, seconds in spans:
        rows = window.get("port", span)
        often = rows.where(rows.values(_TIMES.column) >= limits.port_flap_count)
        found |= {port: (seconds, row) for port, row in often}
    return found


def _flapping(
    window: Window, port: Subject, downs: list[Event], counted: _Counted | None
) -> Finding | None:
    # Events are kept for long; the counter is queried over spans that a pass can afford.
    limit, span = window.settings.port_flap_count, window.settings.port_flap_events_seconds
    recent = _within(window, downs, span)
    told = len(recent) >= limit
    seconds, row = counted or (span, None)
    if not told and row is None:
        return None
    if not told:
        span, recent = seconds, _within(window, downs, seconds)
    times = max(len(recent), 0 if row is None else row[_TIMES.column])
    fault = FAULTS["port_flapping"]
    return Finding(
        fault="port_flapping",
        subject=port,
        severity=fault.severity,
        since=recent[0].at if recent else (window.now if row is None else row["first_at"]),
        evidence=(
            Evidence(
                name="went down",
                value=f"{times} times in {span / 60.0:g} min",
                limit=f"fewer than {limit}",
            ),
        ),
        detector="port_down",
        action=fault.action,
        source=fault.source,
        own_limit=fault.own_limit,
        certain=told,
        late=row is None and window.came_late(recent),
    )


def _within(window: Window, downs: Iterable[Event], seconds: float) -> list[Event]:
    return [e for e in downs if window.now - e.at < timedelta(seconds=seconds)]


def _down(window: Window, port: Subject, downs: list[Event], row: Row | None) -> Finding | None:
    if row is not None and not PORT_DOWN.shows(row):
        return None  # somebody switched it off
    up_at = cured_at(window, "port_down", port)
    event = downs[-1] if downs and _is_current(window, downs[-1], up_at) else None
    if row is not None and up_at is not None and row["at"] <= up_at:
        row = None
    if event is None and (row is None or not _was_up(window, port, downs)):
        return None
    if event is not None and is_leaving(window, drop_of(window, event)):
        return None
    if row is None and _was_switched_off(window, port):
        return None
    since = window.now if row is None else _down_since(window, port, row)
    since = since if event is None else event.at
    stopped = _stopped(window, downs, event, row)
    told_from = since if stopped else _reported_since(window, port, event, row, since)
    if window.now < told_from or is_awaited(window, port, since):
        return None
    unmanaged = _is_unmanaged(window, port, row)
    fault = _UNMANAGED if unmanaged else FAULTS["port_down"]
    return Finding(
        fault="port_down",
        subject=port,
        severity=fault.severity,
        since=since,
        evidence=(*_evidence(window, port, event, row), *stopped),
        detector="port_down",
        action=fault.action,
        source=fault.source,
        own_limit=fault.own_limit,
        title=fault.title if unmanaged else "",
        condition=fault.key if unmanaged else "",
        certain=event is not None,
        halted=bool(stopped),
        late=row is None and window.came_late([event] if event else []),
    )


def _stopped(
    window: Window, downs: Sequence[Event], event: Event | None, row: Row | None
) -> tuple[Evidence, ...]:
    """Return evidence that a job stands still since the port went down, so that nobody need wait for the link.

    Jobs communicate over fabric ports. The port must be measured as down since, which shows that nobody switched it off, and must not have gone
    together with others, as at a switch, nor shortly after it came back from another loss.
    """
    if event is None or row is None or row["at"] <= event.at:
        return ()
    if role_of(window.inventories.get(event.subject.of_node().key), event.subject) != "fabric":
        return ()
    drop = drop_of(window, event)
    again = len(_within(window, downs, window.settings.port_flap_events_seconds)) > 1
    if again or window.now < drop.at + OTHER_NAME or not is_alone(window, drop):
        return ()
    told = stopped_jobs(window, drop)
    return () if told is None else (told,)


def _is_unmanaged(window: Window, port: Subject, row: Row | None) -> bool:
    """Return whether the cable is fine: an InfiniBand port that has a link but is not active."""
    if row is None or row.get("physical_state") != _LINK_UP:
        return False
    inventory = window.inventories.get(port.of_node().key)
    return inventory is not None and any(
        (known.device, known.port, known.kind) == (port.device, port.port, "infiniband")
        for known in inventory.ports
    )


def _was_switched_off(window: Window, port: Subject) -> bool:
    """Return whether the port was lately measured as switched off; with gaps in its readings that remains true."""
    span = window.get("port", Span.FLAP).get(port)
    return span is not None and span["enabled_min"] == 0


def _reported_since(
    window: Window, port: Subject, event: Event | None, row: Row | None, since: datetime
) -> datetime:
    """Return from when the port is reported as down.

    Its measurements must have confirmed the state for the patience; where none have come since, they are waited
    for.
    """
    patience = timedelta(seconds=window.settings.port_down_seconds)
    if event is None:
        seen = row is not None and row["at"] - since >= patience
        return since + patience * (1.0 if seen else _WITHOUT_NUMBERS)
    told = drop_of(window, event).at
    if row is not None and row["at"] > event.at:
        return told + patience
    has_numbers = window.get("port", Span.FLAP).get(port) is not None
    return told + patience * (_NUMBERS_LATE if has_numbers else _WITHOUT_NUMBERS)


def _by_host(window: Window, found: Sequence[Finding]) -> list[Finding]:
    """Return the findings with one in place of all on a node that lost its whole fabric.

    That one is more severe where a job needs the fabric.
    """
    downs: dict[Subject, list[Finding]] = defaultdict(list)
    for finding in found:
        if finding.fault == "port_down":
            downs[finding.subject.of_node()].append(finding)
    told = [finding for finding in found if finding.fault != "port_down"]
    for node, them in downs.items():
        fabric = set(fabric_ports(window, node))
        lost = [finding for finding in them if finding.subject in fabric]
        if not fabric or len(lost) < len(fabric):
            told += them
            continue
        told += [finding for finding in them if finding.subject not in fabric]
        told.append(_without_fabric(window, node, lost))
    return sorted(told, key=lambda finding: finding.subject.key)


def _without_fabric(window: Window, node: Subject, lost: Sequence[Finding]) -> Finding:
    """Build the finding about the node, or about its port where it has only one."""
    first = min(lost, key=lambda finding: (finding.since, finding.subject))
    ports = sorted(finding.subject for finding in lost)
    unmanaged = all(finding.condition == _UNMANAGED.key for finding in lost)
    severity = Severity.CRITICAL if works_with_others(window, [node]) else first.severity
    left = Evidence(name="fabric ports up", value=f"0 of {len(ports)}")
    if len(lost) == 1:
        return replace(first, severity=severity, evidence=(*first.evidence, left))
    names = ", ".join(device_name(port.device, port.port) for port in ports)
    return replace(
        first,
        subject=node,
        severity=severity,
        title=NO_FABRIC,
        condition="no_fabric",
        action=_UNMANAGED.action if unmanaged else _CHECK_HOST,
        evidence=(first.evidence[0], left, Evidence(name="ports", value=names)),
        members=tuple(ports),
        certain=all(finding.certain for finding in lost),
        halted=any(finding.halted for finding in lost),
        late=all(finding.late for finding in lost),
    )


def works_with_others(window: Window, nodes: Iterable[Subject]) -> bool:
    """Return whether a job on one of these nodes also has GPUs on another node."""
    for node in nodes:
        inventory = window.inventories.get(node.key)
        for known in () if inventory is None else inventory.gpus:
            gpu = Subject(cluster=node.cluster, node=node.node, gpu=known.uuid)
            holdings = (window.holdings.get(holder_key(held)) for held in window.held(gpu))
            if any(holding is not None and len(holding.nodes) > 1 for holding in holdings):
                return True
    return False


def _down_since(window: Window, port: Subject, row: Row) -> datetime:
    """Return since when the lines alone surely show the port down, which may be later than when it went down.

    While a node starts, its links come up one after the other, so then only the long span counts.
    """
    spans = (Span.FLAP,) if _has_just_booted(window, port) else (Span.FLAP, Span.RECENT)
    for span in spans:
        lines = window.get("port", span).get(port)
        if lines is not None and lines["samples"] >= _LINES and _is_down_in(lines):
            first: datetime = lines["first_at"]
            return first
    since: datetime = row["at"]
    return since


def _is_down_in(lines: Row) -> bool:
    return bool(lines["up_max"] == 0 and lines["enabled_min"] != 0)


def _has_just_booted(window: Window, port: Subject) -> bool:
    after = window.now - timedelta(seconds=STARTS_WITHIN_SECONDS)
    return any(e.at > after for e in window.node_events(port.of_node(), EventKind.BOOT))


def _is_current(window: Window, event: Event, up_at: datetime | None) -> bool:
    if up_at is not None and event.at < up_at:
        return False
    row = window.newest(event.subject)
    if row is not None:
        return bool(row.get("up") != 1 or row["at"] <= event.at)
    # In a gap the last line before it tells: not everybody reports that a port is up again.
    lines = window.get("port", Span.FLAP).get(event.subject)
    if lines is None:
        return _is_heard(window, event.subject.of_node()) or _is_told(window, event.subject)
    return bool(lines[_LAST_UP.column] != 1 or lines["last_at"] <= event.at)


def _is_heard(window: Window, node: Subject) -> bool:
    """Tell whether a node without numbers still reports: of one that is silent, an old event says nothing new."""
    heard = window.last_seen.get(node.key)
    span = timedelta(seconds=window.settings.port_flap_window_seconds)
    return heard is None or window.now - heard <= span


def _is_told(window: Window, port: Subject) -> bool:
    told = window.active_incidents
    return any(one.subject == port and one.fault == "port_down" for one in told)


def _was_up(window: Window, port: Subject, downs: list[Event]) -> bool:
    """Return whether the port was ever seen up; an event that it went down or came up counts, too."""
    if downs or cured_at(window, "port_down", port) is not None:
        return True
    return _inventory_says_up(port, window.inventories.get(port.of_node().key))


def _may_have_been_up(window: Window, rows: Rows) -> Numbers:
    """Return for each row whether the inventory says that the port was up, or an event of its node may."""
    told = {e.subject.of_node() for e in window.all_events(EventKind.PORT_DOWN, EventKind.PORT_UP)}
    was_up: Numbers = window.of_inventories(rows, _inventory_says_up) == 1
    for node in told:
        was_up[rows.index.of_node(node)] = True
    return was_up


def _inventory_says_up(port: Subject, inventory: Inventory | None) -> bool:
    return inventory is not None and any(
        known.was_up and (known.device, known.port) == (port.device, port.port)
        for known in inventory.ports
    )


def _evidence(
    window: Window, port: Subject, event: Event | None, row: Row | None
) -> tuple[Evidence, ...]:
    evidence: list[Evidence] = []
    if event is not None:
        evidence.append(Evidence(name="down since", value=moment(event.at)))
        if event.message:
            evidence.append(Evidence(name="message", value=event.message))
    if row is not None and row.get("physical_state") is not None:
        state = row["physical_state"]
        evidence.append(
            Evidence(name="physical state", value="5, link up")
            if state == _LINK_UP
            else Evidence(name="physical state", value=str(state), limit="5, link up")
        )
    before = window.get("port", Span.FLAP).get(port)
    if before is not None and before["speed_bits_per_second_max"]:
        speed = f"{before['speed_bits_per_second_max'] / 1e9:g} Gb/s"
        evidence.append(Evidence(name="speed before", value=speed))
    return tuple(evidence) or (Evidence(name="link", value="down", limit="up"),)


DETECTOR = Detector(
    name="port_down",
    find=broken_ports,
    faults=found_by("port_down"),
    needs=NEEDS,
    reads_events=True,
    sentence="A network port that was seen up and is down, or that goes down again and again.",
    source="gpud: a drop, and three of them a flap",
)
