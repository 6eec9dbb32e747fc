"""What `gpuvigil usage` says of energy."""

from dataclasses import replace
from datetime import timedelta

import pytest

from dashboard.terminal import used
from tests.dashboard.reports.weeks import START, share, usage
from tests.dashboard.terminal.test_commands import answered, rows


@pytest.mark.parametrize("by", used.HOLDERS)
def test_energy_that_was_not_measured_is_not_called_none(by: str) -> None:
    first = replace(share("job 1", "ann"), account="a", partition="a", project="a")
    second = replace(share("job 2", "ben"), account="b", partition="b", project="b")
    hour = usage([first, replace(second, energy_joules=7.2e6)], end=START + timedelta(hours=1))
    found = rows(used.grid([answered(hour)], by))
    found.sort(key=lambda one: str(one[by]))
    assert [one["energy_kilowatt_hours"] for one in found] == [None, 8.0]
