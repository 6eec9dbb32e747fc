"""Five minutes without a network, in each profile of compose.yaml in a container engine."""

import os
from pathlib import Path

import pytest

from soak.results import recorded
from tests.compose_engine import TICK_SECONDS
from tests.compose_site import engine, site

pytestmark = pytest.mark.timeout(2 * 3600)

# Shorter to rehearse; what is written down says how long it was.
MINUTES = float(os.environ.get("SOAK_CUT_MINUTES") or 5)
PROFILES = ("embedded", "victoriametrics", "influxdb")


def test_five_minutes_without_a_network_lose_nothing_acknowledged(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    cache: pytest.Cache = request.config.cache
    ticks: dict[str, int] = {}
    with (
        recorded("compose", minutes=MINUTES, tick_seconds=TICK_SECONDS, ticks=ticks) as result,
        engine(cache.mkdir("machines"), tmp_path) as running,
    ):
        for profile in PROFILES:
            with site(running, profile) as up:
                up.await_health()
                up.driver.lose(1)
                up.told(1)
                up.driver.lose(0)
                meanwhile = up.without_network(MINUTES * 60)
                up.told(0)
                up.assert_nothing_is_lost()
            ticks[profile] = meanwhile
            result.tells(ticks=ticks)
