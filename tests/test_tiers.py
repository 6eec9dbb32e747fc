"""No test is left out: what one tier does not run, another one that `.ci/run` runs does."""

import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

from tests.conftest import (
    NOT_IN,
    SECOND_TIER,
    UNIT_SECONDS,
    is_in,
    marks_of_file,
    may_have,
    refuse_long,
)

ROOT = Path(__file__).parent.parent
MARKS = [some for size in range(4) for some in combinations(sorted(SECOND_TIER), size)]


@pytest.mark.parametrize("given", MARKS, ids="+".join)
def test_every_test_is_of_one_of_the_two_that_run_all(given: tuple[str, ...]) -> None:
    marks = set(given)
    assert is_in("test", marks) != is_in("sites", marks)
    assert is_in("test", marks) or not is_in("unit", marks)


@pytest.mark.parametrize("given", MARKS, ids="+".join)
@pytest.mark.parametrize("tier", sorted(NOT_IN))
def test_a_file_is_left_unread_only_if_none_of_its_tests_can_be_of_the_tier(
    tier: str, given: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "test_it.py"
    marks = "".join(f"pytest.mark.{mark}, " for mark in given)
    file.write_text(f"import pytest\n\npytestmark = [{marks}pytest.mark.timeout(9)]\n")
    assert marks_of_file(file) == {*given, "timeout"}
    if marks_of_file(file) & NOT_IN[tier]:
        assert not any(is_in(tier, {*given, *more}) for more in MARKS)


def test_a_file_without_a_mark_is_always_read(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text("import pytest\n\n@pytest.mark.server\ndef test_it(): pass\n")
    assert marks_of_file(file) == set()


@pytest.mark.parametrize(
    ("folder", "line", "tiers"),
    [
        (".", "@pytest.mark.server", set()),
        (".", "@pytest.mark.site", {"sites"}),
        (".", "pytest.param(1, marks=[pytest.mark.site])", {"sites"}),
        (".", "pytestmark = [pytest.mark.alone]", {"sites", "alone"}),
        (".", "def test_it(browser: Browser): pass", {"sites"}),
        ("browser", "def test_it(visit: Visit): pass", {"sites"}),
    ],
)
def test_of_the_sites_tiers_a_file_is_read_that_can_have_one(
    folder: str, line: str, tiers: set[str], tmp_path: Path
) -> None:
    file = tmp_path / folder / "test_it.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"import pytest\n\n{line}\n")
    assert {tier for tier in ("sites", "alone") if may_have(tier, file)} == tiers


def test_a_test_of_the_unit_tier_may_take_two_seconds_of_processor_time_and_no_more() -> None:
    refuse_long(UNIT_SECONDS)
    with pytest.raises(pytest.fail.Exception, match=r"2\.1 s of processor time.* mark it medium"):
        refuse_long(UNIT_SECONDS + 0.1)


@pytest.mark.parametrize("given", [mark for mark in MARKS if "site" in mark], ids="+".join)
def test_what_is_timed_runs_after_all_others_and_once(given: tuple[str, ...]) -> None:
    tiers = [tier for tier in ("unit", "test", "sites", "alone") if is_in(tier, {*given, "alone"})]
    assert tiers == ["alone"]
    assert not is_in("alone", set(given))


@pytest.mark.server
def test_of_files_with_sites_that_begins_first_whose_tests_may_take_longest() -> None:
    names = ("test_infiniband.py", "test_first_visit.py", "test_bare_nodes.py")
    words = ["--collect-only", "-q", "--tier", "sites", *(f"tests/end_to_end/{it}" for it in names)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    tests = [line for line in done.stdout.splitlines() if "::" in line]
    begun = dict.fromkeys(Path(line.partition("::")[0]).name for line in tests)
    assert tuple(begun) == names[::-1]


@pytest.mark.parametrize(
    ("target", "tier"), [("test", "test"), ("test-sites", "sites"), ("test-sites", "alone")]
)
def test_continuous_integration_runs_all(target: str, tier: str) -> None:
    assert f"make {target}" in (ROOT / ".ci/run").read_text().splitlines()
    recipe = (ROOT / "Makefile").read_text().partition(f"\n{target}: ")[2].partition("\n\n")[0]
    assert f"--tier {tier} " in recipe
