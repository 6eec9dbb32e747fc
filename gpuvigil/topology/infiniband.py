"""Topology of an InfiniBand subnet from `ibnetdiscover` or `gpuvigil infiniband`.

Format: infiniband-diags, ibnetdiscover(8). A node's port is identified by its description, which
rdma-ndd writes as `host device` (rdma-ndd(8)); a port without one names no node.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ..model import Switch
from ..model.switch_hosts import hosts_by_switch
from .model import Imported, Source, Uplink, Wire

_HEAD = re.compile(r'(Switch|Ca|Rt)\s+\d+\s+"([^"]+)"\s+#\s+"(.*?)"')
_PORT = re.compile(
    r'\[(\d+)\](?:\(\w+\))?\s+"([^"]+)"\[(\d+)\](?:\(\w+\))?\s+#\s.*?"(.*)"\s+lid\s+\d+\s+\S+\s*$'
)
# How NVIDIA's managed switches describe themselves: MF0;name:model/U1.
_MANAGED = re.compile(r"MF0;([^:;]+):[^/:]+/U\d+")
_HOST = re.compile(r"(\S+)\s+(\S+)")


def from_ibnetdiscover(text: str) -> Imported:
    """Return hosts at switches, and switches at switches; the two ends of a cable count once.

    Of two connected switches, the one that has nodes is nearer to them: it is `lower`.
    """
    kinds: dict[str, tuple[str, str]] = {}
    cables: list[_Cable] = []
    here = ""
    for line in text.splitlines():
        if head := _HEAD.match(line):
            here = head[2]
            kinds[here] = (head[1], head[3].strip())
        elif (port := _PORT.match(line)) and here:
            cables.append(_Cable(here, port[1], port[2], port[3]))
    names = switch_names({g: name for g, (kind, name) in kinds.items() if kind == "Switch"})
    return Imported(
        wires=tuple(
            _wire(it, host, names[it.far])
            for it in cables
            if it.far in names
            and it.here not in names
            and (host := _HOST.fullmatch(kinds[it.here][1]))
        ),
        uplinks=tuple(_uplinks(cables, names)),
    )


class _Cable(NamedTuple):
    """One end of a cable as the file lists it: by GUID and port."""

    here: str
    port: str
    far: str
    far_port: str


def _wire(it: _Cable, host: re.Match[str], switch: str) -> Wire:
    return Wire(
        node=host[1],
        device=host[2],
        port=it.port,
        switch=switch,
        switch_port=it.far_port,
        source=Source.IBNETDISCOVER,
    )


def _uplinks(cables: list[_Cable], names: Mapping[str, str]) -> Iterator[Uplink]:
    """Yield each cable between switches once: the file lists it at both ends."""
    at_nodes = {it.far for it in cables if it.far in names and it.here not in names}
    for it in cables:
        if it.here not in names or it.far not in names:
            continue
        # If both or neither have nodes, the name decides.
        ends = [
            (guid not in at_nodes, names[guid], port)
            for guid, port in ((it.here, it.port), (it.far, it.far_port))
        ]
        if ends[0] < ends[1]:
            yield Uplink(
                lower=names[it.here],
                upper=names[it.far],
                lower_port=it.port,
                upper_port=it.far_port,
                source=Source.IBNETDISCOVER,
            )


def switch_names(told: Mapping[str, str]) -> dict[str, str]:
    """Return the names of switches by GUID, derived from their descriptions.

    Switches with the same name, such as those that nobody has named, get their GUID as well.
    """
    names = {guid: _MANAGED.sub(r"\1", name.strip()) or guid for guid, name in told.items()}
    times = Counter(names.values())
    return {
        guid: name if times[name] == 1 else f"{name} {guid.rpartition('-')[2].lstrip('0')}"
        for guid, name in names.items()
    }


def from_switches(switches: Iterable[Switch]) -> Imported:
    """Return the same from readers of switches, of cables that have or had a link.

    For switches read by LLDP, whose ports have names, hosts are left out: the hosts know better.
    """
    known = sorted(switches, key=lambda it: it.subject.key)
    hosts = hosts_by_switch(known)
    at_nodes = {
        it.subject.node
        for it in known
        if hosts[it.subject.cluster, it.subject.node]
        or any(not (port.at_switch or port.peer or port.name) for port in it.ports)
    }
    wires, uplinks = [], {}
    for it in known:
        name = it.subject.node
        for port in it.ports:
            if port.at_switch:
                source = Source.LLDP if port.name else Source.IBNETDISCOVER
                ends = sorted(
                    (switch not in at_nodes, switch, number)
                    for switch, number in ((name, port.id), (port.peer, port.peer_id))
                )
                uplinks[tuple(ends)] = _uplink(ends[0], ends[1], source)
            elif port.host is not None and not port.name:
                wires.append(
                    Wire(
                        node=port.host[0],
                        device=port.host[1],
                        port=str(port.peer_port),
                        switch=name,
                        switch_port=str(port.number),
                        source=Source.IBNETDISCOVER,
                    )
                )
    return Imported(wires=tuple(wires), uplinks=tuple(uplinks.values()))


def _uplink(lower: tuple[bool, str, str], upper: tuple[bool, str, str], source: Source) -> Uplink:
    return Uplink(
        lower=lower[1],
        upper=upper[1],
        lower_port=lower[2] or None,
        upper_port=upper[2] or None,
        source=source,
    )
