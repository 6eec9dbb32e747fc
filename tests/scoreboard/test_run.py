"""Which fleets are for what, results that add up, and the committed slice."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from collector.simulator.fleet import build
from collector.simulator.fleet.kinds import KINDS
from scoreboard.judge.score import Tally
from scoreboard.run import SLICE_SETS, main, play, read, write
from scoreboard.splits import (
    KEPT_OUT_KINDS,
    KEPT_OUT_MODEL,
    KEPT_OUT_WORKLOADS,
    PARTS,
    TUNING_KINDS,
)

pytestmark = pytest.mark.slow


def test_what_is_kept_out_is_in_no_tuning_fleet() -> None:
    for seed in range(1000, 1010):
        fleet = PARTS["tuning"].fleet(seed)
        assert not {order.kind for order in fleet.faults} & set(KEPT_OUT_KINDS)
        assert not set(fleet.workloads or ()) & set(KEPT_OUT_WORKLOADS)
        assert KEPT_OUT_MODEL not in fleet.models
        for order in fleet.faults:
            kind = KINDS[order.kind]
            if kind.sizes and not kind.discrete:
                low, high = kind.sizes
                assert order.magnitude is not None
                assert order.magnitude >= low * (high / low) ** (1 / 3)


def test_every_kind_is_somewhere_and_no_seed_is_in_two_parts() -> None:
    assert {*TUNING_KINDS, *KEPT_OUT_KINDS} == set(KINDS)
    firsts = sorted(part.first_seed for part in PARTS.values())
    assert all(after - before >= 1000 for before, after in pairwise(firsts))


def test_one_seed_orders_the_same_faults_every_time() -> None:
    assert PARTS["report"].fleet(2003) == PARTS["report"].fleet(2003)
    assert PARTS["report"].fleet(2003) != PARTS["report"].fleet(2004)


def test_results_survive_a_round_and_are_one_run_a_line(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    assert read(path) == {"runs": {}}
    results = read()
    write(results, path)
    assert read(path) == results
    assert len(path.read_text().splitlines()) == len(results["runs"]) + 2


def test_a_part_has_a_thousand_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["report", "999", "2"])
    assert stopped.value.code == 2
    assert "0 to 999" in capsys.readouterr().err


@pytest.mark.server
@pytest.mark.timeout(900)
def test_the_slice_gives_the_committed_numbers() -> None:
    entry = read()["runs"]["slice/14000"]
    found = play(build(PARTS["slice"].fleet(14000)), SLICE_SETS)
    for name, values in entry["tallies"].items():
        assert json.loads(json.dumps(found[name].to_json())) == values, name
        assert Tally.from_json(values).outcomes
    assert set(entry["tallies"]) == set(SLICE_SETS)
