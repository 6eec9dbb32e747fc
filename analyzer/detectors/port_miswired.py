"""A network cable at another leaf than the same port of the other hosts: in the wrong rail."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import (
    Evidence,
    Finding,
    Incident,
    Inventory,
    Nic,
    PortIdentity,
    Subject,
    Switch,
)
from gpuvigil.topology import Doubt, Miswired, from_switches, miswired

from ..evidence.switches import plugged_into
from ..window.index import Remembered
from ..window.window import Window
from . import Detector

_FAULT = FAULTS["port_miswired"]


@dataclass(frozen=True, slots=True)
class _Cabled:
    """What of a node, or of a switch, says who is plugged in where: inventories are told anew without a change."""

    subject: Subject
    ports: tuple[PortIdentity, ...] = ()
    nics: tuple[Nic, ...] = ()
    switch: Switch | None = None
    whole: Inventory | None = field(default=None, compare=False)


def miswired_ports(window: Window) -> list[Finding]:
    """One finding per cable, or per two that are swapped; none where a host may count its ports otherwise."""
    return [
        _finding(window, cluster, doubt)
        for cluster, found in _wired(window).items()
        for doubt in found.doubts
        if doubt.certain
    ]


def _wired(window: Window) -> Mapping[str, Miswired]:
    """By cluster."""
    hosts = [
        _Cabled(one.subject, one.ports, one.nics, whole=one) for one in window.inventories.values()
    ]
    switches = [_Cabled(one.subject, switch=one) for one in window.switches.values()]
    if not switches and not any(port.switch for one in hosts for port in one.ports):
        return {}
    return _learned([*hosts, *switches])


def _learn(cabled: Sequence[_Cabled]) -> Mapping[str, Miswired]:
    hosts: dict[str, list[Inventory]] = defaultdict(list)
    switches: dict[str, list[Switch]] = defaultdict(list)
    for one in cabled:
        if one.whole is not None:
            hosts[one.subject.cluster].append(one.whole)
        if one.switch is not None:
            switches[one.subject.cluster].append(one.switch)
    return {
        cluster: miswired(them, from_switches(switches[cluster]))
        for cluster, them in sorted(hosts.items())
    }


_learned = Remembered(_learn)


def _finding(window: Window, cluster: str, doubt: Doubt) -> Finding:
    port, *others = (_port(cluster, *it) for it in doubt.ports)
    at, belongs = (
        f"{switch} (rail {rail})" if rail else switch
        for switch, rail in zip(doubt.switches, doubt.rails, strict=True)
    )
    return Finding(
        fault="port_miswired",
        subject=port,
        severity=_FAULT.severity,
        since=window.inventories[port.of_node().key].at,
        evidence=(
            Evidence(name="leaf", value=at, peers=f"{belongs} {doubt.basis}"),
            *(_partner(window, port, other, belongs) for other in others),
        ),
        detector="port_miswired",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
        members=tuple(others),
    )


def _partner(window: Window, port: Subject, other: Subject, at: str) -> Evidence:
    name = _name(other) if other.node == port.node else f"{other.node} {_name(other)}"
    _, number = plugged_into(window, other) or ("", None)
    where = f"{at} port {number}" if number else at
    return Evidence(name="swapped with", value=f"{name}, at {where}")


def _port(cluster: str, node: str, name: str) -> Subject:
    device, _, port = name.partition("/")
    return Subject(cluster=cluster, node=node, device=device, port=port or "1")


def _name(port: Subject) -> str:
    return f"{port.device}" if port.port == "1" else f"{port.device}/{port.port}"


def would_show(window: Window, incident: Incident) -> bool:
    """Whether the port can still be compared with those of other hosts."""
    found = _wired(window).get(incident.subject.cluster)
    port = incident.subject
    return found is not None and (port.node, _name(port)) in found.judged


DETECTOR = Detector(
    name="port_miswired",
    find=miswired_ports,
    faults=found_by("port_miswired"),
    needs=(),
    sentence="A network cable at another leaf than the same port of most hosts of its pod, or two that are swapped.",
    source="LLDP, the fabric's own word or a file, and where that port is on the other hosts",
    would_show=would_show,
)
