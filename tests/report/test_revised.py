"""A report made again: the same numbers say nothing, others are named with what they were, and why."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from accounting.cost.money import Prices
from accounting.usage import Usage
from gpuvigil.config import CostSettings, PriceSettings
from gpuvigil.model import Incident
from gpuvigil.model.report_run import ReportRun
from report.formats.markdown_format import summary
from report.inputs.facts import Facts
from report.sections.build import build
from report.sections.revised import EarlierNumbers, numbers_to_keep, revised
from tests.report.weeks import END, START, WEEK, facts, gpu, incident, share, usage

ANN, BOB = share(gpus=4, account="a", quiet=0.5), share("job 2", "bob", 2, account="b")
LATER = END + timedelta(days=3)


def sent(found: Facts) -> EarlierNumbers:
    """As it comes back from the hub."""
    run = ReportRun(
        name="w", due_at=END, html="<p>", numbers=(numbers_to_keep(found, build(found)),)
    )
    (one,) = ReportRun.from_record(run.to_record(1)).numbers
    back: EarlierNumbers = json.loads(json.dumps(one))
    return back


def said(found: Facts, *past: EarlierNumbers) -> str:
    again = replace(found, made_at=LATER)
    return revised(again, build(again), past)


def recounted(found: Usage, part: int) -> Usage:
    """As if that many of its quarters had been counted again, later."""
    again = [replace(one, counted_at=END + timedelta(hours=2)) for one in found.buckets[:part]]
    return replace(found, buckets=(*again, *found.buckets[part:]))


@pytest.mark.medium
def test_the_same_data_say_the_same_and_nothing_of_it() -> None:
    found = facts(usage([ANN, BOB]))
    assert said(found, sent(found)) == ""
    assert said(found) == ""
    # Quarters that were counted again with the same result change no number.
    assert (
        said(replace(found, now=replace(found.now, usage=recounted(found.usage, 4))), sent(found))
        == ""
    )


def test_data_that_came_late_are_named_with_what_they_changed() -> None:
    gap = (START + timedelta(days=3), START + timedelta(days=3, hours=5))
    early, late = usage([ANN, BOB], without=[gap]), usage([ANN, BOB])
    text = said(facts(recounted(late, 20)), sent(facts(early)))
    began = "Since the report made Sat 21 Nov 00:00 2026 UTC: Allocated but idle 326.0 GPU-h → 336.0 GPU-h;"
    assert text.replace("\u00a0", " ").startswith(began)
    assert text.endswith(
        " other numbers. 20 quarters of an hour were counted after it; 40.0 more GPU-hours are known,"
        " of data that came late."
    )
    assert "\n" not in text


def test_a_holder_that_was_told_of_late_is_why() -> None:
    text = said(facts(recounted(usage([ANN, BOB]), 672)), sent(facts(usage([ANN]))))
    assert "Allocated 50\u00a0% → 75\u00a0%" in text
    assert text.endswith("672 quarters of an hour were counted after it; 1 more holder is known.")


def with_prices(found: Facts, hour: float) -> Facts:
    cost = CostSettings(currency="EUR", prices=(PriceSettings(per_gpu_hour=hour),))
    return replace(found, prices=Prices(settings=cost))


def test_another_price_is_why_and_only_money_is_another() -> None:
    found = facts(usage([ANN, BOB]))
    text = said(with_prices(found, 3.0), sent(with_prices(found, 2.0)))
    assert "allocated but idle, EUR 672 → 1,008" in text
    assert text.endswith(". Prices changed.")
    assert "Allocated" not in text


@pytest.mark.medium
@pytest.mark.parametrize(
    ("then", "now", "why"),
    [
        ([], [incident()], "1 more incident is counted."),
        ([incident()], [], "1 fewer incident is counted."),
        (
            [incident(until=None)],
            [replace(incident(until=None), severity=incident().severity, updated_at=LATER)],
            "",
        ),
    ],
)
def test_incidents_that_came_or_were_dismissed_are_why(
    then: Sequence[Incident], now: Sequence[Incident], why: str
) -> None:
    counted = usage([ANN, BOB])
    text = said(facts(counted, incidents=now), sent(facts(counted, incidents=then)))
    assert text.endswith(why)
    assert bool(text) == bool(why)


@pytest.mark.medium
def test_numbers_that_were_called_otherwise_are_the_same_numbers() -> None:
    found = facts(usage([ANN, BOB]))
    past = dict(sent(found))
    old = {
        "Allocated but idle": "Idle and held",
        "Allocated GPU-h": "Held GPU-h",
        "allocated, while a fault stopped the job": "held, while a fault stopped the job",
        "not allocated": "unoccupied",
        "allocated but idle": "occupied but idle",
        "allocated and inefficient": "occupied and inefficient",
    }

    def called_before(name: str) -> str:
        for now, before in old.items():
            name = name.replace(now, before)
        return name

    past["numbers"] = {called_before(name): it for name, it in past["numbers"].items()}
    assert past["numbers"].keys() != sent(found)["numbers"].keys()
    assert said(found, past) == ""


@pytest.mark.medium
def test_a_team_whose_name_a_loss_had_before_keeps_its_numbers() -> None:
    found = facts(usage([replace(ANN, account="unoccupied"), BOB]))
    past = sent(found)
    assert any(name.startswith("unoccupied, ") for name in past["numbers"])
    assert said(found, past) == ""


def test_other_limits_of_the_idle_rule_are_why() -> None:
    found = facts(usage([ANN, BOB]))
    past: dict[str, Any] = dict(sent(found))
    past["numbers"] = {**past["numbers"], "Allocated but idle": "1\u00a0GPU-h"}
    assert said(found, past).endswith(" Why is not known.")
    past["sources"] = {**past["sources"], "idle_seconds": 60.0, "version": "0.0.9"}
    assert "The idle rule's limits changed; gpuvigil 0.0.9 made it" in said(found, past)


@pytest.mark.medium
def test_the_newest_of_the_same_span_and_team_is_what_it_is_held_against() -> None:
    found = facts(usage([ANN, BOB]))
    past = sent(found)
    old = {**past, "made_at": "2026-11-20T00:00:00Z", "numbers": {}}
    others = [
        {**past, "numbers": {}, key: value}
        for key, value in (("team", "a"), ("cluster", "beta"), ("start", "2026-11-13T00:00:00Z"))
    ]
    assert said(found, old, past, *others) == ""
    assert said(found, old, *others) != ""


def test_a_summary_with_it_still_has_eight_lines() -> None:
    found = facts(
        usage([ANN, BOB]),
        usage([ANN, BOB], start=START - WEEK, end=START),
        [incident(subject=gpu(1), until=None)],
    )
    report = replace(build(found), revised="Since the report made then: a 1 → 2. Why is not known.")
    lines = summary(report)
    assert len(lines) <= 8
    assert any("Since the report made then" in line for line in lines)
