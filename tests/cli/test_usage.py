"""What `gpuvigil usage` says of energy, and of the states."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from cli.tables import usage as used
from report.model.formatting import hours
from report.sections.build import build
from tests.cli.test_commands import answered, rows
from tests.report.weeks import START, eventful, share, usage


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


@pytest.mark.medium
def test_what_was_in_service_and_lost_is_what_the_report_says() -> None:
    week = eventful()
    report = build(week).capacity
    asked = answered(week.usage)
    (said,) = (line for line in used.sentences(asked) if "In service" in line)
    served, owned, percent, *lost = (
        float(one.replace(",", "")) for one in re.findall(r"\d[\d,]*\.\d", said)
    )
    assert (hours(served, 0), hours(owned, 0)) == (
        hours(report.in_service_gpu_hours, 0),
        hours(report.owned_gpu_hours, 0),
    )
    assert percent == report.in_service_percent
    assert round(served + sum(lost), 1) == owned
    (row,) = rows(used.grid([asked], "node"))
    for one, hour in zip(report.losses, lost, strict=True):
        assert round(hour) == one.gpu_hours
        told = float(str(row[f"lost_{one.lost_to}_gpu_hours"]))
        assert told == pytest.approx(hour, abs=0.1)


@pytest.mark.medium
def test_where_nobody_could_say_what_was_out_of_service_usage_says_no_number_of_it() -> None:
    asked = answered(usage([share()], unavailable=1.0))
    assert "  In service: -, not known what was out of service" in used.sentences(asked)
    (row,) = rows(used.grid([asked], "node"))
    assert [row["in_service_percent"], row["lost_fault_gpu_hours"]] == [None, None]


def test_where_nobody_knows_holders_nothing_is_called_free_or_idle() -> None:
    quarter = usage(end=START + timedelta(minutes=15))
    (first,) = quarter.buckets
    seconds = replace(first.seconds, active=7200.0, free=0.0, unattributed=7200.0)
    dark = replace(quarter, buckets=(replace(first, seconds=seconds),))
    assert ": 2.0 active, - idle, - free, 0.0 unavailable" in used.sentences(answered(dark))[0]
    found = {row["state"]: row["gpu_hours"] for row in rows(used.grid([answered(dark)], "state"))}
    assert (found["active"], found["idle"], found["free"]) == (2.0, None, None)


def test_a_team_is_what_schedulers_call_an_account() -> None:
    """As the page of users and teams says, from which people have the word."""
    assert used.asked("team") == "account"
    assert used.asked("team") in used.BY
    assert [used.asked(name) for name in used.BY] == list(used.BY)
