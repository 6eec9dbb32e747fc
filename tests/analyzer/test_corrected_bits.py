"""Links on which FEC corrects many more bits than before, and than on their peers."""

from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.detectors.port_errors import DETECTOR
from gpuvigil.model import Finding, Incident, Severity

from .scene import NOON, SETTINGS, Scene, healthy, incident, port, told

MINUTES = replace(SETTINGS, steady_seconds=600.0, trend_seconds=1800.0)
FLEET = replace(healthy(nodes=6, seconds=1900.0), settings=MINUTES)
BITS, WEARS = "corrected_bits", "corrects_more"
USUAL = 1_000.0  # bits a second, of 400 Gb/s
# 2.4e-6 of 400 Gb/s.
LEAST = 960_000.0


def fleet(
    before: float = USUAL, after: float = 1.1 * LEAST, peers: float = USUAL, nodes: int = 6
) -> Scene:
    """Ports with errors that FEC corrects, on the first more of them for the last ten minutes."""
    scene = FLEET
    for number in range(1, nodes + 1):
        rates = (before, after) if number == 1 else (peers, peers)
        scene = scene.changed(port(number), {BITS: 10**12}).turned(port(number), BITS, *rates, 600)
    return scene


def found(scene: Scene) -> list[Finding]:
    return DETECTOR.find(scene.window((DETECTOR,)))


def test_a_cable_that_begins_to_fail_is_a_note() -> None:
    (it,) = found(fleet())
    assert (it.fault, it.subject, it.condition) == ("port_errors", port(), WEARS)
    assert (it.severity, it.own_limit) == (Severity.INFO, True)
    assert it.title == "Network link corrects many more bit errors than before"
    assert told(it).endswith(
        "bit error rate before FEC: 2.6e-06 (limit 2.4e-06, peers 2.5e-09);"
        " in the 20 min before: 2.5e-09"
    )


@pytest.mark.parametrize(("after", "is_told"), [(0.99 * LEAST, False), (1.01 * LEAST, True)])
def test_what_fec_corrects_with_ease_is_none(after: float, is_told: bool) -> None:
    assert bool(found(fleet(after=after))) is is_told


@pytest.mark.parametrize(("times", "is_told"), [(9.9, False), (10.1, True)])
def test_it_is_far_more_than_before(times: float, is_told: bool) -> None:
    assert bool(found(fleet(before=1.1 * LEAST / times))) is is_told


@pytest.mark.parametrize(("times", "is_told"), [(99.0, False), (101.0, True)])
def test_it_is_far_more_than_on_its_peers(times: float, is_told: bool) -> None:
    assert bool(found(fleet(peers=1.1 * LEAST / times))) is is_told


def test_links_of_another_speed_are_no_peers_and_without_three_nothing_is_said() -> None:
    assert len(found(fleet(nodes=3))) == 1
    assert found(fleet(nodes=2)) == []
    slower = fleet()
    for number in range(3, 7):
        slower = slower.changed(port(number), {"speed_bits_per_second": 2 * 10**11})
    assert found(slower) == []


def test_where_nothing_was_measured_before_nothing_is_said() -> None:
    scene = fleet()
    young = scene.without(lambda it: it.subject == port() and it.at < NOON - timedelta(minutes=19))
    assert found(young) == []


def test_a_link_that_was_down_meanwhile_has_no_past_to_compare_with() -> None:
    down = fleet().changed(port(), {"link_downed": 4}, 1200.0)
    assert found(down) == []
    long_ago = fleet().changed(port(), {"link_downed": 4}, 1900.0)
    assert len(found(long_ago)) == 1
    note = incident("port_errors", port(), condition=WEARS)
    assert len(found(replace(down, recent_incidents=(note,)))) == 1


def test_it_stands_while_it_lasts() -> None:
    lasting = fleet(before=1.1 * LEAST)
    assert found(lasting) == []

    def stands(known: Incident) -> bool:
        return bool(found(replace(lasting, recent_incidents=(known,))))

    note = incident("port_errors", port(), condition=WEARS)
    assert stands(note)
    assert not stands(replace(note, resolved_at=NOON))
    assert not stands(replace(note, condition=""))
    assert not stands(replace(note, subject=port(2)))


def test_a_link_that_loses_packets_is_no_note_and_a_hot_module_is_its_own() -> None:
    (bad,) = found(fleet().rising(port(), "symbol_errors", 1.0))
    assert (bad.severity, bad.condition) == (Severity.WARNING, "")
    assert found(fleet().changed(port(), {"module_celsius": 82})) == []
