"""The list of nodes, GPUs and ports and the place of each, kept while they stay the same."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass

import numpy as np

from gpuvigil.model import SIMULATED_CLUSTER, Inventory, PortIdentity, Subject
from gpuvigil.numbers_in_words import natural

from ..model.cluster import Layout
from ..model.gpus import Column
from .keys import Keys, NodeName
from .liveness import patience

# Up to so many nodes each get their own block on the map.
BLOCKS = 64
NODES_PER_BLOCK = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PortRoster:
    """Ports by node, device and port."""

    subject: tuple[Subject, ...]
    kind: tuple[str, ...]
    role: tuple[str, ...]
    was_up: Column
    node: Column
    row: Column  # row in the table, -1 for none
    spans: Mapping[str, slice]  # by cluster


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Roster:
    """All shown nodes, GPUs and ports in one order, each cluster's together."""

    shown: frozenset[NodeName]
    gpu_keys: Keys
    port_keys: Keys
    names: tuple[NodeName, ...]  # the nodes, sorted by name
    patience: Column  # per node, in microseconds
    sending: tuple[
        Column, Column
    ]  # per node: index into `gpu_keys.nodes` and into `port_keys.nodes`, or -1
    # Per GPU, sorted by its node's place on the map and by UUID:
    node: Column
    turn: Column  # its node's place on the map
    uuid: Column
    index: Column  # from the inventory
    row: Column  # row in the table, -1 for none
    numbers: Mapping[tuple[str, str, str], int]  # a GPU's number, by cluster, node and UUID
    ports: PortRoster
    clusters: tuple[str, ...]  # real ones first
    node_spans: Mapping[str, slice]
    gpu_spans: Mapping[str, slice]
    layouts: Mapping[str, Layout]

    def holds(
        self,
        before: Mapping[NodeName, Inventory],
        inventories: Mapping[NodeName, Inventory],
        shown: frozenset[NodeName],
        gpu_keys: Keys,
        port_keys: Keys,
    ) -> bool:
        """Return whether this roster still fits; `before` are the inventories that it was checked against."""
        return (
            self.gpu_keys is gpu_keys
            and self.port_keys is port_keys
            and self.shown == shown
            and (before is inventories or _same(before, inventories))
        )


def _same(before: Mapping[NodeName, Inventory], now: Mapping[NodeName, Inventory]) -> bool:
    return before.keys() == now.keys() and all(
        same_equipment(one, now[name]) for name, one in before.items()
    )


def same_equipment(one: Inventory, other: Inventory) -> bool:
    """Return whether pages show the same for both; a collector repeats its inventory every 10 min."""
    return one is other or (
        one.gpus == other.gpus
        and one.ports == other.ports
        and one.rack == other.rack
        and one.driver_state == other.driver_state
        and one.tick_seconds == other.tick_seconds
    )


def roster(
    inventories: Mapping[NodeName, Inventory],
    shown: frozenset[NodeName],
    gpu_keys: Keys,
    port_keys: Keys,
    silent_after_seconds: float,
) -> Roster:
    """Return the roster of the nodes in `shown`."""
    names = tuple(
        sorted(shown, key=lambda n: (n[0] == SIMULATED_CLUSTER, n[0], natural(n[1]), n[1]))
    )
    place = {name: number for number, name in enumerate(names)}
    indexes = _gpu_indexes(names, inventories, gpu_keys)
    clusters = tuple(dict.fromkeys(cluster for cluster, _ in names))
    blocks = {
        cluster: _blocks([n for n in names if n[0] == cluster and indexes[n]], inventories)
        for cluster in clusters
    }
    gpus = [
        (*name, uuid)
        for cluster in clusters
        for _, members, _ in blocks[cluster]
        for name in members
        for uuid in sorted(indexes[name])
    ]
    nodes = np.array([place[cluster, node] for cluster, node, _ in gpus], np.int64)
    known = [indexes[cluster, node][uuid] for cluster, node, uuid in gpus]
    node_spans = _spans([cluster for cluster, _ in names], clusters)
    return Roster(
        shown=shown,
        gpu_keys=gpu_keys,
        port_keys=port_keys,
        names=names,
        patience=np.array(
            [patience(inventories.get(name), silent_after_seconds) for name in names], np.int64
        ),
        sending=(_places(names, gpu_keys), _places(names, port_keys)),
        node=nodes,
        turn=np.cumsum(np.diff(nodes, prepend=-1) != 0),
        uuid=np.array([uuid for _, _, uuid in gpus], object),
        index=np.array([np.nan if i is None else i for i in known], float),
        row=_rows(gpus, gpu_keys),
        numbers={gpu: number for number, gpu in enumerate(gpus)},
        ports=_ports(names, place, clusters, inventories, port_keys),
        clusters=clusters,
        node_spans=node_spans,
        gpu_spans=_spans([cluster for cluster, _, _ in gpus], clusters),
        layouts={
            cluster: _layout(names[node_spans[cluster]], blocks[cluster], indexes)
            for cluster in clusters
        },
    )


