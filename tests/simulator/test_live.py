"""The fleet at the pace of time: what its nodes would send reaches the spool when it is due."""

import json
import re
import threading
from collections import defaultdict
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from collector.spool.body import RECORDS_PATH, Body
from collector.spool.queue import Spool
from collector.spool.subscriptions import Lane
from gpuvigil.clock import ManualClock
from gpuvigil.config import SimulatorSettings
from gpuvigil.model import Record, Switch, Unmeasured
from simulator import inject
from simulator.faults import InjectedFault, read
from simulator.fleet.steps import ReportLevel, report_level
from simulator.live import FleetStory, LiveFleet, held, nodes, play

pytestmark = pytest.mark.server

NOON = datetime(2026, 5, 1, 12, tzinfo=timezone.utc)
SETTINGS = SimulatorSettings(nodes=2, gpus_per_node=4, tick_seconds=5.0, fault_rate=0.0)


def story(now: datetime = NOON, **changes: Any) -> FleetStory:
    return replace(FleetStory.begin(SETTINGS, now), **changes)


def sent(live: LiveFleet, seconds: int, since: datetime = NOON) -> list[tuple[datetime, Body]]:
    """What is due in that time, asked for every second."""
    moments = [since + timedelta(seconds=second) for second in range(seconds)]
    return [(now, body) for now in moments for body in live.due(now)]


def times(body: Body) -> set[datetime]:
    lines = body.content.decode().splitlines()
    return {datetime.fromtimestamp(int(line.split()[-1]) / 1e9, timezone.utc) for line in lines}


def records(bodies: list[Body]) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for body in bodies
        if body.path == RECORDS_PATH
        for line in body.content.decode().splitlines()
    ]


def test_every_node_tells_its_numbers_when_they_are_due() -> None:
    live = LiveFleet(story(), 5.0, NOON, "1")
    told = defaultdict(list)
    for now, body in sent(live, 30):
        if body.path != RECORDS_PATH:
            told[body.headers["Gpuvigil-Node"]].append(body)
            assert all(timedelta(0) <= now - at < timedelta(seconds=3) for at in times(body))
            assert "Gpuvigil-Sequence" not in body.headers
    assert {node: len(bodies) for node, bodies in told.items()} == {"sim-00000": 6, "sim-00001": 6}
    first = told["sim-00000"][0].content.decode().splitlines()
    assert sum(line.startswith("gpu,") for line in first) == 4
    assert sum(line.startswith("port,") for line in first) == 6


def test_it_opens_with_what_there_is_and_who_holds_it() -> None:
    live = LiveFleet(story(), 5.0, NOON, "run")
    found = records([body for _, body in sent(live, 3)])
    inventories = [one for one in found if one["kind"] == "inventory"]
    assert len(inventories) == 2
    assert all(one["body"]["boot"].endswith("-run") for one in inventories)
    assert all(one["body"]["tick_seconds"] == 5.0 for one in inventories)
    allocations = {one["id"] for one in found if one["kind"] == "allocation"}
    assert allocations >= set(held(story().fleet(), NOON))
    teams = {(one.user, one.account) for one in held(story().fleet(), NOON).values()}
    assert all(team for _, team in teams)
    assert len({user for user, _ in teams}) == len(teams)  # a user is of one team


def test_after_a_pause_it_goes_on_now_and_nothing_told_is_lost() -> None:
    live = LiveFleet(story(), 5.0, NOON, "1")
    opened = {one["id"] for one in records([body for _, body in sent(live, 5)])}
    later = NOON + timedelta(hours=3)
    bodies = [body for _, body in sent(live, 10, later)]
    assert all(
        at >= later - timedelta(seconds=6) for b in bodies if "write" in b.path for at in times(b)
    )
    now_held = {
        one["id"]
        for one in records(bodies)
        if one["kind"] == "allocation" and one["body"]["ended_at"] is None
    }
    assert now_held | opened >= set(held(story().fleet(), later))


class ShortClock(ManualClock):
    """A clock that asks to stop after some waits of a second."""

    def __init__(self, start: datetime, waits: int) -> None:
        super().__init__(start)
        self._left = waits

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self._left -= 1
        if self._left == 0:
            stop.set()
        return super().wait(stop, 1.0)


def spooled(folder: Path, start: datetime, waits: int) -> list[Body]:
    settings = replace(SETTINGS, spool_directory=folder)
    spool = Spool(folder, 10**8)
    try:
        play(settings, spool, ShortClock(start, waits), threading.Event())
        bodies = []
        while (body := spool.next((Lane.RECORDS, Lane.LIVE, Lane.BACKLOG))) is not None:
            bodies.append(body)
            spool.done(body)
        return bodies
    finally:
        spool.close()


