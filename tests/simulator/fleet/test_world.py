"""A fleet like the world: uneven, with holes, rarely faulty at any time, and its names say nothing."""

import math
from dataclasses import replace
from datetime import timedelta
from functools import cache
from statistics import NormalDist, fmean
from typing import Any

import numpy as np
import pytest

from gpuvigil.model import EventKind
from simulator.fleet import Fleet, FleetSettings, Truth, build
from simulator.fleet.kinds import KINDS
from simulator.fleet.model import FaultOrder, WorldSettings
from simulator.fleet.random_faults import LENGTHS, WINDOW_SECONDS
from simulator.fleet.records import RecordReporter
from simulator.fleet.sensors import SORTS
from simulator.fleet.topology import Topology
from simulator.fleet.workloads import WORKLOADS
from simulator.fleet.world import MIX, UTILIZATION_OF_PHILLY, WEIGHTS, world
from simulator.fleet.world_life import LOOK_ALIKES
from tests.simulator.fleet import runs

pytestmark = pytest.mark.slow

SETTINGS = world(3, nodes=48, days=0.25, faults_per_1000_node_days=200.0)
# So many nodes that a share of them lies near what was asked for.
MANY = world(5, nodes=1200, days=1.0)
CALM = WorldSettings(
    presence=(1.0, 1.0), bursty=0.0, busy_hub=0.0, no_memory_utilization=0.0, no_clocks=0.0,
    scheduler_read=0.0, no_profiling=0.0, no_error_counters=0.0, no_events=0.0, look_alikes=0.0, maintenance=0.0,
    driver_rollouts=0.0,
)  # fmt: skip


@cache
def truths(seed: int, rate: float = 80.0, nodes: int = 96, days: float = 2.0) -> tuple[Truth, ...]:
    return tuple(
        build(world(seed, nodes=nodes, days=days, faults_per_1000_node_days=rate)).truths()
    )


def share_of_windows(fleet: Fleet) -> float:
    """Of all nodes' quarter hours, those that a fault's own machines spend with it."""
    settings = fleet.settings
    touched = set()
    for truth in fleet.truths():
        machines = {truth.subject.of_node()}
        if truth.group is not None:
            machines |= {subject.of_node() for subject in truth.affected}
        first = (truth.start - settings.start).total_seconds() // WINDOW_SECONDS
        last = math.ceil((truth.end - settings.start).total_seconds() / WINDOW_SECONDS)
        touched |= {(node, window) for node in machines for window in range(int(first), last)}
    return len(touched) / (settings.nodes * settings.days * 96)


def column(field: str, measurement: str = "gpu") -> tuple[Any, Any]:
    """Nodes and values of all rows."""
    table = runs.whole(runs.played(SETTINGS, 10.0), measurement)
    return table["node"].to_numpy(zero_copy_only=False), table[field]


def test_the_same_seed_has_the_same_bytes_however_it_is_cut() -> None:
    small = world(9, nodes=6, days=0.125, faults_per_1000_node_days=2000.0)
    once = runs.digest(build(small).blocks(tick_seconds=30.0))
    again = list(build(small).blocks(tick_seconds=30.0, block_seconds=1800.0))
    for measurement in ("gpu", "port", "node"):
        whole = runs.whole(runs.played(small, 30.0), measurement)
        assert runs.whole(again, measurement).equals(whole)
    assert runs.digest(build(small).blocks(tick_seconds=30.0)) == once
    assert runs.digest(build(replace(small, seed=10)).blocks(tick_seconds=30.0)) != once


def test_a_cloud_says_in_the_order_of_time_which_nodes_it_takes_back() -> None:
    fleet = build(FleetSettings(seed=880401, nodes=60, days=1.0))
    block = RecordReporter(fleet.settings, fleet.plan).block((0.0, 86_400.0), 0.0, {}, {}, ())
    times = [said.at for said in block.schedulers]
    assert len(times) > 4
    assert times == sorted(times)


def test_collectors_say_how_often_nodes_are_read() -> None:
    fleet = build(world(9, nodes=6, days=1 / 48))
    share = fleet.plan.topology.read_share
    for tick_seconds in (10.0, 60.0):
        (block,) = fleet.blocks(tick_seconds=tick_seconds)
        said = {it.subject: it.tick_seconds for it in block.inventories}
        found = [said[fleet.plan.topology.node_subject(node)] for node in range(6)]
        assert found == pytest.approx((tick_seconds / share).tolist(), abs=0.05)


