"""The records beside the numbers: events, inventories and allocations."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pyarrow as pa

from gpuvigil.model import (
    Allocation,
    Event,
    EventKind,
    GpuIdentity,
    Inventory,
    ScheduledNode,
    Scheduler,
    Subject,
)

from .changes import Change, Quantity
from .controller import Controller
from .delivery import arrives
from .jobs import Job, team_of
from .life import DRIVER, TAKEN_BACK, VERSION, Restated
from .model import Block, FleetSettings, Happening
from .plan import Plan
from .site import PlannedEvent, Site

# The source of what the cloud reports; no node has its name.
_AUTOSCALER = "autoscaler"
# A collector learns these without a kernel log: from /proc, and from what stops it.
_OF_THE_COLLECTOR = frozenset({EventKind.BOOT, EventKind.SHUTDOWN})


class RecordReporter:
    """The records that collectors report in one run through the plan."""

    def __init__(self, settings: FleetSettings, plan: Plan, tick_seconds: float = 10.0) -> None:
        self._settings = settings
        self._tick_seconds = tick_seconds
        self._plan = plan
        self._topology = plan.topology
        self._restated: dict[int, list[Restated]] = defaultdict(list)
        for one in sorted(plan.life.restated, key=lambda r: r.at):
            self._restated[one.node].append(one)
        self._sites: dict[int, list[Site]] = defaultdict(list)
        for _, site in plan.sites:
            if site.driver or site.vbios or site.missing or site.unlisted or site.boots:
                self._sites[site.node].append(site)
        self._controller = Controller(settings, plan)
        self._ways: dict[int, list[Change]] = defaultdict(list)
        for change in plan.changes:
            if change.on is Quantity.DELIVERY:
                for node in change.targets:
                    self._ways[node].append(change)

    def block(
        self,
        span: tuple[float, float],
        first: float,
        tables: Mapping[str, pa.Table],
        arrivals: Mapping[str, pa.Array],
        happenings: tuple[Happening, ...],
    ) -> Block:
        """Return the block of that span of seconds; the first block also has the state before it."""
        start, end = span
        opening = start == first
        events, event_arrivals = self._events(start, end)
        return Block(
            start=self._at(start),
            end=self._at(end),
            tables=tables,
            arrivals=arrivals,
            events=tuple(events),
            event_arrivals=tuple(event_arrivals),
            inventories=tuple(self._inventories(start, end, opening=opening)),
            allocations=tuple(self._allocations(start, end, opening=opening)),
            schedulers=(
                *self._taken_back(start, end),
                *self._controller.reports(start, end),
            ),
            happenings=happenings,
        )

    def _at(self, seconds: float) -> datetime:
        return self._settings.start + timedelta(seconds=seconds)

    def _subject(self, one: PlannedEvent) -> tuple[Subject, int]:
        """Return the subject of an event, and its node."""
        kind, number = one.subject
        if kind == "gpu":
            return self._topology.gpu_subject(number), number // self._topology.per_node
        if kind == "port":
            return self._topology.port_subject(number), number // self._topology.ports_per_node
        return self._topology.node_subject(number), number

    def _events(self, start: float, end: float) -> tuple[list[Event], list[datetime]]:
        events, arrivals = [], []
        first = bisect_left(self._plan.planned_events, start, key=lambda one: one.at)
        last = bisect_left(self._plan.planned_events, end, key=lambda one: one.at)
        for one in self._plan.planned_events[first:last]:
            subject, node = self._subject(one)
            if self._topology.silent_log[node] and one.kind not in _OF_THE_COLLECTOR:
                continue
            arrival = arrives(one.at, self._ways[node])
            if arrival is None:
                continue
            code = one.xid or one.sxid or 0
            events.append(
                Event(
                    kind=one.kind,
                    subject=subject,
                    at=self._at(one.at),
                    id=f"{one.kind.value}:{subject.key}:{code}:{one.at}",
                    xid=one.xid,
                    sxid=one.sxid,
                    message=one.message or f"{one.kind.value} (simulated)",
                )
            )
            arrivals.append(self._at(arrival))
        return events, arrivals

    def _taken_back(self, start: float, end: float) -> Iterator[Scheduler]:
        """Yield the cloud's report for each node that it takes back, as in Kubernetes: the node is deleted.

        Reports are in the order of time, since a hub keeps the newest and ignores older ones.
        """
        told_by = replace(self._topology.node_subject(0), node=_AUTOSCALER)
        for turn in sorted(self._plan.life.life_events, key=lambda one: one.start):
            if turn.kind in TAKEN_BACK and start <= turn.start < end:
                at = self._at(turn.start)
                name = self._topology.node_subject(turn.subject[1]).node or ""
                gone = ScheduledNode(name=name, states=("DELETED",))
                yield Scheduler(told_by=told_by, at=at, answered_at=at, nodes=(gone,))

    def _inventories(self, start: float, end: float, *, opening: bool) -> Iterator[Inventory]:
        """Yield the inventories of the span, in order of node and time."""
        for node in range(self._topology.nodes):
            turns = [r.at for r in self._restated[node] if start <= r.at < end]
            turns += [at for at in self._turning(node) if start <= at < end]
            if opening or start == 0.0:
                turns.append(start)
            for at in sorted(set(turns)):
                yield self._inventory(node, at)

    def _turning(self, node: int) -> Iterator[float]:
        """Yield the times at which a fault changes the inventory of a node."""
        for site in self._sites[node]:
            yield site.start + site.delay
            yield site.end
            yield from site.boots

    def _inventory(self, node: int, at: float) -> Inventory:
        driver, version, boots = DRIVER, VERSION, 0
        for one in self._restated[node]:
            if one.at <= at:
                driver, version = one.driver or driver, one.version or version
                boots += one.boot
        boots += sum(boot <= at for site in self._sites[node] for boot in site.boots)
        sites = [s for s in self._sites[node] if s.start + s.delay <= at < s.end]
        for site in sites:
            driver = site.driver or driver
        missing = {
            self._topology.uuid(site.gpu): self._at(site.start + site.delay)
            for site in sites
            if site.missing
        }
        place = self._topology.places[node]
        return Inventory(
            subject=self._topology.node_subject(node),
            at=self._at(at),
            boot=f"boot-{node}-{boots}",
            tick_seconds=round(self._tick_seconds / float(self._topology.read_share[node]), 1),
            version=version,
            gpus=tuple(self._gpus(node, sites, driver if place.model.nvidia else None)),
            ports=self._topology.port_identities(),
            driver=driver if place.model.nvidia else None,
            driver_state="loaded",
            rack=self._topology.rack_name(place.rack),
            missing=missing,
        )

    def _gpus(
        self, node: int, sites: Sequence[Site], firmware: str | None
    ) -> Iterator[GpuIdentity]:
        """Yield the node's GPUs as the driver numbers them; a missing GPU has no index."""
        at = {self._topology.uuid(site.gpu): site for site in sites}
        index = 0
        for gpu in self._topology.gpu_identities(node):
            site = at.get(gpu.uuid)
            if site is not None and site.unlisted:
                continue
            gone = site is not None and site.moved
            vbios = gpu.vbios if site is None else site.vbios or gpu.vbios
            yield replace(gpu, index=None if gone else index, vbios=vbios, gsp_firmware=firmware)
            index += not gone

    def _allocations(self, start: float, end: float, *, opening: bool) -> Iterator[Allocation]:
        for job in self._plan.jobs:
            if job.start >= end:
                break
            if start <= job.start or (opening and job.end >= start):
                yield from self._held(job, None)
            if start <= job.end < end:
                yield from self._held(job, job.end)

    def _held(self, job: Job, ended: float | None) -> Iterator[Allocation]:
        for gpu in job.gpus:
            yield Allocation(
                subject=self._topology.gpu_subject(gpu),
                holder=job.holder,
                user=job.user,
                account=team_of(job.user) if self._settings.teams else None,
                command=job.workload.command,
                started_at=self._at(job.start),
                ended_at=None if ended is None else self._at(ended),
            )
