"""The tool that puts small faults into the code: a made-up tree, whose mutants are killed, live, or are excused."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from scripts.mutants import (
    EQUIVALENT,
    ROOMS,
    ROOT,
    SECONDS_OF_TESTS,
    Reach,
    most_living,
    nearest,
)
from scripts.mutations import Mutant, all_mutants, mutants, sample

SOURCE = """
MOST = 5

def is_over(number):
    return number > MOST

def is_large(number):
    return number >= 100

def is_never_asked():
    return 1
"""
TESTS = """
from shop.limits import is_large, is_over

def test_just_above_is_over_and_the_limit_is_not():
    assert is_over(6)
    assert not is_over(5)

def test_one_is_not_large():
    assert not is_large(1)
"""
PYPROJECT = """
[tool.pytest.ini_options]
addopts = ["--import-mode=importlib"]
pythonpath = ["."]
"""
# As ours: what was imported until here is no garbage.
CONFTEST = """
import gc

def pytest_collection_finish():
    gc.freeze()
"""
PLAY = """
import runpy
import sys
from pathlib import Path
from scripts.mutations import all_mutants

# A program whose module cannot be found by its name: a test may put another one there.
play = runpy.run_module("scripts.mutants", run_name="gone")["play"]

root = Path(sys.argv[1])
found = all_mutants({"shop": ["shop/*.py"]}, root)["shop"]
excused = {"shop/limits.py: return number >= 100: 100 -> 101": "made up"}
for mutant, result in play(found, root, 2, [str(root / "tests")], excused):
    print(f"{mutant.was} -> {mutant.now}: {result}")
"""


def changes(source: str) -> list[str]:
    return [f"{it.was} -> {it.now}" for it in mutants("room", "it.py", source)]


@pytest.mark.server
def test_a_mutant_is_killed_by_the_tests_that_reach_it_or_lives(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "shop/limits.py").write_text(SOURCE)
    (tmp_path / "tests/test_limits.py").write_text(TESTS)
    (tmp_path / "tests/conftest.py").write_text(CONFTEST)
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    done = subprocess.run(
        [sys.executable, "-c", PLAY, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    told = [line for line in done.stdout.splitlines() if " -> " in line and "py:" not in line]
    assert sorted(told) == [
        "1 -> 2: no test",
        "100 -> 101: equivalent",
        "5 -> 6: killed",
        "number > MOST -> (number >= MOST): killed",
        "number >= 100 -> (number > 100): lived",
    ]
    # The checkout stays as it is.
    assert (tmp_path / "shop/limits.py").read_text() == SOURCE


def test_the_tests_of_the_nearest_folder_are_asked_first_and_a_long_one_keeps_none_from_it() -> (
    None
):
    (mutant,) = mutants("room", "hub/embedded/scan.py", "def f(): return 1")
    names = ["cli/test_a.py", "hub/test_b.py", "hub/embedded/test_c.py", "cli/test_scan.py"]
    names = [f"tests/{it}::test" for it in names]
    lines = {mutant.path: {1: {0, 1, 2, 3}}}
    seconds = dict.fromkeys(range(4), 1.0)
    assert nearest(mutant, Reach(lines=lines, seconds=seconds), names) == [3, 2, 1, 0]
    seconds[2] = SECONDS_OF_TESTS
    assert nearest(mutant, Reach(lines=lines, seconds=seconds), names) == [3, 1, 0]


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("a < b <= c", ["a < b <= c -> (a <= b <= c)", "a < b <= c -> (a < b < c)"]),
        ("not a", ["not a -> (a)"]),
        ("a and b", ["a and b -> (a or b)"]),
        ("a * b", ["a * b -> (a / b)"]),
        ("min(a, key=b)", ["min(a, key=b) -> pass", "min(a, key=b) -> (max(a, key=b))"]),
        ("a = 2 * 3 * 4", ["2 * 3 * 4 -> (2 * 3 * 4 + 1)"]),
        ("x = True", ["True -> False"]),
        ("@dataclass(slots=True)\nclass A: pass", []),
        ("x = 1.5", ["1.5 -> 2.5"]),
        ("for a in b: continue", ["continue -> break"]),
        ("x: Literal[1] = None", []),
        ("raise Error(1)", []),
        ("x = f'{1}'", []),
        ("log.info('%s', 1)", []),
        ("_LOG.info('%s', 1)", []),
        ("x = zip(a, b, strict=True)", []),
        ("x = zip(a, b, strict=False)", ["False -> True"]),
    ],
)
def test_limits_conditions_signs_and_numbers_are_changed_and_words_are_not(
    source: str, changed: list[str]
) -> None:
    assert changes(source) == changed


def test_a_change_stands_in_the_source_where_it_was() -> None:
    source = "é = 'ü', (\n  a <\n  b), 1\n"
    found = [it.applied(source) for it in mutants("room", "it.py", source)]
    assert found == ["é = 'ü', (\n  (a <= b)), 1\n", "é = 'ü', (\n  a <\n  b), 2\n"]


def test_a_sample_takes_as_many_from_each_room_and_another_seed_draws_others() -> None:
    def of(room: str, number: int) -> list[Mutant]:
        return list(mutants(room, room, "\n".join(["1"] * number)))

    found = {"small": of("small", 3), "large": of("large", 50)}
    drawn = sample(found, 20, "a")
    assert [it.room for it in drawn].count("small") == 3
    assert (len(drawn), drawn) == (20, sample(found, 20, "a"))
    assert drawn != sample(found, 20, "b")


@pytest.fixture(scope="module")
def all_there() -> Mapping[str, list[Mutant]]:
    return all_mutants(ROOMS, ROOT)


@pytest.mark.medium
def test_each_glob_of_the_rooms_finds_files(all_there: Mapping[str, list[Mutant]]) -> None:
    empty = [glob for globs in ROOMS.values() for glob in globs if not any(ROOT.glob(glob))]
    assert empty == []
    assert min(map(len, all_there.values())) > 100


@pytest.mark.medium
def test_each_that_is_excused_is_there_and_has_a_reason(
    all_there: Mapping[str, list[Mutant]],
) -> None:
    excused = json.loads(EQUIVALENT.read_text(encoding="utf-8"))
    assert all(excused.values())
    found = {it.name for of_room in all_there.values() for it in of_room}
    assert excused.keys() - found == set()


def test_a_large_sample_may_keep_a_tenth_and_a_small_one_so_many_as_chance_hardly_gives() -> None:
    assert most_living(300) == 30
    assert most_living(40) == 9
    chance = random.Random(7)
    runs = [sum(chance.random() < 0.10 for _ in range(40)) for _ in range(20_000)]
    assert sum(it > 9 for it in runs) / len(runs) == pytest.approx(0.005, abs=0.002)
