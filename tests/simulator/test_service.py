"""The simulator's loop puts into the spool what its nodes would send, and survives a bad file."""

import json
import subprocess
import sys
import threading
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path

import pytest

from collector.spool.body import Body
from collector.spool.queue import Spool
from collector.spool.subscriptions import Lane
from gpuvigil.clock import ManualClock
from gpuvigil.config import Config, load
from simulator import inject
from simulator.service import play

NOON = datetime(2026, 5, 1, 12, tzinfo=timezone.utc)


class ShortClock(ManualClock):
    """A clock that asks to stop after some waits, with something to do after each."""

    def __init__(self, start: datetime, waits: int) -> None:
        super().__init__(start)
        self._left = waits

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self._left -= 1
        if self._left == 0:
            stop.set()
        return super().wait(stop, seconds)


def config_in(folder: Path, nodes: int = 2) -> Config:
    path = folder / "gpuvigil.toml"
    path.write_text(
        f"[simulator]\nnodes = {nodes}\nfaults_file = 'faults.json'\nspool_directory = 'spool'\n"
    )
    return load(path, {})


def played(config: Config, waits: int, start: datetime = NOON) -> list[Body]:
    """What lies in the spool after that many steps of 0.1 s."""
    spool = Spool(config.simulator.spool_directory, 10**8)
    try:
        play(config, spool, ShortClock(start, waits), threading.Event())
        bodies = []
        while (body := spool.next((Lane.RECORDS, Lane.LIVE, Lane.BACKLOG))) is not None:
            bodies.append(body)
            spool.done(body)
        return bodies
    finally:
        spool.close()


def kinds(bodies: list[Body]) -> Counter[str]:
    lines = [
        line for body in bodies if "records" in body.path for line in body.content.split(b"\n")
    ]
    return Counter(json.loads(line)["kind"] for line in lines)


def test_ten_seconds_are_ten_bodies_of_every_node(tmp_path: Path) -> None:
    bodies = played(config_in(tmp_path), 101)
    telemetry = Counter(b.headers["Gpuvigil-Node"] for b in bodies if "write" in b.path)
    assert set(telemetry) == {"sim-000", "sim-001"}
    assert all(10 <= count <= 12 for count in telemetry.values())
    assert kinds(bodies)["inventory"] == 2


def test_a_second_life_goes_on_with_the_first_ones_time(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    story = config.simulator.spool_directory / "story.json"
    played(config, 5)
    origin = json.loads(story.read_text())["origin"]
    played(config, 5, NOON.replace(hour=13))
    again = json.loads(story.read_text())
    assert again["origin"] == origin
    assert again["told_at"] > origin


def test_an_injected_fault_becomes_events(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    given = [
        "xid79",
        "--node",
        "sim-001",
        "--gpu",
        "5",
        "--config",
        str(tmp_path / "gpuvigil.toml"),
    ]
    assert inject.main(given) == 0
    now = datetime.now(timezone.utc)  # the fault is dated by the machine's own clock
    assert kinds(played(config, 3, now))["event"] == 2


def test_a_broken_faults_file_does_not_stop_the_cluster(tmp_path: Path) -> None:
    (tmp_path / "faults.json").write_text("not JSON")
    bodies = played(config_in(tmp_path), 21)
    assert sum("write" in body.path for body in bodies) >= 4


def test_a_faults_file_that_cannot_be_reached_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_in(tmp_path)
    (tmp_path / "faults.json").symlink_to("faults.json")
    assert len(played(config, 21)) > 4
    assert caplog.text.count("faults file cannot be read") == 1


@pytest.mark.medium
@pytest.mark.parametrize(
    ("settings", "said"),
    [("", "simulator.nodes is 0"), ("[simulator]\nnodes = 1\n", "hub.collector_token_file")],
)
def test_what_is_missing_is_one_line_and_exit_code_2(
    tmp_path: Path, settings: str, said: str
) -> None:
    (tmp_path / "gpuvigil.toml").write_text(settings)
    command = [sys.executable, "-m", "gpuvigil", "simulate"]
    ended = subprocess.run(
        [*command, "--config", str(tmp_path / "gpuvigil.toml")],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert said in line


def test_what_switches_are_seen_to_do_lies_apart_since_no_collector_may_tell_it(
    tmp_path: Path,
) -> None:
    config = config_in(tmp_path)
    directory = config.simulator.spool_directory
    spools = [Spool(it, 10**8) for it in (directory, directory / "switches")]
    try:
        play(config, spools[0], ShortClock(NOON, 150), threading.Event(), spools[1])
        told = [spool.next((Lane.RECORDS,)) for spool in spools]
        kinds = [
            {json.loads(line)["kind"] for line in body.content.splitlines()}
            for body in told
            if body is not None
        ]
    finally:
        for spool in spools:
            spool.close()
    assert "switch" not in kinds[0]
    assert kinds[1] == {"switch"}
