"""What is injected shows at the simulated switches, and at no other port of theirs."""

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from gpuvigil.model import Record, Switch
from simulator.cluster import build
from simulator.fabric.cabling import SPINES
from simulator.faults import InjectedFault
from simulator.player import SwitchReporter

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
