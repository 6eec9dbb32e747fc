"""A stalled job's NCCL is asked: by a real child, of processes that speak its protocol."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from collector.nccl import ranks, ranks_child, ras_status, stalled, turn
from collector.nccl.question import Answer, Asked, answer, question, read_answer, read_question
from collector.nccl.ranks_supervisor import (
    DUMPS_TOLD_AGAIN_SECONDS,
    INSPECTOR_SECONDS,
    PACE,
    Pace,
    Ranks,
    spread,
)
from collector.nccl.repeat_filter import SECOND_LOOK_SECONDS
from collector.nccl.stalled import OnGpu
from collector.rows.catalogue_rows import Row
from collector.rows.events import EventMaker
from gpuvigil.clock import Clock, ManualClock, SystemClock
from gpuvigil.config import CollectorSettings
from gpuvigil.metrics import GPU
from gpuvigil.model import Allocation, Collective, Event, Holder, RankState, Source, Subject
from tests.collector.nccl.inspector_lines import line
from tests.collector.nccl.statuses import communicator, rank, status
from tests.polling import wait_until
from tests.sources import ROOT

NODE = Subject(cluster="c", node="n1")
NOW = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
HERE = "127.0.0.1"
BEHIND = [rank(0, 4711, pid=1, host=HERE), rank(1, 4710, pid=99, host="10.0.0.2")]
SOON = Pace(
    pause_seconds=0.05, youngest_seconds=0.0, spread_seconds=0.0, blind_spread_seconds=0.0,
    inspector_seconds=0.05,
)  # fmt: skip
STALLED: Mapping[str, Any] = {"step_age_seconds": 80.0, "step_p99_seconds": 2.0}
MOVES: Mapping[str, Any] = {"step_age_seconds": 1.0, "step_p99_seconds": 2.0}


@dataclass
class Job:
    """A process with NCCL, on one GPU."""

    directory: Path
    process: subprocess.Popen[str]
    port: int

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def heard(self) -> list[str]:
        file = self.directory / "status.heard"
        return file.read_text().splitlines() if file.exists() else []


@dataclass
class Node:
    """What the collector knows of the node, and what it told."""

    directory: Path
    jobs: list[Job] = field(default_factory=list)
    told: list[Event] = field(default_factory=list)
    ranks: Ranks | None = None

    def run(
        self,
        how: str = "well",
        answers: Sequence[str] = (),
        library: str = "libnccl.so.2.30.7",
        said: str = "nothing",
        name: str = "",
        place_in_job: Mapping[str, str] = MappingProxyType({"RANK": "0", "WORLD_SIZE": "2"}),
    ) -> Job:
        """Start a process; further ones listen at the first one's port."""
        place = self.directory / (name or f"job{len(self.jobs)}")
        place.mkdir()
        (place / library).write_text(said)
        names = ["status", *(f"status{n}" for n in range(1, len(answers)))]
        for file, text in zip(names, answers or [status(communicator(BEHIND))], strict=True):
            (place / file).write_text(text)
        port = self.jobs[0].port if self.jobs else 0
        words = [str(port), place / library, place / names[0], how, *(place / n for n in names[1:])]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.collector.nccl.ras_server", *map(str, words)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **place_in_job},
        )
        assert process.stdout is not None
        self.jobs.append(Job(place, process, int(process.stdout.readline())))
        return self.jobs[-1]

    def watch(self, pace: Pace = SOON, clock: Clock | None = None, **more: Any) -> None:
        settings = CollectorSettings(
            **{
                "nccl_ras": ("train",),
                "nccl_ras_versions": ("2.30.7",),
                "nccl_ras_port": self.jobs[0].port,
                **more,
            }
        )
        maker = EventMaker(node=NODE, boot="b")
        self.ranks = Ranks(
            *(settings, maker, clock or SystemClock(), _at_once, self.told.extend, pace)
        )

    def tick(self, *fields: Mapping[str, Any]) -> None:
        """Each job has one GPU and one number."""
        assert self.ranks is not None
        rows, processes, held = [], {}, []
        for index, job in enumerate(self.jobs):
            uuid = f"GPU-{index}"
            measured = fields[index] if index < len(fields) else STALLED
            tags = {"cluster": "c", "node": "n1", "uuid": uuid}
            rows.append(
                Row(measurement=GPU, tags=tags, fields={"index": index, **measured}, at=NOW)
            )
            processes[uuid] = (job.pid,)
            held.append(allocation(uuid, f"job {7 + index}"))
        self.ranks.update(rows, processes, held)

    def until_asked(self, job: Job, times: int = 1) -> None:
        def asked() -> bool:
            self.tick()
            return job.heard.count("STATUS") >= times

        wait_until("a question", asked, 30.0)

    def until_no_child(self) -> None:
        def alone() -> bool:
            self.tick(MOVES)
            return not children()

        wait_until("no child", alone, 5.0)

    def until_told(self, *fields: Mapping[str, Any]) -> Collective:
        def heard() -> bool:
            self.tick(*fields)
            return bool(self.told)

        wait_until("an event", heard, 30.0)
        return self.told[0].collectives[0]


