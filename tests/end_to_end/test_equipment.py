"""Power and cooling that a real Prometheus scrapes, from their exporters' pages to incidents, everything as shipped."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuvigil.model import Incident, RecordKind
from tests.equipment_pages import EquipmentPages
from tests.fabric import Fabric, running
from tests.polling import wait_until
from tests.servers import ROOT
from tests.timeseries import Prometheus

pytestmark = [pytest.mark.server, pytest.mark.site]

HOSTS = {f"host{n:02}": ("mlx5_0",) for n in (1, 2, 3)}
RACK = "r07"
NODES = {("host_power", ""), ("host_fan", "")}
RACKS = {("host_power", "feed_failed"), ("host_fan", "coolant")}
_READER = """
[collector]
cluster = "lab"
node = "mgmt"
[switches]
url = "{url}"
mappings = [{mappings}]
interval_seconds = 5
spool_directory = "{folder}/spool"
"""


def gpuvigil(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpuvigil", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@contextmanager
def reading(folder: Path, fabric: Fabric, url: str) -> Iterator[Path]:
    """`gpuvigil switches` with all examples and a token of its own; gives its configuration."""
    folder.mkdir()
    config, token = folder / "reader.toml", folder / "scheduler-token"
    named = ", ".join(f'"{file}"' for file in sorted((ROOT / "packaging/equipment").glob("*.toml")))
    text = fabric.everybody() + _READER.format(url=url, mappings=named, folder=folder)
    config.write_text(text)
    words = ("--scope", "scheduler", "--cluster", "lab", "--name", "switches")
    made = gpuvigil("token", "--config", str(config), "create", *words, "--file", str(token))
    assert made.returncode == 0, made.stderr
    config.write_text(text.replace("[hub]", f'[hub]\nscheduler_token_file = "{token}"'))
    with (folder / "log").open("wb") as log:
        command = [sys.executable, "-m", "gpuvigil", "switches", "--config", str(config)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        try:
            yield config
        finally:
            process.terminate()
            assert process.wait(20) == 0, (folder / "log").read_text()


def open_incidents(fabric: Fabric) -> dict[tuple[str, str], Incident]:
    """Open incidents by fault and condition."""
    every = map(Incident.from_record, fabric.hub.hub().records(RecordKind.INCIDENT))
    return {(it.fault, it.condition): it for it in every if it.resolved_at is None}


def evidence(it: Incident) -> dict[str, str]:
    return {one.name: one.value for one in it.evidence}


@pytest.mark.timeout(900)
def test_what_prometheus_scrapes_of_power_and_cooling_becomes_incidents(
    tmp_path: Path, needs: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("prometheus", "scripts/install-test-servers")
    monkeypatch.setenv("GPUVIGIL_COLLECTOR_RACK", RACK)
    pages = EquipmentPages(
        supplies={host: {"PSU1": 1, "PSU2": 1} for host in HOSTS},
        fans={host: {"FAN1": 1} for host in HOSTS},
        infeeds={f"pdu-{RACK}-a": {1: 1}, f"pdu-{RACK}-b": {1: 1}},
        flows={RACK: 90.0},
    )
    with (
        pages,
        Prometheus(tmp_path / "prometheus", pages.address, pages.targets) as prometheus,
        running(tmp_path, HOSTS) as fabric,
        reading(tmp_path / "reader", fabric, prometheus.url) as config,
    ):
        hub = fabric.hub.hub()
        wait_until("3 nodes and a rack", lambda: len(hub.records(RecordKind.EQUIPMENT)) == 4, 60.0)
        said = gpuvigil("switches", "--config", str(config), "--check")
        assert said.returncode == 0, said.stdout + said.stderr
        assert "redfish_exporter.toml: 3 nodes\n  power supply: 6 measured, 0 failed" in said.stdout
        assert "pdu_snmp_exporter.toml: 1 rack\n  power feed: 4 measured, 0 failed" in said.stdout
        assert open_incidents(fabric) == {}
        pages.supplies["host02"]["PSU2"] = pages.fans["host03"]["FAN1"] = 3
        wait_until("a supply and a fan", lambda: set(open_incidents(fabric)) == NODES, 200.0)
        _are_of_nodes(open_incidents(fabric))
        pages.supplies["host02"]["PSU2"] = pages.fans["host03"]["FAN1"] = 1
        wait_until("both are over", lambda: open_incidents(fabric) == {}, 120.0)
        # The supply that this feed fed is no matter of its own.
        pages.infeeds[f"pdu-{RACK}-b"][1] = 0
        pages.supplies["host01"]["PSU2"] = 3
        pages.flows[RACK] = 4.5
        wait_until("a feed and a flow", lambda: set(open_incidents(fabric)) == RACKS, 200.0)
        _are_of_the_rack(open_incidents(fabric))
        log = (tmp_path / "reader/log").read_text()
        assert "not read" not in log, log


def _are_of_nodes(incidents: dict[tuple[str, str], Incident]) -> None:
    supply, fan = incidents["host_power", ""], incidents["host_fan", ""]
    assert (supply.subject.node, fan.subject.node) == ("host02", "host03")
    assert evidence(supply)["power supply PSU2"] == "state 3, says the site's Prometheus"
    assert (supply.group, fan.group) == (None, None)


def _are_of_the_rack(incidents: dict[tuple[str, str], Incident]) -> None:
    feed, flow = incidents["host_power", "feed_failed"], incidents["host_fan", "coolant"]
    for one in (feed, flow):
        assert one.group is not None
        assert one.group.label == f"rack {RACK}"
        assert evidence(one)[f"nodes of rack {RACK}"] == "host01, host02, host03"
    assert evidence(feed)[f"power feed pdu-{RACK}-b:161 infeed 1"].startswith("state 0")
    said = evidence(flow)[f"coolant cdu-{RACK}"]
    assert said == "4.5 l/min (at least 20 l/min), says the site's Prometheus"
