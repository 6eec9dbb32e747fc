"""`/metrics` of simulated nodes: what they sent last, and nothing of a node that fell silent."""

import threading
import urllib.request
from argparse import Namespace
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpuvigil.clock import ManualClock
from gpuvigil.config import Config, HubSettings, SimulatorSettings
from simulator.cluster import build
from simulator.exporter import FRESH_TICKS, Nodes
from simulator.faults import InjectedFault
from simulator.player import Player
from simulator.service import run
from tests.polling import wait_until
from tests.timeseries import free_port

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
TICK = timedelta(seconds=2)
SETTINGS = SimulatorSettings(nodes=2, gpus_per_node=2, tick_seconds=TICK.total_seconds())


def test_nodes_are_shown_as_long_as_they_send() -> None:
    clock = ManualClock(NOON)
    nodes, player = Nodes(clock, TICK.total_seconds()), Player(SETTINGS, build(2, 2, 1), NOON, "b")

    def look(
        seconds: float, *faults: InjectedFault
    ) -> dict[str, list[tuple[dict[str, str], float]]]:
        clock.advance(seconds)
        now = clock.now()
        for body in (*player.events(now, faults), *player.telemetry(now, faults)):
            nodes.take(body)
        return {
            sample.name: [(dict(it.labels), it.value) for it in family.samples]
            for family in text_string_to_metric_families(nodes.text())
            for sample in family.samples
        }

    assert nodes.text() == ""
    for body in player.opening(NOON, {}):
        nodes.take(body)
    page = look(4.0)
    assert len(page["gpuvigil_gpu_up"]) == 4
    assert {it["index"] for it, _ in page["gpuvigil_gpu_info"]} == {"0", "1"}
    assert "gpuvigil_gpu_xids_total" not in page
    lost = InjectedFault(name="xid79", node="sim-001", gpu=1, at=clock.now())
    page = look(4.0, lost)
    ((xid, count),) = page["gpuvigil_gpu_xids_total"]
    assert (xid["node"], xid["xid"], count) == ("sim-001", "79", 1)
    assert [value for _, value in page["gpuvigil_gpu_up"]].count(0) == 1
    silent = InjectedFault(name="node-silent", node="sim-000", at=clock.now())
    last = {it["node"]: at for it, at in page["gpuvigil_node_last_tick_timestamp_seconds"]}
    until = last["sim-000"] + FRESH_TICKS * TICK.total_seconds()
    page = look(until - clock.now().timestamp(), lost, silent)
    assert len(page["gpuvigil_node_last_tick_timestamp_seconds"]) == 2
    page = look(0.1, lost, silent)
    assert [it["node"] for it, _ in page["gpuvigil_node_last_tick_timestamp_seconds"]] == [
        "sim-001"
    ]


@pytest.mark.server
def test_the_command_serves_them_where_a_port_is_set(tmp_path: Path) -> None:
    token, port, stop = tmp_path / "token", free_port(), threading.Event()
    token.write_text("a-token-of-the-tests\n")
    config = Config(
        # Nobody is there: what nodes send waits, and is shown all the same.
        hub=HubSettings(url=f"http://127.0.0.1:{free_port()}", collector_token_file=token),
        simulator=replace(
            SETTINGS,
            metrics_port=port,
            spool_directory=tmp_path / "spool",
            faults_file=tmp_path / "faults.json",
        ),
    )
    thread = threading.Thread(target=run, args=(config, Namespace(), stop))
    thread.start()

    def page() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    try:
        wait_until("all GPUs", lambda: page().count("gpuvigil_gpu_up{") == 4)
    finally:
        stop.set()
        thread.join(20)
        assert not thread.is_alive()
