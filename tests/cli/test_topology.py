"""`gpuvigil topology`: what it shows of a fabric, and against a real hub."""

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cli.tables import topology
from dashboard.lists.table import text
from gpuvigil.clock import SystemClock
from gpuvigil.model import PortIdentity, Retirement, Subject
from gpuvigil.topology import Imported, Source, Uplink, learn
from tests.gpuvigil.topology.fabrics import inventory, port, went_down
from tests.servers import ROOT, HubProcess, QuickHub

HOSTS = 6
FILE = """
[[switches]]
names = "leaf-a,leaf-b"
uplinks = "spine1"
"""


def swapped() -> list[list[PortIdentity]]:
    """The ports of six hosts with three rails, of which one has two cables swapped, one says nothing."""
    leaves = ["leaf-a", "leaf-b", "leaf-c"]
    hosts = [[port(f"mlx5_{n}", leaf) for n, leaf in enumerate(leaves)] for _ in range(HOSTS)]
    hosts[2] = [port("mlx5_0", "leaf-b"), port("mlx5_1", "leaf-a"), port("mlx5_2", "leaf-c")]
    return [*hosts, [port("mlx5_0"), port("mlx5_1"), port("mlx5_2", "leaf-c")], [port("mlx5_0")]]


NODES = [inventory(f"n{number}", ports) for number, ports in enumerate(swapped())]


def test_contradictions_come_first_then_switches_with_whose_word_it_is() -> None:
    uplink = Uplink(lower="leaf-a", upper="spine1", source=Source.FILE)
    known = learn(NODES, Imported(uplinks=(uplink, replace(uplink, lower="leaf-b"))))
    said = text(topology.switches({"c": known}), None).splitlines()
    assert said[0].startswith("swapped cables: n2 mlx5_0 and mlx5_1 look swapped")
    assert said[1].startswith("leaf without an uplink: leaf-c has ports of nodes")
    assert said[2] == ""
    assert [line.split()[:4] for line in said[3:7]] == [
        ["SWITCH", "RAIL", "PORTS", "NODES"],
        ["leaf-a", "mlx5_0", "7", "n0,"],
        ["leaf-b", "mlx5_1", "7", "n0,"],
        ["leaf-c", "mlx5_2", "7", "n0,"],
    ]
    assert "LLDP 6, peers 1" in said[4]
    assert "83 %" in said[4]
    assert "spine1" in said[4]
    assert said[6].split()[-5:] == ["-", "LLDP", "100", "%", "c"]
    assert "1 port at no known switch: n7 mlx5_0." in said


def test_programs_get_every_port_and_every_contradiction() -> None:
    found = json.loads(topology.json_text({"c": learn(NODES)}))["c"]
    (doubt,) = found["contradictions"]
    assert (doubt["kind"], doubt["ports"][0]) == (
        "swapped cables",
        {"node": "n2", "device": "mlx5_0"},
    )
    ports = {(it["node"], it["device"]): it for it in found["ports"]}
    assert ports["n2", "mlx5_0"]["contradiction"] == "swapped cables"
    silent, unknown = ports["n6", "mlx5_1"], ports["n7", "mlx5_0"]
    assert (silent["switch"], silent["switch_from"], silent["switch_confidence"]) == (
        "leaf-b",
        "peers",
        0.833,
    )
    assert (unknown["switch"], unknown["switch_from"], unknown["contradiction"]) == (None,) * 3


def test_without_any_switch_it_says_what_to_do() -> None:
    said = text(topology.switches({"c": learn([inventory("n1", [port("mlx5_0")])])}), None)
    assert said.startswith("No switch is known. Run lldpd on the nodes")


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub with six hosts, one that was retired, and another cluster."""
    now = SystemClock().now()
    gone = replace(inventory("gone", [port("mlx5_0", "leaf-z")]), at=now)
    other = replace(gone, subject=Subject(cluster="other", node="n1"))
    retired = Retirement(node=gone.subject, by="ada", note="", at=SystemClock().now())
    downs = [replace(went_down("n1", "mlx5_0"), at=now)]
    with QuickHub(tmp_path_factory.mktemp("hub")) as hub:
        told = [replace(one, at=now) for one in NODES]
        records = [one.to_record() for one in (*told, gone, other)]
        records += [retired.to_record(), *(one.to_record() for one in downs)]
        hub.hub().write_records(records)
        yield hub


def run(hub: HubProcess, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "fabric.toml").write_text(FILE)
    config = folder / "terminal.toml"
    config.write_text(
        f'[hub]\nurl = "{hub.url}"\nservice_token_file = "{hub.service_token_file}"\n'
        '[topology]\nfiles = ["fabric.toml"]\n'
    )
    program = (
        "import sys; from cli.table_commands import topology_main as main;"
        " sys.exit(main(sys.argv[1:]))"
    )
    return subprocess.run(
        [sys.executable, "-c", program, "--config", str(config), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.server
def test_the_command_asks_a_real_hub_and_reads_the_files_of_its_settings(
    fed: HubProcess, tmp_path: Path
) -> None:
    done = run(fed, tmp_path, "--cluster", "c")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("swapped cables: n2")
    assert "leaf without an uplink: leaf-c" in done.stdout
    assert "spine1" in done.stdout
    assert "leaf-z" not in done.stdout
    done = run(fed, tmp_path, "-o", "json")
    assert set(json.loads(done.stdout)) == {"c", "other"}
    rows = list(csv.DictReader(run(fed, tmp_path, "-o", "csv").stdout.splitlines()))
    assert {row["switch"] for row in rows if row["cluster"] == "other"} == {"leaf-z"}


@pytest.mark.server
def test_a_file_and_a_cluster_that_are_not_there_are_one_line(
    fed: HubProcess, tmp_path: Path
) -> None:
    for arguments, said in (
        (("--file", "none.conf"), "cannot read none.conf"),
        (("--cluster", "nope"), "--cluster nope: there is no such cluster"),
    ):
        done = run(fed, tmp_path, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1
