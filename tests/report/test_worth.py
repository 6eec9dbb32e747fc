"""Which rules people call noise."""

from dataclasses import replace

import pytest

from report.formats.html_format import html
from report.formats.markdown_format import markdown
from report.sections.build import build
from tests.report.weeks import answer, eventful, facts, incident

pytestmark = pytest.mark.slow


def test_the_noisiest_rule_leads_with_its_counts() -> None:
    rows = [(one.rule, one.noise, one.useful, one.incidents) for one in build(eventful()).rules]
    assert rows == [
        ("gpu_idle_held", 2, 0, 2),
        ("port_down", 1, 1, 1),
        ("gpu_lost", 0, 1, 2),
    ]


def test_the_rules_stand_behind_what_is_to_be_done() -> None:
    report = build(eventful())
    for text in (html([report]), markdown([report])):
        assert text.index("Do next") < text.index("Were the messages useful?")
        assert "2 of 2 answers called it noise" in text
        assert "gpuvigil backtest --last 7d --set" in text


def test_without_answers_nothing_is_said_of_it_and_praise_is_no_noise() -> None:
    assert "Were the messages useful?" not in html([build(facts())])
    praised = build(facts(incidents=[incident()], opinions=[answer("gpu_lost", True)]))
    assert "1 answer to messages, none of them noise." in html([praised])


def test_a_rule_on_trial_is_shown_with_what_nobody_has_judged() -> None:
    tried = incident("port_setup")
    waits = facts(incidents=[tried], on_trial=frozenset({"port_setup", "clocks_lowered"}))
    (row,) = build(waits).rules
    assert (row.rule, row.incidents, row.unjudged, row.on_trial) == ("port_setup", 1, 1, True)
    for text in (html([build(waits)]), markdown([build(waits)])):
        assert "digest: on trial" in text
        assert "Nobody has said yet whether what is on trial is right." in text
    said = replace(answer("port_setup", True), incident=tried.id)
    (row,) = build(replace(waits, opinions=(said,), on_trial=frozenset())).rules
    assert (row.useful, row.unjudged, row.on_trial) == (1, 0, False)


def test_a_rule_of_another_version_goes_by_its_own_name() -> None:
    (row,) = build(facts(opinions=[answer("of_tomorrow", False)])).rules
    assert (row.title, row.noise, row.incidents) == ("of_tomorrow", 1, 0)
