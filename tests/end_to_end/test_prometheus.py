"""Analyzer, pages and report on a real Prometheus, without one collector of ours."""

import contextlib
import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.data import live
from dashboard.data.questions import QueryCache
from dashboard.data.snapshot import Snapshot
from dashboard.model.cluster import DisplayState
from gpuvigil.clock import SystemClock
from gpuvigil.config import Config, StoreSettings, load
from gpuvigil.errors import StoreError
from gpuvigil.hub_client import Hub
from gpuvigil.model import AllocationState, Incident, Inventory, RecordKind
from gpuvigil.numbers_in_words import HOLDERS_UNKNOWN
from gpuvigil.store import Aggregate, Function, Store
from gpuvigil.store.configured import hubs
from gpuvigil.store.external import store_of
from gpuvigil.store.prometheus import PrometheusStore
from tests.exporters import GPUS, NODES, Exporters, uuid
from tests.polling import wait_until
from tests.servers import ROOT, HubProcess
from tests.timeseries import Prometheus

pytestmark = [pytest.mark.server, pytest.mark.site]

SETTINGS = """
[hub]
url = "{hub}"
service_token_file = "{token}"
[store]
kind = "prometheus"
url = "{prometheus}"
[analyzer]
tick_seconds = 0.5
window_seconds = 10
clear_seconds = 1
silent_after_seconds = 3
silent_verdict_seconds = 3
"""
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


