"""Who is there and who holds it, where nobody tells: from what a Prometheus has of each node.

A node whose own collector has written an inventory is left alone.
"""

import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from gpuvigil.clock import Clock
from gpuvigil.hub_client import Hub
from gpuvigil.log import Log
from gpuvigil.metrics import GPU, NODE, PORT
from gpuvigil.model import (
    Allocation,
    AllocationState,
    GpuIdentity,
    Holder,
    Inventory,
    PortIdentity,
    RecordKind,
    Subject,
    readable,
)
from gpuvigil.store import Aggregate, Function
from gpuvigil.store.prometheus import PrometheusStore

_LOOK_SECONDS = 60.0
# One look may fail; who was found after a longer gap may have come at any time of it.
_GAP = timedelta(seconds=2 * _LOOK_SECONDS)
# Scrapes are a minute apart at most places; of what is silent for longer nothing new is known.
_SPAN = timedelta(minutes=5)
_USUAL_SCRAPE_SECONDS = 15.0
_MOST_RECORDS = 100_000
_BOOT = "prometheus"
# By its age the hub knows who is gone.
_TOLD_AGAIN_AFTER = timedelta(days=1)

_Row = Mapping[str, Any]


def inventories(
    gpus: Sequence[_Row], ports: Sequence[_Row], nodes: Sequence[_Row], now: datetime
) -> dict[str, Inventory]:
    """By node, from windows over the last minutes of each measurement."""
    found: dict[str, Inventory] = {}
    for row in (*nodes, *gpus, *ports):
        subject = Subject(cluster=row["cluster"], node=row["node"])
        if subject.key not in found:
            found[subject.key] = Inventory(
                subject=subject, at=now, boot=_BOOT, tick_seconds=0.0, version=""
            )
    of_gpus, of_ports, of_nodes = _by_node(gpus), _by_node(ports), _by_node(nodes)
    for key, one in found.items():
        cards = sorted((_gpu(row) for row in of_gpus[key]), key=_place)
        found[key] = replace(
            one,
            gpus=tuple(cards),
            ports=tuple(_port(row) for row in of_ports[key]),
            driver_state="loaded" if cards else "no driver",
            tick_seconds=_scrape_seconds([*of_gpus[key], *of_nodes[key]]),
        )
    return found


def renewed(before: Inventory | None, found: Inventory) -> Inventory | None:
    """What to write; None when nothing has changed for less than a day, or a collector has said it.

    A GPU that is told of no more stays, as one that is silent, until another one has its index.
    """
    if before is None:
        return found
    if before.boot != _BOOT:
        return None
    told, places = {gpu.uuid for gpu in found.gpus}, {gpu.index for gpu in found.gpus}
    silent = [gpu for gpu in before.gpus if gpu.uuid not in told and gpu.index not in places]
    was_up = {(it.device, it.port) for it in before.ports if it.was_up}
    ports = {
        (it.device, it.port): replace(it, was_up=it.was_up or (it.device, it.port) in was_up)
        for it in (*before.ports, *found.ports)
    }
    whole = replace(
        found,
        gpus=tuple(sorted((*found.gpus, *silent), key=_place)),
        ports=tuple(ports.values()),
        driver_state="loaded" if found.gpus or silent else "no driver",
    )
    is_young = found.at - before.at < _TOLD_AGAIN_AFTER
    return None if is_young and replace(whole, at=before.at) == before else whole


def changed_hands(
    named: Mapping[Subject, Collection[tuple[Holder, str | None]]],
    held: Iterable[Allocation],
    read_at: Mapping[Subject, datetime],
    now: datetime,
) -> list[Allocation]:
    """What to write, so that each GPU is held by those that are named for it.

    `named`: holder and pod, by GPU; of a GPU that is not in it nothing new is known. Since when a
    holder has it nobody tells: it counts from the look that found it, and began before where that
    GPU was not `read_at` lately.
    """
    open_ = {(one.subject, one.holder): one for one in held if one.ended_at is None}
    new = [
        Allocation(
            subject=gpu,
            holder=holder,
            user=None,
            command=None,
            started_at=now,
            account=pod.partition("/")[0] if pod else None,
            pod=pod,
            began_before=gpu not in read_at or not timedelta() <= now - read_at[gpu] <= _GAP,
        )
        for gpu, holders in named.items()
        for holder, pod in sorted(holders)
        if (gpu, holder) not in open_
    ]
    over = [
        replace(one, ended_at=now)
        for (gpu, holder), one in open_.items()
        if gpu in named and holder not in {name for name, _ in named[gpu]}
    ]
    return [*over, *new]


