"""The simulated fleet with known truth in real time, sending to a real hub.

A story is a week of the fleet, entered 19 hours after its beginning, when faults already stand. When it
is over, or the program restarts, the same story begins anew. Bodies have the fleet's delivery: they come
late, twice, or never. Only clock steps are left out, since this machine sends for all nodes.
"""

import heapq
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from collector.spool.batches import Sender
from collector.spool.body import IDENTITY, Body
from collector.spool.queue import Spool
from gpuvigil.clock import EPOCH, Clock, to_text
from gpuvigil.config import SimulatorSettings
from gpuvigil.log import Log
from gpuvigil.model import SIMULATED_CLUSTER, Allocation, Record

from .bodies import MemoryBudget, Posting
from .cluster import Node
from .faults import InjectedFault
from .fleet import Block, FaultOrder, Fleet, FleetSettings, build
from .fleet.changes import Change, Quantity
from .fleet.holding import RequestedLoad
from .fleet.plan import Plan
from .fleet.play import Playing
from .fleet.records import RecordReporter
from .fleet.sensors import Moment, NodeSensors, Numbers
from .fleet.steps import ReportLevel, report_level
from .fleet.switches import LOOK_SECONDS, SwitchLooks
from .fleet.topology import Topology
from .live_faults import changes, switch_changes
from .player import READER, SWITCHES_PER_BODY, FaultReporter, Story, switches_file

log = Log("simulator")

_STORY_NAME = "fleet-story.json"
_DAYS = 7.0
# With the usual seed, fleets of 8, 16 and 32 nodes have a job over several nodes by then, and those of 16 and
# 32 another one whose ranks report their own work.
_LEAD_SECONDS = 69_300.0
# A first-time visitor is to see a network bottleneck within two minutes, in a job over several nodes.
_SLOW_LINK_AFTER, _SLOW_LINK_SECONDS = 45.0, 3600.0
# Also a slow rank, in a job that reports how long each of its ranks works,
_SLOW_RANK_AFTER, _SLOW_RANK_SECONDS, _SLOW_RANK = 75.0, 3600.0, 0.3
# and a rack that loses one of its power feeds, away from the other two.
_RACK_AFTER, _RACK_SECONDS = 60.0, 1200.0
# GPU time by workload: trainings of hours instead of the longest, some of which wait for their checkpoints.
_MIX = (
    ("data parallel", 0.1), ("tensor parallel", 0.1), ("even", 0.22), ("saving", 0.24),
    ("cpu offload", 0.04), ("fine-tuning", 0.1), ("steady inference", 0.08),
    ("bursty inference", 0.06), ("sweep", 0.05), ("notebook", 0.05), ("data starved", 0.06),
)  # fmt: skip
# GPUs are warm when the first numbers are sent: several time constants of their heatsinks.
_WARM_SECONDS, _WARM_STEP_SECONDS = 300.0, 30.0
_STEP_SECONDS = 0.1
_RECORDS_PER_BODY = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStory(Story):
    """The fleet that is played, since when, and until when it was reported."""

    fault_rate: float

    @classmethod
    def begin(cls, settings: SimulatorSettings, now: datetime) -> "FleetStory":
        return cls(
            nodes=settings.nodes,
            gpus_per_node=settings.gpus_per_node,
            seed=settings.seed,
            fault_rate=settings.fault_rate,
            origin=now.replace(microsecond=0) - timedelta(seconds=_LEAD_SECONDS),
            told_at=now,
        )

    def settings(self) -> FleetSettings:
        return FleetSettings(
            seed=self.seed,
            nodes=self.nodes,
            days=_DAYS,
            gpus_per_node=self.gpus_per_node,
            start=self.origin,
            fault_rate=self.fault_rate,
            switches=True,
            steps=True,
            teams=True,
            mix=_MIX,
        )

    def fleet(self) -> Fleet:
        fleet = build(self.settings())
        if not self.fault_rate:
            return fleet
        link = _slow_link(fleet)
        rank = _slow_rank(fleet, link.node)
        slow = [link] if rank is None else [link, rank]
        rack = _rack_without_feed(fleet, [it.node for it in slow])
        return build(replace(fleet.settings, faults=(*slow, *rack)))

    def held(self) -> dict[str, Allocation]:
        """Return the reported allocations by id."""
        return held(self.fleet(), self.told_at)

    def is_over(self, now: datetime) -> bool:
        return now >= self.origin + timedelta(days=_DAYS)