@pytest.mark.parametrize(("rate", "seed"), [(6.5, 1), (80.0, 2), (80.0, 3), (400.0, 4)])
def test_faults_touch_at_most_a_hundredth_of_the_windows(rate: float, seed: int) -> None:
    fleet = build(world(seed, nodes=96, days=2.0, faults_per_1000_node_days=rate))
    assert share_of_windows(fleet) <= 0.01
    if rate == 80.0:
        assert len(fleet.truths()) >= 0.5 * rate * 96 * 2.0 / 1000.0


def test_a_larger_share_may_be_asked_for() -> None:
    open_ended = WorldSettings(faulty_share=1.0)
    fleet = build(
        world(2, nodes=96, days=2.0, faults_per_1000_node_days=400.0, settings=open_ended)
    )
    assert share_of_windows(fleet) > 0.02


def test_faults_begin_at_any_time() -> None:
    begins = sorted(
        (truth.start - MANY.start).total_seconds() / 172_800.0
        for seed in range(40, 52)
        for truth in truths(seed)
    )
    assert len(begins) > 90
    # Kolmogorov-Smirnov against an even spread, at a level of one in a thousand.
    off = max(abs((i + 0.5) / len(begins) - at) for i, at in enumerate(begins))
    assert off < 1.95 / math.sqrt(len(begins))


@cache
def ordered() -> tuple[Truth, ...]:
    """Forty of each kind that has magnitudes, in one fleet."""
    sized = [kind for kind, it in KINDS.items() if it.sizes and not it.discrete]
    orders = tuple(
        FaultOrder(kind=kind, node=node, start_seconds=60.0 * node, seconds=600.0, gpu=1, port=1)
        for kind in sized
        for node in range(40)
    )
    settings = world(7, nodes=40, days=0.125, faults_per_1000_node_days=0.0, settings=CALM)
    return tuple(build(replace(settings, life=False, faults=orders)).truths())


@pytest.mark.parametrize("kind", [k for k, it in KINDS.items() if it.sizes and not it.discrete])
def test_magnitudes_cover_their_range(kind: str) -> None:
    low, high = KINDS[kind].sizes
    found = [t.magnitude for t in ordered() if t.fault == kind and t.magnitude is not None]
    assert len(found) == 40
    assert all(low <= size <= high for size in found)
    place = [math.log(size / low) / math.log(high / low) for size in found]
    assert min(place) < 0.25
    assert max(place) > 0.85


@pytest.mark.parametrize(
    ("target", "mean", "median"), [("gpu", 342, 64), ("node", 342, 64), ("port", 247, 70)]
)
def test_lengths_are_log_normal_with_the_spread_of_real_repairs(
    target: str, mean: float, median: float
) -> None:
    spread = math.sqrt(2.0 * math.log(mean / median))
    for share, multiple in LENGTHS[target][1:-1]:
        assert multiple == pytest.approx(
            math.exp(spread * NormalDist().inv_cdf(share)), abs=2e-4, rel=1e-3
        )


def test_both_faults_that_name_themselves_and_others_happen() -> None:
    kinds = {truth.fault for seed in range(40, 52) for truth in truths(seed)}
    assert {"congestion", "slow GPU"} & kinds
    assert {"off the bus", "ECC contained", "GSP hang", "SRAM threshold"} & kinds
    assert len(kinds) > 0.6 * len(KINDS)
    assert {kind for kind, _ in WEIGHTS} == set(KINDS)


def test_names_do_not_tell_which_nodes_are_faulty() -> None:
    topology = Topology(MANY)
    names = [place.name for place in topology.places]
    assert len(set(names)) == len(names)
    rank = {name: i for i, name in enumerate(sorted(names))}
    order = np.array([rank[name] for name in names], dtype=float)
    # No order of the plan shows in the names: what a shuffle has, within four deviations.
    correlation = np.corrcoef(order, np.arange(len(names)))[0, 1]
    assert abs(correlation) < 4.0 / math.sqrt(len(names))
    places = [
        (names_of(seed).index(t.subject.node) + 0.5) / 96
        for seed in range(40, 52)
        for t in truths(seed)
    ]
    assert abs(fmean(places) - 0.5) < 4.0 / math.sqrt(12.0 * len(places))
    racks = {topology.rack_name(place.rack) for place in topology.places}
    assert len(racks) == topology.places[-1].rack + 1


def names_of(seed: int) -> list[str]:
    return sorted(place.name for place in Topology(world(seed, nodes=96, days=2.0)).places)