class PrometheusInventory:
    """One look after another, in a thread of its own."""

    def __init__(
        self, hub: Hub, store: PrometheusStore, clock: Clock, stop: threading.Event
    ) -> None:
        self._hub = hub
        self._store = store
        self._clock = clock
        self._stop = stop
        self._log = Log("analyzer")
        # When each GPU was told of last, whoever held it.
        self._read_at: dict[Subject, datetime] = {}

    def step(self) -> None:
        """Look once and write what is new, then wait; raises HubError or StoreError."""
        now = self._clock.now()
        found = inventories(*self._rows(now), now)
        kept = self._hub.records(RecordKind.INVENTORY, limit=_MOST_RECORDS)
        before = {one.subject.key: one for one in readable(kept, Inventory.from_record)}
        new = [
            whole
            for key, one in found.items()
            if (whole := renewed(before.get(key), one)) is not None
        ]
        if new:
            self._hub.write_records([one.to_record() for one in new])
            gpus = sum(len(one.gpus) for one in new)
            self._log.info("inventories read from Prometheus", nodes=len(new), gpus=gpus)
        own = {key for key in found if key not in before or before[key].boot == _BOOT}
        self._hold(own, now)
        self._clock.wait(self._stop, _LOOK_SECONDS if found else _LOOK_SECONDS / 12)

    def _hold(self, nodes: Collection[str], now: datetime) -> None:
        """Write who holds the GPUs of these nodes, as far as that has changed."""
        named = {
            Subject(cluster=tags[0], node=tags[1], gpu=tags[2]): holders
            for tags, holders in self._store.holders(now).items()
        }
        own = {gpu: holders for gpu, holders in named.items() if gpu.of_node().key in nodes}
        told = self._hub.records(
            RecordKind.ALLOCATION, states=[AllocationState.HELD], limit=_MOST_RECORDS
        )
        new = changed_hands(own, readable(told, Allocation.from_record), self._read_at, now)
        if new:
            self._hub.write_records([one.to_record() for one in new])
        self._read_at |= dict.fromkeys(own, now)

    def _rows(self, now: datetime) -> tuple[list[_Row], list[_Row], list[_Row]]:
        asked = ((GPU, "index"), (PORT, "up"), (NODE, "load_average"))
        gpus, ports, nodes = (
            self._store.window(
                of.name, [Aggregate(function=Function.LAST, field=name)], now - _SPAN, now
            ).to_pylist()
            for of, name in asked
        )
        return gpus, ports, nodes


def _by_node(rows: Sequence[_Row]) -> Mapping[str, list[_Row]]:
    found: dict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        found[Subject(cluster=row["cluster"], node=row["node"]).key].append(row)
    return found


def _gpu(row: _Row) -> GpuIdentity:
    return GpuIdentity(
        uuid=row["uuid"], index=row["index_last"], pci_address=None, model=row["model"]
    )


def _port(row: _Row) -> PortIdentity:
    return PortIdentity(
        device=row["device"],
        port=row["port"],
        kind=row["kind"],
        role=row["role"],
        was_up=row["up_last"] == 1,
    )


def _place(gpu: GpuIdentity) -> tuple[bool, int, str]:
    return gpu.index is None, gpu.index or 0, gpu.uuid


def _scrape_seconds(rows: Sequence[_Row]) -> float:
    """How far apart scrapes are, in whole seconds, so that it does not change with every look."""
    apart = [
        (row["last_at"] - row["first_at"]).total_seconds() / (row["samples"] - 1)
        for row in rows
        if row["samples"] > 1
    ]
    return float(max(round(median(apart)), 1)) if apart else _USUAL_SCRAPE_SECONDS
