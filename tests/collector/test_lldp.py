"""Which switch is at the other end of a port: from lldpd's words, and from a real lldpd."""

import json
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from collector.machine.inspection_result import InspectionResult, line
from collector.machine.inspection_result import parse as parse_look
from collector.machine.inspection_supervisor import Machine
from collector.machine.lldp import Heard, Neighbour, ask, parse
from collector.rows.events import EventMaker
from collector.rows.monotone_counters import MonotoneCounters
from collector.rows.port_rows import PortBook
from collector.sensors.neighbours import connect
from collector.sensors.ports import PortSensor
from gpuvigil.clock import SystemClock
from gpuvigil.config import CollectorSettings
from gpuvigil.model import PortIdentity, Subject
from tests import lldpd
from tests.collector.agent import Agent
from tests.collector.receiver import Receiver
from tests.polling import wait_until
from tests.sysfs import PortTree

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def heard(interface: str, switch: str, *, bridges: bool = True, **port: str) -> dict[str, Any]:
    """An interface in lldpcli's json0; of its port the kinds of names and their values."""
    ids = [{"type": kind, "value": value} for kind, value in port.items() if kind != "descr"]
    descriptions = [{"value": value} for kind, value in port.items() if kind == "descr"]
    return {
        "name": interface,
        "via": "LLDP",
        "chassis": [
            {
                "id": [{"type": "mac", "value": "2e:ce:a9:d7:a2:6d"}],
                "name": [{"value": switch}],
                "capability": [{"type": "Bridge", "enabled": bridges}],
            }
        ],
        "port": [{"id": ids, "descr": descriptions}],
    }


def answer(*interfaces: dict[str, Any]) -> str:
    return json.dumps({"lldp": [{"interface": list(interfaces)}]})


def test_a_port_goes_by_its_name_and_not_by_its_address() -> None:
    said = answer(
        heard("eth0", "leaf1", ifname="swp7", descr="to n1"),
        heard("eth1", "leaf2", mac="2e:ce:a9:d7:a2:6e", descr="Ethernet1/7"),
        heard("eth2", "", mac="2e:ce:a9:d7:a2:6f"),
    )
    assert parse(said) == (
        Neighbour("eth0", "leaf1", "swp7"),
        Neighbour("eth1", "leaf2", "Ethernet1/7"),
        Neighbour("eth2", "2e:ce:a9:d7:a2:6d", "2e:ce:a9:d7:a2:6f"),
    )
    assert parse('{"lldp": [{}]}') == ()


def test_among_several_the_switch_counts_and_of_two_switches_none() -> None:
    a, b = heard("eth0", "leaf1", ifname="1"), heard("eth0", "leaf2", ifname="1")
    host = heard("eth0", "n2", bridges=False, ifname="eth0")
    assert parse(answer(host, a)) == (Neighbour("eth0", "leaf1", "1"),)
    assert parse(answer(host)) == (Neighbour("eth0", "n2", "eth0"),)
    assert parse(answer(a, b)) == ()


@pytest.mark.parametrize(
    "text", ["", "[]", '{"lldp": [1]}', '{"lldp": [{"interface": [{"chassis": [{}]}]}]}', "1"]
)
def test_what_is_no_answer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no answer of lldpd|Expecting value"):
        parse(text)


def program(folder: Path, script: str) -> str:
    path = folder / "lldpcli"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_where_there_is_no_lldpd_nothing_is_known_and_nothing_said(tmp_path: Path) -> None:
    assert ask("", 1.0) == ask("no-such-lldpcli", 1.0) == Heard()
    none = "echo '2026-11-26T17:35:34 [WARN/control] unable to connect to socket' >&2; exit 1"
    assert ask(program(tmp_path, none), 5.0) == Heard(why_not="unable to connect to socket")
    assert "does not answer" in ask(program(tmp_path, "exec sleep 60"), 0.2).why_not
    assert "no answer of lldpd" in ask(program(tmp_path, "echo []"), 5.0).why_not
    (tmp_path / "lldpcli").chmod(0o644)
    assert "Permission denied" in ask(str(tmp_path / "lldpcli"), 5.0).why_not


def test_a_look_survives_its_line() -> None:
    seen = InspectionResult(heard=Heard((Neighbour("eth0", "leaf1", None),), "why"))
    assert parse_look(line(seen)) == seen


def port(device: str, number: str = "1", kind: str = "roce") -> PortIdentity:
    return PortIdentity(device=device, port=number, kind=kind, role="fabric", was_up=True)


