"""The machine around the GPUs: its power supplies, fans, mounts and file systems."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from gpuvigil.clock import moment
from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import EventKind, Evidence, Finding, Incident, Severity, Subject
from gpuvigil.model.equipment import PartKind
from gpuvigil.store import Aggregate, Function

from ..evidence import host_readings
from ..evidence.equipment import Faults, failed_equipment, is_unread
from ..window.window import Need, Span, Window
from . import Detector

_SPACE = Aggregate(function=Function.MIN, field="space_used_share")
_FULL, _NO_ROOM = 0.95, 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sensor:
    """A count that a node reports of its failed parts."""

    fault: str
    field: str
    what: str

    @property
    def least(self) -> Aggregate:
        return Aggregate(function=Function.MIN, field=self.field)


_SENSORS = (
    _Sensor(fault="host_power", field="power_supplies_failed", what="power supplies failed"),
    _Sensor(fault="host_fan", field="fans_failed", what="fans failed"),
    _Sensor(fault="host_mount", field="mounts_hung", what="mounts that do not answer"),
)
_EQUIPMENT: Faults = {
    PartKind.POWER_SUPPLY: ("host_power", ""),
    PartKind.POWER_FEED: ("host_power", "feed_failed"),
    PartKind.FAN: ("host_fan", ""),
    PartKind.COOLANT: ("host_fan", "coolant"),
}
NEEDS = (
    Need(
        measurement="node",
        span=Span.RECENT,
        aggregates=(*(sensor.least for sensor in _SENSORS), _SPACE),
    ),
)


def failing_parts(window: Window) -> list[Finding]:
    """Return one finding per node and kind of part that failed at every reading of the recent span.

    Also those of nodes and racks whose parts the site's Prometheus reports as failed.
    """
    rows = window.get("node", Span.RECENT)
    read = host_readings.lasting(window, rows)
    found = []
    for sensor in _SENSORS:
        column = sensor.least.column
        for node, row in rows.where(read & (rows.values(column) >= 1)):
            value = Evidence(name=sensor.what, value=f"{row[column]:.0f}", limit="0")
            found.append(_finding(window, sensor.fault, node, row["first_at"], value))
    for node, row in rows.where(read & (rows.values(_SPACE.column) >= _FULL)):
        share = row[_SPACE.column]
        value = Evidence(
            name="fullest file system",
            value=f"{100.0 * share:.1f} % in use",
            limit=f"{100.0 * _FULL:g} %",
        )
        graver = Severity.WARNING if share >= _NO_ROOM else None
        found.append(_finding(window, "host_space", node, row["first_at"], value, graver))
    return _together((*found, *failed_equipment(window, _EQUIPMENT, "host_sensors")))


def _together(found: Iterable[Finding]) -> list[Finding]:
    """Join what the kernel and the site's Prometheus say of one fault of a node."""
    joined: dict[str, Finding] = {}
    for one in found:
        first = joined.get(one.fingerprint, one)
        more = () if first is one else one.evidence
        joined[one.fingerprint] = replace(first, evidence=(*first.evidence, *more))
    return list(joined.values())


def would_show(window: Window, incident: Incident) -> bool:
    """Return whether the node is read for long enough, and what had failed beside it still is.

    Of a rack its first node, which may be down, says nothing.
    """
    if is_unread(window, _EQUIPMENT, incident.subject, incident.fault):
        return False
    return incident.group is not None or host_readings.would_show(window, incident)


def _finding(
    window: Window,
    fault: str,
    node: Subject,
    since: datetime,
    value: Evidence,
    severity: Severity | None = None,
) -> Finding:
    row = FAULTS[fault]
    return Finding(
        fault=fault,
        subject=node,
        severity=severity or row.severity,
        since=since,
        evidence=(value, *_words(window, node)),
        detector="host_sensors",
        action=row.action,
        source=row.source,
        own_limit=row.own_limit,
    )


def _words(window: Window, node: Subject) -> Iterator[Evidence]:
    """Yield the collector's last message about the node's parts, since the counts name none."""
    last = max(window.node_events(node, EventKind.HOST), key=lambda e: (e.at, e.id), default=None)
    if last is not None:
        yield Evidence(name="the collector says", value=f"{last.message}, {moment(last.at)}")


DETECTOR = Detector(
    name="host_sensors",
    find=failing_parts,
    faults=found_by("host_sensors"),
    needs=NEEDS,
    sentence="A node whose power supply, fan, mount or file system fails, or a rack whose power feed or coolant does.",
    source="the kernel's hwmon, power_supply and statvfs; the site's Prometheus for BMCs, PDUs and coolant",
    would_show=would_show,
)
