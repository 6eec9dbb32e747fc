"""How often Slurm is asked, and what is told of it."""

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.clock import ManualClock
from gpuvigil.model import Job, Record, RecordKind, Scheduler, Subject
from integrations.slurm.client import AskingError, Slurm
from integrations.slurm.pace import Pace
from integrations.slurm.watch import Watch

OUTPUTS = Path(__file__).with_name("outputs")
TOLD_BY = Subject(cluster="c", node="login")
NOON = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)


@given(st.lists(st.tuples(st.floats(0, 30), st.booleans()), max_size=60), st.integers(3, 9))
def test_whatever_fails_no_minute_has_more_requests_than_agreed(
    rounds: list[tuple[float, bool]], most: int
) -> None:
    pace, now, asked = Pace(5.0, most), 0.0, []
    for late, answered in rounds:
        now += pace.wait_seconds(now) + late
        pace.begin(now)
        for _ in range(3):
            if pace.may_ask(now):
                asked.append(now)
        pace.end(answered=answered)
    for begin in asked:
        assert sum(begin <= at < begin + 60 for at in asked) <= most


def test_a_controller_that_is_away_is_asked_ever_less_and_then_as_before() -> None:
    pace = Pace(60.0, 6)
    pauses = []
    for answered in (False, False, False, False, False, False, True):
        pace.begin(0.0)
        pace.end(answered=answered)
        pauses.append(pace.wait_seconds(0.0))
    assert pauses == [120, 240, 480, 900, 900, 900, 60]


def program(directory: Path, name: str, text: str) -> None:
    file = directory / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def slurm(directory: Path, timeout_seconds: float = 60.0) -> Slurm:
    return Slurm(TOLD_BY, Pace(5.0, 100), lambda: 0.0, timeout_seconds, str(directory))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1",
            "Unable to contact",
        ),
        ("echo 'squeue: error: no controller' >&2; exit 0", "no controller"),
        ("echo '{\"jobs\": [' ; exit 0", "cannot be read"),
        ("sleep 60", "did not answer within 0.2 s"),
    ],
)
def test_what_is_no_answer_says_why(tmp_path: Path, text: str, why: str) -> None:
    program(tmp_path, "squeue", text)
    with pytest.raises(AskingError, match=why):
        slurm(tmp_path, 0.2 if "sleep" in text else 60.0).jobs(NOON)
    with pytest.raises(AskingError, match=r"set slurm\.directory"):
        slurm(tmp_path / "nowhere").jobs(NOON)


def test_json_that_was_away_once_is_asked_for_again(tmp_path: Path) -> None:
    away = "case $* in *--json*) echo 'data_parser plugin not loaded' >&2; exit 1;; esac"
    program(tmp_path, "squeue", away)
    now = [0.0]
    asked = Slurm(TOLD_BY, Pace(5.0, 100), lambda: now[0], 60.0, str(tmp_path))
    assert asked.jobs(NOON) == ()
    program(tmp_path, "squeue", f"case $* in *--json*) cat {OUTPUTS}/squeue-22.05.8.json;; esac")
    now[0] = 600.0
    assert asked.jobs(NOON) == ()  # by columns, which are empty
    now[0] = 3601.0
    assert len(asked.jobs(NOON)) == 10