def test_nodes_of_one_model_differ() -> None:
    topology = Topology(MANY)
    slots = topology.slots.reshape(-1, 8)
    assert len({tuple(row) for row in slots.tolist()}) > 1000
    assert (np.sort(slots, axis=1) == np.arange(8)).all()
    heatsink = topology.heatsink.reshape(-1, 8)
    assert heatsink.min() > 0.85
    assert heatsink.max() < 1.15
    assert np.median(heatsink.max(axis=1) - heatsink.min(axis=1)) > 0.15
    # Air of a GPU in front reaches the one behind it, wherever their indices are.
    ahead = topology.slots[topology.upstream]
    assert (ahead == topology.slots % 4).all()
    assert len({i.vbios for n in range(200) for i in topology.gpu_identities(n)}) == 2
    assert len({i.pci_address for n in range(50) for i in topology.gpu_identities(n)}) > 8
    inlet = topology.inlet()
    assert inlet.min() < 19.0
    assert inlet.max() > 26.0


def test_a_node_is_there_as_often_as_it_should() -> None:
    topology = runs.planned(SETTINGS).plan.topology
    nodes, _ = column("load_average", "node")
    ticks = SETTINGS.days * 8640
    found = np.array([(nodes == place.name).sum() / ticks for place in topology.places])
    assert topology.presence.min() >= 0.3
    assert found.min() < 0.5
    assert found.max() > 0.97
    # Nodes that reboot or come and go are there more rarely than their collector alone makes them.
    assert np.median(np.abs(found - topology.presence)) < 0.02
    assert 0.25 < np.mean(Topology(MANY).presence < 0.75) < 0.5


def test_a_node_that_is_rarely_there_is_seldom_away_for_long() -> None:
    """What is missing is mostly what nobody asked for: scrapers come every 10 to 60 s."""
    settings = world(3, nodes=24, days=0.25, settings=replace(CALM, presence=(0.3, 0.3)))
    table = runs.whole(runs.played(replace(settings, life=False, fault_rate=0.0), 10.0), "node")
    nodes = table["node"].to_numpy(zero_copy_only=False)
    at = table["at"].to_numpy()
    apart = [np.diff(np.sort(at[nodes == name])).astype(float) / 1e6 for name in set(nodes)]
    found = np.concatenate(apart)
    assert 25.0 < np.median(found) < 45.0
    gaps = found[found > 60.0]
    assert gaps.size
    assert gaps.sum() < 0.1 * found.sum()
    # Longer than five minutes: less than once a node-day.
    assert (found > 300.0).sum() < 24 * 0.25


def test_some_collectors_send_minutes_at_once() -> None:
    topology = runs.planned(SETTINGS).plan.topology
    bursty = topology.nodes_with(0.1, "bursty")
    blocks = runs.played(SETTINGS, 10.0)
    nodes, at = column("at", "node")
    arrived = np.concatenate([b.arrivals["node"].to_numpy(zero_copy_only=False) for b in blocks])
    late = (arrived - at.to_numpy()).astype("timedelta64[ms]").astype(float) / 1000.0
    for place in topology.places:
        usual = np.median(late[nodes == place.name])
        assert (usual > 15.0) == bool(bursty[place.number]), place
    assert 0.07 < np.mean(Topology(MANY).nodes_with(0.1, "bursty")) < 0.13


def test_a_busy_hub_keeps_many_nodes_waiting_at_once() -> None:
    busy = replace(CALM, busy_hub=24.0)
    settings = world(3, nodes=40, days=0.25, faults_per_1000_node_days=0.0, settings=busy)
    fleet = runs.planned(settings)
    turns = [h for h in fleet.happenings() if h.kind == "busy hub"]
    assert turns
    table = runs.whole(runs.played(settings, 10.0), "node")
    blocks = runs.played(settings, 10.0)
    arrived = np.concatenate([b.arrivals["node"].to_numpy(zero_copy_only=False) for b in blocks])
    at = table["at"].to_numpy()
    turn = turns[0]
    begin, end = (np.datetime64(t.replace(tzinfo=None)) for t in (turn.start, turn.end))
    waiting = (at >= begin) & (at < end) & (arrived >= end)
    names = set(table["node"].to_numpy(zero_copy_only=False)[waiting])
    assert len(names) > 0.3 * settings.nodes


@pytest.mark.parametrize(
    ("sort", "share"),
    [("memory utilization", 0.2), ("clocks", 0.15), ("profiling", 0.4), ("error counters", 0.1),
     ("host", 0.4)],
)  # fmt: skip
def test_columns_are_missing_on_about_as_many_nodes_as_they_should(sort: str, share: float) -> None:
    assert abs(np.mean(Topology(MANY).unread[sort]) - share) < 4.0 * math.sqrt(0.25 / MANY.nodes)
    topology = runs.planned(SETTINGS).plan.topology
    measurement = "node" if sort == "host" else "gpu"
    names = np.array([place.name for place in topology.places])
    absent = set(names[topology.unread[sort]])
    played = runs.whole(runs.played(SETTINGS, 10.0), measurement)
    there = [field for field in sorted(SORTS[sort]) if field in played.column_names]
    assert there
    for field in there[:3]:
        nodes, values = column(field, measurement)
        has = set(nodes[values.is_valid().to_numpy(zero_copy_only=False)])
        assert not absent & has, field
        if field != "nvlink_worst_link":
            assert len(has) == len(names) - len(absent), field


