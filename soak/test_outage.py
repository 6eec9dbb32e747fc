"""An hour without the hub under a hundred collectors, and what comes after it."""

from datetime import timedelta
from pathlib import Path

import pytest

from tests.hub.outage import Outage, come_back

pytestmark = pytest.mark.timeout(3600)


def test_an_hour_without_the_hub_under_a_hundred_collectors(tmp_path: Path) -> None:
    come_back(tmp_path, Outage(nodes=100, span=timedelta(hours=1), tick_seconds=10.0))
