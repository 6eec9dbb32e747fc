"""What is offered to try on the past is a limit that there is, of a fault that there is."""

import pytest

from gpuvigil.config.settings import AnalyzerSettings
from gpuvigil.config.tuning import tried_on_the_past
from gpuvigil.faults import FAULTS

LIMITS = {key: row.tuned_by for key, row in FAULTS.items() if row.tuned_by is not None}


@pytest.mark.parametrize(("fault", "key"), LIMITS.items())
def test_every_limit_that_is_offered_is_one_and_is_larger_than_now(fault: str, key: str) -> None:
    command = tried_on_the_past(fault)
    assert command.startswith(f"gpuvigil backtest --last 7d --set analyzer.{key}=")
    assert float(command.rpartition("=")[2]) == 2 * getattr(AnalyzerSettings(), key)


def test_a_rule_without_a_limit_offers_nothing() -> None:
    assert tried_on_the_past("gpu_lost") == ""
