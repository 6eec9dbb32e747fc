"""The hub comes back after collectors, analyzer and alerts have been without it."""

from datetime import timedelta
from pathlib import Path

import pytest

from tests.hub.outage import Outage, come_back

pytestmark = [pytest.mark.site, pytest.mark.server, pytest.mark.timeout(600)]


def test_a_hub_that_was_away_gets_all_that_waited_in_order_and_nobody_is_paged_for_the_past(
    tmp_path: Path,
) -> None:
    come_back(tmp_path, Outage(nodes=10, span=timedelta(minutes=2), tick_seconds=2.0))
