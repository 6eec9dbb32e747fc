"""Switches that a real Prometheus scrapes, from their exporters' pages to the webhook, everything as shipped."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuvigil.model import Incident, RecordKind, Subject, Switch
from tests.fabric import Fabric, running
from tests.polling import wait_until
from tests.servers import ROOT
from tests.switch_pages import Port, Ports, SwitchPages
from tests.timeseries import Prometheus

pytestmark = [pytest.mark.server, pytest.mark.site]

HOSTS = {f"host{n:02}": ("mlx5_0",) for n in range(1, 4)}
_READER = """
[collector]
cluster = "lab"
node = "mgmt"
[switches]
url = "{url}"
mappings = [{mappings}]
interval_seconds = 5
lost_after_seconds = 10
spool_directory = "{folder}/spool"
"""


def gpuvigil(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpuvigil", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def cabled(fabric: dict[str, Ports], one: str, other: str) -> None:
    """With a cable between two ports, as `leaf1 e1/49`."""
    for here, there in ((one, other), (other, one)):
        switch, _, name = here.partition(" ")
        far, _, far_name = there.partition(" ")
        fabric[switch][name] = Port(peer=(f"{far}.example.org", far_name))


def pages() -> SwitchPages:
    """Three leaves by SNMP, with hosts at two of them; a leaf and a spine by gNMI; a switch and a host by UFM."""
    snmp: dict[str, Ports] = {f"leaf{n}": {} for n in (1, 2, 3)}
    gnmic: dict[str, Ports] = {"leaf4": {}, "spine1": {}}
    for n in (1, 2, 3, 4):
        cabled(snmp | gnmic, f"leaf{n} e1/49", f"spine1 eth-{n}")
    for number, host in enumerate(HOSTS, 1):
        leaf = "leaf1" if number < 3 else "leaf3"
        snmp[leaf][f"e1/{number}"] = Port(peer=(f"{host}.example.org", "mlx5_0"))
    ufm = {
        "2c90300f172a0": {str(n): Port() for n in range(1, 41)},
        "506b4b03005c0": {"1": Port()},
    }
    return SwitchPages(snmp, gnmic, ufm)


def mappings(folder: Path) -> list[Path]:
    """The examples; that of snmp_exporter with everything that stands commented out in it."""
    found = []
    for file in sorted((ROOT / "packaging/switches").glob("*.toml")):
        blocks = file.read_text().split("\n\n")
        text = "\n\n".join(
            re.sub(r"^# ?", "", block[block.index("# [") :], flags=re.MULTILINE)
            if "\n# [" in block
            else block
            for block in blocks
        )
        found.append(folder / file.name)
        found[-1].write_text(text)
    return found


@contextmanager
def reading(folder: Path, fabric: Fabric, url: str) -> Iterator[Path]:
    """`gpuvigil switches` with a token of its own; gives its configuration."""
    folder.mkdir()
    config, token = folder / "reader.toml", folder / "scheduler-token"
    named = ", ".join(f'"{file}"' for file in mappings(folder))
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


def found(fabric: Fabric, resolved: bool = False) -> dict[str, Incident]:
    """Incidents by fault."""
    records = fabric.hub.hub().records(RecordKind.INCIDENT)
    every = map(Incident.from_record, records)
    return {it.fault: it for it in every if (it.resolved_at is not None) is resolved}


def evidence(it: Incident) -> dict[str, str]:
    return {one.name: one.value for one in it.evidence}


@pytest.mark.timeout(300)
def test_what_prometheus_scrapes_of_switches_becomes_incidents(
    tmp_path: Path, needs: Callable[[str, str], str]
) -> None:
    needs("prometheus", "scripts/install-test-servers")
    with (
        pages() as switches,
        Prometheus(tmp_path / "prometheus", switches.address, switches.targets) as prometheus,
        running(tmp_path, HOSTS) as fabric,
        reading(tmp_path / "reader", fabric, prometheus.url) as config,
    ):
        hub = fabric.hub.hub()
        wait_until("six switches", lambda: len(hub.records(RecordKind.SWITCH)) == 6, 60.0)
        _names_what_is_there(fabric, config)
        assert found(fabric) == {}
        switches.gnmic["spine1"]["eth-1"].up = switches.snmp["leaf1"]["e1/49"].up = False
        for name, port in (("leaf4", "e1/49"), ("spine1", "eth-4")):
            switches.gnmic[name][port].gigabits = 200
        switches.ufm["2c90300f172a0"]["7"].errors = 21
        switches.gone.add("leaf3")
        four = {"port_down", "port_degraded", "port_errors", "switch_down"}
        wait_until("four incidents", lambda: set(found(fabric)) == four, 90.0)
        _are_right(found(fabric))
        switches.gone.clear()
        switches.gnmic["spine1"]["eth-1"].up = switches.snmp["leaf1"]["e1/49"].up = True
        for name, port in (("leaf4", "e1/49"), ("spine1", "eth-4")):
            switches.gnmic[name][port].gigabits = 400
        # Errors are told for ten minutes.
        wait_until("three are over", lambda: set(found(fabric)) == {"port_errors"}, 120.0)
        log = (tmp_path / "reader/log").read_text()
        assert "not read" not in log, log


def _names_what_is_there(fabric: Fabric, config: Path) -> None:
    said = gpuvigil("switches", "--config", str(config), "--check")
    assert said.returncode == 0, said.stdout + said.stderr
    gnmic, snmp, ufm = re.split(r"\n(?=/)", said.stdout)
    assert "gnmic.toml: 2 switches, 5 ports: 5 up, 0 down" in gnmic
    assert "  speed: 5 of 5 ports that are up\n" in gnmic
    assert "  pause_frames_sent: not measured: Prometheus has no series for" in gnmic
    assert "snmp_exporter.toml: 3 switches, 6 ports: 6 up, 0 down" in snmp
    assert "  neighbour: 6 of 6 ports" in snmp
    assert "ufm.toml: 1 switch, 40 ports: 40 up, 0 down" in ufm
    topology = gpuvigil("topology", "--config", str(config.parent.parent / "services.toml"))
    assert topology.returncode == 0, topology.stderr
    records = fabric.hub.hub().records(RecordKind.SWITCH)
    leaf = {it.subject.node: it for it in map(Switch.from_record, records)}["leaf1.example.org"]
    ports = {port.name: port for port in leaf.ports}
    assert (ports["e1/49"].peer, ports["e1/49"].peer_id) == ("spine1", "eth-1")
    assert ports["e1/1"].host == ("host01", "mlx5_0")
    assert ports["e1/1"].counts[-1].transmit_discards == 0
    assert ports["e1/1"].counts[-1].symbol_errors is None


def _are_right(incidents: dict[str, Incident]) -> None:
    down, slow = incidents["port_down"], incidents["port_degraded"]
    assert (down.subject.node, down.subject.port) == ("leaf1.example.org", "e1/49")
    assert evidence(down)["other end"] == "spine1 port eth-1"
    assert {slow.subject.node, evidence(slow)["other end"]} == {"leaf4", "spine1 port eth-4"}
    assert evidence(slow)["speed"] == "200 Gb/s"
    errors = incidents["port_errors"]
    assert (errors.subject.node, errors.subject.port) == ("2c90300f172a0", "7")
    lost = incidents["switch_down"]
    assert evidence(lost)["switches"] == "leaf3.example.org (leaf3)"
    host = Subject(cluster="lab", node="host03", device="mlx5_0", port="1")
    assert host.key in {str(it) if isinstance(it, str) else it.key for it in lost.members}
