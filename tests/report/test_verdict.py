from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from accounting.usage import Share
from report.formats.html_format import html
from report.formats.markdown_format import markdown
from report.inputs.facts import Facts
from report.model.content import Report
from report.sections.build import build
from tests.report.weeks import END, START, WEEK, facts, incident, nothing, share, usage

pytestmark = pytest.mark.slow

CASES: Sequence[tuple[str, Callable[[], Facts], str, str]] = (
    (
        "no GPU",
        lambda: facts(nothing("")),
        "No GPU is known to this hub",
        "gpuvigil collect",
    ),
    (
        "nothing counted",
        lambda: facts(nothing()),
        "Nothing was counted in this span",
        "page Monitoring",
    ),
    (
        "counting just began",
        lambda: facts(usage([share()], without=[(START, END - timedelta(hours=3))])),
        "Too little was counted to judge this span: 3 h of 7 d.",
        "In what is known, 50\u00a0% of GPU-hours were allocated and 80\u00a0% of that was used.",
    ),
    (
        "mostly unknown",
        lambda: facts(usage([share(gpus=1)], unknown=6)),
        "Too little is known to judge this span: the state of only 25\u00a0% of its GPU-hours.",
        "In what is known, 50\u00a0% of GPU-hours were allocated and 80\u00a0% of that was used.",
    ),
    (
        "faults first",
        lambda: facts(usage([share()], unavailable=1), incidents=[incident()]),
        "Faults cost most: 168.0 GPU-hours (12\u00a0%) were lost to GPUs that could not be used; "
        "the worst: GPU fell off the bus on n1 GPU 0.",
        "50\u00a0% of GPU-hours were allocated and 80\u00a0% of that was used.",
    ),
    (
        "nobody",
        lambda: facts(usage()),
        "None of the 8 GPUs was allocated",
        "No allocated GPU was idle",
    ),
    (
        "idle first",
        lambda: facts(usage([share("job 7", "carol", 1, quiet=0.5), share(gpus=3)])),
        "84.0 GPU-hours, 12\u00a0% of what was allocated, computed nothing; "
        "carol holds 100\u00a0% of them.",
        "50\u00a0% of GPU-hours were allocated and 80\u00a0% of that was used.",
    ),
    (
        "little used",
        lambda: facts(usage([share(used=0.2), share("job 2", "bob", gpus=1, used=0.9)])),
        "Only 34\u00a0% of what was allocated was used.",
        "The largest part of that is job 1 of ann: 672.0 GPU-hours used to 20\u00a0%.",
    ),
    (
        "mostly free",
        lambda: facts(usage([share(gpus=2)])),
        "Only 25\u00a0% of GPU-hours were allocated: there was room for much more work.",
        "Of what was allocated, 80\u00a0% was used; no allocated GPU was idle",
    ),
    (
        "as it should be",
        lambda: facts(
            usage([share(gpus=7)]),
            usage([share(gpus=6)], start=START - WEEK, end=START),
        ),
        "88\u00a0% of GPU-hours were allocated (+13 pts) and 80\u00a0% of that was used (no change).",
        "No allocated GPU was idle, and no hardware fault was found.",
    ),
    (
        "with troubles",
        lambda: facts(
            usage([share(gpus=7, quiet=1 / 56)], unavailable=0.1),
            incidents=[incident(until=None)],
        ),
        "88\u00a0% of GPU-hours were allocated and 80\u00a0% of that was used.",
        "21.0 GPU-hours were allocated but idle, 16.8 were lost to faults and there was "
        "1 hardware incident, still open.",
    ),
)


@pytest.mark.parametrize(("what", "given", "first", "second"), CASES, ids=[c[0] for c in CASES])
def test_the_verdict_says_what_matters_most_first(
    what: str, given: Callable[[], Facts], first: str, second: str
) -> None:
    said = [one.text for one in build(given()).verdict]
    assert said[0].startswith(first), what
    assert second in said[1], what
    for sentence in said:
        assert sentence.endswith(".")
        assert sentence[0].isupper() or sentence[0].isdigit()


def test_a_cluster_that_is_hardly_known_is_given_as_a_range() -> None:
    report = build(facts(usage([share()], unknown=0.8)))
    assert report.verdict[0].text.startswith("50–60\u00a0% of GPU-hours were allocated")


def test_there_is_no_money_in_any_sentence() -> None:
    for _, given, _, _ in CASES:
        report = build(given())
        assert "$" not in " ".join(
            [one.text for one in report.verdict]
            + [one.text for one in report.actions]
            + [report.comparison]
        )


def dark(shares: Sequence[Share]) -> Report:
    """Of GPUs that computed, and of which nobody but these could say who held them."""
    counted = usage(shares)
    buckets = tuple(
        replace(
            one,
            seconds=replace(
                one.seconds,
                active=one.seconds.installed,
                free=0.0,
                unattributed=one.seconds.installed - one.seconds.allocated,
            ),
        )
        for one in counted.buckets
    )
    return build(facts(replace(counted, buckets=buckets)))


def test_a_verdict_that_knows_some_holders_does_not_say_that_none_is_known() -> None:
    assert dark([]).verdict[0].text.startswith("Who holds the GPUs is not known: ")
    assert dark([share()]).verdict[0].text.startswith("Who holds some of the GPUs is not known: ")


def test_where_nobody_knows_holders_nobody_knows_what_is_idle() -> None:
    for written in (markdown([dark([])]), html([dark([])])):
        assert "Who holds the GPUs is not known" in written
    for hours, found in ((None, dark([])), (0.0, dark([share()]))):
        losses = found.sheet("losses")
        assert losses is not None
        (row,) = [row for row in losses.rows if row[0] == "allocated but idle"]
        assert row[2] == hours


def test_held_at_zero_and_free_are_none_where_nobody_knows_holders() -> None:
    known = {one.state: (one.gpu_hours, one.percent) for one in dark([share()]).parts}
    parts = {one.state: (one.gpu_hours, one.percent) for one in dark([]).parts}
    assert parts["idle"] == parts["free"] == (None, None)
    assert parts["active"] == (1344.0, 100.0)
    assert parts["unavailable"] == known["free"] == (0.0, 0.0)
    assert known["idle"] == (67.2, 4.8)
