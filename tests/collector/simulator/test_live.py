"""The fleet at the pace of time: what its nodes would send reaches the spool when it is due."""

import json
import threading
from collections import defaultdict
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from collector.body import RECORDS_PATH, Body
from collector.lanes import Lane
from collector.simulator import inject
from collector.simulator.live import LiveFleet, Story, held, play
from collector.spool import Spool
from gpuvigil.clock import ManualClock
from gpuvigil.config import SimulatorSettings

NOON = datetime(2026, 5, 1, 12, tzinfo=timezone.utc)
SETTINGS = SimulatorSettings(nodes=2, gpus_per_node=4, tick_seconds=5.0, fault_rate=0.0)


def story(now: datetime = NOON, **changes: Any) -> Story:
    return replace(Story.begin(SETTINGS, now), **changes)


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
    assert Story.read(tmp_path / "fleet-story.json") == before
    (tmp_path / "fleet-story.json").write_text("{")
    assert Story.read(tmp_path / "fleet-story.json") is None
    assert records(spooled(tmp_path, NOON, 3))


def test_faults_cannot_be_injected_into_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:

    file = tmp_path / "gpuvigil.toml"
    file.write_text("[simulator]\nnodes = 2\nfleet = true\n")
    assert inject.main(["xid79", "--node", "sim-000", "--gpu", "1", "--config", str(file)]) == 2
    assert "plays faults of its own" in capsys.readouterr().err
