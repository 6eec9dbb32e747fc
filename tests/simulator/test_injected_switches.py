"""What is injected shows at the simulated switches, and at no other port of theirs."""

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from gpuvigil.config import SimulatorSettings
from gpuvigil.model import Record, Switch
from simulator.cluster import build
from simulator.fabric.cabling import SPINES
from simulator.faults import InjectedFault
from simulator.player import Story, SwitchReporter, switches_file

NOON = datetime(2026, 5, 1, 12, tzinfo=timezone.utc)


def later(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def told(teller: SwitchReporter, now: datetime, *faults: InjectedFault) -> list[Switch]:
    return [
        Switch.from_record(Record.from_json(json.loads(line)))
        for body in teller.bodies(now, faults)
        for line in body.content.splitlines()
    ]


def injected(name: str, device: str = "mlx5_0") -> InjectedFault:
    return InjectedFault(name=name, node="sim-001", device=device, port="1", at=NOON)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("uplink-errors", [("leaf-01-0", "33"), ("spine-1", "1")]),
        ("uplink-slow", [("leaf-01-0", "33"), ("spine-1", "1")]),
        ("uplink-down", [("leaf-01-0", "33"), ("spine-1", "1")]),
        ("port-down", [("leaf-01-0", "2")]),
        ("port-slow", [("leaf-01-0", "2")]),
        ("bad-cable", [("leaf-01-0", "2")]),
        ("slow-receiver", []),
    ],
)
def test_an_injected_fault_shows_at_the_switches(name: str, wrong: list[tuple[str, str]]) -> None:
    teller = SwitchReporter(build(4, 8, 1), "boot")
    first = told(teller, NOON)
    assert len(first) == 2 + SPINES
    assert told(teller, later(5.0)) == []
    found = [
        (switch.subject.node, it.id)
        for switch in told(teller, later(10.0), injected(name))
        for it in switch.ports
        if not it.up or it.bits_per_second != it.best_bits_per_second or it.counts[-1].symbol_errors
    ]
    assert found == wrong


@pytest.mark.parametrize(("name", "lost"), [("leaf-down", "leaf-01-1"), ("spine-down", "spine-4")])
def test_an_injected_loss_of_a_switch_shows(name: str, lost: str) -> None:
    teller = SwitchReporter(build(4, 8, 1), "boot")
    told(teller, NOON)
    found = told(teller, later(10.0), injected(name, "mlx5_1"))
    assert [it.subject.node for it in found if it.lost_at is not None] == [lost]


@pytest.mark.parametrize("name", ["uplink-slow", "uplink-down", "spine-down"])
def test_what_was_injected_before_a_restart_is_still_wrong_after_it(
    name: str, tmp_path: Path
) -> None:
    file = tmp_path / "switches.jsonl"
    before = SwitchReporter(build(4, 8, 1), "boot", file)
    told(before, NOON)
    stood = troubled(told(before, later(10.0), injected(name)))
    assert stood
    after = SwitchReporter(build(4, 8, 1), "again", file)
    assert troubled(told(after, later(60.0), injected(name))) == stood
    assert not troubled(told(after, later(70.0)))


def test_a_reader_that_remembers_another_cluster_begins_anew(tmp_path: Path) -> None:
    settings = SimulatorSettings(nodes=4)
    story = Story.begin(settings, NOON)
    file = switches_file(tmp_path, None, story)
    file.write_text("what was known")
    assert switches_file(tmp_path, Story.begin(settings, later(60.0)), story).exists()
    other = Story.begin(replace(settings, nodes=5), NOON)
    assert not switches_file(tmp_path, other, story).exists()


def troubled(switches: list[Switch]) -> set[tuple[str, str, datetime | None]]:
    """Switches that are lost, and ports that are down or slower than once, each with its since."""
    lost = {(it.subject.node, "", it.lost_at) for it in switches if it.lost_at is not None}
    return lost | {
        (it.subject.node, port.id, port.since)
        for it in switches
        if it.lost_at is None
        for port in it.ports
        if not port.up or port.bits_per_second != port.best_bits_per_second
    }


def test_a_full_leaf_drops_packets_at_its_cables_to_spines() -> None:
    teller = SwitchReporter(build(4, 8, 1), "boot")
    told(teller, NOON)
    full = [
        InjectedFault(name="congestion", node=f"sim-{n:03}", device="mlx5_0", port="1", at=NOON)
        for n in range(4)
    ]
    during = told(teller, later(100.0), *full)
    counted = {("leaf-01-0", str(number), 40) for number in range(33, 49)}
    assert dropped(during) == counted
    over = [replace(one, cleared_at=later(100.0)) for one in full]
    assert dropped(told(teller, later(300.0), *over)) == counted


def dropped(switches: list[Switch]) -> set[tuple[str, str, int]]:
    return {
        (switch.subject.node, port.id, port.counts[-1].transmit_discards or 0)
        for switch in switches
        for port in switch.ports
        if port.counts[-1].transmit_discards != 0
    }
