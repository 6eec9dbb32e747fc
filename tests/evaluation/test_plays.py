"""Plays are added and never changed; what counts is of the newest detectors, on seeds nobody knew."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from evaluation.baselines import OURS
from evaluation.fingerprint import DETECTORS, ROOT, checked_out, commit_of_detectors
from evaluation.fleets import (
    CROWDED_DAYS,
    FAULTS_PER_1000_NODE_DAYS,
    NODES,
    OF_EACH,
    crowded,
    dense,
    like_the_world,
    release_seed,
)
from evaluation.judge.inferred import is_inferred
from evaluation.judge.intervals import mcnemar
from evaluation.judge.matching import Outcome
from evaluation.judge.tally import Tally
from evaluation.plays import PLAYS, append, for_tuning, newest, read, seen, tallies
from evaluation.regression import SIGNIFICANT
from evaluation.run import _chosen, _wanted, main, sets_of
from simulator.fleet import build


def play(seed: int, *sets: str, use: str = "release", **more: str) -> dict[str, Any]:
    one = Tally(node_days=2.0, outcomes=(Outcome(fault="fan", magnitude=0.2),)).to_json()
    stamp = {"commit": "c", "detectors": "d", "fleet": "f", "judge": "j", **more}
    tallied = dict.fromkeys(sets or ("gpuvigil",), one)
    return {"use": use, "seed": seed, **stamp, "cpu_seconds": 1, "tallies": tallied}


def test_a_play_is_a_line_that_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "plays.jsonl"
    assert read(path) == []
    append(play(1), path)
    first = path.read_bytes()
    append(play(2, use="tuning"), path)
    assert path.read_bytes().startswith(first)
    assert [(one["seed"], one["use"]) for one in read(path)] == [(1, "release"), (2, "tuning")]
    assert seen(read(path)) == {1, 2}


def test_plays_since_the_detectors_last_changed_count_together() -> None:
    plays = [
        play(1, detectors="before"),
        play(2),
        play(3, use="tuning"),
        play(4, commit="another of the same detectors"),
    ]
    assert [one["seed"] for one in newest(plays)] == [2, 4]
    assert [one["seed"] for one in for_tuning(plays)] == [1, 3]
    assert newest(plays[2:3]) == []


@pytest.mark.parametrize("what", ["detectors", "fleet", "judge"])
def test_seeds_that_were_seen_are_for_tuning_once_anything_changed(what: str) -> None:
    plays = [play(1), play(2, **{what: "other"})]
    assert [one["seed"] for one in newest(plays)] == [2]
    assert [one["seed"] for one in for_tuning(plays)] == [1]


def test_each_set_counts_on_all_fleets_that_it_has_played() -> None:
    found = tallies([play(1, "a", "b"), play(2, "a")])
    assert {name: len(them) for name, them in found.items()} == {"a": 2, "b": 1}


def test_seeds_are_of_the_commit_and_of_nothing_else() -> None:
    assert release_seed("abc", 0) == release_seed("abc", 0)
    seeds = {release_seed(commit, number) for commit in ("abc", "abd") for number in range(50)}
    assert len(seeds) == 100
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert like_the_world(7) == like_the_world(7) != like_the_world(8)


class Repository:
    """A git repository with a detector, a result and a page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("evaluation/plays.jsonl", "docs/accuracy.md", "analyzer/code.py"):
            self.write(name, "1")
        self.git("init", "-q")
        self.commit()

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def commit(self) -> str:
        self.git("add", ".")
        self.git("commit", "-qm", "said", "--allow-empty")
        return self.git("rev-parse", "HEAD")

    def git(self, *words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        done = subprocess.run(
            ["git", *who, *words], cwd=self.folder, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()


def test_results_and_pages_are_no_change_of_what_plays(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    assert checked_out(tmp_path / "none") == "unknown"
    repository = Repository(tmp_path / "some")
    clean = checked_out(repository.folder)
    assert len(clean) == 40
    repository.write("evaluation/plays.jsonl", "2")
    repository.write("docs/accuracy.md", "2")
    assert checked_out(repository.folder) == clean
    repository.write("analyzer/new.py", "1")
    assert checked_out(repository.folder) == f"{clean}-dirty"


def test_detectors_are_of_the_last_commit_that_changed_one(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    first = commit_of_detectors(tmp_path)
    repository.write("docs/accuracy.md", "2")
    repository.commit()
    assert commit_of_detectors(tmp_path) == first
    repository.write("analyzer/code.py", "2")
    assert repository.commit() == commit_of_detectors(tmp_path) != first
    assert [it for it in DETECTORS if not (ROOT / it).exists()] == []


def test_crowded_fleets_count_apart_and_have_a_hundred_times_as_many_faults() -> None:
    plays = [play(1), play(2, use="crowded"), play(3, use="crowded", detectors="before")]
    assert [one["seed"] for one in newest(plays)] == [1]
    assert [one["seed"] for one in newest(plays[:2], "crowded")] == [2]
    assert [one["seed"] for one in for_tuning(plays)] == [2]
    assert release_seed("abc", 0, "crowded") != release_seed("abc", 0)
    truths = [truth for truth in build(crowded(7)).truths() if not truth.hidden]
    node_days = NODES * CROWDED_DAYS
    assert len(truths) > 40.0 * FAULTS_PER_1000_NODE_DAYS * node_days / 1000.0
    assert sum(is_inferred(it.fault) for it in truths) > 30


@pytest.mark.parametrize("use", ["release", "crowded"])
def test_nothing_is_published_of_a_tree_that_no_commit_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], use: str
) -> None:
    before = PLAYS.read_bytes() if PLAYS.exists() else b""
    repository = Repository(tmp_path)
    repository.write("analyzer/code.py", "changed")
    assert main([use, "--fleets", "1"], repository.folder) == 2
    assert "commit the changes first" in capsys.readouterr().err
    assert (PLAYS.read_bytes() if PLAYS.exists() else b"") == before


def test_others_play_every_tenth_fleet() -> None:
    sets = [OURS, "gpud"]
    assert [sets_of(number, sets) for number in (0, 1, 9, 10)] == [sets, [OURS], [OURS], sets]
    assert sets_of(1, ["gpud"]) == []


def test_others_play_the_first_crowded_fleet_where_they_are_asked_to() -> None:
    assert list(_wanted(_chosen(["crowded", "--fleets", "2"]), "c").values()) == [["gpuvigil"]] * 2
    asked = _wanted(_chosen(["crowded", "--fleets", "2", "--sets", "gpud"]), "c")
    assert list(asked.values()) == [["gpuvigil", "gpud"], ["gpuvigil"]]


def test_five_of_a_kind_are_the_fewest_that_a_loss_shows_in() -> None:
    assert mcnemar(OF_EACH, 0) < SIGNIFICANT < mcnemar(OF_EACH - 1, 0)
    orders = dense(1000).faults
    assert len(orders) >= 60
    assert len({order.start_seconds for order in orders}) > 60
    assert sum(is_inferred(order.kind) for order in orders) >= 60
    assert len({order.node for order in orders}) == len(orders)


def test_the_committed_plays_are_whole() -> None:
    for one in read():
        assert {"use", "seed", "commit", "detectors", "fleet", "judge", "tallies"} <= set(one)
        assert not one["commit"].endswith("-dirty") or one["use"] == "tuning"
        json.dumps([Tally.from_json(it).to_json() for it in one["tallies"].values()])
    assert len(seen(read())) == len(read())
