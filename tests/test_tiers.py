"""No test is left out: what one tier does not run, another one that `.ci/run` runs does."""

from itertools import combinations
from pathlib import Path

import pytest

from tests.conftest import SECOND_TIER, is_in

ROOT = Path(__file__).parent.parent
MARKS = [some for size in range(4) for some in combinations(sorted(SECOND_TIER), size)]


@pytest.mark.parametrize("given", MARKS, ids="+".join)
def test_every_test_is_of_one_of_the_two_that_run_all(given: tuple[str, ...]) -> None:
    marks = set(given)
    assert is_in("test", marks) != is_in("sites", marks)
    assert is_in("test", marks) or not is_in("unit", marks)


@pytest.mark.parametrize(("target", "tier"), [("test", "test"), ("test-sites", "sites")])
def test_continuous_integration_runs_both(target: str, tier: str) -> None:
    assert f"make {target}" in (ROOT / ".ci/run").read_text().splitlines()
    recipe = (ROOT / "Makefile").read_text().partition(f"\n{target}: ")[2].partition("\n\n")[0]
    assert f"--tier {tier} " in recipe
