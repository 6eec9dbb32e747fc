"""A network port that was seen up and is down, or that goes down again and again."""

from collections import defaultdict
from datetime import datetime, timedelta

from gpuvigil.clock import moment
from gpuvigil.faults import FAULTS
from gpuvigil.model import Event, EventKind, Evidence, Finding, Inventory, Subject
from gpuvigil.store import Aggregate, Function

from ..cures import cured_at
from ..index import Numbers
from ..rows import Row, Rows
from ..window import Need, Span, Window

NEEDS = (
    Need(measurement="port", span=Span.NOW, fields=("up", "physical_state")),
    Need(
        measurement="port",
        span=Span.FLAP,
        aggregates=(
            Aggregate(function=Function.INCREASE, field="link_downed"),
            Aggregate(function=Function.MAX, field="speed_bits_per_second"),
            Aggregate(function=Function.MAX, field="up"),
        ),
    ),
)


def broken_ports(window: Window) -> list[Finding]:
    """One finding per port: it flaps, or it is down; a port never seen up is unprovisioned."""
    downs: dict[Subject, list[Event]] = defaultdict(list)
    for event in window.all_events(EventKind.PORT_DOWN):
        downs[event.subject].append(event)
    rows, span = window.get("port", Span.NOW), window.get("port", Span.FLAP)
    down = dict(rows.where((rows.values("up") == 0) & _may_have_been_up(window, rows)))
    counted = dict(
        span.where(span.values("link_downed_increase") >= window.settings.port_flap_count)
    )
    found = []
    for port in sorted({*downs, *down, *counted}, key=lambda port: port.key):
        finding = _flapping(window, port, downs[port], counted.get(port)) or _down(
            window, port, downs[port], down.get(port)
        )
        if finding is not None:
            found.append(finding)
    return found


def _flapping(window: Window, port: Subject, downs: list[Event], row: Row | None) -> Finding | None:
    # Events are remembered for long; the counter is asked for over a span that a pass can afford.
    span = window.settings.port_flap_events_seconds
    limit = window.settings.port_flap_count
    recent = [e for e in downs if window.now - e.at < timedelta(seconds=span)]
    if len(recent) < limit:
        span = window.settings.port_flap_window_seconds
    times = max(len(recent), 0 if row is None else row["link_downed_increase"])
    if times < limit:
        return None
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
        certain=len(recent) >= limit,
        late=row is None and window.came_late(recent),
    )


def _down(window: Window, port: Subject, downs: list[Event], row: Row | None) -> Finding | None:
    up_at = cured_at(window, "port_down", port)
    event = downs[-1] if downs and _stands(window, downs[-1], up_at) else None
    if row is not None and up_at is not None and row["at"] <= up_at:
        row = None
    if event is None and (row is None or not _was_up(window, port, downs)):
        return None
    since = window.now if row is None else _down_since(window, port, row)
    since = since if event is None else event.at
    if window.now - since < timedelta(seconds=window.settings.port_down_seconds):
        return None
    fault = FAULTS["port_down"]
    return Finding(
        fault="port_down",
        subject=port,
        severity=fault.severity,
        since=since,
        evidence=_evidence(window, port, event, row),
        detector="port_down",
        action=fault.action,
        source=fault.source,
        certain=event is not None,
        late=row is None and window.came_late([event] if event else []),
    )


def _down_since(window: Window, port: Subject, row: Row) -> datetime:
    """Since when the lines alone say that it is down: surely, not from when on."""
    span = window.get("port", Span.FLAP).get(port)
    since: datetime = row["at"] if span is None or span["up_max"] != 0 else span["first_at"]
    return since


def _stands(window: Window, event: Event, up_at: datetime | None) -> bool:
    if up_at is not None and event.at < up_at:
        return False
    row = window.newest(event.subject)
    return row is None or row.get("up") != 1 or row["at"] <= event.at


def _was_up(window: Window, port: Subject, downs: list[Event]) -> bool:
    """Whether the port was ever seen up: an event that it went down or up says so as well."""
    if downs or cured_at(window, "port_down", port) is not None:
        return True
    return _inventory_says_up(port, window.inventories.get(port.of_node().key))


def _may_have_been_up(window: Window, rows: Rows) -> Numbers:
    """Of each row whether the inventory says so, or an event of its node could."""
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
    evidence = []
    if event is not None:
        evidence.append(Evidence(name="down since", value=moment(event.at)))
        if event.message:
            evidence.append(Evidence(name="message", value=event.message))
    if row is not None and row.get("physical_state") is not None:
        evidence.append(
            Evidence(name="physical state", value=str(row["physical_state"]), limit="5, link up")
        )
    before = window.get("port", Span.FLAP).get(port)
    if before is not None and before["speed_bits_per_second_max"]:
        speed = f"{before['speed_bits_per_second_max'] / 1e9:g} Gb/s"
        evidence.append(Evidence(name="speed before", value=speed))
    return tuple(evidence) or (Evidence(name="link", value="down", limit="up"),)
