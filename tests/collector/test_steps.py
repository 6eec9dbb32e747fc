"""What programs say of their steps, and whom it is believed of."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from collector.owners.processes import ProcessTable
from collector.sensors.steps import Progress, Steps
from gpuvigil.metrics import GPU
from tests.polling import wait_until

ROOT = Path(__file__).parents[2]
HELPER = ROOT / "packaging/steps/gpuvigil_steps.py"
PROC, ME = Path("/proc"), os.getpid()


def steps_of(directory: Path, proc: Path = PROC) -> Steps:
    """All processes have run for longer than any file is old."""
    return Steps(directory, proc, lambda _: -(10**6))


def now() -> datetime:
    return datetime.now(timezone.utc)


def written(directory: Path, text: str, age_seconds: float = 0.0, pid: int = ME) -> Path:
    path = directory / str(pid)
    path.write_text(text)
    at = time.time() - age_seconds
    os.utime(path, (at, at))
    return path


def test_a_rank_says_its_step_and_how_long_ago_it_ended(tmp_path: Path) -> None:
    written(tmp_path, "1234 0.82\n", age_seconds=300.0)
    found = steps_of(tmp_path).read({"GPU-1": [ME, 1], "GPU-2": [1]}, now())
    assert found.keys() == {"GPU-1"}
    assert (found["GPU-1"].step, found["GPU-1"].p99_seconds) == (1234, 0.82)
    assert found["GPU-1"].age_seconds == pytest.approx(300.0, abs=20.0)


def test_of_several_ranks_on_one_gpu_the_last_speaks(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        written(tmp_path, "7 1.0", age_seconds=100.0)
        written(tmp_path, "9 1.0", age_seconds=50.0, pid=other.pid)
        found = steps_of(tmp_path).read({"GPU-1": [ME, other.pid]}, now())
        other.kill()
    assert found["GPU-1"].step == 7


@pytest.mark.parametrize("text", ["", "many 0.5", "-1 0.5", "5 nan", "5 -1", "5 inf", "9" * 400])
def test_what_says_nothing_is_nothing(tmp_path: Path, text: str) -> None:
    written(tmp_path, text)
    assert steps_of(tmp_path).read({"GPU-1": [ME]}, now()) == {}


def test_a_file_that_is_no_file_or_of_no_process_here_is_not_opened(tmp_path: Path) -> None:
    steps = steps_of(tmp_path)
    (tmp_path / "elsewhere").write_text("5 0.5")
    (tmp_path / str(ME)).symlink_to(tmp_path / "elsewhere")
    assert steps.read({"GPU-1": [ME]}, now()) == {}
    (tmp_path / str(ME)).unlink()
    os.mkfifo(tmp_path / str(ME))
    assert steps.read({"GPU-1": [ME]}, now()) == {}
    written(tmp_path, "5 0.5", pid=2**22 + 1)
    assert steps.read({"GPU-1": [2**22 + 1]}, now()) == {}
    assert steps_of(tmp_path / "none").read({"GPU-1": [ME]}, now()) == {}


@pytest.mark.parametrize("step_seconds", [-7200.0, 7200.0])
def test_a_clock_that_is_set_makes_no_step_older(tmp_path: Path, step_seconds: float) -> None:
    clock = [100.0]
    steps = Steps(tmp_path, PROC, lambda _: -(10**6), lambda: clock[0])
    began, stepped = now(), timedelta(seconds=step_seconds)

    def age(at: datetime) -> float:
        return steps.read({"GPU-1": [ME]}, at)["GPU-1"].age_seconds or 0.0

    path = written(tmp_path, "7 1.0")
    first = age(began)
    clock[0] += 10.0
    assert age(began + stepped + timedelta(seconds=10)) == pytest.approx(first + 10.0)
    # The next step is written by the clock as it is now, or was written just before it was set.
    for written_at in (began + stepped + timedelta(seconds=15), began + timedelta(seconds=15)):
        clock[0] += 10.0
        os.utime(path, (written_at.timestamp(),) * 2)
        assert 0.0 <= age(began + stepped + timedelta(seconds=20)) <= 10.0


def test_nobody_speaks_for_anothers_process(tmp_path: Path) -> None:
    """The kernel's own first process is root's; of a file that is ours it must not be believed."""
    proc = tmp_path / "proc"
    (proc / str(ME)).mkdir(parents=True)
    written(tmp_path, "5 0.5")
    assert steps_of(tmp_path, proc).read({"GPU-1": [ME]}, now()).keys() == {"GPU-1"}
    if os.geteuid() == 0:
        os.chown(proc / str(ME), 12345, 12345)
        assert steps_of(tmp_path, proc).read({"GPU-1": [ME]}, now()) == {}


def test_what_a_killed_process_left_is_not_said_of_one_with_its_number(tmp_path: Path) -> None:
    steps = Steps(tmp_path, PROC, ProcessTable(PROC).start_ticks)
    with subprocess.Popen(["sleep", "60"]) as rank:
        written(tmp_path, "7 1.0", age_seconds=60.0, pid=rank.pid)
        assert steps.read({"GPU-1": [rank.pid]}, now()) == {}
        written(tmp_path, "8 1.0", pid=rank.pid)
        assert steps.read({"GPU-1": [rank.pid]}, now())["GPU-1"].step == 8
        rank.kill()


def test_a_directory_into_which_everybody_writes_is_not_listed(tmp_path: Path) -> None:
    """Listing would be seen in the time of access, which the kernel sets anew after a day."""
    written(tmp_path, "5 0.5")
    os.utime(tmp_path, (1.0, 1.0))
    assert steps_of(tmp_path).read({"GPU-1": [ME]}, now()).keys() == {"GPU-1"}
    assert tmp_path.stat().st_atime == 1.0


def test_the_helper_writes_what_the_sensor_reads_and_takes_it_away(tmp_path: Path) -> None:
    program = (
        "import os, runpy, sys, time\n"
        "os.umask(0o077)\n"
        f"steps = runpy.run_path({str(HELPER)!r})['Steps']({str(tmp_path)!r}, rank=3)\n"
        "steps.done(); steps.done()\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as rank:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "ready\n"
        file = tmp_path / str(rank.pid)
        wait_until("the step", lambda: file.exists() and file.read_text().startswith("2 "))
        # The collector is another user.
        assert file.stat().st_mode & 0o777 == 0o644
        reader = Steps(tmp_path, PROC, ProcessTable(PROC).start_ticks)
        said = reader.read({"GPU-1": [rank.pid]}, now())["GPU-1"]
        assert (said.step, said.rank) == (2, 3)
        rank.communicate("\n")
    assert list(tmp_path.iterdir()) == []


def test_progress_is_whole(tmp_path: Path) -> None:
    written(tmp_path, "5")
    (found,) = steps_of(tmp_path).read({"GPU-1": [ME]}, now() - timedelta(hours=1)).values()
    assert found == Progress(step=5, age_seconds=0.0)


# --- what a rank tells beside its step ------------------------------------------------------------


def test_fields_are_read_beside_the_step(tmp_path: Path) -> None:
    at = time.time()
    text = (
        "7 1.5 rank=3 world=8 step_seconds=1.2 own_seconds=0.9 own_first_seconds=0.8 input_seconds=0.1"
        f" checkpoint={at - 90:.0f} tokens=4096 loss=nan phase=input since={at - 5:.2f}\n"
    )
    written(tmp_path, text)
    said = steps_of(tmp_path).read({"GPU-1": [ME]}, now())["GPU-1"]
    assert (said.step, said.p99_seconds, said.rank, said.world) == (7, 1.5, 3, 8)
    assert (said.step_seconds, said.own_seconds, said.input_seconds) == (1.2, 0.9, 0.1)
    assert said.own_first_seconds == 0.8
    assert said.checkpoint_age_seconds == pytest.approx(90.0, abs=20.0)
    assert said.phase == 1
    assert said.phase_seconds == pytest.approx(5.0, abs=20.0)
    assert said.fields().keys() < {metric.name for metric in GPU.metrics}


@pytest.mark.parametrize(
    "field",
    [
        "rank=-1",
        "rank=1e3",
        "rank=" + "9" * 200,
        "rank=\u0663x",
        "own_seconds=nan",
        "own_seconds=-1",
        "own_seconds=1e9",
        "own_seconds=inf",
        "checkpoint=nan",
        "checkpoint=1",  # before the process began
        "phase=asleep since=1",
        "=5",
        "rank",
        "own_seconds=0.5",  # without a line's end it may be cut off
        "step_seconds=" + "1" * 600,
    ],
)
def test_a_field_that_cannot_be_is_left_out(tmp_path: Path, field: str) -> None:
    ended = field != "own_seconds=0.5"
    written(tmp_path, f"7 1.5 {field}" + ("\n" if ended else ""))
    (said,) = (
        Steps(tmp_path, PROC, ProcessTable(PROC).start_ticks).read({"G": [ME]}, now()).values()
    )
    assert replace(said, age_seconds=None) == Progress(step=7, p99_seconds=1.5)


def test_fields_before_the_second_step_are_read(tmp_path: Path) -> None:
    written(tmp_path, "1 rank=2\n")
    (said,) = steps_of(tmp_path).read({"GPU-1": [ME]}, now()).values()
    assert (said.step, said.p99_seconds, said.rank) == (1, None, 2)


def phase(steps: Steps, pid: int) -> int | None:
    return steps.read({"GPU-1": [pid]}, now())["GPU-1"].phase


def test_a_rank_that_a_signal_stopped_says_so(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as rank:
        written(tmp_path, "7 1.0 phase=work since=1\n", pid=rank.pid)
        steps = steps_of(tmp_path)
        rank.send_signal(signal.SIGSTOP)
        wait_until("stopped", lambda: phase(steps, rank.pid) == 5)
        rank.send_signal(signal.SIGCONT)
        wait_until("goes on", lambda: phase(steps, rank.pid) == 0)
        rank.kill()


def gone(tmp_path: Path, text: str = "7 1.0 rank=3 world=8\n") -> tuple[Steps, list[float], Path]:
    """A rank that was believed and has been killed; the clock, and its file."""
    clock = [100.0]
    steps = Steps(tmp_path, PROC, ProcessTable(PROC).start_ticks, lambda: clock[0])
    with subprocess.Popen(["sleep", "60"]) as rank:
        file = written(tmp_path, text, pid=rank.pid)
        assert steps.read({"GPU-1": [rank.pid]}, now())["GPU-1"].gone_seconds is None
        rank.kill()
        stat = PROC / str(rank.pid) / "stat"
        wait_until("a zombie", lambda: stat.read_text().rpartition(") ")[2][0] == "Z")
        clock[0] += 10.0
        # Whether or not its parent has waited for it.
        zombie = steps.read({"GPU-1": []}, now())
        assert (zombie.keys() == {"GPU-1"}) is ("world=1\n" not in text)
    clock[0] += 10.0
    return steps, clock, file


def test_a_rank_that_was_killed_left_its_file_and_is_told_for_ten_minutes(tmp_path: Path) -> None:
    steps, clock, _ = gone(tmp_path)
    told = {"GPU-1": Progress(rank=3, gone_seconds=10.0)}
    assert steps.read({"GPU-1": []}, now()) == told
    # Of a GPU that is not read for a tick nothing else is known.
    assert steps.read({}, now()) == told
    clock[0] += 590.0
    assert steps.read({}, now()) == {"GPU-1": Progress(rank=3, gone_seconds=600.0)}
    clock[0] += 0.1
    assert steps.read({}, now()) == {}


def test_a_rank_that_dies_after_a_tick_without_processes_is_told(tmp_path: Path) -> None:
    """As when the driver did not answer, or does not tell of one GPU's processes."""
    silences: tuple[dict[str, list[int]], ...] = ({}, {"GPU-1": []}, {"GPU-2": []})
    clock = [100.0]
    steps = Steps(tmp_path, PROC, ProcessTable(PROC).start_ticks, lambda: clock[0])
    with subprocess.Popen(["sleep", "60"]) as rank:
        written(tmp_path, "7 1.0 rank=3 world=8\n", pid=rank.pid)
        assert steps.read({"GPU-1": [rank.pid]}, now()).keys() == {"GPU-1"}
        for silent in silences:
            assert steps.read(silent, now()) == {}
        rank.kill()
        rank.wait()
    assert not steps.has_news()
    clock[0] += 3.0
    assert steps.has_news()
    assert steps.read({}, now()) == {"GPU-1": Progress(rank=3, gone_seconds=3.0)}
    clock[0] += 600.0
    assert steps.read({}, now()) == {}
    assert (steps._ranks, steps._known) == ({}, {})


