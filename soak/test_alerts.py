"""An hour of incidents towards a receiver of the worst temper, with alerts killed at random moments."""

import contextlib
import os
import secrets
from pathlib import Path

import pytest

from soak.results import recorded
from tests.alerts.process import AlertsProcess
from tests.alerts.storm import Hostile, Storm, check
from tests.servers import HubProcess

pytestmark = pytest.mark.timeout(4 * 3600)

INCIDENTS = int(os.environ.get("SOAK_INCIDENTS") or 10_000)
SECONDS = float(os.environ.get("SOAK_SECONDS") or 3600.0)
KILLS = int(os.environ.get("SOAK_ALERT_KILLS") or 100)


def test_every_end_is_told_in_order_and_once_whatever_a_receiver_does_for_an_hour(
    tmp_path: Path,
) -> None:
    seed = int(os.environ.get("SOAK_SEED") or secrets.randbelow(2**31))
    print(f"\nSOAK_SEED={seed}")  # noqa: T201 - the seed is what a failure is repeated with
    with contextlib.ExitStack() as stack:
        result = stack.enter_context(recorded("alerts", seed=seed))
        server = stack.enter_context(HubProcess(tmp_path / "hub"))
        receiver = stack.enter_context(Hostile(str(seed)))
        processes = []
        for number in range(2):
            directory = tmp_path / str(number)
            directory.mkdir()
            channel = {"url": receiver.url, "timeout_seconds": 1.0}
            processes.append(stack.enter_context(AlertsProcess(server, directory, chat=channel)))
        storm = Storm(
            hub=server.hub(), seed=str(seed), count=INCIDENTS, span_seconds=SECONDS, kills=KILLS
        )
        incidents = storm.rage(processes)
        storm.settle([receiver], 3 * 3600.0)
        result.tells(
            incidents=len(incidents),
            seconds=SECONDS,
            kills=KILLS,
            posts=len(receiver.received()),
            taken=len(receiver.accepted()),
        )
        check(receiver, incidents, KILLS)
