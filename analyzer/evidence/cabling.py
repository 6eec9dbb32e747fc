"""Contradictions in a cluster's cabling, as `gpuvigil topology` names them, for its detectors."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuvigil.model import GpuIdentity, Inventory, Nic, PortIdentity, Subject, Switch, SwitchPort
from gpuvigil.topology import Contradictions, contradictions, from_switches

from ..window.index import Remembered
from ..window.window import Window


@dataclass(frozen=True, slots=True)
class _Report:
    """A node's or a switch's last report: the same objects for as long as it reports nothing new."""

    subject: Subject
    ports: tuple[PortIdentity, ...] | tuple[SwitchPort, ...]
    nics: tuple[Nic, ...] = ()
    gpus: tuple[GpuIdentity, ...] = ()
    whole: Inventory | Switch | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class _Cabled:
    """The part of a report that says what is plugged in where: the rest of a port changes often."""

    subject: Subject
    plugs: tuple[tuple[str | bool | None, ...], ...]
    cards: tuple[tuple[str, tuple[str, ...]], ...]
    models: tuple[str, ...]  # of its GPUs
    whole: Inventory | Switch | None = field(default=None, compare=False)


def contradicting(window: Window) -> Mapping[str, Contradictions]:
    """Return each cluster's cabling contradictions; empty when no node reports ports."""
    return window.once(_contradicting, None)


def _contradicting(window: Window, _: None) -> Mapping[str, Contradictions]:
    hosts = [
        _Report(one.subject, one.ports, one.nics, one.gpus, one)
        for one in window.inventories.values()
    ]
    if not any(one.ports for one in hosts):
        return {}
    return _heard(
        [*hosts, *(_Report(it.subject, it.ports, whole=it) for it in window.switches.values())]
    )


def _contradictions_of(reports: Sequence[_Report]) -> Mapping[str, Contradictions]:
    return _learned(
        _Cabled(
            one.subject,
            tuple(map(_plug, one.ports)),
            tuple((nic.address, nic.devices) for nic in one.nics),
            tuple(gpu.model for gpu in one.gpus),
            one.whole,
        )
        for one in reports
    )


def _plug(it: PortIdentity | SwitchPort) -> tuple[str | bool | None, ...]:
    if isinstance(it, SwitchPort):
        return it.id, it.at_switch, it.peer, it.peer_id
    return it.device, it.port, it.role, it.was_up, it.switch, it.switch_port


def _learn(cabled: Sequence[_Cabled]) -> Mapping[str, Contradictions]:
    hosts: dict[str, list[Inventory]] = defaultdict(list)
    switches: dict[str, list[Switch]] = defaultdict(list)
    for one in cabled:
        if isinstance(one.whole, Inventory):
            hosts[one.subject.cluster].append(one.whole)
        elif one.whole is not None:
            switches[one.subject.cluster].append(one.whole)
    return {
        cluster: contradictions(them, from_switches(switches[cluster]))
        for cluster, them in sorted(hosts.items())
    }


_heard, _learned = Remembered(_contradictions_of), Remembered(_learn)


def port_of(cluster: str, node: str, name: str) -> Subject:
    """Return the port that a topology calls `name`."""
    device, _, port = name.partition("/")
    return Subject(cluster=cluster, node=node, device=device, port=port or "1")


def name_of(port: Subject) -> str:
    """Return a port's name in a topology."""
    return f"{port.device}" if port.port == "1" else f"{port.device}/{port.port}"