def test_a_new_start_ends_what_the_one_before_told_as_held(tmp_path: Path) -> None:
    first = records(spooled(tmp_path, NOON, 5))
    told = {one["id"] for one in first if one["kind"] == "allocation"}
    again = records(spooled(tmp_path, NOON + timedelta(hours=1), 5))
    ended = {
        one["id"]
        for one in again
        if one["kind"] == "allocation" and one["body"]["ended_at"] is not None
    }
    assert told
    assert told <= ended


def test_a_story_that_is_over_begins_anew(tmp_path: Path) -> None:
    before = story(NOON - timedelta(days=8), told_at=NOON - timedelta(hours=12, minutes=5))
    assert before.is_over(NOON)
    assert not story().is_over(NOON)
    before.write(tmp_path / "fleet-story.json")
    assert FleetStory.read(tmp_path / "fleet-story.json") == before
    (tmp_path / "fleet-story.json").write_text("{")
    assert FleetStory.read(tmp_path / "fleet-story.json") is None
    assert records(spooled(tmp_path, NOON, 3))


def injected(name: str, seconds: float = 0.0, **place: Any) -> InjectedFault:
    return InjectedFault(name=name, node="sim-00001", at=NOON + timedelta(seconds=seconds), **place)


def line(bodies: list[Body], measurement: str, thing: str) -> str:
    """The newest of a GPU by its UUID, of a port by its device, or of a node."""
    found = [
        one
        for body in bodies
        if body.path != RECORDS_PATH and body.headers["Gpuvigil-Node"] == "sim-00001"
        for one in body.content.decode().splitlines()
        if one.startswith(f"{measurement},") and thing in one
    ]
    return found[-1] if found else ""


def value(text: str, field: str) -> float:
    _, section, _ = re.split(r"(?<!\\) ", text)
    fields = dict(one.split("=") for one in section.split(","))
    return float(fields[field].rstrip("i"))


def played(*faults: InjectedFault, seconds: int = 40) -> list[Body]:
    live = LiveFleet(story(), 5.0, NOON, "1")
    moments = [NOON + timedelta(seconds=second) for second in range(seconds)]
    return [body for now in moments for body in live.due(now, faults)]


