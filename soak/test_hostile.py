"""A hub under ten thousand hostile bodies."""

import os
import secrets
from pathlib import Path

import pytest

from soak.results import recorded
from tests.hub.test_hostile import MOST_MIB, bombard, peak_mib
from tests.servers import HubProcess

pytestmark = pytest.mark.timeout(7200)

BODIES = int(os.environ.get("SOAK_BODIES") or 10_000)
_ROUND = 200


def test_ten_thousand_hostile_bodies_leave_the_hub_as_it_was(tmp_path: Path) -> None:
    seed = int(os.environ.get("SOAK_SEED") or secrets.randbelow(2**31))
    print(f"\nSOAK_SEED={seed}")  # noqa: T201 - the seed is what a failure is repeated with
    with recorded("hostile", seed=seed) as result, HubProcess(tmp_path) as hub:
        for first in range(seed, seed + BODIES, _ROUND):
            bombard(hub, range(first, first + _ROUND))
            result.tells(bodies=first + _ROUND - seed, peak_mib=round(peak_mib(hub)))
            assert peak_mib(hub) < MOST_MIB
        assert "Traceback" not in hub.log.read_text(encoding="utf-8")