def _at_once(work: Callable[[], None]) -> None:
    work()


def allocation(uuid: str, holder: str, partition: str | None = "train") -> Allocation:
    return Allocation(
        subject=replace(NODE, gpu=uuid),
        holder=Holder.parse(holder),
        user="ada",
        command=None,
        started_at=NOW - timedelta(hours=2),
        partition=partition,
    )


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    it = Node(tmp_path)
    yield it
    if it.ranks is not None:
        it.ranks.stop()
    for job in it.jobs:
        job.process.kill()
        job.process.communicate()


@pytest.mark.server
def test_the_missing_rank_is_told_as_the_job_s_own_nccl_says_it(node: Node) -> None:
    job = node.run()
    node.watch()
    found = node.until_told()
    assert (found.stand, found.holder, found.entered, found.size) == (
        RankState.BEHIND,
        "job 7",
        4711,
        2,
    )
    assert [(it.rank, it.host, it.gpu) for it in found.ranks] == [(1, "10.0.0.2", None)]
    assert found.hosts == (HERE,)
    one = ["CLIENT PROTOCOL 2", "TIMEOUT 5", "SET FORMAT JSON", "STATUS", "answered"]
    assert job.heard == one * 2
    for _ in range(20):  # it rests
        node.tick()
        time.sleep(0.01)
    assert (job.heard, len(node.told), job.process.poll()) == (one * 2, 1, None)


@pytest.mark.server
def test_a_rank_of_this_node_is_told_with_its_gpu(node: Node) -> None:
    own = [rank(0, 6, pid=1, host=HERE), rank(1, 7, pid=99, host="10.0.0.2")]
    node.run(answers=[status(communicator(own))])
    node.watch()
    assert [(it.rank, it.gpu) for it in node.until_told().ranks] == [(0, "GPU-0")]


@pytest.mark.server
def test_dumps_are_read_without_a_question(node: Node, tmp_path: Path) -> None:
    job = node.run()
    dumps = tmp_path / "dumps"
    shutil.copytree(ROOT / "tests/fixtures/flight_recorder", dumps)
    for file in dumps.iterdir():
        os.utime(file)
    node.watch(nccl_ras=(), flight_recorder_directories=(dumps,))
    found = node.until_told()
    assert (found.by, found.stand, found.group, found.entered) == (
        *(Source.FLIGHT_RECORDER, RankState.WAITING, "0", 6),
    )
    assert [(it.rank, it.reached) for it in found.ranks] == [(2, 5), (0, 6), (1, 6), (3, 6)]
    assert [of.group for of in node.told[0].collectives] == ["0", "1"]
    assert job.heard == []


