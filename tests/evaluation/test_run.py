"""Which fleets are for what, results that add up, and the committed slice."""

import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from evaluation.fingerprint import fleet_hash, judged_hash
from evaluation.judge.matching import Outcome
from evaluation.judge.score import Tally
from evaluation.results import RESULTS, add, read, tallies, together, write
from evaluation.run import SLICE_SETS, again, checked_out, main, missing
from evaluation.splits import (
    KEPT_OUT_KINDS,
    KEPT_OUT_MODEL,
    KEPT_OUT_WORKLOADS,
    PARTS,
    TUNING_KINDS,
)
from simulator.fleet.kinds import KINDS

pytestmark = [pytest.mark.slow, pytest.mark.site]


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


def entry(seed: int, *sets: str, fleet: str = "f", judged: str = "j") -> dict[str, Any]:
    one = Tally(node_days=2.0, outcomes=(Outcome(fault="fan", magnitude=0.2),)).to_json()
    return {
        "part": "report",
        "seed": seed,
        "fleet": fleet,
        "judged": judged,
        "commit": "c",
        "command": "python -m evaluation.run report 0 1",
        "tallies": dict.fromkeys(sets, one),
    }


def test_results_survive_a_round_and_are_one_run_a_line(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    assert read(path) == {"history": [], "runs": {}}
    results = read()
    write(results, path)
    assert read(path) == results
    lines = path.read_text().splitlines()
    assert len(lines) == max(len(results["history"]), 1) + len(results["runs"]) + 3


def test_fleets_and_who_played_them_add_up(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    for one in (entry(2001, "a"), entry(2000, "a", "b"), entry(2001, "c"), entry(2002, "a")):
        add(one, path)
    results = read(path)
    assert results["history"] == []
    assert {key: sorted(it["tallies"]) for key, it in results["runs"].items()} == {
        "report/2000": ["a", "b"],
        "report/2001": ["a", "c"],
        "report/2002": ["a"],
    }
    assert [len(them) for them in tallies(results)["report"].values()] == [3, 1, 1]
    assert not together(results, ["report"])
    add(entry(2000, "c"), path)
    assert [len(them) for them in together(read(path), ["report"])["report"].values()] == [1, 1, 1]


def test_another_fleet_or_judge_begins_a_part_anew_and_what_was_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    for one in (entry(2000, "a"), entry(2001, "a"), entry(2000, "a", fleet="other")):
        add(one, path)
    (past,) = read(path)["history"]
    assert (past["part"], past["fleet"], past["fleets"]) == ("report", "f", 2)
    assert past["figures"]["a"]["recall"]["of"] == 2
    assert past["figures"]["a"]["node_days"] == 4.0
    assert list(read(path)["runs"]) == ["report/2000"]


def test_only_who_has_not_played_a_fleet_plays_it() -> None:
    now = {"fleet": fleet_hash(), "judged": judged_hash()}
    results = {"runs": {"report/2000": entry(2000, "a", **now), "report/2001": entry(2001, "a")}}
    assert missing(results, "report", 2000, ["a", "b"]) == ["b"]
    assert missing(results, "report", 2001, ["a", "b"]) == ["a", "b"]
    assert missing(results, "report", 2002, ["a"]) == ["a"]


def test_a_part_has_a_thousand_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["report", "999", "2"])
    assert stopped.value.code == 2
    assert "0 to 999" in capsys.readouterr().err


def test_results_and_pages_are_no_change_of_what_plays(tmp_path: Path) -> None:
    assert checked_out(tmp_path) == "unknown"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for name in ("evaluation/results.json", "docs/scoreboard.md", "analyzer/code.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("1")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    clean = checked_out(tmp_path)
    assert len(clean) == 40
    (tmp_path / "evaluation/results.json").write_text("2")
    (tmp_path / "docs/scoreboard.md").write_text("2")
    assert checked_out(tmp_path) == clean
    (tmp_path / "analyzer/code.py").write_text("2")
    assert checked_out(tmp_path) == f"{clean}-dirty"


@pytest.mark.server
@pytest.mark.timeout(900)
def test_the_slice_gives_the_committed_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    kept = RESULTS.read_bytes()
    code = main(["slice", "0", "1", "--again"])
    said = capsys.readouterr().out
    assert said.splitlines() == [f"slice/14000 {name}: the same numbers" for name in SLICE_SETS], (
        "play it again, make scoreboard-slice"
    )
    assert code == 0
    assert RESULTS.read_bytes() == kept
    for values in read()["runs"]["slice/14000"]["tallies"].values():
        assert Tally.from_json(values).outcomes


@pytest.mark.server
@pytest.mark.timeout(900)
def test_other_numbers_and_fleets_that_nobody_played_are_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = read()
    results["runs"]["slice/14000"]["tallies"]["DCGM health"]["node_days"] += 1.0
    wanted = [("slice", 14000), ("slice", 14001)]
    assert again(results, wanted, ["DCGM health"], 1) == 2
    assert capsys.readouterr().out.splitlines() == [
        "slice/14001 is not in the results",
        "slice/14000 DCGM health: other node_days",
    ]
