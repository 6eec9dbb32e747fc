"""An RDMA port without a GID or a partition that nearly all ports of its name have, so that nobody reaches it there."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding, Incident, PortIdentity, Subject
from gpuvigil.store import Aggregate, Function

from ..window.columns import seconds
from ..window.index import Remembered
from ..window.window import Need, Span, Window
from . import Detector

_UP = Aggregate(function=Function.MIN, field="up")
NEEDS = (Need(measurement="port", span=Span.TREND, aggregates=(_UP,)),)

_FAULT = FAULTS["port_setup"]
# What is usual takes this many ports of the name on other nodes, and this share of them that have it [own].
_PEERS, _MOST = 4, 0.8
# The port was up for most of the trend span, and for this long when the inventory was written: addresses and
# partitions come some time after the link.
_COVERAGE, _SETTLED = 0.5, timedelta(minutes=2)

_NodePorts = tuple[Subject, tuple[PortIdentity, ...]]  # a node and its ports


@dataclass(frozen=True, slots=True)
class _Group:
    """Ports of one name: how many report their addressing, and how many have each GID or partition."""

    reporting: int
    have: Mapping[str, int]

    def usual(self, own: frozenset[str]) -> Mapping[str, int]:
        """Return what nearly all others have, with how many of them; nothing where the others are too few."""
        others = self.reporting - 1
        if others < _PEERS:
            return {}
        beside = {it: count - (it in own) for it, count in self.have.items()}
        return {it: count for it, count in beside.items() if count >= _MOST * others}


@dataclass(frozen=True, slots=True)
class _Lack:
    own: frozenset[str]
    lacks: Mapping[str, int]
    others: int


def ports_without(window: Window) -> list[Finding]:
    """Return one finding per port, up all the time, that has nothing its peers lack and lacks something they have."""
    judged = _judged(window)
    rows = window.get("port", Span.TREND)
    if not len(rows) or not any(it.lacks for it in judged.values()):
        return []
    steady = (rows.values(_UP.column) == 1) & (
        seconds(rows) >= _COVERAGE * window.settings.trend_seconds
    )
    found = []
    for port, row in rows.where(steady):
        lack, inventory = judged.get(port), window.inventories.get(port.of_node().key)
        if lack is None or not lack.lacks or inventory is None:
            continue
        if inventory.at >= row["first_at"] + _SETTLED:
            found.append(_finding(port, lack, inventory.at))
    return found


def _judged(window: Window) -> Mapping[Subject, _Lack]:
    return _compared([(one.subject, one.ports) for one in window.inventories.values()])


def _compare(reports: Sequence[_NodePorts]) -> Mapping[Subject, _Lack]:
    """Return for every port that has peers what it lacks of what they have."""
    groups: dict[tuple[str, ...], list[tuple[Subject, frozenset[str]]]] = defaultdict(list)
    for node, ports in reports:
        for it in ports:
            if it.addressing is not None and it.was_up and it.role != "management":
                key = (node.cluster, it.device, it.port, it.kind, it.role)
                port = Subject(cluster=node.cluster, node=node.node, device=it.device, port=it.port)
                groups[key].append((port, frozenset(it.addressing)))
    found = {}
    for ports_of in groups.values():
        group = _Group(len(ports_of), Counter(it for _, own in ports_of for it in own))
        for port, own in ports_of:
            usual = group.usual(own)
            if usual:
                # A port with something of its own is set up for another purpose, such as another tenant.
                lacks = {it: n for it, n in usual.items() if it not in own}
                odd = not own <= usual.keys()
                found[port] = _Lack(own, {} if odd else lacks, len(ports_of) - 1)
    return found


_compared = Remembered(_compare)


def _finding(port: Subject, lack: _Lack, since: datetime) -> Finding:
    told = (
        Evidence(name="lacks", value=it, peers=f"{count} of {lack.others} others have it")
        for it, count in sorted(lack.lacks.items())
    )
    return Finding(
        fault="port_setup",
        subject=port,
        severity=_FAULT.severity,
        since=since,
        evidence=(*told, Evidence(name="has", value=", ".join(sorted(lack.own)) or "none")),
        detector="port_setup",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
    )


def would_show(window: Window, incident: Incident) -> bool:
    """Return whether the port reports its addressing, and enough others do."""
    return incident.subject in _judged(window)


DETECTOR = Detector(
    name="port_setup",
    find=ports_without,
    faults=found_by("port_setup"),
    needs=NEEDS,
    sentence="An RDMA port that lacks a kind of GID (RoCE) or a partition (InfiniBand) that nearly all ports of its name have.",
    source="gids, gid_attrs/types and pkeys in sysfs, compared with the same port of other nodes",
    would_show=would_show,
)
