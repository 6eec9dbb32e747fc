"""Ten receivers that fail by ten seeds, and two alerts processes that are killed meanwhile."""

import contextlib
from pathlib import Path

import pytest

from gpuvigil.lifecycle import Signal
from gpuvigil.model import RecordKind, Subject
from tests.polling import wait_until
from tests.receiver import Receiver
from tests.servers import QuickHub

from .process import AlertsProcess
from .storm import Hostile, Storm, check
from .test_service import Story

pytestmark = pytest.mark.server

KILLS = 3


@pytest.mark.timeout(300)
def test_whatever_the_receivers_do_each_hears_the_end_in_order_and_once(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(QuickHub(tmp_path / "hub"))
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
        # How much is told before it is over is the machine's pace; that something is, is not.
        assert all(one.received() for one in receivers.values())


def test_a_switch_that_takes_512_gpus_with_it_makes_one_message(tmp_path: Path) -> None:
    nodes = [Subject(cluster="lab", node=f"n{number:02d}") for number in range(64)]
    members = tuple(f"{node.key}/gpu/GPU-{gpu}" for node in nodes for gpu in range(8))
    with QuickHub(tmp_path / "hub") as server, Receiver() as receiver:
        with AlertsProcess(server, tmp_path, chat={"url": receiver.url}):
            hub = server.hub()
            silent = [(Story(hub), node) for node in nodes]
            for story, node in silent:
                story.tell(Signal.CONFIRMED, fault="node_silent", subject=node)
            switch = Story(hub)
            switch.tell(
                Signal.CONFIRMED, subject=Subject(cluster="lab", node="leaf-3"), members=members
            )
            receiver.wait_for(1, 60.0)
            for story, node in silent:
                story.tell(Signal.CLEARED, fault="node_silent", subject=node)

            def is_settled() -> bool:
                due = hub.records(RecordKind.NOTICE, states=("due",))
                decided = hub.records(RecordKind.NOTICE)
                return len(decided) > 2 * len(nodes) and all(one.body["repeat"] for one in due)

            wait_until("all is decided", is_settled, 90.0)
        (message,) = receiver.received()
    where = message.payload["commonAnnotations"]["where"]
    assert "512 GPUs on 64 nodes" in where