@dataclass(frozen=True)
class Site:
    exporters: Exporters
    prometheus: Prometheus
    store: Store


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A Prometheus that has scraped a few times."""
    directory = tmp_path_factory.mktemp("prometheus")
    with (
        Exporters() as exporters,
        Prometheus(directory, exporters.address, exporters.targets) as prometheus,
    ):
        store = PrometheusStore(StoreSettings(kind="prometheus", url=prometheus.url))
        wait_until("every GPU was scraped twice", lambda: min(samples(store), default=0) >= 2, 60)
        yield Site(exporters, prometheus, store)


def now() -> datetime:
    return datetime.now(timezone.utc)


def samples(store: Store) -> list[int]:
    found = store.window("gpu", [], now() - 60 * SECOND, now())["samples"].to_pylist()
    return [int(it) for it in found] if len(found) == len(NODES) * GPUS else []


def test_what_dcgm_says_is_in_the_units_of_the_catalogue(site: Site) -> None:
    fields = ["up", "index", "utilization_percent", "memory_used_bytes", "sm_clock_hertz"]
    fields += ["power_watts", "energy_joules", "graphics_activity_percent", "compute_processes"]
    rows = site.store.latest("gpu", fields, now() - 10 * SECOND).to_pylist()
    assert [(row["node"], row["uuid"]) for row in rows] == [
        (node, uuid(node, gpu)) for node in NODES for gpu in range(GPUS)
    ]
    row = rows[1]
    assert row["cluster"] == "h100"
    assert row["model"] == "NVIDIA H100 80GB HBM3"
    assert {name: row[name] for name in fields} == {
        "up": 1,
        "index": 1,
        "utilization_percent": 98,
        "memory_used_bytes": 70_000 * 1024 * 1024,
        "sm_clock_hertz": 1_980_000_000,
        "power_watts": 652.25,
        "energy_joules": 2000.0,
        "graphics_activity_percent": 87.5,
        "compute_processes": None,
    }


def test_ports_and_nodes_are_those_of_node_exporter(site: Site) -> None:
    since = now() - 10 * SECOND
    fields = ["up", "speed_bits_per_second", "link_downed", "transmit_wait_ticks"]
    rows = site.store.latest("port", fields, since)
    assert [
        (it["device"], it["kind"], *(it[name] for name in fields)) for it in rows.to_pylist()
    ] == [
        ("eth0", "ethernet", 1, 10_000_000_000, 2, None),
        ("mlx5_0", "infiniband", 1, 400_000_000_000, 3, 42_949_000),
        ("mlx5_1", "infiniband", 0, None, None, None),
    ]
    nodes = site.store.latest("node", ["load_average", "memory_total_bytes"], since).to_pylist()
    assert [(it["node"], it["load_average"], it["memory_total_bytes"]) for it in nodes] == [
        ("gpu-a", 3.5, 2_164_663_517_184),
        ("gpu-b", None, None),
    ]


def test_ranges_and_subjects_are_cut_as_the_store_promises(site: Site) -> None:
    whole = (now() - 60 * SECOND, now())
    where = {"uuid": uuid("gpu-b", 1), "node": "gpu-b"}
    lines = site.store.series("gpu", ["power_watts"], where, whole, timedelta(milliseconds=1))
    assert {it["uuid"] for it in lines.to_pylist()} == {uuid("gpu-b", 1)}
    first, last = (lines["at"][place].as_py() for place in (0, -1))
    asked = [Aggregate(function=function, field="power_watts") for function in Function]
    found = site.store.window("gpu", asked, first, last).to_pylist()
    (row,) = [it for it in found if it["uuid"] == uuid("gpu-b", 1)]
    assert row["first_at"] == first
    assert row["last_at"] < last
    assert row["samples"] == row["power_watts_count"] == len(lines) - 1
    assert row["power_watts_increase"] == 0
    assert not len(site.store.series("gpu", [], {"node": "gpu-c"}, whole, SECOND))


def test_who_told_anything_in_a_step_is_known_without_its_lines(site: Site) -> None:
    span = (now() - 90 * SECOND, now() + 30 * SECOND)
    quarter = timedelta(minutes=15)
    found = site.store.series("gpu", [], {"cluster": "h100"}, span, quarter)
    lines = site.store.series("gpu", ["up"], {"cluster": "h100"}, span, quarter)
    keys = ["cluster", "node", "uuid", "model", "at"]
    assert found.num_rows >= len(NODES) * GPUS
    assert found.select(keys).to_pylist() == lines.select(keys).to_pylist()
    assert set(site.store.series("node", [], {}, span, 365 * 24 * HOUR)["node"].to_pylist()) == set(
        NODES
    )
    assert not len(site.store.series("gpu", [], {"cluster": "other"}, span, quarter))


def test_nothing_is_written_or_forgotten(site: Site) -> None:
    with pytest.raises(StoreError, match="only read"):
        site.store.write(b"gpu,cluster=c up=1i")
    with pytest.raises(StoreError, match="only read"):
        site.store.forget(now())


@pytest.mark.timeout(400)
def test_analyzer_overview_and_report_work_without_a_collector(site: Site, tmp_path: Path) -> None:
    with HubProcess(tmp_path / "hub") as hub:
        file = tmp_path / "gpuvigil.toml"
        file.write_text(
            SETTINGS.format(
                hub=hub.url, token=hub.service_token_file, prometheus=site.prometheus.url
            )
        )
        log = (tmp_path / "analyze.log").open("wb")
        command = [sys.executable, "-m", "gpuvigil", "analyze", "--config", str(file)]
        with log, subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log) as analyzer:
            try:
                _stands(hub, file, site)
            finally:
                analyzer.terminate()
                analyzer.wait(15)


def _stands(hub: HubProcess, file: Path, site: Site) -> None:
    client = hub.hub()
    wait_until("inventories", lambda: len(client.records(RecordKind.INVENTORY)) == 2, 40)
    first, second = map(Inventory.from_record, client.records(RecordKind.INVENTORY))
    assert {first.subject.node, second.subject.node} == set(NODES)
    assert all([gpu.index for gpu in it.gpus] == [0, 1] for it in (first, second))
    assert first.tick_seconds == 1.0
    _page(load(file))
    _report(file)
    _nobody_is_called_free_or_held(file)
    _labels_name_holders(client, file, site)
    # One that nobody holds may reboot, and is awaited for longer.
    site.exporters.labels = {uuid("gpu-b", 0): {"hpc_job": "1042"}}
    held = partial(client.records, RecordKind.ALLOCATION, states=[AllocationState.HELD])
    wait_until("somebody holds a GPU", lambda: bool(held()), 90)
    # It was heard after that, too.
    time.sleep(5.0)
    site.exporters.gone.update({uuid("gpu-b", 0), uuid("gpu-b", 1)})
    try:
        wait_until("the silent node is an incident", lambda: _silent(hub), 60)
    finally:
        site.exporters.gone.clear()


def _silent(hub: HubProcess) -> bool:
    found = map(Incident.from_record, hub.hub().records(RecordKind.INCIDENT))
    return any(one.fault == "node_silent" and one.subject.node == "gpu-b" for one in found)


def _page(config: Config) -> None:
    connect = hubs(config)
    assert isinstance(store_of(connect()), PrometheusStore)
    snapshot = Snapshot(connect, SystemClock(), config.analyzer, 0.5)
    questions = QueryCache(connect, SystemClock())
    live.install(live.Shared(snapshot=snapshot, questions=questions, config=config))
    snapshot.start()
    try:
        wait_until(
            "every GPU has a state",
            lambda: any(
                it.strip.looks[DisplayState.ACTIVE] == len(NODES) * GPUS
                for it in snapshot.view().clusters
            ),
            30,
        )
        (cluster,) = snapshot.view(complete=True).clusters
        assert cluster.name == "h100"
        # A minute counts once it is over.
        wait_until("the day", lambda: HOLDERS_UNKNOWN in _opened("overview"), 100)
        names = ("overview", "pipeline", "node", "gpu", "efficiency")
        texts = {name: _opened(name) for name in names}
        assert "2 nodes · 4 GPUs" in texts["overview"]
        assert "read from Prometheus" in texts["node"]
        strip = texts["overview"].partition("GPUs allocated")[2].partition("Used of allocated")[0]
        assert "–" in strip
        assert "holders not known" in strip
        assert HOLDERS_UNKNOWN in texts["overview"]
        assert "2.6 kW" in texts["overview"]
        assert "limits not measured" in texts["overview"]
        for text in texts.values():
            assert 'class="fact">not allocated' not in text
            assert "Nobody" not in text
    finally:
        snapshot.stop()
        questions.close()


def _opened(name: str) -> str:
    script = "app.py" if name == "overview" else f"pages/{name}.py"
    test = AppTest.from_file(str(ROOT / "dashboard" / script), default_timeout=60)
    if name in {"node", "gpu"}:
        test.query_params.update({"cluster": "h100", "node": "gpu-a", "gpu": "0"})
    test.run()
    assert not test.exception
    return "".join(it.proto.body for it in test.get("html"))


def _report(file: Path) -> None:
    """The quarter of an hour that runs is counted from Prometheus, minute by minute."""
    program = "import sys; from report.report_command import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "--config", str(file), "--last", "1h", "-o", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    (report,) = json.loads(done.stdout)["reports"]
    assert (report["cluster"], report["gpus"], report["nodes"]) == ("h100", 4, 2)
    assert report["figures"]["energy_kwh"]["value"] > 0
    assert report["figures"]["allocated_percent"]["value"] is None
    assert report["figures"]["idle_held_gpu_hours"]["value"] is None
    assert report["verdict"][0]["text"] == HOLDERS_UNKNOWN
    assert [day["allocated_gpu_hours"] for day in report["days"]] == [None]
    used = report["figures"]["used_of_allocated_percent"]
    assert (used["value"], used["low"], used["high"]) == (None, None, None)
    text = subprocess.run([*command[:-1], "md"], cwd=ROOT, capture_output=True, check=True)
    assert "Nobody held a GPU" not in text.stdout.decode()


def said(file: Path, *command: str) -> str:
    """What a command prints on a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "gpuvigil", *command, "--config", str(file)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        found = b""
        # Linux says EIO at a terminal's end.
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 65536):
                found += piece
    os.close(ours)
    assert process.returncode == 0, found
    return " ".join(found.decode().split())


