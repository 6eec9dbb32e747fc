"""Energy by team with what the site needs besides, and what jobs lost at failures, as far as it is known."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from accounting.cost.money import Prices
from accounting.job_ending import EndCause
from accounting.jobs.losses import Ended, Loss
from gpuvigil.config import CostSettings
from gpuvigil.model import job_holder
from report.formats.markdown_format import markdown
from report.inputs.facts import Facts
from report.model.content import Report
from report.model.sheet import Sheet, said
from report.scheduled.editions import of_team, only_theirs
from report.sections.build import build
from report.sections.work_lost import NOT_TOLD
from tests.report.weeks import START, WEEK, facts, share, usage

WATTS = 400.0
ANN = share(gpus=4, account="vision", energy_joules=4 * 900 * WATTS)
BOB = share("job 2", "bob", 2, account="speech", energy_joules=2 * 900 * WATTS)


def rows(sheet: Sheet | None) -> dict[str, list[str]]:
    """As people read them."""
    assert sheet is not None
    listed = [*sheet.rows, *([] if sheet.total is None else [sheet.total])]
    return {
        str(row[0]): [
            said(*one).replace("\u00a0", " ")
            for one in zip(sheet.columns[1:], row[1:], strict=True)
        ]
        for row in listed
    }


def priced(found: Facts, **more: Any) -> Facts:
    return replace(found, prices=Prices(settings=CostSettings(**more)))


def two_weeks() -> Facts:
    return facts(usage([ANN, BOB]), usage([ANN], start=START - WEEK, end=START))


def test_energy_is_the_teams_and_what_nobody_held_and_adds_up_to_all() -> None:
    found = rows(build(priced(two_weeks(), pue=1.5, carbon_grams=300.0)).sheet("energy"))
    # A week of 4 GPUs at 400 W: 268.8 kWh of 537.6 kWh of eight; with PUE 1.5 and 300 g/kWh 121 kg.
    assert found == {
        "vision": ["268.8 kWh", "403.2 kWh", "121 kg", "0 kWh"],
        "speech": ["134.4 kWh", "201.6 kWh", "60 kg", "+134.4 kWh"],
        "not allocated": ["134.4 kWh", "201.6 kWh", "60 kg", "−134.4 kWh"],
        "all": ["537.6 kWh", "806.4 kWh", "242 kg", "0 kWh"],
    }


def test_without_a_factor_there_is_no_carbon_and_the_table_says_what_it_lacks() -> None:
    report = build(two_weeks())
    sheet = report.sheet("energy")
    assert sheet is not None
    assert [one.key for one in sheet.columns] == ["name", "energy_kwh", "energy_change"]
    assert "CO2 is not known without cost.carbon_grams" in sheet.caption
    assert "## Energy by team" in markdown([report])


def test_a_teams_edition_has_its_own_energy_alone() -> None:
    report = only_theirs(build(of_team(two_weeks(), "speech")))
    assert list(rows(report.sheet("energy"))) == ["speech", "all"]
    assert "vision" not in markdown([report])


def test_without_a_measured_watt_there_is_no_table() -> None:
    found = two_weeks()
    dark = [
        replace(one, seconds=replace(one.seconds, powered=0.0, energy_joules=0.0))
        for one in found.usage.buckets
    ]
    bare = replace(found.now, usage=replace(found.usage, buckets=tuple(dark)))
    assert build(replace(found, now=bare)).sheet("energy") is None


def loss(
    number: int,
    why: str = "hardware failed: GPU fell off the bus",
    hours: float | None = 10.0,
    *,
    known: bool = False,
    gpus: int = 8,
    account: str = "vision",
) -> Loss:
    ended = Ended(
        cluster="alpha",
        holder=job_holder(str(number)),
        ended_at=START + timedelta(hours=number),
        gpus=gpus,
        nodes=("n1", "n2")[: -(-gpus // 8)],
        account=account,
    )
    amount = None if hours is None else gpus * hours
    return Loss(
        job=ended, why=EndCause.HARDWARE, said=why, gpu_hours=amount, since_checkpoint=known
    )


def report_of(*lost: Loss) -> Report:
    return build(replace(facts(), lost=lost))


def test_work_lost_is_by_what_failed_with_a_range_where_no_checkpoint_is_known() -> None:
    network = "the network failed: Network port is down"
    report = report_of(
        loss(1, known=True), loss(2, hours=5.0, gpus=16), loss(3, network, 4.0, known=True)
    )
    sheet = report.sheet("work_lost")
    assert rows(sheet) == {
        "hardware failed: GPU fell off the bus": ["2", "80–160", "10–20"],
        network: ["1", "32", "4.0"],
        "all": ["3", "112–192", "14–24"],
    }
    assert sheet is not None
    assert "known of 2 of 3 jobs" in sheet.caption


def test_a_job_of_which_nobody_knows_what_it_did_counts_as_a_job_and_adds_nothing() -> None:
    found = rows(report_of(loss(1, hours=None)).sheet("work_lost"))
    assert found["all"] == ["1", "0", "0"]


@pytest.mark.medium
def test_more_than_eight_causes_are_one_row_more() -> None:
    nine = rows(report_of(*(loss(n, f"cause {n}", n) for n in range(1, 10))).sheet("work_lost"))
    assert list(nine)[-2:] == ["1 more", "all"]
    assert next(iter(nine)) == "cause 9"
    eight = rows(report_of(*(loss(n, f"cause {n}", n) for n in range(1, 9))).sheet("work_lost"))
    assert list(eight)[-2:] == ["cause 1", "all"]


def test_where_no_scheduler_tells_of_jobs_the_report_says_what_it_lacks() -> None:
    silent = build(replace(facts(), lost=None))
    assert silent.sheet("work_lost") is None
    assert NOT_TOLD in silent.method.notes
    assert NOT_TOLD not in report_of().method.notes


def test_a_teams_edition_has_the_work_that_it_lost_itself() -> None:
    found = of_team(replace(facts(), lost=(loss(1), loss(2, account="speech"))), "speech")
    assert [str(one.job.holder) for one in found.lost or ()] == ["job 2"]