def test_some_nodes_tell_numbers_without_events_and_others_events_without_counters() -> None:
    topology = Topology(MANY)
    assert abs(np.mean(topology.silent_log) - 0.1) < 0.035
    quiet = replace(CALM, no_events=0.5)
    kinds = ("off the bus",)
    settings = replace(
        world(4, nodes=40, days=0.5, faults_per_1000_node_days=1000.0, kinds=kinds, settings=quiet),
        world=replace(quiet, faulty_share=1.0),
    )
    fleet = runs.planned(settings)
    events = [e for b in runs.played(settings) for e in b.events]
    told = {e.subject.node for e in events if e.kind not in {EventKind.BOOT, EventKind.SHUTDOWN}}
    silent = {
        p.name for p in fleet.plan.topology.places if fleet.plan.topology.silent_log[p.number]
    }
    faulty = {truth.subject.node for truth in fleet.truths()}
    assert faulty & silent
    assert faulty - silent
    assert not told & silent
    assert faulty - silent <= told


@pytest.mark.parametrize(("share", "names"), [(0.0, ()), (1.0, ("gpu_slow",))])
def test_a_gpu_whose_clocks_nobody_reads_is_just_slow(share: float, names: tuple[str, ...]) -> None:
    unread = replace(CALM, no_clocks=share)
    order = FaultOrder(kind="stuck clocks", node=1, gpu=2, start_seconds=600.0, seconds=7200.0)
    settings = replace(
        world(4, nodes=4, days=0.125, faults_per_1000_node_days=0.0, settings=unread),
        faults=(order, replace(order, kind="slow GPU", node=2)),
    )
    assert [truth.named_by for truth in build(settings).truths()] == [names, ()]


def test_a_collector_tells_of_boots_without_a_kernel_log() -> None:
    quiet = replace(CALM, no_events=1.0)
    order = FaultOrder(kind="dead node", node=1, start_seconds=600.0, seconds=1200.0)
    settings = replace(
        world(4, nodes=4, days=0.05, faults_per_1000_node_days=0.0, settings=quiet), faults=(order,)
    )
    boots = [e for b in runs.played(settings) for e in b.events if e.kind is EventKind.BOOT]
    (truth,) = runs.planned(settings).truths()
    assert [(it.subject, it.at) for it in boots] == [(truth.subject, truth.end)]


@pytest.mark.parametrize(
    ("kind", "heard"), [("dead node", False), ("dead collector", True), ("cut off", True)]
)
def test_a_scheduler_that_is_read_does_not_hear_a_dead_node(kind: str, heard: bool) -> None:
    orders = (
        FaultOrder(kind=kind, node=1, start_seconds=600.0, seconds=1200.0),
        FaultOrder(
            kind=kind, node=2, start_seconds=600.0, seconds=240.0
        ),  # over before it is missed
    )
    quiet = world(4, nodes=4, days=0.05, faults_per_1000_node_days=0.0, settings=CALM)
    unread = replace(quiet, faults=orders)
    settings = replace(unread, world=replace(CALM, scheduler_read=1.0))
    dead = build(settings).plan.topology.node_subject(1).node
    assert not [said for b in runs.played(unread) for said in b.schedulers]
    looks = [said for b in runs.played(settings) for said in b.schedulers]
    assert [said.at for said in looks] == sorted(said.at for said in looks)
    missed = [(said.at - settings.start).total_seconds() for said in looks if said.nodes]
    assert {node.name for said in looks for node in said.nodes or ()} == (
        set() if heard else {dead}
    )
    assert not missed if heard else (900.0 <= missed[0] < 960.0 and missed[-1] < 1860.0)
    assert {node.states for said in looks for node in said.nodes or ()} <= {
        ("DOWN", "NOT_RESPONDING")
    }


@pytest.mark.parametrize(("hours", "late"), [(0.0, True), (2.0, False)])
def test_no_fault_reaches_a_quiet_end(hours: float, late: bool) -> None:
    often = replace(CALM, faulty_share=1.0, quiet_end_hours=hours)
    kinds = ("off the bus", "dead node")
    fleet = build(
        world(2, nodes=96, days=0.5, faults_per_1000_node_days=4000.0, kinds=kinds, settings=often)
    )
    last = max(truth.end for truth in fleet.truths())
    assert (last > fleet.settings.end - timedelta(hours=2)) is late


