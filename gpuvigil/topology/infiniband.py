"""What `ibnetdiscover` prints of an InfiniBand subnet (infiniband-diags, ibnetdiscover(8)).

A port of a node goes by its description, which rdma-ndd writes as `host device` (rdma-ndd(8)); one
that nobody has described names no node.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .model import Imported, Source, Uplink, Wire

_HEAD = re.compile(r'(Switch|Ca|Rt)\s+\d+\s+"([^"]+)"\s+#\s+"(.*?)"')
_PORT = re.compile(
    r'\[(\d+)\](?:\(\w+\))?\s+"([^"]+)"\[(\d+)\](?:\(\w+\))?\s+#\s.*?"(.*)"\s+lid\s+\d+\s+\S+\s*$'
)
# How a managed switch of NVIDIA's describes itself: MF0;name:model/U1.
_MANAGED = re.compile(r"MF0;([^:;]+):[^/:]+/U\d+")
_HOST = re.compile(r"(\S+)\s+(\S+)")


def from_ibnetdiscover(text: str) -> Imported:
    """Hosts at switches, and switches at switches; the two ends of a cable are one fact.

    Which of two switches is nearer to the nodes is told by who has some: `lower` is the one that does.
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
    names = _apart(
        {
            guid: _MANAGED.sub(r"\1", name) or guid
            for guid, (kind, name) in kinds.items()
            if kind == "Switch"
        }
    )
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
    """One end as the file tells it: by GUID and port."""

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
    """Each cable between switches once: it stands in the file at both of its ends."""
    at_nodes = {it.far for it in cables if it.far in names and it.here not in names}
    for it in cables:
        if it.here not in names or it.far not in names:
            continue
        # Of two alike the name decides.
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


def _apart(names: Mapping[str, str]) -> dict[str, str]:
    """Switches that are called alike, as those that nobody has named, go by their GUID too."""
    every = list(names.values())
    return {
        guid: name if every.count(name) == 1 else f"{name} {guid.partition('-')[2].lstrip('0')}"
        for guid, name in names.items()
    }
