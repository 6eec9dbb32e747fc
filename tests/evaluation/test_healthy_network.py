"""Fleets without a fault, of which the network's detectors hear nodes and ports alone."""

from dataclasses import replace

import pytest

from evaluation.healthy_network import (
    HealthyPlay,
    detectors,
    is_of_network,
    lines,
    play,
    record,
    section,
)
from gpuvigil.model import Severity
from tests.evaluation.made import port
from tests.evaluation.test_judge import claim

QUIET = HealthyPlay(seed=1, node_days=2500.0, cpu_seconds=60.0, said=())
WARNED = claim(subject=port(1), fault="port_down", severity=Severity.WARNING)
WOKEN = claim(subject=port(1), fault="switch_down")


def told(*played: HealthyPlay) -> str:
    return "\n".join(lines(played, "c" * 40))


@pytest.mark.medium
def test_a_fleet_is_played_once_a_minute_with_the_networks_detectors_alone() -> None:
    names = {it.name for it in detectors()}
    assert {"port_down", "switch_down", "port_congested", "node_silent"} <= names
    assert not {"gpu_lost", "gpu_xid"} & names
    found = play(seed=3, nodes=16, days=2.0 / 24.0)
    assert found.node_days == pytest.approx(4.0 / 3.0)
    assert found.critical == ()
    assert all(is_of_network(it.fault) for it in found.said)


def test_of_none_the_bound_is_three_in_as_many() -> None:
    assert told(QUIET, QUIET).splitlines() == [
        "commit cccccccccccc, seeds 1, 1: 5,000 healthy node-days in 120 s of CPU time",
        "wrong criticals: 0, 0.0000 per node-day, below 0.0006 with 95 %",
        "wrong warnings: 0, 0.0000 per node-day, below 0.0006 with 95 %",
    ]


def test_what_is_critical_or_a_warning_is_wrong_and_counted() -> None:
    one = replace(QUIET, said=(WARNED, WOKEN))
    assert one.critical == (WOKEN,)
    assert told(one).splitlines()[1:] == [
        "wrong criticals: 1, 0.0004 per node-day, below 0.0019 with 95 %",
        "wrong warnings: 1, 0.0004 per node-day, below 0.0019 with 95 %",
        "  warning port_down: 1, 0.4 per 1,000 node-days",
        "  critical switch_down: 1, 0.4 per 1,000 node-days",
        f"  WRONG 31 13:00:36 what it is called: {port(1).key}, 1 members",
        f"  WRONG 31 13:00:36 what it is called: {port(1).key}, 1 members",
    ]


@pytest.mark.medium
def test_switches_that_are_read_are_told_and_every_port_of_a_node_is_one_of_the_fabric() -> None:
    alone, read = (
        play(seed=3, nodes=40, days=2.0 / 24.0, gpus=2, switches=switches)
        for switches in (False, True)
    )
    assert alone.critical == read.critical == ()
    assert alone.node_days == read.node_days


def test_what_is_kept_becomes_a_table() -> None:
    stamped = {"commit": "c" * 40, "fleet": "f" * 16}
    woken = replace(QUIET, seed=2, said=(WARNED, WOKEN))
    kept = {"hosts": record([QUIET, woken], stamped, "python -m it 5000")}
    text = "\n".join(section(kept))
    assert "| hosts | 5,000 | 1 | 0.95 | 1 | 0.95 | 0 |" in text
    assert "seeds 1, 2 are drawn from commit `cccccccccccc`" in text
    assert "Reported: critical switch_down 1, warning port_down 1." in text
    assert "| hosts and switches |" not in text
    both = {**kept, "hosts and switches": record([QUIET], stamped, "it")}
    assert "| hosts and switches | 2,500 | 0 | 1.20 | 0 | 1.20 | 0 |" in "\n".join(section(both))
