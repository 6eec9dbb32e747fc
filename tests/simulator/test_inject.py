"""`gpuvigil inject` changes the faults file, and says what it did or why it could not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.up.directory import StateDirectory
from simulator import inject
from simulator.faults import KINDS, FaultsFile, InjectedFault, read

CONFIG = '[simulator]\nnodes = 16\nfaults_file = "faults.json"\n'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "gpuvigil.toml"
    path.write_text(CONFIG)
    return path


def faults(config: Path) -> tuple[InjectedFault, ...]:
    return read(config.with_name("faults.json"))


def run(config: Path, *words: str) -> int:
    return inject.main([*words, "--config", str(config)])


def test_a_fault_is_injected_and_cleared(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(config, "xid79", "--node", "sim-003", "--gpu", "5") == 0
    (fault,) = faults(config)
    assert (fault.name, fault.node, fault.gpu, fault.cleared_at) == ("xid79", "sim-003", 5, None)
    assert run(config, "xid79", "--node", "sim-003", "--gpu", "5", "--clear") == 0
    assert faults(config)[0].cleared_at is not None
    assert capsys.readouterr().out.splitlines() == [
        "injected xid79 on sim-003 GPU 5: the GPU falls off the bus, and the driver reports Xid 79",
        "cleared xid79 on sim-003 GPU 5",
    ]


def test_the_same_fault_is_injected_once(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert run(config, "idle", "--node", "sim-000", "--gpu", "0") == 0
    assert len(faults(config)) == 1
    assert "is there since" in capsys.readouterr().out


def test_a_port_fault_hits_the_first_infiniband_port_unless_told(config: Path) -> None:
    assert run(config, "port-down", "--node", "sim-000") == 0
    assert run(config, "port-flap", "--node", "sim-000", "--device", "eno1") == 0
    assert [(fault.device, fault.port) for fault in faults(config)] == [
        ("mlx5_0", "1"),
        ("eno1", "1"),
    ]


def test_a_leaf_takes_that_port_of_all_its_nodes(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(config, "leaf-down", "--node", "sim-003", "--device", "mlx5_1") == 0
    hit = faults(config)
    assert sorted(fault.node for fault in hit) == [f"sim-{n:03d}" for n in range(16)]
    assert {(fault.name, fault.device, fault.cleared_at) for fault in hit} == {
        ("leaf-down", "mlx5_1", None)
    }
    said = capsys.readouterr().out
    assert said.startswith("injected leaf-down on sim-003 mlx5_1 port 1: ")
    assert said.endswith(" and 15 more nodes\n")
    assert run(config, "leaf-down", "--node", "sim-005", "--device", "mlx5_1", "--clear") == 0
    assert all(fault.cleared_at is not None for fault in faults(config))


def test_the_list_names_every_fault_and_those_that_stand(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(config, "--list") == 0
    assert capsys.readouterr().out.endswith("Now: none\n")
    run(config, "driver-hang", "--node", "sim-001")
    run(config, "--list")
    listed = capsys.readouterr().out
    assert all(f"\n{name} " in f"\n{listed}" for name in KINDS)
    assert "driver-hang   sim-001 since" in listed


def test_clear_all_ends_every_fault(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(config, "driver-hang", "--node", "sim-001")
    run(config, "gpu-hang", "--node", "sim-002", "--gpu", "0")
    assert run(config, "--clear", "all") == 0
    assert all(fault.cleared_at is not None for fault in faults(config))
    assert capsys.readouterr().out.splitlines()[-1] == "cleared 2 faults"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["xid79", "--node", "sim-016", "--gpu", "5"], "sim-000 to sim-015"),
        (["xid79", "--node", "sim-003", "--gpu", "8"], "no GPU 8; it has 0 to 7"),
        (["xid79", "--node", "sim-003", "--gpu", "-1"], "no GPU -1"),
        (["xid79", "--node", "sim-003"], "--gpu"),
        (["xid79", "--gpu", "3"], "--node"),
        (["coffee", "--node", "sim-003"], "'coffee' is not a fault"),
        (["port-down", "--node", "sim-003", "--device", "mlx5_9"], "no such port"),
        (["idle", "--node", "sim-003", "--gpu", "0", "--clear"], "to clear"),
        (["driver-hang", "--node", "sim-003", "--gpu", "3"], "a fault of a node: leave out --gpu"),
        (["xid79", "--node", "sim-003", "--gpu", "3", "--port", "1"], "leave out --port"),
        ([], "--list"),
    ],
)
def test_what_does_not_exist_is_one_line_and_exit_code_2(
    config: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert run(config, *words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_without_a_config_it_finds_the_running_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert inject.main(["node-silent", "--node", "sim-000"]) == 2
    assert "start 'gpuvigil up' first" in capsys.readouterr().err
    (tmp_path / "gpuvigil").mkdir()
    (tmp_path / "gpuvigil" / "gpuvigil.toml").write_text(CONFIG)
    assert inject.main(["node-silent", "--node", "sim-000"]) == 0
    assert len(read(tmp_path / "gpuvigil" / "faults.json")) == 1
    assert "nothing runs" not in capsys.readouterr().out


def test_that_nothing_runs_that_would_show_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    up = StateDirectory(tmp_path)
    config = tmp_path / "gpuvigil.toml"
    config.write_text(CONFIG)
    run(config, "node-silent", "--node", "sim-000")
    assert "nothing runs" not in capsys.readouterr().out
    up.release()
    run(config, "node-silent", "--node", "sim-001")
    said = "nothing runs here now: it begins with the next 'gpuvigil up'"
    assert capsys.readouterr().out.splitlines()[-1] == said


def test_a_fault_on_a_free_gpu_that_cannot_show_is_said(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(config, "idle", "--node", "sim-015", "--gpu", "0") == 0
    assert "free and not idle" in capsys.readouterr().out


def test_a_faults_file_that_is_not_ours_is_left_alone(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.with_name("faults.json").write_text("[]")
    assert run(config, "node-silent", "--node", "sim-000") == 2
    assert "cannot change" in capsys.readouterr().err
    assert config.with_name("faults.json").read_text() == "[]"


def test_the_file_is_read_again_only_when_it_was_replaced(config: Path) -> None:
    watched = FaultsFile(config.with_name("faults.json"))
    assert watched.faults() == ()
    run(config, "node-silent", "--node", "sim-000")
    first = watched.faults()
    assert len(first) == 1
    assert watched.faults() is first
    os.unlink(config.with_name("faults.json"))
    assert watched.faults() == ()


@pytest.mark.medium
def test_inject_loads_no_service_and_nothing_that_speaks_to_a_network() -> None:
    program = "import sys, simulator.inject; print(*sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(answer.stdout.split())
    services = {
        "hub",
        "analyzer",
        "alerts",
        "dashboard",
        "collector.spool.shipper",
        "collector.spool.queue",
    }
    network = {"gpuvigil.hub_client", "gpuvigil.store", "socket", "http.client", "urllib.request"}
    assert not loaded & (services | network)
