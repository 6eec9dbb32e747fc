"""Twenty times, one port of eight lets less through: its job's ranks run on real packets."""

import os
import random
import secrets
from pathlib import Path

import pytest

from soak.results import recorded
from tests.nvml_fake import build
from tests.packets import is_named, rest, running, told_of

pytestmark = pytest.mark.timeout(3600)

TRIALS, LEAST_NAMED = 20, 19


def test_a_port_that_slows_its_job_down_is_named_19_times_of_20(tmp_path: Path) -> None:
    seed = int(os.environ.get("SOAK_SEED") or secrets.randbelow(2**31))
    print(f"\nSOAK_SEED={seed}")  # noqa: T201 - the seed is what a failure is repeated with
    chance, named, node = random.Random(seed), 0, ""
    with (
        recorded("packets", seed=seed, trials=TRIALS) as result,
        running(tmp_path, build(tmp_path), 8) as (job, watched),
    ):
        for trial in range(1, TRIALS + 1):
            # Another one than the last: half of what is looked back over is of before.
            last = node
            if last:
                rest()
            node = chance.choice([it for it in job.nodes if it != last])
            share = chance.uniform(0.2, 0.55)
            at_leaf = chance.random() < 0.5
            told = told_of(job, watched, node, share, at_leaf)
            named += is_named(told, node)
            result.tells(trials=trial, named=named)
            where = "leaf" if at_leaf else "node"
            print(trial, node, f"{share:.2f}", where, [(it.fault, it.subject.key) for it in told])  # noqa: T201
        assert named >= LEAST_NAMED
