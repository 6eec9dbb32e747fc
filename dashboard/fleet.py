"""From facts to what the overview shows of every cluster: pure functions.

A GPU is on the map because its node's inventory names it or because it sent a row. Without a row
that is young enough it is unknown, never idle, free or 0. Clusters are never summed.
"""

import contextlib
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from gpuvigil.clock import moment
from gpuvigil.model import GpuIdentity, GpuState, Incident, Inventory, Severity, Subject
from gpuvigil.states import HUNG, gpu_state

from .cluster import Block, Cell, ClusterView, Look, NodeView, PortView, summed
from .facts import Facts, Row
from .words import natural

# A row arrives a commit and a hop after its tick.
ARRIVAL = timedelta(seconds=2)
TICKS_BEFORE_STALE = 3
DEFAULT_TICK_SECONDS = 10.0
# A node that left is named for a day; a simulated one was played by a process that has ended.
LEFT_AFTER = timedelta(hours=24)
SIMULATED_LEFT_AFTER = timedelta(minutes=10)
# More nodes than this get no block of their own on the map.
BLOCKS = 64
NODES_PER_BLOCK = 16


_LOOKS = {
    GpuState.ACTIVE: Look.ACTIVE,
    GpuState.IDLE: Look.IDLE,
    GpuState.FREE: Look.FREE,
    GpuState.UNAVAILABLE: Look.FAILED,
    GpuState.UNKNOWN: Look.UNKNOWN,
}


def clusters(facts: Facts) -> tuple[ClusterView, ...]:
    """Every cluster that was heard of, real ones first."""
    fleet = _Fleet(facts)
    names = sorted({node.cluster for node in fleet.nodes})
    views = [fleet.cluster(name) for name in names]
    return tuple(sorted(views, key=lambda view: (view.simulated, view.name)))


def silent_nodes(facts: Facts) -> frozenset[Subject]:
    """Nodes that are on the page and have not sent for longer than they may."""
    fleet = _Fleet(facts)
    return frozenset(node for node in fleet.nodes if fleet.is_silent(node))


class _Fleet:
    """The facts, indexed by node and GPU once for all clusters."""

    def __init__(self, facts: Facts) -> None:
        self.now = facts.now
        self.inventories = {inventory.subject: inventory for inventory in facts.inventories}
        self.gpus = _by_node(facts.gpus)
        self.ports = _by_node(facts.ports)
        self.heard = _heard(facts, self.gpus, self.ports)
        self.nodes = {
            node
            for node in {*self.inventories, *self.gpus, *self.ports, *self.heard}
            if not self._left(node)
        }
        self.holders: dict[Subject, list[str]] = {}
        for allocation in facts.allocations:
            user = f" ({allocation.user})" if allocation.user else ""
            self.holders.setdefault(allocation.subject, []).append(allocation.holder + user)
        self.faults: dict[Subject, dict[str, Severity]] = {}
        for incident in facts.incidents:
            for subject in _covered(incident):
                self.faults.setdefault(subject, {})[incident.fault] = incident.severity

    def cluster(self, name: str) -> ClusterView:
        subjects = sorted(
            (node for node in self.nodes if node.cluster == name),
            key=lambda node: natural(node.node),
        )
        views = {node: self._node(node) for node in subjects}
        cells = [cell for view in views.values() for cell in view.cells]
        reported = [self.inventories[node] for node in subjects if node in self.inventories]
        rows = [
            row
            for node in subjects
            for row in (*self.gpus.get(node, ()), *self.ports.get(node, ()))
        ]
        return ClusterView(
            name=name,
            simulated=subjects[0].simulated,
            nodes=tuple(views.values()),
            blocks=_blocks({n: v for n, v in views.items() if v.cells}, self.inventories),
            strip=summed(cells),
            ports=tuple(port for node in subjects for port in self._ports(node)),
            drivers=tuple(
                sorted({one.driver_state for one in reported if one.driver_state != "loaded"})
            ),
            rows_at=max((row["at"] for row in rows), default=None),
        )

    def _node(self, node: Subject) -> NodeView:
        since = self._trusted_since(node)
        rows = {row["uuid"]: row for row in self.gpus.get(node, ())}
        inventory = self.inventories.get(node)
        known = {gpu.uuid: gpu for gpu in inventory.gpus} if inventory else {}
        cells = [
            self._cell(node, uuid, known.get(uuid), rows.get(uuid), since)
            for uuid in sorted({*known, *rows})
        ]
        cells.sort(key=lambda cell: (cell.index is None, cell.index, cell.subject))
        return NodeView(
            name=node.node, cells=tuple(cells), heard_at=self.heard.get(node), silent=since is None
        )

    def _cell(
        self,
        node: Subject,
        uuid: str,
        gpu: GpuIdentity | None,
        row: Row | None,
        since: datetime | None,
    ) -> Cell:
        subject = Subject(cluster=node.cluster, node=node.node, gpu=uuid)
        holders, own = self.holders.get(subject, []), self.faults.get(subject, {})
        young = None if row is None or since is None or row["at"] < since else row
        faults = {**self.faults.get(node, {}), **own}
        state, reason = gpu_state(young, held=bool(holders), faults=faults)
        if young is None and state is GpuState.UNKNOWN:
            reason = _since(reason, self.heard.get(node) if row is None else row["at"])
        trusted = young if young is not None and state is not GpuState.UNKNOWN else {}
        index = trusted.get("index")
        return Cell(
            subject=subject,
            index=index if index is not None else gpu.index if gpu else None,
            look=_look(state, own),
            state=state,
            reason=reason,
            hung=_hung(state, faults),
            held=_held(state, holders, trusted),
            holder=_named(holders),
            utilization_percent=trusted.get("utilization_percent"),
            temperature_celsius=trusted.get("temperature_celsius"),
            power_watts=trusted.get("power_watts"),
            power_limit_watts=trusted.get("power_limit_watts"),
        )

    def _ports(self, node: Subject) -> Iterable[PortView]:
        since = self._trusted_since(node)
        rows = {(row["device"], row["port"]): row for row in self.ports.get(node, ())}
        inventory = self.inventories.get(node)
        known = {(p.device, p.port): p for p in inventory.ports} if inventory else {}
        for key in sorted({*known, *rows}):
            row, port = rows.get(key, {}), known.get(key)
            young = row if row and since is not None and row["at"] >= since else {}
            up = young.get("up")
            yield PortView(
                subject=Subject(cluster=node.cluster, node=node.node, device=key[0], port=key[1]),
                kind=row.get("kind") or (port.kind if port else ""),
                role=row.get("role") or (port.role if port else ""),
                up=None if up is None else bool(up),
                was_up=port.was_up if port else True,
                speed_bits_per_second=young.get("speed_bits_per_second") if up else None,
            )

    def _patience(self, node: Subject) -> timedelta:
        inventory = self.inventories.get(node)
        tick = inventory.tick_seconds if inventory else DEFAULT_TICK_SECONDS
        return TICKS_BEFORE_STALE * timedelta(seconds=tick) + ARRIVAL

    def _trusted_since(self, node: Subject) -> datetime | None:
        """Rows older than this lag behind their node's newest; None: the node is silent.

        Silence is judged by the hub's clock, the lag of a row by its node's own.
        """
        heard, patience = self.heard.get(node), self._patience(node)
        if heard is None or self.now - heard > patience:
            return None
        rows = (*self.gpus.get(node, ()), *self.ports.get(node, ()))
        return max((row["at"] for row in rows), default=heard) - patience

    def is_silent(self, node: Subject) -> bool:
        return self._trusted_since(node) is None

    def _left(self, node: Subject) -> bool:
        inventory = self.inventories.get(node)
        seen = self.heard.get(node) or (inventory.at if inventory else None)
        limit = SIMULATED_LEFT_AFTER if node.simulated else LEFT_AFTER
        return seen is None or self.now - seen > limit