def _slow_link(fleet: Fleet) -> FaultOrder:
    """Return a slow link in the largest job over several nodes that runs all the while; without one, of any node."""
    start = _LEAD_SECONDS + _SLOW_LINK_AFTER
    end, per_node = start + _SLOW_LINK_SECONDS, fleet.settings.gpus_per_node
    nodes_of = {it.number: sorted({gpu // per_node for gpu in it.gpus}) for it in fleet.plan.jobs}
    jobs = [
        it
        for it in fleet.plan.jobs
        if it.start < _LEAD_SECONDS and it.end > end and len(nodes_of[it.number]) > 1
    ]
    largest = max(jobs, key=lambda it: (len(it.gpus), -it.number), default=None)
    return FaultOrder(
        kind="slow link",
        node=min(1, fleet.settings.nodes - 1) if largest is None else nodes_of[largest.number][0],
        port=0,
        start_seconds=start,
        seconds=_SLOW_LINK_SECONDS,
        magnitude=0.25,
    )


def _rack_without_feed(fleet: Fleet, others: Sequence[int]) -> list[FaultOrder]:
    """Return the loss of a power feed in the last rack with none of the other faulty nodes; none without such a rack."""
    places = fleet.plan.topology.places
    apart = {places[node].rack for node in others}
    free = [node for node in range(fleet.settings.nodes) if places[node].rack not in apart]
    return [
        FaultOrder(
            kind="power feed",
            node=node,
            start_seconds=_LEAD_SECONDS + _RACK_AFTER,
            seconds=_RACK_SECONDS,
        )
        for node in free[-1:]
    ]


def _slow_rank(fleet: Fleet, besides: int) -> FaultOrder | None:
    """Return a slow rank in the largest job that reports its ranks' own work all the while; None without one.

    A job on the node `besides`, which has a fault, is taken only where there is no other.
    """
    start = _LEAD_SECONDS + _SLOW_RANK_AFTER
    end, per_node = start + _SLOW_RANK_SECONDS, fleet.settings.gpus_per_node
    jobs = [
        it
        for it in fleet.plan.jobs
        if report_level(it) is ReportLevel.OWN
        and it.start < start - _SLOW_RANK_SECONDS
        and it.end > end
    ]
    if not jobs:
        return None
    taken = {besides * per_node + gpu for gpu in range(per_node)}
    largest = max(jobs, key=lambda it: (taken.isdisjoint(it.gpus), len(it.gpus), -it.number))
    gpu = largest.gpus[-1]
    return FaultOrder(
        kind="slow rank",
        node=gpu // per_node,
        gpu=gpu % per_node,
        start_seconds=start,
        seconds=_SLOW_RANK_SECONDS,
        magnitude=_SLOW_RANK,
    )


def held(fleet: Fleet, at: datetime) -> dict[str, Allocation]:
    """Return the allocations at a moment, by id."""
    seconds = (at - fleet.settings.start).total_seconds()
    teller = RecordReporter(fleet.settings, fleet.plan)
    block = teller.block((seconds, seconds), seconds, {}, {}, ())
    return {one.id: one for one in block.allocations}


def nodes(settings: SimulatorSettings) -> Sequence[Node]:
    """Return the fleet's nodes, on which faults can be injected."""
    return _nodes(Topology(FleetStory.begin(settings, EPOCH).settings()))


def _nodes(topology: Topology) -> Sequence[Node]:
    return [
        Node(
            subject=topology.node_subject(number),
            rack=topology.rack_name(topology.places[number].rack),
            gpus=topology.gpu_identities(number),
            ports=topology.port_identities(),
            slots=(),
            seed=0,
        )
        for number in range(topology.nodes)
    ]


class _Hosts(NodeSensors):
    """Hosts whose processors count how often and how long heat slows them down."""

    def read(self, asked: RequestedLoad, moment: Moment) -> Numbers:
        numbers = super().read(asked, moment)
        return {**numbers, **dict.fromkeys(("cpu_throttled_milliseconds", "cpu_throttles"), 0)}


class _Playing(Playing):
    """A fleet that can be changed while it is played."""

    def __init__(self, settings: FleetSettings, plan: Plan, tick_seconds: float) -> None:
        super().__init__(settings, plan, tick_seconds)
        self._planned = plan
        self._nodes = _Hosts(plan.topology, host=False, at_work=settings.steps)

    def use_changes(self, found: Sequence[Change]) -> None:
        """Add these changes to the plan, in place of those given before."""
        self._plan = replace(self._planned, changes=(*self._planned.changes, *found))


class LiveFleet:
    """A story from a moment on; `due` yields what has reached the hub since the last call."""

    def __init__(
        self,
        story: FleetStory,
        tick_seconds: float,
        now: datetime,
        run: str,
        switches_file: Path | None = None,
    ) -> None:
        self.story = story
        self._fleet = story.fleet()
        self._tick_seconds = tick_seconds
        self._run = run
        plan = self._fleet.plan
        calm = tuple(c for c in plan.changes if c.on is not Quantity.DELIVERY or c.name != "step")
        plan = replace(plan, changes=calm)
        self._playing = _Playing(self._fleet.settings, plan, tick_seconds)
        self._places = _nodes(plan.topology)
        self._injected = FaultReporter(self._places, run)
        self._teller = RecordReporter(self._fleet.settings, plan, tick_seconds)
        self._posting = Posting(SIMULATED_CLUSTER)
        self._looks = SwitchLooks.of(self._fleet.settings, plan, switches_file)
        self._looked = -math.inf
        self._coming: list[tuple[datetime, int, MemoryBudget]] = []
        self._count = 0
        self._next = self._tick(now)
        self._told = self._first = self._next * tick_seconds
        self._warm()

    def _tick(self, now: datetime) -> int:
        seconds = (now - self.story.origin).total_seconds()
        return math.floor(seconds / self._tick_seconds)

    def _warm(self) -> None:
        first = self._next - round(_WARM_SECONDS / self._tick_seconds)
        step = max(round(_WARM_STEP_SECONDS / self._tick_seconds), 1)
        for at in range(first, self._next, step):
            self._playing.play(np.arange(at, min(at + step, self._next)), shown=False)

    def due(self, now: datetime, faults: Sequence[InjectedFault] = ()) -> Iterator[Body]:
        """Yield the bodies whose time has come; of missed ticks only the newest is played.

        `faults` are all injected ones, cleared ones included.
        """
        yield from self._injected.bodies(now, faults)
        tick = self._tick(now)
        if tick >= self._next:
            at = self._fleet.at(tick * self._tick_seconds)
            jobs = self._fleet.plan.jobs
            self._playing.use_changes(changes(faults, self._places, self.story.origin, at, jobs))
            for arriving in self._posting.bodies(self._block(tick)):
                self._count += 1
                heapq.heappush(self._coming, (arriving.arrival, self._count, arriving))
        while self._coming and self._coming[0][0] <= now:
            body = heapq.heappop(self._coming)[2].body
            given = {*IDENTITY, "Gpuvigil-Sent-At"}  # set by this machine's spool and shipper
            headers = {name: value for name, value in body.headers.items() if name not in given}
            yield replace(body, headers=headers)

    def switches(self, now: datetime, faults: Sequence[InjectedFault] = ()) -> Iterator[Body]:
        """Yield the reports of the switches' reader, once a scan is due again."""
        seconds = (now - self.story.origin).total_seconds()
        if seconds - self._looked < LOOK_SECONDS:
            return
        self._looked = seconds
        bent = changes(faults, self._places, self.story.origin, now)
        cabling = self._fleet.plan.topology.cabling
        if cabling is not None:
            bent = [*bent, *switch_changes(faults, cabling, now)]
        self._looks.use_changes((*self._fleet.plan.changes, *bent))
        records = [switch.to_record() for switch in self._looks.look(seconds)]
        sender = Sender(cluster=SIMULATED_CLUSTER, node=READER, boot=self._run)
        for start in range(0, len(records), SWITCHES_PER_BODY):
            yield sender.records(records[start : start + SWITCHES_PER_BODY], now)

    def _block(self, tick: int) -> Block:
        """Return one tick's numbers, and all records since the last one."""
        shown = self._playing.play(np.arange(tick, tick + 1), shown=True)
        assert shown is not None
        span = self._told, (tick + 1) * self._tick_seconds
        block = self._teller.block(span, self._first, *shown, ())
        self._next, self._told = tick + 1, span[1]
        self._say(block)
        inventories = tuple(
            replace(one, boot=f"{one.boot}-{self._run}", tick_seconds=self._tick_seconds)
            for one in block.inventories
        )
        return replace(block, inventories=inventories)

    def _say(self, block: Block) -> None:
        """Log the true faults."""
        opening = block.start == self._fleet.at(self._first)
        for truth in self._fleet.truths():
            begins = block.start <= truth.start < block.end
            if begins or (opening and truth.start < block.start < truth.end):
                log.info(
                    "fault",
                    fault=truth.fault,
                    subject=truth.subject.key,
                    since=to_text(truth.start),
                    until=to_text(truth.end),
                )


def play(
    settings: SimulatorSettings,
    spool: Spool,
    clock: Clock,
    stop: threading.Event,
    faults: Callable[[], Sequence[InjectedFault]] = tuple,
    switches: Spool | None = None,
) -> None:
    """Put into the spools what the fleet's nodes, and the reader of its switches, would send, until `stop`."""
    path = settings.spool_directory / _STORY_NAME
    before = FleetStory.read(path)
    number = 0
    while not stop.is_set():
        now = clock.now()
        story = FleetStory.begin(settings, now)
        known = switches_file(settings.spool_directory, before, story)
        live = LiveFleet(story, settings.tick_seconds, now, f"{int(now.timestamp()):x}", known)
        number += 1
        log.info("simulating", nodes=settings.nodes, story=number)
        kept = held(story.fleet(), now)
        if before is not None:
            for body in _ended(before.held(), kept, now):
                spool.put(body)
        before = _tell(live, path, _Spools(spool, switches), faults, clock, stop)


def _tell(
    live: LiveFleet,
    path: Path,
    spools: "_Spools",
    faults: Callable[[], Sequence[InjectedFault]],
    clock: Clock,
    stop: threading.Event,
) -> FleetStory:
    """Play one story until it is over; return how far it was reported."""
    story = live.story
    while not stop.is_set() and not story.is_over(clock.now()):
        now = clock.now()
        for body in list(live.due(now, faults())):
            spools.nodes.put(body)
        if spools.switches is not None:
            for body in live.switches(now, faults()):
                spools.switches.put(body)
        if now - story.told_at >= timedelta(seconds=1) or story is live.story:
            story = replace(story, told_at=now)
            story.write(path)
        clock.wait(stop, _STEP_SECONDS)
    return story


@dataclass(frozen=True, slots=True)
class _Spools:
    """The spool of the nodes, and that of the switches' reader, if it may report."""

    nodes: Spool
    switches: Spool | None


def _ended(
    before: Mapping[str, Allocation], kept: Mapping[str, Allocation], now: datetime
) -> Iterator[Body]:
    """Yield the ends of allocations that an earlier program reported as held and nobody holds any more."""
    records: list[Record] = [
        replace(one, ended_at=now).to_record() for key, one in before.items() if key not in kept
    ]
    sender = Sender(cluster=SIMULATED_CLUSTER, node="sim-00000", boot="stories")
    for start in range(0, len(records), _RECORDS_PER_BODY):
        yield sender.records(records[start : start + _RECORDS_PER_BODY], now)