class Site:
    """A watch whose Slurm is two scripts that print files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = ManualClock(NOON)
        for name, file in (("squeue", "squeue-22.05.8.json"), ("scontrol", "nodes-22.05.8.txt")):
            program(directory, name, f"cat {OUTPUTS / file}")
        self.watch = self.fresh()

    def fresh(self) -> Watch:
        pace = Pace(5.0, 100)
        asked = Slurm(TOLD_BY, pace, lambda: 0.0, 60.0, str(self.directory))
        return Watch(asked, pace, self.directory, TOLD_BY, self.clock)

    def look(self) -> list[Record]:
        told: list[Record] = []
        self.clock.advance(60.0)
        self.watch.round(told.extend)
        return told

    def end_before_all_is_told(self) -> None:
        def end(_: Sequence[Record]) -> None:
            raise SystemExit

        with pytest.raises(SystemExit):
            self.watch.round(end)
        self.watch = self.fresh()


def of(records: Sequence[Record], kind: RecordKind) -> list[Record]:
    return [one for one in records if one.kind is kind]


@pytest.fixture(name="site")
def site_fixture(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_only_what_changed_is_told_again(site: Site) -> None:
    first = site.look()
    assert len(of(first, RecordKind.JOB)) == 10
    (told,) = (Scheduler.from_record(one) for one in of(first, RecordKind.SCHEDULER))
    assert (told.why, told.answered_at) == ("", site.clock.now())
    assert told.nodes is not None
    assert [(node.name, node.states) for node in told.nodes] == [("n2", ("MIXED", "DRAIN"))]
    assert site.look() == []
    for _ in range(9):
        found = site.look()
    assert [one.kind for one in found] == [
        RecordKind.SCHEDULER
    ]  # once in ten minutes, that somebody looks


def test_a_node_that_comes_back_is_told_with_its_times(site: Site) -> None:
    site.look()
    nodes = (OUTPUTS / "nodes-22.05.8.txt").read_text()
    (site.directory / "nodes").write_text(nodes.replace("MIXED+DRAIN", "MIXED"))
    program(site.directory, "scontrol", f"cat {site.directory / 'nodes'}")
    (told,) = map(Scheduler.from_record, of(site.look(), RecordKind.SCHEDULER))
    back = site.clock.now()
    assert [(one.name, one.states, one.since, one.until) for one in told.left] == [
        ("n2", ("MIXED", "DRAIN"), None, back)
    ]
    program(site.directory, "scontrol", f"cat {OUTPUTS / 'nodes-22.05.8.txt'}")
    (told,) = map(Scheduler.from_record, of(site.look(), RecordKind.SCHEDULER))
    assert [node.since for node in told.nodes or ()] == [site.clock.now()]
    assert [one.until for one in told.left] == [back]


def test_what_turned_during_a_restart_is_told_with_its_time(site: Site) -> None:
    site.look()
    nodes = (OUTPUTS / "nodes-22.05.8.txt").read_text()
    (site.directory / "nodes").write_text(nodes.replace("MIXED+DRAIN", "MIXED"))
    program(site.directory, "scontrol", f"cat {site.directory / 'nodes'}")
    site.watch = site.fresh()
    (told,) = map(Scheduler.from_record, of(site.look(), RecordKind.SCHEDULER))
    assert [(one.name, one.until) for one in told.left] == [("n2", site.clock.now())]


def test_a_failed_query_is_unknown_and_ends_no_job(site: Site) -> None:
    site.look()
    before = site.clock.now()
    program(site.directory, "squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    (record,) = site.look()
    told = Scheduler.from_record(record)
    assert told.nodes is None
    assert "Unable to contact" in told.why
    assert told.answered_at == before
    assert site.look() == []
    program(site.directory, "squeue", f"cat {OUTPUTS}/squeue-22.05.8.json")
    assert [one.kind for one in site.look()] == [RecordKind.SCHEDULER]


def test_a_job_that_slurm_forgot_meanwhile_has_an_unknown_end_also_over_a_restart(
    site: Site,
) -> None:
    site.look()
    seen = site.clock.now()
    program(site.directory, "squeue", "echo '{\"jobs\": []}'")
    site.watch = site.fresh()
    found = [Job.from_record(one) for one in of(site.look(), RecordKind.JOB)]
    assert {job.number for job in found} == {"1", "4", "6"}  # those that had not ended
    assert {(job.state, job.ended_at) for job in found} == {("UNKNOWN", seen)}
    assert of(site.look(), RecordKind.JOB) == []


def test_what_was_seen_and_not_told_before_the_end_is_told_after_it(site: Site) -> None:
    site.end_before_all_is_told()
    assert len(of(site.look(), RecordKind.JOB)) == 10
    program(site.directory, "squeue", "echo '{\"jobs\": []}'")
    site.end_before_all_is_told()
    found = [Job.from_record(one) for one in of(site.look(), RecordKind.JOB)]
    assert {(job.number, job.state) for job in found} == {(n, "UNKNOWN") for n in ("1", "4", "6")}


def test_a_disk_that_takes_nothing_ends_no_watch_and_what_was_told_is_remembered_later(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    in_the_way = site.directory / "jobs.new"
    in_the_way.mkdir()
    assert len(of(site.look(), RecordKind.JOB)) == 10
    assert site.look() == []
    assert caplog.text.count("not remembered over a restart") == 1
    in_the_way.rmdir()
    assert site.look() == []
    site.watch = site.fresh()
    ended = {"2", "3", "5", "7", "8", "9", "10"}
    assert {job.number for job in map(Job.from_record, of(site.look(), RecordKind.JOB))} <= ended


def test_it_asks_until_it_is_told_to_stop(site: Site) -> None:
    stop = threading.Event()
    told: list[Record] = []

    def tell(records: Sequence[Record]) -> None:
        told.extend(records)
        stop.set()

    site.watch.run(stop, tell)
    assert len(told) == 11
    assert all(one.subject == TOLD_BY.key for one in told)
    assert all(one.id.startswith(TOLD_BY.key) for one in told)  # a node's own token may write it
    assert site.clock.now() - NOON <= timedelta(seconds=5)