def test_rdma_devices_and_interfaces_get_their_neighbour_and_keep_it(tmp_path: Path) -> None:
    known = {(p.device, p.port): p for p in (port("mlx5_0"), port("eth9", kind="ethernet"))}
    known |= {(p.device, p.port): p for p in (port("mlx4_0", "1"), port("mlx4_0", "2"))}
    for device, interfaces in {"mlx5_0": ("eth0",), "mlx4_0": ("eth4", "eth5")}.items():
        for number, name in enumerate(interfaces):
            (tmp_path / f"class/infiniband/{device}/device/net/{name}").mkdir(parents=True)
            (tmp_path / f"class/net/{name}").mkdir(parents=True)
            (tmp_path / f"class/net/{name}/dev_port").write_text(f"{number}\n")
    told = {"eth0": ("leaf1", "1"), "eth5": ("leaf2", "2"), "eth9": ("leaf3", None)}
    assert connect(known, tmp_path, told)
    assert {key: (it.switch, it.switch_port) for key, it in known.items()} == {
        ("mlx5_0", "1"): ("leaf1", "1"),
        ("eth9", "1"): ("leaf3", None),
        ("mlx4_0", "1"): (None, None),
        ("mlx4_0", "2"): ("leaf2", "2"),
    }
    assert not connect(known, tmp_path, told)
    assert not connect(known, tmp_path, {})
    assert known["mlx5_0", "1"].switch == "leaf1"
    assert connect(known, tmp_path, {"eth0": ("leaf2", "1")})


def test_a_port_that_goes_down_keeps_its_switch(tmp_path: Path) -> None:
    tree = PortTree(tmp_path)
    tree.infiniband("mlx5_0")
    known: dict[tuple[str, str], PortIdentity] = {}
    events = EventMaker(node=Subject(cluster="c", node="n1"), boot="b")
    book, sensor = PortBook(events, known, MonotoneCounters()), PortSensor(tmp_path, tmp_path)
    book.update(sensor.read(), NOON)
    (tmp_path / "class/infiniband/mlx5_0/device/net/ib0").mkdir(parents=True)
    assert connect(known, tmp_path, {"ib0": ("leaf1", "7")})
    tree.down("mlx5_0")
    _, changed = book.update(sensor.read(), NOON)
    assert (known["mlx5_0", "1"].switch, changed) == ("leaf1", False)
    book.restore([port("mlx5_0")])
    assert known["mlx5_0", "1"].switch_port == "7"


@pytest.mark.server
def test_a_moved_cable_is_in_the_next_inventory_and_a_restart_forgets_none(
    agent: Agent, receiver: Receiver, tmp_path: Path
) -> None:
    root = Path(str(agent.settings["sysfs_root"]))
    PortTree(root).infiniband("mlx5_0")
    (root / "class/infiniband/mlx5_0/device/net/ib0").mkdir(parents=True)

    def plug(*switches: str) -> str:
        said = answer(*(heard("ib0", switch, ifname="7") for switch in switches))
        return program(tmp_path, f"echo '{said}'")

    def told() -> list[str | None]:
        (known,) = receiver.records("inventory")[-1]["body"]["ports"]
        return [known.get("switch"), known.get("switch_port")]

    agent.settings |= {"gpus": False, "machine_seconds": 0.2, "lldpcli": plug("leaf1")}
    agent.start()
    wait_until("the inventory", lambda: receiver.records("inventory"))
    wait_until("the leaf", lambda: told() == ["leaf1", "7"], 20.0)
    plug("leaf2")
    wait_until("the other leaf", lambda: told() == ["leaf2", "7"], 20.0)
    plug()
    agent.stop()
    before = len(receiver.records("inventory"))
    agent.start()
    wait_until("another inventory", lambda: len(receiver.records("inventory")) > before)
    assert told() == ["leaf2", "7"]


@pytest.mark.server
def test_a_real_lldpd_names_the_switch_and_the_port(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, needs: Callable[[str, str], str]
) -> None:
    needs("lldpd", "scripts/install-test-servers")
    if not lldpd.is_possible():
        pytest.skip("needs root to lay a cable")
    settings = CollectorSettings(
        sysfs_root=tmp_path,
        spool_directory=tmp_path,
        machine_seconds=0.05,
        watched_mounts=("/",),
        lldpcli=str(tmp_path / "lldp/lldpcli"),
    )
    caplog.set_level("INFO")
    with lldpd.Cable(tmp_path / "lldp", "eth0") as cable:
        known = {("eth0", "1"): port("eth0", kind="ethernet")}
        machine = Machine(settings, SystemClock())

        def connected() -> bool:
            machine.keep()
            return connect(known, tmp_path, machine.new_neighbours())

        wait_until("the leaf", connected, 30.0)
        assert (known["eth0", "1"].switch, known["eth0", "1"].switch_port) == ("leaf1", "swp7")
        cable.set("down")
        wait_until("silence", lambda: ask(settings.lldpcli, 5.0) == Heard(()), 30.0)
        machine.keep()
        machine.stop()
    assert known["eth0", "1"].switch == "leaf1"
    # Until its socket was there nothing was known: told once, however often it was asked.
    assert caplog.text.count("no switch at the ports' other ends is known") <= 1
