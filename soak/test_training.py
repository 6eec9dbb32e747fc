"""Real PyTorch: ranks that are slowed, stopped and killed again and again, each time another one."""

import os
import random
import secrets
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import pytest

from soak.results import recorded
from tests.nvml_fake import FakeDriver, build
from tests.training_job import RANKS, TrainingJob

pytestmark = pytest.mark.timeout(3 * 3600)

TRIALS = int(os.environ.get("SOAK_TRIALS") or 20)
# Most of a trial is a minute in which a stopped rank's job waits: another job can train meanwhile.
JOBS_AT_ONCE = int(os.environ.get("SOAK_JOBS") or 2)


def test_training_names_each_rank_that_was_slow_stopped_or_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("SOAK_SEED") or secrets.randbelow(2**31))
    print(f"\nSOAK_SEED={seed}")  # noqa: T201 - the seed is what a failure is repeated with
    library, dice = build(tmp_path), random.Random(seed)
    after: dict[str, list[float]] = {"slow": [], "stopped": [], "killed": []}
    with (
        recorded("training", seed=seed, trials=TRIALS, jobs_at_once=JOBS_AT_ONCE) as result,
        ThreadPoolExecutor(JOBS_AT_ONCE) as pool,
    ):
        trials = [
            pool.submit(_trial, tmp_path / str(trial), library, dice.choices(range(RANKS), k=3))
            for trial in range(TRIALS)
        ]
        try:
            for trial in as_completed(trials):
                for name, seconds in trial.result().items():
                    after[name].append(round(seconds, 1))
                    result.tells(**{f"{name}_seconds": after[name]})
        finally:
            pool.shutdown(cancel_futures=True)


def _trial(directory: Path, library: Path, ranks: Sequence[int]) -> dict[str, float]:
    """How soon each was named; AssertionError where another one was, or none."""
    slow, stopped, killed = ranks
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
        # A dead rank writes no dump; those of all others show that they wait in one collective.
        (said,) = job.dumped(RANKS - 1)
        assert {it.rank for it in said.ranks} == set(range(RANKS)) - {killed}
        assert said.late == ()
    finally:
        job.end()
    return after