@pytest.mark.server
def test_dumps_that_stay_as_they_are_are_told_once(node: Node, tmp_path: Path) -> None:
    node.run()
    dumps, clock = tmp_path / "dumps", ManualClock(NOW)
    shutil.copytree(ROOT / "tests/fixtures/flight_recorder", dumps)
    node.watch(clock=clock, nccl_ras=(), flight_recorder_directories=(dumps,))
    for _ in range(2):
        for file in dumps.iterdir():
            os.utime(file)
        node.tick()
        assert children() != []
        wait_until("its end", lambda: not children(), 15.0)
        wait_until("an event", lambda: bool(node.told))
        time.sleep(0.1)
        node.tick()
        clock.advance(2000.0)
    assert len(node.told) == 1


def test_dumps_are_told_anew_that_differ_or_of_a_job_that_went_on_and_twice_a_day() -> None:
    clock, maker = ManualClock(NOW), EventMaker(node=NODE, boot="b")
    settings = CollectorSettings(flight_recorder_directories=(Path("/none"),))
    them = Ranks(settings, maker, clock, _at_once, lambda _: None)
    by = Source.FLIGHT_RECORDER
    one = (Collective(by=by, holder="job 7", stand=RankState.WAITING, entered=6),)

    def tick(fields: Mapping[str, Any]) -> None:
        tags = {"cluster": "c", "node": "n1", "uuid": "GPU-0"}
        row = Row(measurement=GPU, tags=tags, fields={"index": 0, **fields}, at=NOW)
        them.update([row], {}, [allocation("GPU-0", "job 7")])

    def is_told(what: tuple[Collective, ...], seconds: float = 0.0) -> bool:
        clock.advance(seconds)
        tick(STALLED)
        return them.differs(what)

    other = (replace(one[0], entered=7),)
    assert [is_told(one), is_told(one), is_told(other), is_told(one)] == [True, False, True, True]
    assert not is_told(one, DUMPS_TOLD_AGAIN_SECONDS - 1.0)
    assert is_told(one, 2.0)
    tick(MOVES)
    assert is_told(one)
    assert them.differs((replace(one[0], holder="job 8"),))


def write_lines(job: Job, directory: Path) -> None:
    """Of four ranks, the first of which is the job's process and comes last."""
    here = os.uname().nodename
    for number in range(4):
        took = 1000 if number == 0 else 4000
        lines = [line(number, n, took, host=here, pid=job.pid + number) for n in range(30)]
        (directory / f"{number}.log").write_bytes(b"\n".join(lines) + b"\n")


@pytest.mark.server
def test_once_a_rank_is_found_the_next_look_comes_sooner_and_then_as_usual(
    node: Node, tmp_path: Path
) -> None:
    clock = ManualClock(NOW)
    write_lines(node.run(), tmp_path)
    pace = replace(SOON, inspector_seconds=INSPECTOR_SECONDS)
    node.watch(pace, clock, nccl_ras=(), nccl_inspector_directories=(tmp_path,))
    assert node.ranks is not None

    def looks(after: float) -> bool:
        """Whether a look begins now; it is heard."""
        clock.advance(after)
        node.tick(MOVES)
        began = bool(children())
        node.until_no_child()
        wait_until("it is heard", lambda: "ranks" not in {it.name for it in threading.enumerate()})
        return began

    assert looks(0.0)
    assert not looks(SECOND_LOOK_SECONDS - 1.0)
    assert node.told == []
    assert looks(1.0)
    wait_until("an event", lambda: bool(node.told))
    assert not looks(INSPECTOR_SECONDS - 1.0)
    assert looks(1.0)


