"""Real PyTorch on the CPU: a rank that is slow, one that is stopped and one that is killed are named.

With torch, Lightning and transformers of the extra `training`, which `make test-sites` installs.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from collector.owners.processes import ProcessTable
from collector.sensors.steps import Steps
from gpuvigil.model import Finding
from tests.nvml_fake import FakeDriver
from tests.training_job import RANKS, ROOT, TrainingJob

pytestmark = [pytest.mark.server, pytest.mark.site, pytest.mark.timeout(600)]


@pytest.fixture
def job(tmp_path: Path, library: Path) -> Iterator[TrainingJob]:
    job = TrainingJob(tmp_path, FakeDriver(tmp_path / "driver", library, gpus=8))
    try:
        job.begin()
        yield job
    finally:
        job.end()


def told(found: list[Finding]) -> list[tuple[str, str]]:
    """What of whom; of a node, whom the evidence names."""
    return [
        (it.condition, next((e.value for e in it.evidence if "rank" in e.value), ""))
        for it in found
    ]


@pytest.mark.alone
def test_of_eight_ranks_the_slow_the_stopped_and_the_killed_one_is_named(job: TrainingJob) -> None:
    assert job.until(lambda _: job.step() >= 30, 180.0)[0] == []
    job.send(5, signal.SIGUSR1)
    found, seconds = job.until(bool, 60.0)
    assert [(it.condition, it.subject) for it in found] == [("slow_rank", job.gpus[5])]
    assert told(found)[0][1].startswith("rank 5: ")
    print(f"slow: named after {seconds:.1f} s")  # noqa: T201 - a figure of the page on steps
    job.send(5, signal.SIGUSR1)
    job.until(lambda found: not found, 60.0)
    job.send(3, signal.SIGSTOP)
    found, seconds = job.until(bool, 90.0)
    assert [it.condition for it in found] == ["no_steps"]
    assert told(found)[0][1].startswith("rank 3, ")
    assert "stopped by a signal" in told(found)[0][1]
    print(f"stopped: named after {seconds:.1f} s")  # noqa: T201
    job.send(3, signal.SIGCONT)
    job.until(lambda found: not found, 60.0)
    job.send(6, signal.SIGKILL)
    found, seconds = job.until(bool, 15.0)
    assert [(it.condition, it.subject) for it in found] == [("rank_gone", job.gpus[6])]
    assert told(found)[0][1].startswith("rank 6, ")
    print(f"killed: named after {seconds:.1f} s")  # noqa: T201
    # A dead rank writes no dump; those of all others show that they entered one collective and wait in it.
    (said,) = job.dumped(RANKS - 1)
    assert (said.operation, said.count, said.late) == ("all_reduce", RANKS - 1, ())
    assert {it.rank for it in said.ranks} == set(range(RANKS)) - {6}


@pytest.mark.parametrize(("kind", "phase"), [("lightning", 1), ("hugging_face", 4)])
def test_a_framework_s_callback_tells_its_steps(tmp_path: Path, kind: str, phase: int) -> None:
    """Evaluations take three seconds each, and a step next to nothing beside its own work."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.training_frameworks", kind, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as rank:
        assert rank.stdin is not None
        assert rank.stdout is not None
        while (line := rank.stdout.readline()) != "trained\n":
            assert line, rank.wait()
        sensor = Steps(tmp_path, Path("/proc"), ProcessTable(Path("/proc")).start_ticks)
        said = sensor.read({"GPU-1": [rank.pid]}, datetime.now(timezone.utc))["GPU-1"]
        rank.stdin.write("\n")
        rank.stdin.flush()
        while (line := rank.stdout.readline()) != "over\n":
            assert line, rank.wait()
        # A program that goes on after its training has no file.
        assert not (tmp_path / str(rank.pid)).exists()
        rank.communicate("\n")
    assert said.step == 30
    assert said.own_seconds is not None
    assert 0.05 <= said.own_seconds < 0.5
    assert said.own_first_seconds is not None
    assert said.p99_seconds is not None
    assert said.p99_seconds < 3.0
    assert said.input_seconds is not None
    assert said.input_seconds < 0.5
    assert said.checkpoint_age_seconds is not None
    assert said.phase == phase
