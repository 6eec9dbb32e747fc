"""The page of the network as Streamlit runs it, and `gpuvigil network`: one real hub tells both."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from dashboard.data import live
from dashboard.data.questions import QueryCache
from dashboard.data.snapshot import Snapshot
from dashboard.lists.fleet_now import fetch, on_pages
from gpuvigil.clock import SystemClock, to_ns
from gpuvigil.config import AnalyzerSettings, Config
from gpuvigil.lineprotocol import encode
from gpuvigil.model import Impact, PortIdentity, Severity, Subject
from gpuvigil.store.hub import HubStore
from tests.cli.test_commands import run
from tests.polling import wait_until
from tests.servers import HubProcess, QuickHub

from .scene import incident, inventory, node
from .test_incidents_and_pipeline_on_a_hub import open_page, said

pytestmark = pytest.mark.server

NODE = node("n-1", "prod")
DEVICES = ("mlx5_0", "mlx5_1", "mlx5_2")
GBIT = 10**9
# A second's gain of the counters of every port that is read; mlx5_2 was up once and tells nothing.
GAINED = {"receive_bytes": 25 * GBIT, "transmit_bytes": GBIT, "symbol_errors": 0}
BAD = replace(
    incident(
        "port_errors",
        replace(NODE, device="mlx5_0", port="1"),
        Severity.WARNING,
        label="n-1 mlx5_0",
        action="Swap the cable.",
    ),
    impact=Impact(gpus=8, holders=("job 7",), text="job 7 of ann: 8 GPUs", running=True),
    since=SystemClock().now() - timedelta(minutes=3),
)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with QuickHub(tmp_path_factory.mktemp("hub")) as process:
        feed(process)
        snapshot = Snapshot(process.hub, SystemClock(), AnalyzerSettings(), 0.2)
        questions = QueryCache(process.hub, SystemClock())
        live.install(live.Shared(snapshot=snapshot, questions=questions, config=Config()))
        snapshot.start()
        wait_until("the incident", lambda: live.current().view().attention)
        yield process
        snapshot.stop()
        questions.close()


def feed(process: HubProcess) -> None:
    """A minute of two ports, and what the collector and the analyzer say of the node."""
    now, client = SystemClock().now(), process.hub()
    ports = tuple(
        PortIdentity(
            device=device, port="1", kind="roce", role="fabric", was_up=True, switch="leaf-1",
            switch_port="Ethernet7",
        )
        for device in DEVICES
    )  # fmt: skip
    client.write_records(
        [inventory(NODE, gpus=0, at=now, ports=ports).to_record(), BAD.to_record()]
    )
    HubStore(client).write("\n".join(lines(NODE)).encode())


def lines(of: Subject) -> Iterator[str]:
    now = SystemClock().now()
    for device in DEVICES[:2]:
        tags = {"cluster": of.cluster, "node": of.node, "device": device, "port": "1"}
        for second in range(0, 61, 10):
            counters = {name: gained * second for name, gained in GAINED.items()}
            fields = {"up": 1, "speed_bits_per_second": 400 * GBIT, **counters}
            at = to_ns(now - timedelta(seconds=60 - second))
            yield encode("port", {**tags, "kind": "roce", "role": "fabric"}, fields, at) or ""


def test_the_page_names_the_link_the_job_and_what_to_do(hub: HubProcess) -> None:
    text = said(open_page("network"))
    assert "Possibly: 1 job may suffer; 1 finding." in text
    assert "n-1 mlx5_0" in text
    assert '["a", {"href": "/job?cluster=prod&job=7"}, "job 7"], " of ann: 8 GPUs' in text
    assert "Swap the cable." in text
    assert f"/incidents?incident={BAD.id}" in text
    assert "No waits from" in text
    assert "1 link that was up before reported nothing" in text
    assert "50 %" in text


def test_the_command_says_what_the_page_says_and_programs_get_every_link(hub: HubProcess) -> None:
    done = run(hub, "network")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        "Possibly: 1 job may suffer; 1 finding. First: n-1 mlx5_0 → leaf-1 port Ethernet7: "
    )
    assert "\nDo now: Swap the cable." in done.stdout
    assert "No waits from 2 of 2 fabric ports" in done.stdout
    done = run(hub, "network", "-o", "json")
    assert done.returncode == 0, done.stderr
    told, quiet = json.loads(done.stdout)
    assert (told["incident"], told["suffers"], told["switch"]) == (BAD.id, "job 7", "leaf-1")
    assert (quiet["link"], quiet["incident"]) == ("n-1 mlx5_1 → leaf-1 port Ethernet7", None)
    assert quiet["load_percent"] == pytest.approx(50.0, abs=1.0)
    # Nobody counted it, and it is not 0.
    assert (quiet["wait_percent"], quiet["errors_per_hour"]) == (None, 0.0)


def test_a_cluster_that_there_is_not_is_refused(hub: HubProcess) -> None:
    done = run(hub, "network", "--cluster", "nope")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no such cluster" in done.stderr


def test_pages_share_one_moment_and_ask_the_hub_for_it_no_second_time(hub: HubProcess) -> None:
    asked, shown = hub.hub(), live.current()
    moment, alone = on_pages(asked, shown, AnalyzerSettings()), fetch(asked, AnalyzerSettings())
    assert moment.view.attention[0].id == BAD.id
    assert [one.name for one in moment.clusters] == [one.name for one in alone.clusters]
    assert (moment.allocations, moment.inventories) == (alone.allocations, alone.inventories)
    never_started = Snapshot(hub.hub, SystemClock(), AnalyzerSettings(), 0.2)
    assert on_pages(asked, never_started, AnalyzerSettings()).inventories == alone.inventories
