"""What `gpuvigil usage` says of energy, and of the states."""

import re
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


def test_the_states_of_the_gpu_hours_add_up_as_they_are_written() -> None:
    """Of 8 GPU-hours, with hundredths in each state."""
    hour = usage(
        [share("job 1", "ann", gpus=3, seconds=798.0, used=0.5)],
        end=START + timedelta(hours=1),
        unavailable=0.66,
        unknown=0.66,
    )
    said = used.sentences(answered(hour))[0]
    whole, *parts = (float(one) for one in re.findall(r"\d+\.\d", said))
    assert len(parts) == 5
    assert round(sum(parts), 1) == whole
