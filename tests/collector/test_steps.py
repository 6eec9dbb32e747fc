"""What programs say of their steps, and whom it is believed of."""

import os
import runpy
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from collector.owners.processes import ProcessTable
from collector.sensors.steps import Progress, Steps

HELPER = Path(__file__).parents[2] / "packaging/steps/gpuvigil_steps.py"
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
        return steps.read({"GPU-1": [ME]}, at)["GPU-1"].age_seconds

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
        f"steps = runpy.run_path({str(HELPER)!r})['Steps']({str(tmp_path)!r})\n"
        "steps.done(); steps.done(); steps._written = 0.0; steps.done()\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as rank:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "ready\n"
        # The collector is another user.
        assert (tmp_path / str(rank.pid)).stat().st_mode & 0o777 == 0o644
        reader = Steps(tmp_path, PROC, ProcessTable(PROC).start_ticks)
        assert reader.read({"GPU-1": [rank.pid]}, now())["GPU-1"].step >= 1
        rank.communicate("\n")
    assert list(tmp_path.iterdir()) == []


def test_the_helper_never_ends_a_program_and_knows_its_percentile(tmp_path: Path) -> None:
    steps = runpy.run_path(str(HELPER))["Steps"](str(tmp_path / "none"))
    assert steps.p99() is None
    steps.done()
    steps._seconds.extend([0.1] * 98 + [3.0, 9.0])
    assert steps.p99() == 3.0


def test_progress_is_whole(tmp_path: Path) -> None:
    written(tmp_path, "5")
    (found,) = steps_of(tmp_path).read({"GPU-1": [ME]}, now() - timedelta(hours=1)).values()
    assert found == Progress(step=5, age_seconds=0.0, p99_seconds=None)
