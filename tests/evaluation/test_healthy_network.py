"""Fleets without a fault, of which the network's detectors hear nodes and ports alone."""

from dataclasses import replace

import pytest

from evaluation.healthy_network import Played, detectors, is_of_network, lines, play
from gpuvigil.model import Severity
from tests.evaluation.made import port
from tests.evaluation.test_judge import claim

QUIET = Played(seed=1, node_days=2500.0, cpu_seconds=60.0, said=())
WARNED = claim(subject=port(1), fault="port_down", severity=Severity.WARNING)
WOKEN = claim(subject=port(1), fault="switch_down")


def told(*played: Played) -> str:
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
    ]


def test_what_is_critical_is_wrong_and_what_is_less_is_counted() -> None:
    one = replace(QUIET, said=(WARNED, WOKEN))
    assert one.critical == (WOKEN,)
    assert told(one).splitlines()[1:] == [
        "wrong criticals: 1, 0.0004 per node-day, below 0.0019 with 95 %",
        "  warning port_down: 1, 0.4 per 1,000 node-days",
        "  critical switch_down: 1, 0.4 per 1,000 node-days",
        f"  WRONG 31 13:00:36 what it is called: {port(1).key}, 1 members",
    ]
