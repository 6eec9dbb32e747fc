"""An hour without the hub under a hundred collectors, and what comes after it."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from soak.away import stay_away
from soak.results import recorded
from tests.hub.outage import Outage

pytestmark = pytest.mark.timeout(4 * 3600)

# Shorter to rehearse; what is written down says how long it was.
MINUTES = float(os.environ.get("SOAK_OUTAGE_MINUTES") or 60)
NODES = 100


def test_an_hour_without_the_hub_under_a_hundred_collectors(tmp_path: Path) -> None:
    outage = Outage(nodes=NODES, span=timedelta(minutes=MINUTES), tick_seconds=10.0)
    with recorded("outage", away_minutes=MINUTES, nodes=NODES) as result:
        found = stay_away(tmp_path, outage)
        result.tells(found)
        assert (found.lost, found.doubled, found.out_of_order, found.left_out) == (0, 0, 0, 0)
        assert found.acknowledged >= found.waiting
