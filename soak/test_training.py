"""Real PyTorch: ranks that are slowed, stopped and killed again and again, each time another one."""

import os
import random
import secrets
import signal
from pathlib import Path

import pytest

from soak.results import recorded
from tests.nvml_fake import FakeDriver, build
from tests.training_job import RANKS, TrainingJob

pytestmark = pytest.mark.timeout(3 * 3600)

TRIALS = int(os.environ.get("SOAK_TRIALS") or 20)


def test_training_names_each_rank_that_was_slow_stopped_or_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("SOAK_SEED") or secrets.randbelow(2**31))
    print(f"\nSOAK_SEED={seed}")  # noqa: T201 - the seed is what a failure is repeated with
    library, dice = build(tmp_path), random.Random(seed)
    after: dict[str, list[float]] = {"slow": [], "stopped": [], "killed": []}
    with recorded("training", seed=seed, trials=TRIALS) as result:
        for trial in range(TRIALS):
            one = _trial(tmp_path / str(trial), library, dice)
            for name, seconds in one.items():
                after[name].append(round(seconds, 1))
                result.tells(**{f"{name}_seconds": after[name]})


def _trial(directory: Path, library: Path, dice: random.Random) -> dict[str, float]:
    """How soon each was named; AssertionError where another one was, or none."""
    slow, stopped, killed = (dice.randrange(RANKS) for _ in range(3))
    directory.mkdir()
    job = TrainingJob(directory, FakeDriver(directory / "driver", library, gpus=RANKS))
    after = {}
    try:
        job.begin()
        assert job.until(lambda _: job.step() >= 30, 180.0)[0] == []
        job.send(slow, signal.SIGUSR1)
        found, after["slow"] = job.until(bool, 60.0)
        assert [it.subject for it in found] == [job.gpus[slow]]
        job.send(slow, signal.SIGUSR1)
        job.until(lambda found: not found, 90.0)
        job.send(stopped, signal.SIGSTOP)
        found, after["stopped"] = job.until(bool, 90.0)
        named = [e.value for e in found[0].evidence if "wait for" in e.name]
        assert [name.startswith(f"rank {stopped}, ") for name in named] == [True]
        job.send(stopped, signal.SIGCONT)
        job.until(lambda found: not found, 90.0)
        job.send(killed, signal.SIGKILL)
        found, after["killed"] = job.until(bool, 15.0)
        assert [it.subject for it in found] == [job.gpus[killed]]
    finally:
        job.end()
    return after