@pytest.mark.server
def test_whom_the_others_wait_for_is_told_of_a_job_that_goes_on_and_not_at_once_again(
    node: Node, tmp_path: Path
) -> None:
    write_lines(node.run(), tmp_path)
    node.watch(nccl_ras=(), nccl_inspector_directories=(tmp_path,))
    assert node.ranks is not None
    node.ranks.update([], {}, [])  # the driver has just started
    found = node.until_told(MOVES)
    assert (found.by, found.stand, found.ranks[0].gpu) == (
        Source.INSPECTOR,
        RankState.FIRST,
        "GPU-0",
    )
    node.until_no_child()
    other = replace(found, holder="job 8")
    assert node.ranks.lasting([found, other]) == []
    assert node.ranks.lasting([found, other]) == [other]


@pytest.mark.server
def test_of_two_jobs_of_one_user_nobody_knows_whose_dump_it_is(node: Node, tmp_path: Path) -> None:
    node.run()
    node.run()
    node.watch(nccl_ras=(), flight_recorder_directories=(tmp_path,))
    for _ in range(5):
        node.tick()
    assert children() == []


@pytest.mark.server
def test_of_a_job_that_goes_on_nothing_is_told(node: Node) -> None:
    later = [rank(0, 4712, pid=1, host=HERE), BEHIND[1]]
    job = node.run(answers=[status(communicator(BEHIND)), status(communicator(later))])
    node.watch()
    node.until_asked(job, times=2)
    time.sleep(0.3)
    assert node.told == []


