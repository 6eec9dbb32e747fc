"""Nodes take turns evenly, and what is told survives the teller."""

import itertools
import json
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from collector.spool.body import Body
from gpuvigil.config import SimulatorSettings
from gpuvigil.model import Record, RecordKind
from simulator.cluster import build
from simulator.faults import InjectedFault
from simulator.player import Player, Story

NOON = datetime(2026, 5, 1, 12, tzinfo=timezone.utc)
SETTINGS = SimulatorSettings(nodes=4, tick_seconds=1.0)
LOST = InjectedFault(name="xid79", node="sim-002", gpu=5, at=NOON + timedelta(seconds=10))


def player(settings: SimulatorSettings = SETTINGS) -> Player:
    cluster = build(settings.nodes, settings.gpus_per_node, settings.seed)
    return Player(settings, cluster, NOON, "boot")


def later(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def records(bodies: Any) -> list[Record]:
    return [
        Record.from_json(json.loads(line)) for body in bodies for line in body.content.splitlines()
    ]


def node_of(body: Body) -> str:
    return body.headers["Gpuvigil-Node"]


def test_nodes_take_turns_evenly_over_the_tick() -> None:
    cluster = player()
    list(cluster.telemetry(later(10.0), ()))
    turns = []
    for step in range(1, 41):
        bodies = list(cluster.telemetry(later(10.0 + step * 0.1), ()))
        assert len(bodies) <= 1
        turns += [(node_of(body), body.at) for body in bodies]
    assert Counter(name for name, _ in turns) == {f"sim-00{i}": 4 for i in range(4)}
    assert {b - a for (_, a), (_, b) in itertools.pairwise(turns)} == {timedelta(seconds=0.25)}


def test_turns_that_were_slept_through_are_left_out() -> None:
    cluster = player()
    list(cluster.telemetry(later(10.0), ()))
    assert len(list(cluster.telemetry(later(1000.0), ()))) == 4
    assert not list(cluster.telemetry(later(900.0), ()))


def test_a_body_carries_the_headers_of_its_node() -> None:
    (body, *_) = player().telemetry(later(10.0), ())
    assert body.headers["Gpuvigil-Cluster"] == "simulated"
    assert f"node={node_of(body)}".encode() in body.content


def test_another_process_goes_on_with_the_same_numbers() -> None:
    one, other = player(), player()
    list(one.telemetry(later(5.0), ()))
    assert [b.content for b in one.telemetry(later(6.0), ())] == [
        b.content for b in other.telemetry(later(6.0), ())
    ]


def test_the_opening_tells_every_node_and_every_held_gpu() -> None:
    told = Counter(record.kind for record in records(player().opening(NOON, {})))
    assert told[RecordKind.INVENTORY] == 4
    assert told[RecordKind.ALLOCATION] == 26
    assert set(told) == {RecordKind.INVENTORY, RecordKind.ALLOCATION}


def test_a_job_that_ends_makes_room_for_the_next() -> None:
    cluster = player()
    first = build(4, 8, 1).slots[0]
    change = later(first.started_seconds(1))
    list(cluster.opening(change - timedelta(seconds=1), {}))
    told = records(cluster.jobs(change))
    ended = [record for record in told if record.body["ended_at"] is not None]
    assert (len(ended), len(told)) == (len(first.places), 2 * len(first.places))
    assert all(record.version == 2 for record in ended)
    assert not list(cluster.jobs(change + timedelta(seconds=1)))


def test_what_was_held_before_and_is_no_more_is_ended_at_the_start() -> None:
    larger = Story.begin(replace(SETTINGS, nodes=5), NOON)
    told = records(player().opening(later(60.0), larger.held()))
    ended = {record.id for record in told if record.body.get("ended_at")}
    assert ended
    assert ended == set(larger.held()) - {record.id for record in told if record.version == 1}


def test_a_story_survives_its_teller(tmp_path: Path) -> None:
    story = replace(Story.begin(SETTINGS, NOON), told_at=later(60.0))
    story.write(tmp_path / "story.json")
    assert Story.read(tmp_path / "story.json") == story
    (tmp_path / "story.json").write_text("{}")
    assert Story.read(tmp_path / "story.json") is None


def test_an_event_is_told_once_and_at_once() -> None:
    cluster = player()
    assert not list(cluster.events(later(9.9), [LOST]))
    told = records(cluster.events(later(10.1), [LOST]))
    assert [record.body["event"] for record in told] == ["xid", "gpu_lost"]
    assert not list(cluster.events(later(10.2), [LOST]))


def test_a_fault_that_is_written_late_is_not_missed() -> None:
    cluster = player()
    list(cluster.events(later(10.05), ()))
    assert len(records(cluster.events(later(10.15), [LOST]))) == 2


def test_a_simulator_that_was_away_tells_how_a_fault_ended() -> None:
    ended = replace(LOST, cleared_at=later(600.0))
    told = [record.body["event"] for record in records(player().events(later(900.0), [ended]))]
    assert told == ["xid", "gpu_lost", "gpu_back", "gpu_reset"]


def test_a_silent_node_tells_nothing_and_sends_nothing() -> None:
    silent = InjectedFault(name="node-silent", node="sim-002", at=later(5.0))
    cluster = player()
    assert not list(cluster.events(later(10.1), [LOST, silent]))
    assert "sim-002" not in {node_of(b) for b in cluster.telemetry(later(10.1), [LOST, silent])}


def test_ranks_on_other_nodes_wait_for_one_that_is_lost() -> None:
    cluster = player(SimulatorSettings(nodes=16, tick_seconds=1.0))
    lost = replace(LOST, node="sim-000")
    told = {node_of(one): one.content for one in cluster.telemetry(later(30.0), [lost])}
    spins = {name for name, content in told.items() if b"sm_activity_percent=9.0" in content}
    assert spins == {f"sim-00{number}" for number in range(4)}


def test_faults_of_a_larger_cluster_are_passed_over() -> None:
    cluster = player()
    assert not list(cluster.events(later(20.0), [replace(LOST, node="sim-009")]))


def test_what_waits_on_disk_for_all_nodes_is_shared_among_them() -> None:
    bodies = list(player().telemetry(later(10.0), (), spool_oldest_seconds=40.0, spool_bytes=4096))
    assert len(bodies) == SETTINGS.nodes
    for body in bodies:
        assert b"spool_bytes=1024i,spool_oldest_seconds=40.0" in body.content
