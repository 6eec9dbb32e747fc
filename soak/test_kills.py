"""Real processes killed at many random moments."""

import os
import random
import secrets
from pathlib import Path

import pytest

from soak.results import recorded
from tests.hub.test_crash import assert_there_once, kill_under_load

pytestmark = pytest.mark.timeout(2 * 3600)

KILLS = int(os.environ.get("SOAK_KILLS") or 200)


def test_nothing_that_the_hub_acknowledged_is_lost_or_doubled_by_200_kills(tmp_path: Path) -> None:
    seed = int(os.environ.get("SOAK_SEED") or secrets.randbelow(2**31))
    print(f"\nSOAK_SEED={seed}")  # noqa: T201 - the seed is what a failure is repeated with
    with recorded("kills", seed=seed) as result:
        kept = kill_under_load(tmp_path, random.Random(seed), KILLS)
        result.tells(kept)
        assert_there_once(kept)