def test_the_fleet_s_end_leaves_an_hour_of_each_fault_that_lasts_longer() -> None:
    often = replace(CALM, faulty_share=1.0, quiet_end_hours=1.0)
    kinds = ("stuck clocks", "slow GPU")
    settings = world(
        5, nodes=48, days=1.0, faults_per_1000_node_days=4000.0, kinds=kinds, settings=often
    )
    fleet = build(settings)
    last = fleet.settings.end - timedelta(hours=1)
    cut = [truth.end - truth.start for truth in fleet.truths() if truth.end == last]
    assert len(cut) > 10
    assert min(cut) >= timedelta(hours=1)


@pytest.mark.parametrize(("kind", "seen"), [("InfoROM", False), ("off the bus", True)])
def test_nobody_is_asked_to_find_what_is_not_told(kind: str, seen: bool) -> None:
    mute = replace(CALM, no_events=1.0)
    order = FaultOrder(kind=kind, node=1, gpu=2, start_seconds=600.0, seconds=7200.0)
    settings = replace(
        world(4, nodes=4, days=0.125, faults_per_1000_node_days=0.0, settings=mute), faults=(order,)
    )
    (truth,) = build(settings).truths()
    assert truth.hidden is not seen
    loud = replace(settings, world=CALM)
    assert not build(loud).truths()[0].hidden


def test_utilisation_is_spread_as_on_a_shared_cluster() -> None:
    read: list[int] = []
    for seed in (1, 2, 3, 4, 21, 22):
        fleet = build(world(seed, nodes=48, days=1.0))
        for block in fleet.blocks(tick_seconds=1800.0, block_seconds=7200.0):
            read += block.tables["gpu"]["utilization_percent"].drop_null().to_pylist()
    values = np.array(read)
    assert {name for name, _ in MIX} <= set(WORKLOADS)
    for percent, share in UTILIZATION_OF_PHILLY:
        assert abs(np.mean(values <= percent) - share) < 0.1, percent
    assert 0.2 < np.mean((values >= 5) & (values <= 60)) < 0.38


def test_services_that_scale_are_more_by_day() -> None:
    jobs = build(world(2, nodes=200, days=2.0, demand=0.6)).plan.jobs
    begun = [
        j.start % 86_400.0 / 3600.0
        for j in jobs
        if j.workload.key == "autoscaled inference" and j.start > 0.0
    ]
    day, night = (sum(low <= at < low + 8 for at in begun) for low in (11, 0))
    assert day > 1.5 * night


def test_planned_work_is_announced_and_drivers_reach_all() -> None:
    often = WorldSettings(maintenance=60.0, driver_rollouts=10.0, look_alikes=0.0, no_events=0.0)
    fleet = runs.planned(
        world(6, nodes=24, days=6.0, faults_per_1000_node_days=0.0, settings=often)
    )
    turns = [
        turn
        for turn in fleet.plan.life.life_events
        if turn.kind in {"maintenance", "driver upgrade"}
    ]
    assert {turn.kind for turn in turns} == {"maintenance", "driver upgrade"}
    words = {
        (t.subject[1], t.at) for t in fleet.plan.planned_events if t.kind is EventKind.SHUTDOWN
    }
    for turn in turns:
        assert (turn.subject[1], turn.start - 1.0) in words
    drivers: dict[int, list[str]] = {}
    for one in fleet.plan.life.restated:
        if one.driver is not None:
            drivers.setdefault(one.node, []).append(one.driver)
    first = min(drivers.values(), key=len)
    assert len(drivers) == 24
    assert first[0] != "580.95.05"


def test_every_look_alike_happens_and_is_no_fault() -> None:
    settings = world(
        8,
        nodes=120,
        days=4.0,
        settings=WorldSettings(look_alikes=4.0),
        faults_per_1000_node_days=0.0,
    )
    fleet = build(settings)
    assert not fleet.truths()
    kinds = {happening.kind for happening in fleet.happenings()}
    assert {*LOOK_ALIKES, "slow job", "busy hub"} <= kinds
    for name, it in LOOK_ALIKES.items():
        assert set(it.like) <= set(KINDS), name


def test_a_calm_world_has_every_sample() -> None:
    settings: FleetSettings = replace(
        world(3, nodes=4, days=0.05, faults_per_1000_node_days=0.0, settings=CALM), life=False
    )
    table = runs.whole(runs.played(settings), "node")
    assert table.num_rows == 4 * 72