@pytest.mark.server
@pytest.mark.parametrize(
    ("settings", "fields", "why"),
    [
        ({"nccl_ras": ()}, STALLED, ""),
        ({"nccl_ras": ("other",)}, STALLED, ""),
        ({}, MOVES, ""),
        ({}, {}, ""),
        ({"nccl_ras_versions": ()}, STALLED, "not in collector.nccl_ras_versions"),
    ],
)
def test_nobody_is_asked_who_was_not_chosen_or_has_not_stalled(
    node: Node,
    settings: dict[str, Any],
    fields: Mapping[str, Any],
    why: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = node.run()
    node.watch(**settings)
    for _ in range(8):
        node.tick(fields)
        time.sleep(0.05)
    if why:
        wait_until("a reason", lambda: why in caplog.text)
    assert (job.heard, node.told) == ([], [])
    assert bool(caplog.text) is bool(why)


def asks_after(node: Node, job: Any, clock: ManualClock, moments: Sequence[float]) -> None:
    """The node asks twice once each of these seconds has passed, and not before."""
    for times, seconds in enumerate(moments):
        node.tick()
        clock.advance(seconds - 0.01)
        for _ in range(5):
            node.tick()
            time.sleep(0.02)
        assert job.heard.count("STATUS") == 2 * times
        clock.advance(0.02)
        node.until_asked(job, times=2 * times + 2)
        wait_until("no child", lambda: not children())


@pytest.mark.server
def test_a_node_asks_at_a_moment_of_its_own_and_rests_longer_each_time(node: Node) -> None:
    job, clock = node.run(), ManualClock(NOW)
    node.watch(replace(SOON, rest_seconds=60.0, spread_seconds=40.0), clock)
    moments = [40.0 * spread(NODE.key), 0.05 + 60.0, 0.05 + 120.0]
    asks_after(node, job, clock, moments)


@pytest.mark.server
def test_a_node_whose_processes_do_not_say_which_rank_they_are_asks_late_and_seldom(
    node: Node,
) -> None:
    job, clock = node.run(place_in_job={}), ManualClock(NOW)
    node.watch(replace(SOON, blind_spread_seconds=400.0), clock)
    asks_after(node, job, clock, [400.0 * spread(NODE.key), 0.05 + 1800.0])


@pytest.mark.server
def test_a_node_that_is_none_of_the_few_asks_nothing(node: Node) -> None:
    job = node.run(place_in_job={"RANK": "1", "WORLD_SIZE": "4096"})
    node.watch()
    for _ in range(10):
        node.tick()
        time.sleep(0.05)
    assert job.heard == []


def test_dumps_are_read_from_the_lowest_rank_here() -> None:
    environs = ("RANK=17\0WORLD_SIZE=64", "", "RANK=16\0WORLD_SIZE=64")
    assert turn.lowest_rank(environs) == 16
    assert turn.lowest_rank([""]) is None


@pytest.mark.parametrize(("nodes", "asking"), [(1, 1), (2, 2), (4, 4), (5, 4), (512, 4)])
def test_of_a_job_four_nodes_ask_at_most(nodes: int, asking: int) -> None:
    world, told = 8 * nodes, 0
    for node in range(nodes):
        them = (f"A=1\0RANK={8 * node + n}\0WORLD_SIZE={world}\0" for n in range(8))
        told += turn.is_asking(them) is True
    assert told == asking


@pytest.mark.parametrize(
    ("environ", "is_asking"),
    [
        ("SLURM_PROCID=1\0SLURM_NTASKS=8", False),
        ("SLURM_PROCID=2\0SLURM_NTASKS=8", True),
        ("SLURM_PROCID=2\0SLURM_NTASKS=8\0RANK=17\0WORLD_SIZE=64", False),
        ("OMPI_COMM_WORLD_RANK=0\0OMPI_COMM_WORLD_SIZE=8", True),
        ("RANK=0", None),
        ("RANK=-1\0WORLD_SIZE=8", None),
        ("RANK=0\0WORLD_SIZE=" + "9" * 10, None),
        ("", None),
    ],
)
def test_which_rank_it_is_a_process_was_told_by_its_launcher(
    environ: str, is_asking: bool | None
) -> None:
    assert turn.is_asking([environ]) is is_asking


@pytest.mark.server
def test_whose_answer_is_too_large_is_not_asked_again(node: Node) -> None:
    job, clock = node.run(answers=[" " * (ras_status.LARGEST_BYTES + 1)]), ManualClock(NOW)
    node.watch(replace(SOON, rest_seconds=60.0), clock)
    node.until_asked(job)
    node.until_no_child()
    for _ in range(10):
        clock.advance(3600.0)
        node.tick()
        time.sleep(0.05)
    assert job.heard.count("STATUS") == 1


def test_nodes_have_moments_all_over_the_minute() -> None:
    found = sorted(spread(f"c/n{number}") for number in range(1000))
    assert 0.0 <= found[0] < 0.02
    assert 0.98 < found[-1] < 1.0
    assert 0.4 < found[500] < 0.6


@pytest.mark.server
def test_nobody_is_asked_in_the_first_minutes(node: Node) -> None:
    job = node.run()
    node.watch(replace(SOON, youngest_seconds=3600.0 * 24 * 365))
    for _ in range(10):
        node.tick()
        time.sleep(0.05)
    assert job.heard == []


@pytest.mark.server
@pytest.mark.parametrize(
    ("how", "library", "said", "why"),
    [
        ("well", "libnccl.so.2", "NCCL version 2.29.7+cuda13.0", "issues/2346"),
        ("well", "libnccl.so.2", "no version", "does not say which version"),
        ("well", "libcudart.so", "none", "no one libnccl.so"),
        ("old", "libnccl.so.2.30.7", "", "refuses SET FORMAT json"),
        ("other", "libnccl.so.2.30.7", "", "is no NCCL"),
        ("half", "libnccl.so.2.30.7", "", "no JSON"),
    ],
)
def test_what_cannot_be_asked_is_said_in_one_line(
    node: Node, how: str, library: str, said: str, why: str
) -> None:
    job = node.run(how, library=library, said=said or "x")
    asked = question_of(node)
    assert why in ranks_child.ask_ras(asked).why
    assert job.heard.count("STATUS") == (how == "half")
    assert job.process.poll() is None


def question_of(node: Node, **more: Any) -> Asked:
    holders = {
        f"job {7 + index}": {job.pid: {index: f"GPU-{index}"}}
        for index, job in enumerate(node.jobs)
    }
    asked = Asked(
        proc_root="/proc",
        port=node.jobs[0].port,
        pause_seconds=0.0,
        versions=("2.30.7",),
        holders=holders,
    )
    return replace(asked, **more)


@pytest.mark.server
def test_a_version_is_read_from_the_library_s_own_text(node: Node) -> None:
    node.run(library="libnccl.so.2", said="x" * (1 << 20) + "NCCL version 2.30.7+cuda13.0")
    (found,) = ranks_child.ask_ras(question_of(node)).found
    assert found.stand is RankState.BEHIND


@pytest.mark.server
def test_a_stopped_process_is_said_to_be_silent_and_goes_on_as_before(node: Node) -> None:
    job = node.run()
    job.process.send_signal(signal.SIGSTOP)
    (found,) = ranks_child.ask_ras(question_of(node)).found
    assert found == Collective(by=Source.RAS, holder="job 7", stand=RankState.SILENT)
    job.process.send_signal(signal.SIGCONT)
    (found,) = ranks_child.ask_ras(question_of(node)).found
    assert found.stand is RankState.BEHIND
    assert job.process.poll() is None


@pytest.mark.server
def test_an_answer_without_end_costs_the_child_little_and_is_given_up(node: Node) -> None:
    job = node.run("endless")
    words = [sys.executable, "-m", "collector.nccl.ranks_child", question(question_of(node))]
    highest = 0
    with subprocess.Popen(words, stdout=subprocess.PIPE) as child:
        while child.poll() is None:
            highest = max(highest, peak_kib(child.pid))
        assert child.stdout is not None
        said = read_answer(child.stdout.read())
    assert "has no end" in said.why or "takes too long" in said.why
    assert 0 < highest < 64 * 1024
    assert job.process.poll() is None


@pytest.mark.server
def test_asking_eight_jobs_takes_half_a_percent_of_a_core_at_most(node: Node) -> None:
    """At the pace of the first look; each later one rests longer."""
    for _ in range(8):
        node.run()
    words = [sys.executable, "-m", "collector.nccl.ranks_child", question(question_of(node))]
    before = processor_seconds()
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
    cost = processor_seconds() - before
    assert sum(job.heard.count("STATUS") for job in node.jobs) == 2
    assert 0.0 < cost / (PACE.pause_seconds + PACE.rest_seconds) <= 0.005


@pytest.mark.server
def test_while_eight_jobs_go_on_no_child_is_started_and_a_tick_takes_next_to_nothing(
    node: Node,
) -> None:
    for _ in range(8):
        node.run()
    node.watch()
    began = time.process_time()
    for _ in range(100):
        node.tick(*[MOVES] * 8)
        assert not node.told
    assert (time.process_time() - began) / 100 <= 0.001  # of a tick of a second or more
    assert children() == []
    assert [job.heard for job in node.jobs] == [[]] * 8


@pytest.mark.server
def test_a_job_that_ends_while_it_is_asked_ends_as_it_would_alone(node: Node) -> None:
    alone = node.run("slow")
    alone.process.terminate()
    alone.process.communicate()
    node.jobs.clear()
    job = node.run("slow", name="asked")
    node.watch()
    node.until_asked(job)
    job.process.terminate()
    assert job.process.wait(10.0) == alone.process.wait(10.0) == -signal.SIGTERM


@pytest.mark.server
def test_a_job_that_goes_on_again_is_asked_no_more(node: Node) -> None:
    """In the pause between the two questions."""
    job = node.run()
    node.watch(replace(SOON, pause_seconds=60.0))
    node.until_asked(job)
    node.until_no_child()
    assert (job.heard.count("STATUS"), node.told, job.process.poll()) == (1, [], None)


@pytest.mark.server
def test_nobody_hangs_up_on_a_job_that_goes_on_while_it_is_asked(node: Node) -> None:
    job = node.run("late")
    node.watch()
    node.until_asked(job)
    node.until_no_child()
    assert job.heard[-2:] == ["STATUS", "answered"]
    assert job.heard.count("STATUS") == 1


def processor_seconds() -> float:
    """Of the children that have ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def peak_kib(pid: int) -> int:
    """The most memory that a process has had so far."""
    try:
        words = Path(f"/proc/{pid}/status").read_text().split()
        return int(words[words.index("VmHWM:") + 1])
    except (OSError, ValueError):
        return 0


def children() -> list[str]:
    """Children of this process that ask."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_text()
            parent = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if "ranks_child" in words and parent == str(os.getpid()):
            found.append(name)
    return found


@pytest.mark.server
def test_two_jobs_behind_one_port_are_told_apart(node: Node) -> None:
    for index in range(2):
        own = [rank(0, 5, pid=1, host=HERE), rank(1, 6, pid=99, host="10.0.0.2")]
        node.run(answers=[status(communicator(own, name=f"0x{index}"))])
    said = [ranks_child.ask_ras(question_of(node)) for _ in range(30)]
    found = {(of.holder, of.group, of.ranks[0].gpu) for it in said for of in it.found}
    assert found == {
        ("job 7", "0x0 0x1f:0x2e", "GPU-0"),
        ("job 8", "0x1 0x1f:0x2e", "GPU-1"),
    }
    assert {it.why for it in said if not it.found} <= {"two jobs answered at one port, each once"}


@pytest.mark.server
def test_while_another_job_behind_the_port_goes_on_nobody_is_asked(node: Node) -> None:
    jobs = [node.run(), node.run()]
    node.watch()
    for _ in range(10):
        node.tick(STALLED, MOVES)
        time.sleep(0.05)
    assert [job.heard for job in jobs] == [[], []]


@pytest.mark.server
def test_of_somebody_else_s_answer_nothing_is_told(node: Node) -> None:
    strangers = [rank(0, 5, pid=77, host=HERE), rank(1, 6, pid=99, host="10.0.0.2")]
    node.run(answers=[status(communicator(strangers))])
    assert "none of the job's" in ranks_child.ask_ras(question_of(node)).why


@pytest.mark.parametrize(
    ("settings", "is_on"),
    [
        ({}, False),
        ({"nccl_ras_versions": ("2.30.7",)}, False),
        ({"nccl_ras": ("train",)}, True),
        ({"flight_recorder_directories": (Path("/x"),)}, True),
        ({"nccl_inspector_directories": (Path("/x"),)}, True),
    ],
)
def test_where_nothing_is_switched_on_nothing_is_there(
    settings: dict[str, Any], is_on: bool
) -> None:
    chosen = CollectorSettings(**settings)
    maker = EventMaker(node=NODE, boot="b")
    found = ranks.rank_watcher(chosen, maker, SystemClock(), _at_once, lambda _: None)
    assert isinstance(found, Ranks) is is_on
    found.update([], {}, [])
    found.stop()


def test_where_nobody_listens_nobody_is_asked() -> None:
    asked = Asked(
        proc_root="/proc",
        port=1,
        pause_seconds=0.0,
        versions=(),
        holders={"job 7": {os.getpid(): {}}},
    )
    assert "nobody listens" in ranks_child.ask_ras(asked).why
    assert read_question(question(asked)) == asked


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{}", '{"found": 1, "why": ""}', '{"found": {}}']
)
def test_what_is_no_answer_of_the_child_s_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever is wrong with it
        read_answer(text)
    for said in (Answer(why="so"), Answer(why="so", is_final=True)):
        assert read_answer(answer(said)) == said