def _nobody_is_called_free_or_held(file: Path) -> None:
    status = said(file, "status")
    assert "h100: 4 GPUs: 4 active; holders not known; 2.6 kW" in status
    for command in ("top", "idle", "inefficient", "usage"):
        assert HOLDERS_UNKNOWN in said(file, command), command
    assert "No scheduler is read" in said(file, "queue")


def _labels_name_holders(client: Hub, file: Path, site: Site) -> None:
    """Those of jobs, and of pods beside the exporter's own."""
    own = {"pod": "dcgm-exporter-x7k2p", "namespace": "gpu-operator"}
    site.exporters.labels = {
        uuid("gpu-a", 0): {"hpc_job": "1042"},
        uuid("gpu-a", 1): {"hpc_job": "1042"},
        uuid("gpu-b", 0): {"pod": "llama-0", "namespace": "train", "container": "main"},
        uuid("gpu-b", 1): own,
    }

    def holders() -> dict[str, str]:
        found = client.records(RecordKind.ALLOCATION, states=[AllocationState.HELD])
        return {one.subject.rpartition("/")[2]: one.body["holder"] for one in found}

    job, pod = "job 1042", "pod train/llama-0"
    wanted = {uuid("gpu-a", 0): job, uuid("gpu-a", 1): job, uuid("gpu-b", 0): pod}
    wait_until("the holders", lambda: holders() == wanted, 90)
    top = said(file, "top")
    assert job in top
    assert pod in top
    assert "dcgm-exporter" not in top
    assert "4 active; – allocated, 98 % of that used" in said(file, "status")
    site.exporters.labels = {}
    wait_until("they have let go", lambda: not holders(), 90)
