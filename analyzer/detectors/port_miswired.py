"""A network cable at another leaf than the same port of other hosts, or a leaf without a cable to a spine."""

from collections.abc import Iterator

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.model import Evidence, Finding, Incident, Subject, Switch
from gpuvigil.model.switch_hosts import neighbour
from gpuvigil.topology import Doubt, Question
from gpuvigil.topology.link_names import switch_port_name

from ..evidence import fabric
from ..evidence.cabling import contradicting, name_of, port_of
from ..evidence.switches import plugged_into
from ..window.window import Window
from . import Detector

_FAULT, _NO_UPLINK = FAULTS["port_miswired"], CONDITIONS["no_uplink"]
_WIRED = {Question.SWAPPED, Question.WRONG_RAIL}


def miswired_ports(window: Window) -> list[Finding]:
    """Return one finding per miswired cable, or per two that are swapped, and one per leaf without an uplink.

    There is none where a host may number its ports differently.
    """
    found = []
    for cluster, they in contradicting(window).items():
        for doubt in they.doubts:
            if doubt.certain and doubt.question in _WIRED:
                found.append(_finding(window, cluster, doubt))
            elif doubt.certain and doubt.question is Question.NO_UPLINK:
                found += _of_leaf(window, cluster, doubt)
    return found


def _of_leaf(window: Window, cluster: str, doubt: Doubt) -> Iterator[Finding]:
    """Yield the finding on a leaf without an uplink, if the leaf is read and all its neighbours are known.

    Otherwise one of them may be a spine that is not read.
    """
    leaf = _read(window, cluster, doubt.switches[0])
    if leaf is None or _strangers(window, leaf):
        return
    hosts = sum(port.up for port in leaf.ports)
    yield Finding(
        fault="port_miswired",
        subject=leaf.port_subject(0),
        severity=_NO_UPLINK.severity,
        title=_NO_UPLINK.title,
        condition=_NO_UPLINK.key,
        since=leaf.at,
        evidence=(
            Evidence(name="uplinks", value="0", peers=f"one or more on {doubt.basis}"),
            Evidence(name="ports that are up", value=str(hosts)),
        ),
        detector="port_miswired",
        action=_NO_UPLINK.action,
        source=_NO_UPLINK.source,
        own_limit=_NO_UPLINK.own_limit,
    )


def _read(window: Window, cluster: str, name: str) -> Switch | None:
    """Return the switch of this name, if the fabric's reader has just heard it; else None."""
    there = (it.subject for it in fabric.answering(window).values())
    known = [it for it in there if (it.cluster, it.node) == (cluster, name)]
    return fabric.answering(window)[known[0].key] if known else None


def _strangers(window: Window, leaf: Switch) -> set[str]:
    """Return the names at this leaf that are neither nodes nor also at another switch, as a management network is.

    On InfiniBand all existing switches are read.
    """
    cluster = leaf.subject.cluster
    nodes = {it.subject.node.partition(".")[0] for it in window.inventories.values()}
    elsewhere = {
        neighbour(port)
        for it in fabric.answering(window).values()
        if it.subject.cluster == cluster and it is not leaf
        for port in it.ports
    }
    here = {neighbour(port) for port in leaf.ports if port.up and port.name} - {""}
    return {name for name in here if name.partition(".")[0] not in nodes} - elsewhere


def _finding(window: Window, cluster: str, doubt: Doubt) -> Finding:
    port, *others = (port_of(cluster, *it) for it in doubt.ports)
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
            Evidence(name="is at", value=at),
            Evidence(name="belongs at", value=f"{belongs}, {doubt.basis}"),
            *(_partner(window, port, other, belongs) for other in others),
        ),
        detector="port_miswired",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
        members=tuple(others),
    )


def _partner(window: Window, port: Subject, other: Subject, at: str) -> Evidence:
    name = name_of(other) if other.node == port.node else f"{other.node} {name_of(other)}"
    _, number = plugged_into(window, other) or ("", None)
    return Evidence(name="swapped with", value=f"{name}, at {switch_port_name(at, number)}")


def would_show(window: Window, incident: Incident) -> bool:
    """Return whether the port can still be compared with other hosts'; a leaf is judged by the fabric's reader."""
    found = contradicting(window).get(incident.subject.cluster)
    port = incident.subject
    return found is not None and (port.node, name_of(port)) in found.judged


DETECTOR = Detector(
    name="port_miswired",
    find=miswired_ports,
    faults=found_by("port_miswired"),
    needs=(),
    sentence="A network cable at another leaf than the same port of most hosts of its pod, two that are swapped, or a leaf without a cable to a spine.",
    source="LLDP, the fabric's own word or a file, and where that port is on the other hosts",
    would_show=would_show,
)