def _by_node(rows: Iterable[Row]) -> dict[Subject, list[Row]]:
    found: dict[Subject, list[Row]] = {}
    last: tuple[str, str] | None = None
    for row in rows:
        name = (row["cluster"], row["node"])
        if name != last:
            # Rows come ordered by their tags, so a node is looked up once and not per GPU.
            here, last = found.setdefault(Subject(cluster=name[0], node=name[1]), []), name
        here.append(row)
    return found


def _heard(facts: Facts, *tables: Mapping[Subject, list[Row]]) -> dict[Subject, datetime]:
    """When the hub last got something from each node; from rows alone where it cannot say."""
    heard = {Subject(cluster=c, node=n): at for (c, n), at in facts.heard.items()}
    told = set(heard)
    for table in (*tables, _by_node(facts.nodes)):
        for node, rows in table.items():
            if node not in told:
                newest = max(row["at"] for row in rows)
                heard[node] = max(heard.get(node, newest), newest)
    return heard


def _covered(incident: Incident) -> set[Subject]:
    """What the incident is about; a member whose name this version cannot read is left out."""
    covered = {incident.subject}
    for member in incident.members:
        with contextlib.suppress(ValueError):
            covered.add(Subject.parse(member))
    return covered


def _held(state: GpuState, holders: list[str], row: Row) -> bool | None:
    if state is GpuState.UNKNOWN:
        return None
    return bool(holders) or (row.get("compute_processes") or 0) > 0


def _hung(state: GpuState, faults: Mapping[str, Severity]) -> str:
    if state is not GpuState.UNKNOWN:
        return ""
    return next((fault for fault in HUNG if fault in faults), "")


def _look(state: GpuState, faults: Mapping[str, Severity]) -> Look:
    """A GPU that works although a fault of its own stands is degraded; info is for the digest."""
    look = _LOOKS[state]
    working = look in {Look.ACTIVE, Look.IDLE, Look.FREE}
    if working and any(severity is not Severity.INFO for severity in faults.values()):
        return Look.DEGRADED
    return look


def _named(holders: list[str]) -> str:
    return "" if not holders else holders[0] + (f" +{len(holders) - 1}" if holders[1:] else "")


def _since(reason: str, at: datetime | None) -> str:
    return reason if at is None else f"{reason} since {moment(at)}"


def _blocks(
    views: Mapping[Subject, NodeView], inventories: Mapping[Subject, Inventory]
) -> tuple[Block, ...]:
    """Racks where nodes name them, else a block per node, or per run of nodes in a large fleet."""
    racks: dict[str, list[NodeView]] = {}
    for node, view in views.items():
        inventory = inventories.get(node)
        racks.setdefault((inventory.rack if inventory else None) or "", []).append(view)
    if set(racks) - {""}:
        return tuple(
            Block(label=rack or "no rack", nodes=tuple(nodes))
            for rack, nodes in sorted(racks.items(), key=lambda item: natural(item[0]))
        )
    nodes = tuple(views.values())
    size = 1 if len(nodes) <= BLOCKS else NODES_PER_BLOCK
    runs = [nodes[start : start + size] for start in range(0, len(nodes), size)]
    return tuple(
        Block(label=run[0].name if size == 1 else f"{run[0].name} … {run[-1].name}", nodes=run)
        for run in runs
    )
