"""Ten receivers that fail by ten seeds, and two alerts processes that are killed meanwhile."""

import contextlib
from pathlib import Path

import pytest

from tests.servers import HubProcess

from .process import AlertsProcess
from .storm import Hostile, Storm, check

pytestmark = pytest.mark.server

KILLS = 3


@pytest.mark.timeout(300)
def test_whatever_the_receivers_do_each_hears_the_end_in_order_and_once(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(HubProcess(tmp_path / "hub"))
        receivers = {f"r{n}": stack.enter_context(Hostile(f"round {n}")) for n in range(10)}
        channels = {
            name: {"url": one.url, "timeout_seconds": 0.3} for name, one in receivers.items()
        }
        processes = []
        for number in range(2):
            directory = tmp_path / str(number)
            directory.mkdir()
            process = AlertsProcess(server, directory, **channels)
            processes.append(stack.enter_context(process))
        storm = Storm(hub=server.hub(), seed="storm", count=8, span_seconds=3.0, kills=KILLS)
        incidents = storm.rage(processes)
        storm.settle(list(receivers.values()), 150.0)
        for receiver in receivers.values():
            check(receiver, incidents, KILLS)
        assert sum(len(one.received()) for one in receivers.values()) > 80