def test_who_begins_to_look_sees_a_slow_link_a_slow_rank_and_a_rack_within_two_minutes() -> None:
    demo = SimulatorSettings(nodes=16, fault_rate=2000.0)
    fleet = FleetStory.begin(demo, NOON).fleet()
    soon = [it for it in fleet.truths() if NOON < it.start < NOON + timedelta(minutes=2)]
    assert {"slow link", "slow rank", "power feed"} <= {it.fault for it in soon}
    link, rank, feed = (
        next(it for it in fleet.settings.faults if it.kind == kind)
        for kind in ("slow link", "slow rank", "power feed")
    )
    # The link carries a job over several nodes, and no two of the faults are in one job or rack.
    ports = range(link.node * 8, link.node * 8 + 8)
    until = link.start_seconds + link.seconds
    slowed = [
        {gpu // 8 for gpu in it.gpus}
        for it in fleet.plan.jobs
        if it.start < link.start_seconds and it.end > until and not set(ports).isdisjoint(it.gpus)
    ]
    assert any(len(those) > 1 and rank.node not in those for those in slowed)
    racks = [fleet.plan.topology.places[it.node].rack for it in (link, rank, feed)]
    assert racks[2] not in racks[:2]
    few = FleetStory.begin(replace(SETTINGS, nodes=4, fault_rate=500.0), NOON).fleet()
    assert "slow link" in {it.kind for it in few.settings.faults}
    quiet = FleetStory.begin(SETTINGS, NOON).fleet().truths()
    assert list(quiet) == []


def test_who_begins_to_look_sees_a_rank_that_its_job_waits_for_and_a_job_that_saves_much() -> None:
    begun = FleetStory.begin(SimulatorSettings(nodes=16, fault_rate=2000.0), NOON)
    fleet = begun.fleet()
    [slow] = [it for it in fleet.truths() if it.fault == "slow rank" and it.start > NOON][:1]
    assert timedelta() < slow.start - NOON < timedelta(minutes=10)
    assert not slow.hidden
    at = (NOON - fleet.settings.start).total_seconds()
    running = [it for it in fleet.plan.jobs if it.start < at and it.end > at + 3600.0]
    told = {it.workload.key for it in running if report_level(it) >= ReportLevel.PAUSES}
    assert {"saving", "even"} <= told
    lines = [
        body.content for body in LiveFleet(begun, 10.0, NOON, "1").due(NOON + timedelta(seconds=2))
    ]
    assert any(b"step_own_seconds=" in it for it in lines)


def test_it_is_injected_where_the_fleet_has_its_nodes() -> None:
    live = LiveFleet(story(), 5.0, NOON, "1")
    told = [
        one for one in records([body for _, body in sent(live, 3)]) if one["kind"] == "inventory"
    ]
    uuids = [[gpu["uuid"] for gpu in one["body"]["gpus"]] for one in told]
    assert [[gpu.uuid for gpu in node.gpus] for node in nodes(SETTINGS)] == uuids


@pytest.mark.parametrize(
    ("name", "place", "measurement", "expected"),
    [
        ("xid79", {"gpu": 2}, "gpu", {"up": 0}),
        (
            "gpu-hang",
            {"gpu": 2},
            "gpu",
            {"unmeasured_reason": Unmeasured.DRIVER_NOT_ANSWERING.value},
        ),
        ("driver-hang", {}, "gpu", {"unmeasured_reason": Unmeasured.DRIVER_NOT_ANSWERING.value}),
        ("driver-hang", {}, "node", {"driver_answering": 0, "gpus_answering": 0}),
        ("idle", {"gpu": 2}, "gpu", {"utilization_percent": 0}),
        ("heat", {"gpu": 2}, "gpu", {"temperature_celsius": 92, "clock_event_reasons": 0x48}),
        ("nvlink-errors", {"gpu": 2}, "gpu", {"nvlink_worst_link": 3}),
        ("port-down", {"device": "mlx5_0", "port": "1"}, "port", {"up": 0, "link_downed": 1}),
        (
            "port-slow",
            {"device": "mlx5_0", "port": "1"},
            "port",
            {"speed_bits_per_second": 100_000_000_000, "width_lanes": 1},
        ),
        ("hot-module", {"device": "mlx5_0", "port": "1"}, "port", {"module_celsius": 85}),
    ],
)
def test_an_injected_fault_is_read_and_a_cleared_one_no_more(
    name: str, place: dict[str, Any], measurement: str, expected: dict[str, float]
) -> None:
    place_of = {"gpu": nodes(SETTINGS)[1].gpus[2].uuid, "port": "mlx5_0", "node": ""}
    fault = injected(name, **place)
    well = line(played(), measurement, place_of[measurement])
    sick = line(played(fault), measurement, place_of[measurement])
    assert {key: value(sick, key) for key in expected} == expected
    if name != "idle":  # it may be at rest anyway
        assert well != sick
    cleared = replace(fault, cleared_at=NOON + timedelta(seconds=20))
    after = line(played(cleared), measurement, place_of[measurement])
    if measurement == "gpu":
        assert value(after, "up") == 1
        cooler = value(after, "temperature_celsius") - value(well, "temperature_celsius")
        assert abs(cooler) < 5.0


def test_counters_keep_what_an_injected_fault_has_given_them() -> None:
    uuid = nodes(SETTINGS)[1].gpus[2].uuid
    counters = {"heat": "hardware_thermal_slowdown_seconds", "nvlink-errors": "nvlink_crc_errors"}
    for name, counter in counters.items():
        fault = injected(name, gpu=2)
        before = value(line(played(seconds=60), "gpu", uuid), counter)
        at_20, at_40 = (
            value(line(played(fault, seconds=s), "gpu", uuid), counter) for s in (22, 42)
        )
        assert 15.0 <= at_20 - before <= 20.0
        assert at_40 - at_20 == pytest.approx(20.0)
        cleared = replace(fault, cleared_at=NOON + timedelta(seconds=10))
        assert value(line(played(cleared, seconds=60), "gpu", uuid), counter) - before == 10.0


def test_heat_slows_a_host_down_for_two_fifths_of_the_time_until_it_is_cleared() -> None:
    fault = injected("host-hot")
    for counter, in_20_seconds in {
        "cpu_throttled_milliseconds": 8_000,
        "cpu_throttles": 400,
    }.items():
        assert value(line(played(), "node", ""), counter) == 0
        at_20, at_40 = (
            value(line(played(fault, seconds=s), "node", ""), counter) for s in (22, 42)
        )
        assert at_40 - at_20 == in_20_seconds
        cleared = replace(fault, cleared_at=NOON + timedelta(seconds=10))
        late = value(line(played(cleared, seconds=60), "node", ""), counter)
        assert late == in_20_seconds / 2


def test_what_an_injected_fault_does_is_told_once_and_by_a_silent_node_never() -> None:
    told = [one for one in records(played(injected("xid79", 5.0, gpu=2))) if one["kind"] == "event"]
    assert {one["id"].rsplit(":", 2)[1] for one in told} == {"xid", "gpu_lost"}
    assert len({one["id"] for one in told}) == len(told) == 2
    silent = [injected("node-silent"), injected("xid48", 5.0, gpu=1)]
    bodies = played(*silent)
    assert [one for one in records(bodies) if one["kind"] == "event"] == []
    assert line(bodies, "node", "") == ""


def test_a_fault_of_a_node_that_is_not_there_is_passed_over() -> None:
    fault = replace(injected("xid79", gpu=2), node="sim-00007")
    assert records(played(fault)) == records(played())


def test_inject_names_the_nodes_of_the_fleet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gpuvigil.toml"
    file.write_text('[simulator]\nnodes = 2\nfleet = true\nfaults_file = "faults.json"\n')
    words = ["--gpu", "1", "--config", str(file)]
    assert inject.main(["xid79", "--node", "sim-000", *words]) == 2
    assert "there are sim-00000 to sim-00001" in capsys.readouterr().err
    assert inject.main(["idle", "--node", "sim-00001", *words]) == 0
    (fault,) = read(tmp_path / "faults.json")
    assert (fault.node, fault.gpu) == ("sim-00001", 1)
    assert "nobody holds" not in capsys.readouterr().out


def switches(live: LiveFleet, seconds: int, *faults: InjectedFault) -> dict[str, Switch]:
    """The last word of each in that time, asked for every second."""
    moments = (NOON + timedelta(seconds=second) for second in range(seconds))
    bodies = [body for now in moments for body in live.switches(now, faults)]
    told = (Switch.from_record(Record.from_json(it)) for it in records(bodies))
    return {switch.subject.node: switch for switch in told}


@pytest.mark.parametrize(
    ("name", "device", "wrong"),
    [
        ("uplink-slow", "mlx5_1", {"leaf-01-1", "spine-1"}),
        ("port-down", "mlx5_1", {"leaf-01-1"}),
        ("spine-down", "mlx5_0", {"spine-4", *(f"leaf-01-{rail}" for rail in range(4))}),
        ("leaf-down", "mlx5_0", {"leaf-01-0", *(f"spine-{number}" for number in range(1, 5))}),
    ],
)
def test_the_fleets_switches_are_read_and_injected_faults_show_there(
    name: str, device: str, wrong: set[str]
) -> None:
    at = NOON + timedelta(seconds=30)
    fault = InjectedFault(name=name, node="sim-00000", device=device, port="1", at=at)
    found = switches(LiveFleet(story(), 5.0, NOON, "1"), 100, fault)
    assert len(found) == 8
    odd = {
        node
        for node, it in found.items()
        if it.lost_at is not None
        or any(not p.up or p.bits_per_second != p.best_bits_per_second for p in it.ports)
    }
    assert odd == wrong


def test_after_a_restart_a_cable_that_is_slow_is_known_to_have_been_faster(
    tmp_path: Path,
) -> None:
    """Its link said 100 Gbit/s and nothing else, and its incident ended."""
    file = tmp_path / "switches.jsonl"
    fault = InjectedFault(name="uplink-slow", node="sim-00000", device="mlx5_0", port="1", at=NOON)
    switches(LiveFleet(story(), 5.0, NOON, "1", file), 1)  # before the fault
    found = switches(LiveFleet(story(), 5.0, NOON, "2", file), 1, fault)
    (slow,) = [
        port
        for port in found["leaf-01-0"].ports
        if port.bits_per_second != port.best_bits_per_second
    ]
    assert (slow.bits_per_second, slow.best_bits_per_second) == (10**11, 4 * 10**11)


@pytest.mark.parametrize("name", ["xid79", "xid48", "gpu-hang"])
def test_the_other_ranks_of_a_training_spin_while_one_of_them_cannot_work(name: str) -> None:
    begun = FleetStory.begin(SimulatorSettings(nodes=16, tick_seconds=5.0, fault_rate=0.0), NOON)
    fleet, at = begun.fleet(), (NOON - begun.origin).total_seconds()
    job = next(
        it
        for it in fleet.plan.jobs
        if it.start < at - 3600.0 and it.end > at + 3600.0 and report_level(it) is ReportLevel.OWN
    )
    node, gpu = divmod(job.gpus[0], 8)
    fault = InjectedFault(name=name, node=f"sim-{node:05d}", gpu=gpu, at=NOON)
    other = fleet.plan.topology.gpu_subject(job.gpus[1])

    def steps(*faults: InjectedFault) -> list[tuple[float, float]]:
        live = LiveFleet(begun, 5.0, NOON, "1")
        lines = [
            one
            for second in range(90)
            for body in live.due(NOON + timedelta(seconds=second), faults)
            if body.path != RECORDS_PATH
            for one in body.content.decode().splitlines()
            if one.startswith("gpu,") and str(other.gpu) in one
        ]
        return [(value(it, "step"), value(it, "utilization_percent")) for it in lines]

    made, used = zip(*steps(fault)[-6:], strict=True)
    assert len(set(made)) == 1
    assert set(used) == {100.0}
    well, _ = zip(*steps()[-6:], strict=True)
    assert max(well) > max(made)
    cleared = replace(fault, cleared_at=NOON + timedelta(seconds=20))
    again, _ = zip(*steps(cleared)[-6:], strict=True)
    assert len(set(again)) > 1
