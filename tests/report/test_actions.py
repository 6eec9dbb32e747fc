"""What to do next, by what it saves, what became of it, and what each sentence rests on."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from accounting.cost.money import Prices
from accounting.usage import BUCKET, Share, Usage
from gpuvigil.config import CostSettings, PriceSettings
from gpuvigil.model import Impact, Rma, RmaState
from report.model.content import Report
from report.sections.build import build
from tests.report.weeks import END, START, WEEK, bucket, facts, gpu, incident, priced, share, usage


@pytest.mark.medium
def test_a_fact_changes_the_sentences_that_rest_on_it_and_no_other() -> None:
    """Each sentence names its rows: it changes with one of them, and only then."""
    before = facts(usage([share(gpus=4)], gpus=16), incidents=[incident(until=None)])
    for changed in (
        facts(usage([share(gpus=4, quiet=0.02)], gpus=16), incidents=[incident(until=None)]),
        facts(usage([share(gpus=5)], gpus=16), incidents=[incident(until=None)]),
        facts(usage([share(gpus=4)], gpus=16), incidents=[incident(until=START + WEEK / 2)]),
        facts(
            usage([share(gpus=4)], gpus=16),
            incidents=[incident(until=None, impact=Impact(gpus=8))],
        ),
    ):
        old, new = build(before), build(changed)
        one, other = values(old), values(new)
        moved = {name for name in {*one, *other} if one.get(name) != other.get(name)}
        assert moved
        for text, rests_on in said(new) ^ said(old):
            assert moved & set(rests_on), text
        for text, rests_on in said(new) & said(old):
            assert not moved & {row for row in rests_on if row.startswith("figures/")}, text


def said(report: Report) -> set[tuple[str, tuple[str, ...]]]:
    return {
        *((one.text, one.rests_on) for one in report.verdict),
        *((f"{one.text} {one.gpu_hours_a_day}", one.rests_on) for one in report.actions),
    }


def values(report: Report) -> dict[str, Any]:
    """Every row that a sentence can rest on."""
    found: dict[str, Any] = {f"figures/{one.key}": one for one in report.figures}
    found |= {f"incident/{one.id}": one for one in report.troubles}
    for sheet in report.sheets:
        found |= {sheet.name(n): row for n, row in enumerate(sheet.rows)}
    return found


@pytest.mark.medium
def test_what_to_do_is_ranked_by_what_it_saves_and_told_a_week_later() -> None:
    """A job that is still idle, and a fault that stands: the one with more GPUs first."""
    idle_now = share("job 7", "carol", 3, idle=1.0, used=0.0, quiet=1.0)
    held = [idle_now, share("job 8", "dan", 1)]
    active = incident(until=None)
    report = build(facts(usage(held), incidents=[active], prices=priced()))
    first, second = report.actions
    assert first.text.startswith("Ask carol (job 7) whether 3 GPUs can be let go: 504 GPU-hours")
    assert (first.gpu_hours_a_day, first.cost_a_day) == (72.0, 144.0)
    assert second.text == "n1 GPU 0, GPU fell off the bus: Drain the node and reboot it."
    assert (second.gpu_hours_a_day, second.cost_a_day) == (24.0, 48.0)
    past = usage(held, start=START - WEEK, end=START)
    began = replace(active, since=START - WEEK)
    over = replace(began, resolved_at=START + timedelta(days=2))
    later = build(facts(usage([held[1]]), past, [over], [over]))
    assert [(one.became, one.done) for one in later.became] == [
        ("Let go: none was idle since.", True),
        ("Over since Mon 16 Nov 00:00.", True),
    ]
    still = build(facts(usage(held), past, [began], [began]))
    assert [one.done for one in still.became] == [False, False]
    assert still.became[0].became == "504 more GPU-hours were idle."


@pytest.mark.medium
def test_nobody_is_asked_to_let_go_what_a_fault_holds() -> None:
    """Idle up to the end, by a fault that stands in the last quarter, or that was over before it."""
    week = usage([share("job 7", quiet=1.0, idle=1.0, used=0.0)])
    hit = Impact(gpus=4, holders=("job 7",), users=("ann",))
    last = END - BUCKET
    for over, asked in ((None, 0), (last + timedelta(seconds=1), 0), (last, 1)):
        broken = incident(since=START + WEEK / 2, until=over, impact=hit)
        found = build(facts(week, incidents=[broken])).actions
        assert sum(one.text.startswith("Ask ann (job 7) whether") for one in found) == asked
    whole = incident(since=START, until=END, impact=hit)
    assert build(facts(week, incidents=[whole])).actions == ()


def busy_at_the_end(held: list[Share], start: datetime = START, end: datetime = END) -> Usage:
    """With nothing that is idle in the last quarter."""
    found = usage(held, start=start, end=end)
    last = bucket(found.end - BUCKET, [share(gpus=4, idle=0.0)])
    return replace(found, buckets=(*found.buckets[:-1], last))


@pytest.mark.medium
def test_what_was_wasted_is_to_do_although_nothing_stands_at_the_end() -> None:
    """Ranked by what it comes to a day; who wastes half of it a week later has done what was asked."""
    held = [
        share("job 1", "ann", 4, quiet=0.5, idle=0.5),
        share("job 2", "ann", 2, quiet=0.25, idle=0.25),
        share("job 3", "bob", 1, quiet=0.5, idle=0.5),
        share("job 4", "", 1, quiet=0.5, idle=0.5),
        share("job 4", "", 1, quiet=0.5, idle=0.5, model="A100"),
    ]
    report = build(facts(busy_at_the_end(held), prices=priced()))
    assert [one.text for one in report.actions] == [
        "Ask ann about 2 jobs that wasted 419 GPU-hours; job 1 was idle for 50 % (end it when done).",
        "Look at job 4, which was idle for 50 % (end it when done).",
        "Ask bob about job 3, which was idle for 50 % (end it when done).",
    ]
    assert [one.gpu_hours_a_day for one in report.actions] == [60.0, 24.0, 12.0]
    assert [one.cost_a_day for one in report.actions] == [119.82, 47.93, 23.96]
    for less, done in ((0.26, False), (0.24, True)):
        now = [share("job 5", "ann", 5, quiet=less, idle=less)]
        before = busy_at_the_end(held, start=START - WEEK, end=START)
        found = build(facts(busy_at_the_end(now), before)).became[0]
        assert (found.done, found.became[-33:]) == (done, "GPU-hours were wasted, after 419.")


@pytest.mark.parametrize(
    ("gpus", "seconds", "quiet", "actions"),
    [(1, 450.0, 0.09, 1), (1, 450.0, 0.08, 0), (8, None, 0.051, 1), (8, None, 0.049, 0)],
)
def test_little_a_day_or_of_what_was_held_is_nobodys_errand(
    gpus: int, seconds: float | None, quiet: float, actions: int
) -> None:
    """A GPU-hour a day, and a twentieth."""
    held = [share("job 1", "ann", gpus, quiet=quiet, idle=quiet, seconds=seconds)]
    assert len(build(facts(busy_at_the_end(held))).actions) == actions


@pytest.mark.parametrize(
    ("days", "state", "asked"), [((5, 3), None, 1), ((5,), None, 0), ((5, 3), RmaState.SHIPPED, 0)]
)
def test_a_node_that_fails_again_and_again_is_taken_out(
    days: tuple[int, ...], state: RmaState | None, asked: int
) -> None:
    found = [
        incident(since=END - timedelta(days=it), until=END - timedelta(days=it - 1)) for it in days
    ]
    step = Rma(
        incident=found[0].id, subject=gpu(0), state=state or RmaState.REPLACED, by="ada",
        at=END - timedelta(days=2), note="", serial="S1",
    )  # fmt: skip
    actions = build(facts(incidents=found, returns=(step,))).actions
    assert [one.text.partition(":")[0] for one in actions] == asked * [
        "Take n1 out and have it repaired"
    ]
    assert [one.gpu_hours_a_day for one in actions] == asked * [6.9]


@pytest.mark.medium
def test_what_a_day_is_worth_is_the_mean_over_the_gpus_and_not_over_their_models() -> None:
    """6 GPUs at 2.00 and 2 at 6.00 an hour cost 3.00 in the mean; models without a price don't count."""
    prices = (
        PriceSettings(model="H100", per_gpu_hour=2.0),
        PriceSettings(model="B200", per_gpu_hour=6.0),
    )
    held = usage([share()])
    of = {"H100": 6, "B200": 2, "T4": 8}
    last = replace(held, buckets=(*held.buckets[:-1], replace(held.buckets[-1], models=of)))
    found = Prices(settings=CostSettings(prices=prices))
    actions = build(facts(last, incidents=[incident(until=None)], prices=found)).actions
    assert [(one.gpu_hours_a_day, one.cost_a_day) for one in actions] == [(24.0, 72.0)]
