"""A port whose MTU differs from nearly all ports of its name, so that large packets do not get through.

If the sender's MTU is larger than the receiver's, large packets are lost at the switch or the receiver, and
RDMA uses the smaller of the two.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding, Incident, PortIdentity, Subject
from gpuvigil.store import Aggregate, Function

from ..window.columns import seconds
from ..window.index import Remembered
from ..window.rows import Rows
from ..window.window import Need, Span, Window
from . import Detector

_UP = Aggregate(function=Function.MIN, field="up")
_SPEED = Aggregate(function=Function.MAX, field="speed_bits_per_second")
_RECEIVED, _SENT = (
    Aggregate(function=Function.INCREASE, field=name)
    for name in ("receive_bytes", "transmit_bytes")
)
NEEDS = (Need(measurement="port", span=Span.TREND, aggregates=(_UP, _SPEED, _RECEIVED, _SENT)),)

_FAULT = FAULTS["port_mtu"]
# What is usual takes this many ports of the name on other nodes, and this share of them that agree. Where
# more than a few ports have another MTU, they are built so [own].
_PEERS, _MOST, _FEW = 5, 0.9, 3
# A port that carries less is not noticed by anybody [own].
_BYTES_PER_SECOND = 1e6
# The port was up for most of the trend span, and for this long when the inventory was written: networks are
# set up some time after the link.
_COVERAGE, _SETTLED = 0.5, timedelta(minutes=2)

_NodePorts = tuple[Subject, tuple[PortIdentity, ...]]  # a node and its ports


@dataclass(frozen=True, slots=True)
class _Judged:
    """A port's MTU, and the one that nearly all others of its name have."""

    own: int
    usual: int
    having: tuple[Subject, ...]  # the ports that have the usual MTU
    others: int

    @property
    def is_odd(self) -> bool:
        return self.own != self.usual


def ports_apart(window: Window) -> list[Finding]:
    """Return one finding per port with another MTU that was up all the time and moved data."""
    odd = {port: it for port, it in _judged(window).items() if it.is_odd}
    rows = window.get("port", Span.TREND)
    if not odd or not len(rows):
        return []
    span = seconds(rows)
    moved = rows.values(_RECEIVED.column) + rows.values(_SENT.column)
    works = (rows.values(_UP.column) == 1) & (moved >= _BYTES_PER_SECOND * span)
    works &= span >= _COVERAGE * window.settings.trend_seconds
    found = []
    for port, row in rows.where(works):
        it, inventory = odd.get(port), window.inventories.get(port.of_node().key)
        if it is None or inventory is None or inventory.at < row["first_at"] + _SETTLED:
            continue
        if _is_as_fast(rows, port, it.having):
            found.append(_finding(port, it, inventory.at))
    return found


def _judged(window: Window) -> Mapping[Subject, _Judged]:
    return _compared([(one.subject, one.ports) for one in window.inventories.values()])


def _compare(reports: Sequence[_NodePorts]) -> Mapping[Subject, _Judged]:
    """Return the comparison for every port that reports its MTU and has peers that agree."""
    groups: dict[tuple[str, ...], dict[Subject, int]] = defaultdict(dict)
    for node, ports in reports:
        for it in ports:
            if it.mtu is not None and it.was_up and it.role != "management":
                key = (node.cluster, it.device, it.port, it.kind, it.role)
                port = Subject(cluster=node.cluster, node=node.node, device=it.device, port=it.port)
                groups[key][port] = it.mtu
    return {port: one for group in groups.values() for port, one in _of_group(group)}


_compared = Remembered(_compare)


def _of_group(group: Mapping[Subject, int]) -> Iterator[tuple[Subject, _Judged]]:
    usual, count = Counter(group.values()).most_common(1)[0]
    others = len(group) - 1
    if others < _PEERS or len(group) - count > _FEW:
        return
    having = tuple(port for port, mtu in group.items() if mtu == usual)
    for port, own in group.items():
        if count - (own == usual) >= _MOST * others:
            yield port, _Judged(own, usual, having, others)


def _is_as_fast(rows: Rows, port: Subject, peers: Sequence[Subject]) -> bool:
    """Return whether the port runs at its peers' usual speed, as far as speeds are known."""
    own = _speed(rows, port)
    speeds = Counter(speed for peer in peers if (speed := _speed(rows, peer)) is not None)
    return own is None or not speeds or own == speeds.most_common(1)[0][0]


def _speed(rows: Rows, port: Subject) -> float | None:
    row = rows.get(port)
    return None if row is None else row.get(_SPEED.column)


def _finding(port: Subject, it: _Judged, since: datetime) -> Finding:
    return Finding(
        fault="port_mtu",
        subject=port,
        severity=_FAULT.severity,
        since=since,
        evidence=(
            Evidence(
                name="MTU",
                value=f"{it.own} bytes",
                peers=f"{it.usual} bytes on {len(it.having)} of {it.others} others",
            ),
        ),
        detector="port_mtu",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
    )


def would_show(window: Window, incident: Incident) -> bool:
    """Return whether the port now has the usual MTU, so that the incident is over.

    While its MTU differs the incident stands, even if the port carries no data.
    """
    it = _judged(window).get(incident.subject)
    return it is not None and not it.is_odd


DETECTOR = Detector(
    name="port_mtu",
    find=ports_apart,
    faults=found_by("port_mtu"),
    needs=NEEDS,
    sentence="A port that carries data with another MTU than nearly all ports of its name.",
    source="mtu of the port's interface in sysfs, compared with the same port of other nodes",
    would_show=would_show,
)
