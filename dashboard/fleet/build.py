"""Make the cluster views from facts; what is the same at the next refresh is cached."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa

from gpuvigil.metrics import GPU, NODE, PORT
from gpuvigil.model import SIMULATED_CLUSTER, GpuState, Inventory, Subject
from gpuvigil.model.reporting import late_after

from ..model.cluster import ClusterView
from ..model.facts import Facts
from ..model.gpus import STATES, UNSAID, Column, Gpus, summed
from ..model.ports import Ports
from .identity_cache import IdentityCache
from .keys import Keys, NodeName, keys_of, times
from .liveness import (
    DEFAULT_TICK_SECONDS,
    NEVER,
    NodeLiveness,
    RowTimes,
    extended_limits,
    heard,
    node_liveness,
    patience,
    shown_nodes,
    time_of,
)
from .marks import Holders, OpenFaults, OutOfService, holders, open_faults, out_of_service
from .roster import PortRoster, Roster, roster
from .states import at_rows, decide_states, with_since

# The fields of facts that cluster views depend on; notices and port events are not among them.
_SHOWN = tuple(one.name for one in fields(Facts) if one.name not in {"notices", "port_events"})

_ACTIVE, _UNKNOWN = (STATES.index(one) for one in (GpuState.ACTIVE, GpuState.UNKNOWN))


def clusters(facts: Facts) -> tuple[ClusterView, ...]:
    """Return every known cluster, real ones first."""
    return Fleet().clusters(facts)


def silent_nodes(facts: Facts) -> frozenset[Subject]:
    """Return the shown nodes that have been silent for longer than allowed."""
    allowed = facts.silent_after_seconds
    return _quiet(facts, facts.now, lambda inventory: patience(inventory, allowed))


def overdue_nodes(facts: Facts, at: datetime) -> frozenset[Subject]:
    """Return the shown nodes that were overdue at that time, as far as is known now."""

    def overdue_after(inventory: Inventory | None) -> int:
        tick = inventory.tick_seconds if inventory is not None else DEFAULT_TICK_SECONDS
        return late_after(tick) // timedelta(microseconds=1)

    return _quiet(facts, at, overdue_after)


def _quiet(
    facts: Facts, at: datetime, allowed: Callable[[Inventory | None], int]
) -> frozenset[Subject]:
    """Return the shown nodes that at that moment had been silent for longer than `allowed` microseconds."""
    inventories = _by_node(facts)
    last, here = _present(facts, _sent(facts, {}), inventories)
    names = tuple(here)
    plain = np.array([allowed(inventories.get(name)) for name in names], np.int64)
    patient = _with_waits(plain, names, facts)
    told = node_liveness(names, patient, last, np.full(len(names), NEVER), at)
    silent = np.flatnonzero(told.silent).tolist()
    return frozenset(Subject(cluster=names[i][0], node=names[i][1]) for i in silent)


def _with_waits(patient: Column, names: Sequence[NodeName], facts: Facts) -> Column:
    waits = extended_limits(facts)
    if not waits:
        return patient
    longer = np.array([waits.get(name, 0) for name in names], np.int64)
    return np.maximum(patient, longer)


class Fleet:
    """Makes the cluster views of one moment after the other; for one thread at a time."""

    def __init__(self) -> None:
        self.cache = IdentityCache()
        self._keys: dict[str, Keys] = {}
        self._roster: Roster | None = None
        # The inventories that the roster fits; they are new objects every 10 min, as collectors repeat them.
        self._inventories: Mapping[NodeName, Inventory] = {}
        self._holders: Holders | None = None
        self._active: OpenFaults | None = None
        self._out: OutOfService | None = None

    def clusters(self, facts: Facts) -> tuple[ClusterView, ...]:
        """Return every known cluster, real ones first; the same tuple while the facts are the same."""
        given = tuple(getattr(facts, name) for name in _SHOWN)
        return self.cache.get("clusters", given, lambda: self._drawn(facts))

    def _drawn(self, facts: Facts) -> tuple[ClusterView, ...]:
        sent = _sent(facts, self._keys)
        self._keys = {name: one.keys for name, one in sent.items()}
        gpus, ports = sent[GPU.name], sent[PORT.name]
        inventories = self.cache.get("inventories", (facts.inventories,), lambda: _by_node(facts))
        last, here = _present(facts, sent, inventories)
        members = self._members(
            inventories, here, gpus.keys, ports.keys, facts.silent_after_seconds
        )
        newest = _newest(members, gpus, ports)
        patient = _with_waits(members.patience, members.names, facts)
        told = node_liveness(members.names, patient, last, newest, facts.now)
        self._holders = holders(members, facts.allocations, self._holders)
        self._active = open_faults(members, facts.incidents, self._active)
        self._out = out_of_service(members, facts.schedulers, facts.now, self._out)
        marked = self._holders, self._active, self._out
        drawn = _gpus(members, facts.gpus, gpus.at, told, marked)
        up, speed = _ports(members, facts.ports, ports.at, told)
        return tuple(
            _cluster(name, members, inventories, told, drawn, (up, speed))
            for name in members.clusters
        )

    def _members(
        self,
        inventories: Mapping[NodeName, Inventory],
        here: frozenset[NodeName],
        gpu_keys: Keys,
        port_keys: Keys,
        silent_after_seconds: float,
    ) -> Roster:
        kept = self._roster
        before, self._inventories = self._inventories, inventories
        if kept is None or not kept.holds(before, inventories, here, gpu_keys, port_keys):
            kept = self._roster = roster(
                inventories, here, gpu_keys, port_keys, silent_after_seconds
            )
        return kept


def _sent(facts: Facts, before: Mapping[str, Keys]) -> dict[str, RowTimes]:
    """Return the rows of each measurement; `before` are the keys of an earlier moment."""
    tables = (
        (GPU.name, GPU.tags[:3], facts.gpus),
        (PORT.name, PORT.tags, facts.ports),
        (NODE.name, NODE.tags, facts.nodes),
    )
    return {
        name: RowTimes(keys=keys_of(table, tags, before.get(name)), at=times(table))
        for name, tags, table in tables
    }


def _by_node(facts: Facts) -> dict[NodeName, Inventory]:
    return {(one.subject.cluster, one.subject.node): one for one in facts.inventories}


def _present(
    facts: Facts, sent: Mapping[str, RowTimes], inventories: Mapping[NodeName, Inventory]
) -> tuple[dict[NodeName, datetime], frozenset[NodeName]]:
    """Return when each node was last heard, and the nodes that are shown."""
    last = heard(facts, sent.values())
    return last, shown_nodes(facts, last, inventories)


def _newest(members: Roster, *tables: RowTimes) -> Column:
    """Return the time of each node's newest row, in microseconds."""
    newest = np.full(len(members.names), NEVER)
    for sent, places in zip(tables, members.sending, strict=True):
        newest = np.maximum(newest, at_rows(sent.keys.latest(sent.at), places, NEVER))
    return newest