def _gpu_indexes(
    names: Iterable[NodeName], inventories: Mapping[NodeName, Inventory], keys: Keys
) -> dict[NodeName, dict[str, int | None]]:
    """Return each node's GPU indices by UUID, from the inventory; None for GPUs known only by rows."""
    found: dict[NodeName, dict[str, int | None]] = {name: {} for name in names}
    for name, gpus in found.items():
        inventory = inventories.get(name)
        gpus.update({gpu.uuid: gpu.index for gpu in inventory.gpus} if inventory else {})
    for cluster, node, uuid in keys.rows:
        if (cluster, node) in found:
            found[cluster, node].setdefault(uuid, None)
    return found


def _places(names: Iterable[NodeName], keys: Keys) -> Column:
    places = {name: number for number, name in enumerate(keys.nodes)}
    return np.array([places.get(name, -1) for name in names], np.int64)


def _rows(subjects: Sequence[tuple[str, ...]], keys: Keys) -> Column:
    """Return each subject's row, -1 for none; of several rows with the same tags, the last."""
    depth = len(subjects[0]) if subjects else 0
    numbers = {row[:depth]: number for number, row in enumerate(keys.rows)}
    return np.array([numbers.get(subject, -1) for subject in subjects], np.int64)


def _ports(
    names: Iterable[NodeName],
    place: Mapping[NodeName, int],
    clusters: Iterable[str],
    inventories: Mapping[NodeName, Inventory],
    keys: Keys,
) -> PortRoster:
    found: dict[NodeName, dict[tuple[str, str], PortIdentity | None]] = {n: {} for n in names}
    for name, ports in found.items():
        inventory = inventories.get(name)
        ports.update({(p.device, p.port): p for p in inventory.ports} if inventory else {})
    for row in keys.rows:
        if (row[0], row[1]) in found:
            found[row[0], row[1]].setdefault((row[2], row[3]), None)
    listed = [(*name, *key) for name, ports in found.items() for key in sorted(ports)]
    identities = [found[c, n][device, port] for c, n, device, port in listed]
    rows = _rows(listed, keys)
    tags = [keys.rows[row][4:] if row >= 0 else ("", "") for row in rows.tolist()]
    both = list(zip(tags, identities, strict=True))
    return PortRoster(
        subject=tuple(Subject(cluster=c, node=n, device=d, port=p) for c, n, d, p in listed),
        kind=tuple(tag[0] or (one.kind if one else "") for tag, one in both),
        role=tuple(tag[1] or (one.role if one else "") for tag, one in both),
        was_up=np.array([one.was_up if one else True for one in identities], bool),
        node=np.array([place[cluster, node] for cluster, node, _, _ in listed], np.int64),
        row=rows,
        spans=_spans([cluster for cluster, _, _, _ in listed], clusters),
    )


def _spans(listed: Sequence[str], clusters: Iterable[str]) -> dict[str, slice]:
    """Return the slice of each cluster's entries, which lie together."""
    spans, start = {}, 0
    counts = Counter(listed)
    for cluster in clusters:
        spans[cluster] = slice(start, start + counts[cluster])
        start += counts[cluster]
    return spans


Blocks = list[tuple[str, list[NodeName], str]]  # label, nodes, and the rack that has a page


def _blocks(nodes: Sequence[NodeName], inventories: Mapping[NodeName, Inventory]) -> Blocks:
    """Return blocks by rack if nodes have racks, else a block per node, or per run of nodes in a large fleet."""
    racks: dict[str, list[NodeName]] = {}
    for node in nodes:
        inventory = inventories.get(node)
        racks.setdefault((inventory.rack if inventory else None) or "", []).append(node)
    if set(racks) - {""}:
        ordered = sorted(racks.items(), key=lambda item: natural(item[0]))
        return [(rack or "no rack", members, rack) for rack, members in ordered]
    size = 1 if len(nodes) <= BLOCKS else NODES_PER_BLOCK
    runs = [list(nodes[start : start + size]) for start in range(0, len(nodes), size)]
    return [(run[0][1] if size == 1 else f"{run[0][1]} … {run[-1][1]}", run, "") for run in runs]


def _layout(names: Sequence[NodeName], blocks: Blocks, gpus: Mapping[NodeName, Sized]) -> Layout:
    numbers = {name: number for number, (_, name) in enumerate(names)}
    spans, start = [slice(0, 0)] * len(names), 0
    for _, members, _ in blocks:
        for name in members:
            spans[numbers[name[1]]] = slice(start, start + len(gpus[name]))
            start += len(gpus[name])
    told = [
        [label, [[name[1], len(gpus[name])] for name in members], *([rack] if rack else [])]
        for label, members, rack in blocks
    ]
    return Layout(
        nodes=tuple(Subject(cluster=cluster, node=node) for cluster, node in names),
        numbers=numbers,
        spans=tuple(spans),
        blocks=tuple(
            (label, tuple(numbers[name[1]] for name in members)) for label, members, _ in blocks
        ),
        blocks_json=json.dumps(told, separators=(",", ":")),
    )
