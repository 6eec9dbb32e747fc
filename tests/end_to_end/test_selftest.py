"""`gpuvigil selftest` against a hub, each kind of store and an analyzer that run: every rule fires, and all of it ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from accounting.usage.query import clusters
from dashboard.lists.fleet_now import fetch
from gpuvigil.clock import SystemClock
from gpuvigil.config import load
from gpuvigil.faults import FAULTS
from gpuvigil.model import SELFTEST_CLUSTER, AllocationState, Incident, RecordKind, readable
from gpuvigil.store.configured import hubs
from simulator.selftest import selftest_command
from tests.polling import wait_until
from tests.servers import ROOT, HubProcess
from tests.timeseries import InfluxDB, VictoriaMetrics

pytestmark = [pytest.mark.server, pytest.mark.site]

# Shorter spans than usual: nodes tick every two seconds then.
SETTINGS = """
[hub]
url = "{url}"
service_token_file = "{service}"
collector_token_file = "{collector}"
[analyzer]
tick_seconds = 5
window_seconds = 12
silent_after_seconds = 5
clear_seconds = 1
{store}
"""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    # The bodies of a tick in one commit, as usual; tests mostly want each at once.
    with HubProcess(tmp_path / "hub", {"commit_seconds": 0.5}) as process:
        yield process


@pytest.fixture(params=["hub", "victoriametrics", "influxdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The section of the configuration that names where telemetry is kept."""
    if request.param == "hub":
        yield ""
    elif request.param == "victoriametrics":
        with VictoriaMetrics(tmp_path / "store") as metrics:
            yield f'[store]\nkind = "victoriametrics"\nurl = "{metrics.url}"'
    else:
        with InfluxDB(tmp_path / "store") as influx:
            influx.create("gpuvigil")
            yield f'[store]\nkind = "influxdb"\nurl = "{influx.url}"'


def config(hub: HubProcess, store: str) -> Path:
    path = hub.directory / "site.toml"
    path.write_text(
        SETTINGS.format(
            url=hub.url,
            service=hub.service_token_file,
            collector=hub.collector_token_file,
            store=store,
        )
    )
    return path


def analyzer(hub: HubProcess, path: Path) -> subprocess.Popen[bytes]:
    command_line = [sys.executable, "-m", "gpuvigil", "analyze", "--config", str(path)]
    with (hub.directory / "analyze.log").open("ab") as log:
        return subprocess.Popen(command_line, cwd=ROOT, stdout=log, stderr=log)


def incidents(hub: HubProcess) -> list[Incident]:
    return list(readable(hub.hub().records(RecordKind.INCIDENT), Incident.from_record))


@pytest.mark.timeout(300)
def test_every_rule_fires_through_hub_and_analyzer_and_nothing_is_left(
    hub: HubProcess, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, said = config(hub, store), list[str]()
    # Without an analyzer one line says so, and nothing is told.
    assert selftest_command.main(["--config", str(path)]) == 1
    assert capsys.readouterr().err == (
        "gpuvigil selftest: the analyzer has never made a pass: start it first ('gpuvigil analyze')\n"
    )
    assert hub.hub().records(RecordKind.INVENTORY, subject=SELFTEST_CLUSTER) == ()
    process = analyzer(hub, path)
    try:
        wait_until("a pass", lambda: hub.hub().records(RecordKind.PULSE), 60.0)
        code = selftest_command.run(load(path), 90.0, SystemClock(), said.append)
    finally:
        os.kill(process.pid, signal.SIGTERM)
        process.wait(timeout=20)
    assert (code, said[-1].startswith("every rule fired")) == (0, True), "\n".join(said)
    told = incidents(hub)
    assert {one.fault for one in told} == set(FAULTS)
    assert {one.state for one in told} == {"resolved"}
    held = [AllocationState.HELD.value]
    assert hub.hub().records(RecordKind.ALLOCATION, states=held) == ()
    # Nobody else sees that it was there.
    client = hubs(load(path))()
    try:
        moment = fetch(client, load(path).analyzer)
        assert (moment.clusters, moment.view.attention) == ((), ())
        assert clusters(client) == ()
    finally:
        client.close()