def _gpus(
    members: Roster,
    rows: pa.Table,
    times_of_rows: Column,
    liveness: NodeLiveness,
    marked: tuple[Holders, OpenFaults, OutOfService],
) -> Gpus:
    """Return the GPUs of all clusters as columns, in the roster's order, within a node by index."""
    at = at_rows(times_of_rows, members.row, NEVER)
    young = (members.row >= 0) & ~liveness.silent[members.node]
    young &= at >= liveness.trusted_since[members.node]
    held_by, stands, out = marked
    known = decide_states(rows, members.row, young, held_by, stands, out)
    unknown = known.state == _UNKNOWN
    seen_at = np.where(members.row >= 0, at, liveness.heard_at[members.node])
    absent = _numbers(rows, "unmeasured_seconds", members.row, young)
    away = young & ~np.isnan(absent)
    # These GPUs answer, but their state cannot be told.
    unsaid = [place for place, text in enumerate(known.reasons) if text in UNSAID]
    answers = np.isin(known.reason, unsaid)
    # Round to whole seconds, since the computed moment differs slightly in every tick.
    since = np.rint((at - np.where(away, absent, 0.0) * 1e6) / 1e6).astype(np.int64) * 1_000_000
    known = with_since(known, (unknown & ~young) | away, np.where(away, since, seen_at))
    trusted = young & (~unknown | answers)
    numbers = {name: _numbers(rows, name, members.row, trusted) for name in _NUMBERS}
    processes = _numbers(rows, "compute_processes", members.row, trusted)
    held = (held_by.holder > 0) | (np.nan_to_num(processes) > 0)
    # Active GPUs without an allocation, whose processes are not measured: whether held is not known.
    unattributed = (known.state == _ACTIVE) & ~held & np.isnan(processes)
    index = _numbers(rows, "index", members.row, trusted)
    gpus = Gpus(
        uuid=members.uuid,
        index=np.where(np.isnan(index), members.index, index),
        look=known.look,
        state=known.state,
        held=np.where(unknown | unattributed, -1, held).astype(np.int8),
        hung=known.hung,
        reason=known.reason,
        holder=held_by.holder,
        reasons=known.reasons,
        holders=held_by.texts,
        **numbers,
    )
    # NaN sorts last: GPUs without an index come after the others, by UUID.
    return gpus.part(np.lexsort((gpus.index, members.turn)))


