"""What a node counts about itself goes on over a restart of its collector."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from collector.agent.agent import Agent
from collector.spool.batches import Sender
from collector.spool.queue import Spool
from collector.spool.subscriptions import Lane
from gpuvigil.clock import SystemClock
from gpuvigil.config import CollectorSettings
from tests.polling import wait_until

pytestmark = pytest.mark.server

NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)
SENDER = Sender(cluster="c", node="n1", boot="b1")


@contextmanager
def running(directory: Path, drops: int) -> Iterator[Agent]:
    """An agent on a spool that has given up `drops` bodies since its start."""
    settings = CollectorSettings(
        gpus=False,
        tick_seconds=0.05,
        sysfs_root=directory,
        spool_directory=directory / "spool",
        kernel_log=directory / "kmsg",
        journalctl="",
    )
    spool = Spool(settings.spool_directory, 1_000_000)
    for _ in range(drops):
        spool.put(SENDER.telemetry(["node load_average=1"], NOW))
        body = spool.next([Lane.LIVE])
        assert body is not None
        spool.drop(body)
    agent, stop = Agent(settings, SENDER, spool, SystemClock()), threading.Event()
    thread = threading.Thread(target=agent.run, args=(stop,))
    thread.start()
    try:
        yield agent
    finally:
        stop.set()
        thread.join()
        spool.close()


def dropped(agent: Agent) -> float | None:
    for family in text_string_to_metric_families(agent.exporter.text().decode()):
        if family.name == "gpuvigil_node_dropped_bodies":
            return float(family.samples[0].value)
    return None


def test_dropped_bodies_are_counted_over_restarts(tmp_path: Path) -> None:
    for drops, counted in ((2, 2.0), (1, 3.0), (1, 4.0)):
        with running(tmp_path, drops) as agent:
            assert wait_until("the first tick", partial(dropped, agent)) == counted