# --- who is stalled, and who may be asked ------------------------------------------------------------


def on_gpu(index: int, holder: str, pids: Sequence[int] = (), **fields: Any) -> OnGpu:
    uuid = f"GPU-{index}"
    held = (allocation(uuid, holder, "train"),)
    return OnGpu(uuid=uuid, index=index, fields=fields, pids=frozenset(pids), held=held)


@pytest.mark.parametrize(
    ("fields", "is_stalled"),
    [
        ({"step_age_seconds": 59.9, "step_p99_seconds": 2.0}, False),
        ({"step_age_seconds": 60.0, "step_p99_seconds": 2.0}, True),
        ({"step_age_seconds": 60.0, "step_p99_seconds": 12.0}, True),
        ({"step_age_seconds": 60.0, "step_p99_seconds": 12.1}, False),
        ({"step_age_seconds": 600.0}, False),
        ({"spin_seconds": 299.9, "longest_spin_seconds": 0.0}, False),
        ({"spin_seconds": 300.0, "longest_spin_seconds": 100.0}, True),
        ({"spin_seconds": 300.0, "longest_spin_seconds": 100.1}, False),
        ({"spin_seconds": 900.0, "step_age_seconds": 1.0, "step_p99_seconds": 1.0}, False),
        ({**STALLED, "step_phase": 2, "step_phase_seconds": 80.0}, True),
        ({**STALLED, "step_phase": 3, "step_phase_seconds": 1799.9}, False),
        ({**STALLED, "step_phase": 4, "step_phase_seconds": 1799.9}, False),
        ({**STALLED, "step_phase": 3, "step_phase_seconds": 1800.0}, True),
        ({**STALLED, "step_phase": 4, "step_phase_seconds": 1800.0}, True),
        ({"spin_seconds": 900.0, "step_phase": 4, "step_phase_seconds": 60.0}, False),
        ({**STALLED, "step_phase": 5}, False),
        ({"spin_seconds": 900.0, "step_phase": 5}, False),
        ({}, False),
    ],
)
def test_a_job_has_stalled_by_the_limits_of_the_analyzer(
    fields: Mapping[str, float], is_stalled: bool
) -> None:
    gpus = [replace(on_gpu(0, "job 7"), fields=fields), on_gpu(1, "job 8")]
    found = stalled.stalled(gpus)
    assert found == (frozenset({"job 7"}) if is_stalled else frozenset())