_NUMBERS = ("utilization_percent", "temperature_celsius", "power_watts", "power_limit_watts")


def _numbers(rows: pa.Table, name: str, row: Column, trusted: Column) -> Column:
    """Return a column per GPU; NaN if not measured or not trusted."""
    values = rows.column(name).cast(pa.float64(), safe=False).to_numpy()
    return np.where(trusted, at_rows(values, row, np.nan), np.nan)


def _ports(
    members: Roster, rows: pa.Table, times_of_rows: Column, liveness: NodeLiveness
) -> tuple[Column, Column]:
    """Return per port whether it is up, and its speed in bits per second while it is up."""
    ports = members.ports
    at = at_rows(times_of_rows, ports.row, NEVER)
    young = (
        (ports.row >= 0) & ~liveness.silent[ports.node] & (at >= liveness.trusted_since[ports.node])
    )
    up = _numbers(rows, "up", ports.row, young)
    return up, _numbers(rows, "speed_bits_per_second", ports.row, up > 0)


def _cluster(
    name: str,
    members: Roster,
    inventories: Mapping[NodeName, Inventory],
    liveness: NodeLiveness,
    all_gpus: Gpus,
    all_ports: tuple[Column, Column],
) -> ClusterView:
    nodes, gpus = members.node_spans[name], all_gpus.part(members.gpu_spans[name])
    drivers = {
        one.driver_state
        for node in members.names[nodes]
        if (one := inventories.get(node)) and one.driver_state != "loaded"
    }
    # Rows too old to be shown are not read; then the time when a node was last heard is used.
    newest = int(liveness.newest_row[nodes].max(initial=NEVER))
    newest = int(liveness.heard_at[nodes].max(initial=NEVER)) if newest == NEVER else newest
    return ClusterView(
        name=name,
        simulated=name == SIMULATED_CLUSTER,
        layout=members.layouts[name],
        gpus=gpus,
        strip=summed(gpus),
        ports=_ports_of(members.ports, members.ports.spans[name], *all_ports),
        heard=liveness.heard[nodes],
        silent=liveness.silent[nodes],
        drivers=tuple(sorted(drivers)),
        rows_at=None if newest == NEVER else time_of(newest),
    )


def _ports_of(ports: PortRoster, span: slice, up: Column, speed: Column) -> Ports:
    return Ports(
        subject=ports.subject[span],
        kind=ports.kind[span],
        role=ports.role[span],
        was_up=ports.was_up[span],
        up=up[span],
        speed_bits_per_second=speed[span],
    )