def test_a_rank_that_was_lost_is_news_once_its_job_had_time_to_wait(tmp_path: Path) -> None:
    clock = [100.0]
    steps = Steps(tmp_path, PROC, ProcessTable(PROC).start_ticks, lambda: clock[0])
    with subprocess.Popen(["sleep", "60"]) as rank:
        written(tmp_path, "7 1.0 rank=3 world=8\n", pid=rank.pid)
        on = {"GPU-1": [rank.pid]}
        assert steps.read(on, now()).keys() == {"GPU-1"}
        assert not steps.has_news()
        rank.kill()
        rank.wait()
    for seconds, is_news in ((1.0, False), (1.9, False), (1.1, True), (0.9, False), (0.1, True)):
        clock[0] += seconds
        assert steps.has_news() is is_news
    # The driver was not asked again, so that it is still on its GPU.
    assert steps.read(on, now()) == {"GPU-1": Progress(rank=3, gone_seconds=4.0)}
    clock[0] += 1.0
    assert not steps.has_news()
    assert steps.read({"GPU-1": []}, now())["GPU-1"].gone_seconds == 5.0


def test_what_a_rank_wrote_just_before_it_died_is_its_own_and_anothers_is_not(
    tmp_path: Path,
) -> None:
    steps, _, file = gone(tmp_path)
    file.write_text("8 1.0 rank=3 world=8\n")
    assert steps.read({}, now()).keys() == {"GPU-1"}
    if os.geteuid() == 0:
        os.chown(file, 12345, 12345)
        assert steps.read({}, now()) == {}


def test_a_rank_that_took_its_file_or_has_a_successor_is_not_gone(tmp_path: Path) -> None:
    steps, _, file = gone(tmp_path)
    written(tmp_path, "1 1.0 rank=3 world=8\n")
    assert steps.read({"GPU-1": [ME]}, now())["GPU-1"].step == 1
    file.unlink()
    assert steps.read({"GPU-1": []}, now()) == {}
    alone, _, _ = gone(tmp_path, "7 1.0 rank=0 world=1\n")
    assert alone.read({"GPU-1": []}, now()) == {}


def test_a_rank_that_only_let_its_gpu_go_is_not_gone(tmp_path: Path) -> None:
    written(tmp_path, "7 1.0 rank=0 world=2\n")
    steps = Steps(tmp_path, PROC, ProcessTable(PROC).start_ticks)
    assert steps.read({"GPU-1": [ME]}, now()).keys() == {"GPU-1"}
    assert steps.read({"GPU-1": []}, now()) == {}