def test_one_gpu_that_says_that_it_goes_on_is_enough() -> None:
    assert stalled.stalled([on_gpu(0, "job 7", **STALLED), on_gpu(1, "job 7", **MOVES)]) == set()


def test_one_rank_that_a_signal_stopped_suspends_no_job() -> None:
    by_signal = {**STALLED, "step_phase": 5}
    gpus = [on_gpu(0, "job 7", **by_signal), on_gpu(1, "job 7", **STALLED)]
    assert stalled.stalled(gpus) == {"job 7"}


@pytest.mark.parametrize(("age", "count"), [(899.9, 0), (900.0, 1)])
def test_a_process_is_a_quarter_of_an_hour_old(age: float, count: int) -> None:
    gpus = [on_gpu(0, "job 7", [11], **STALLED)]
    least = Pace().youngest_seconds
    found = stalled.may_be_asked(gpus, ["train"], {11: 1000}, {11: age}, least)
    assert len(found) == count


def test_jobs_of_two_users_are_asked_apart_and_one_that_shares_its_gpu_is_not() -> None:
    gpus = [on_gpu(0, "job 7", [11], **STALLED), on_gpu(1, "job 8", [12, 13], **STALLED)]
    ages = dict.fromkeys((11, 12, 13), 1e4)
    users = {11: 1000, 12: 1001, 13: 1001}
    found = stalled.may_be_asked(gpus, ["*"], users, ages, 0.0)
    assert found == {
        1000: {"job 7": {11: {0: "GPU-0"}}},
        1001: {"job 8": {12: {1: "GPU-1"}, 13: {1: "GPU-1"}}},
    }
    shared = replace(gpus[0], held=(*gpus[0].held, *gpus[1].held))
    assert shared.holder == ""
    assert list(stalled.may_be_asked([shared, gpus[1]], ["*"], users, ages, 0.0)) == [1001]
