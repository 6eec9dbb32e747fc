"""The whole agent beside a job that tells how long its ranks wait: what it ships."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuvigil.model import Event, EventKind, Record, Source
from tests.collector.agent import Agent
from tests.collector.nccl.inspector_lines import line
from tests.collector.receiver import Receiver
from tests.collector.rows import UUIDS
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until

# A rank is told when it comes last at two looks, two minutes apart, of which the first may miss the job.
pytestmark = [pytest.mark.server, pytest.mark.timeout(400)]


def test_whom_a_job_waits_for_is_an_event_of_the_node_with_the_gpu(
    agent: Agent, driver: FakeDriver, receiver: Receiver, tmp_path: Path
) -> None:
    words = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as job:
        driver.set_processes(1, {job.pid: None})
        for rank in range(4):
            more = {"host": os.uname().nodename, "pid": job.pid + rank}
            lines = [line(rank, n, 4000 if rank else 1000, **more) for n in range(30)]
            (tmp_path / f"{rank}.log").write_bytes(b"\n".join(lines) + b"\n")
        agent.environment = driver.environment()
        agent.settings["nccl_inspector_directories"] = [str(tmp_path)]
        agent.start()

        def told_by_now() -> list[Event]:
            for file in tmp_path.glob("*.log"):
                file.touch()  # the job writes on
            return told(receiver)

        (event,) = wait_until("an event", told_by_now, 300.0)
        job.communicate()
    assert (event.subject.node, event.subject.kind) == ("n1", "node")
    (found,) = event.collectives
    assert (found.by, found.holder) == (Source.INSPECTOR, f"pid {job.pid}")
    assert [(it.rank, it.gpu, it.microseconds) for it in found.ranks] == [(0, UUIDS[1], 1000)]
    assert agent.stop() == 0


def told(receiver: Receiver) -> list[Event]:
    records = [Record.from_json(it) for it in receiver.records("event")]
    events = [Event.from_record(it) for it in records]
    return [it for it in events if it.kind is EventKind.COLLECTIVE]
