"""Fleets in which drivers are rolled out: every node gets one, and nobody else has the seeds."""

from evaluation.drivers import FIRST_SEED, fleet_of, section
from evaluation.judge.score import Tally
from evaluation.splits import PARTS
from simulator.fleet import build


def test_its_fleets_are_nobody_elses_and_most_nodes_get_a_driver() -> None:
    settings = fleet_of(FIRST_SEED)
    assert all(
        not part.first_seed <= settings.seed < part.first_seed + 1000 for part in PARTS.values()
    )
    assert not settings.faults
    assert not settings.fault_rate

    upgraded = {one.subject for one in build(settings).happenings() if one.kind == "driver upgrade"}

    assert len(upgraded) > 0.9 * settings.nodes


def test_what_was_said_is_told_by_severity_and_by_fault() -> None:
    tally = Tally(
        node_days=256.0,
        verdicts={"node_silent": {"false": 3}, "gpu_slow": {"false": 1}},
        by_severity={"warning": {"false": 3}, "info": {"false": 1}},
    )
    fleet = {"seed": FIRST_SEED, "upgrades": 128, "tally": tally.to_json()}
    result = {"command": "c", "judged": "j", "fleet": "f", "fleets": [fleet, fleet]}

    text = "\n".join(section(result))

    assert "256 nodes get a new driver" in text
    assert "512 node-days" in text
    assert "| 0.0 (0.0 to 7.2, 0) | 11.7 (4.3 to 25.5, 6) |" in text
    assert "`gpu_slow` 2, `node_silent` 6" in text
