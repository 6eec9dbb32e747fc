"""The page of users and teams: its addresses and trees; pure."""

from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as some

from accounting.hours_of_people import LEAST_HOURS, Amounts, JobUse, People
from dashboard.people.address import USUAL, Asked
from dashboard.people.do_next import BLOCKED, MOST, section, steps
from dashboard.people.drawing import MOST_PERSONS, page, sentence
from dashboard.people.money import Money
from dashboard.people.share_bar import bar, shares
from gpuvigil.model import SIMULATED_CLUSTER
from gpuvigil.web.page_links import team_page, user_page
from tests.accounting.test_people import DAY, PRICED, SPAN, ledger, made, share

from .test_incidents_page import _all, texts

EUROS = {"lab": Money(currency="EUR")}


def found() -> People:
    was = [ledger(share("job 0", "ann", 5.0, 1.0), start=SPAN[0] - 7 * DAY)]
    shares = (
        share("job 1", "ann", 10.0, 2.0),
        share("job 2", "<b>bob", 20.0, 1.0, account="speech"),
        share("processes", None, 1.0, account=None),
    )
    return made(*shares, before=was, prices=PRICED)


def hrefs(query: dict[str, str]) -> set[str]:
    tree: list[Any] = ["div", {}, *page([found()], Asked.of(query), EUROS)]
    return {node[1]["href"] for node in _all(tree) if node[0] == "a"}


def test_every_user_and_team_is_a_link_and_one_of_them_has_its_jobs() -> None:
    assert {user_page("ann"), user_page("<b>bob"), team_page("speech")} <= hrefs({})
    of_ann = hrefs({"user": "ann"})
    assert "/job?cluster=lab&job=1" in of_ann
    assert team_page("vision") in of_ann
    said = texts(["div", {}, *page([found()], Asked(user="ann"), EUROS)])
    assert "job 1" in said
    assert "job 2" not in said
    assert "before 5.0, +100 %" in said
    assert "release GPUs that idle" in said


def test_the_page_is_named_after_whom_it_is_of_and_amounts_have_their_unit() -> None:
    assert Asked(user="ann").title == "User ann"
    assert Asked(team="vision").title == "Team vision"
    assert Asked().title == "Users and teams"
    said = texts(["div", {}, *page([found()], Asked(team="vision"), EUROS)])
    assert "Allocated, GPU-hours" in said
    everybody = texts(["div", {}, *page([found()], Asked(), EUROS)])
    assert "Idle, GPU-hours" in everybody


def test_what_nobody_names_is_said_so_and_is_no_link() -> None:
    said = texts(["div", {}, *page([found()], Asked(), {})])
    assert "user not known" in said
    assert "no team" in said
    assert "EUR" not in said
    gone = texts(["div", {}, *page([found()], Asked(user="eve"), EUROS)])
    assert "No GPU here was allocated to eve in this span." in gone
    assert "No usage was counted yet." in texts(["div", {}, *page([], Asked(), EUROS)])


def test_counting_that_began_within_the_span_is_said() -> None:
    whole, late = found(), replace(found(), counted_since=SPAN[0] + DAY)
    said = [texts(["div", {}, *page([it], Asked(), EUROS)]) for it in (whole, late)]
    assert ["counted since" in it for it in said] == [False, True]


def test_where_nothing_was_counted_before_no_column_compares_with_it() -> None:
    alone = made(share("job 1", "ann", 10.0, 2.0))
    assert "vs before" not in texts(["div", {}, *page([alone], Asked(), {})])
    assert "vs before" in texts(["div", {}, *page([found()], Asked(), {})])


@pytest.mark.parametrize(("hours", "said"), [(49.4, "+888 %"), (50.1, "× 10")])
def test_from_tenfold_on_a_change_is_a_multiple(hours: float, said: str) -> None:
    was = [ledger(share("job 0", "ann", 5.0), share("job 9", "eve", 95.0), start=SPAN[0] - 7 * DAY)]
    one = made(share("job 1", "ann", hours), before=was)
    assert f"before 5.0, {said}" in texts(["div", {}, *page([one], Asked(user="ann"), {})])


def test_users_that_have_no_room_are_counted() -> None:
    many = made(*(share(f"job {n}", f"u{n}", 1.0) for n in range(MOST_PERSONS + 2)))
    said = texts(["div", {}, *page([many], Asked(), {})])
    assert "and 2 more" in said
    assert "mores" not in said


def test_the_sentence_says_who_leaves_most_idle() -> None:
    said = sentence(found(), EUROS["lab"])
    assert " ".join(texts(["b", {}, *said]).split()) == (
        "31.0 GPU-hours allocated at a mean utilisation of 50 %; 3.0 idle (+200 %), 6.00 EUR. Team vision left most idle: 2.0 GPU-hours, 4.00 EUR."
    )
    assert ["a", {"href": team_page("vision")}, "vision"] in said
    assert "No GPU was allocated" in texts(["b", {}, *sentence(made(), None)])


def job(number: int, idle: float, blocked: float = 0.0, help_: str = "release it") -> JobUse:
    amounts = Amounts(held=50.0, idle=idle, blocked=blocked, cost=100.0)
    return JobUse(
        holder=f"job {number}", user="ann", team="vision", now=amounts, help=help_, wasted=idle
    )


def test_what_to_do_next_begins_with_the_most_gpu_hours_and_ends_below_one() -> None:
    jobs = [job(1, 2.0), job(2, LEAST_HOURS, 30.0), job(3, LEAST_HOURS - 0.01), job(4, 9.0)]
    found = steps(jobs)
    assert [(it.job.holder, it.what, it.hours) for it in found] == [
        ("job 2", BLOCKED, 30.0),
        ("job 4", "release it", 9.0),
        ("job 1", "release it", 2.0),
    ]
    assert len(found) == MOST
    assert [it.job.holder for it in steps(jobs[1:3])] == ["job 2", "job 2"]
    assert section([jobs[2], job(5, 9.0, help_="")], "lab", None) is None


def test_what_to_do_next_names_its_job_and_user_and_what_it_cost() -> None:
    drawn: list[Any] = ["div", {}, section([job(7, 5.0, 10.0)], "lab", EUROS["lab"])]
    links = {node[1]["href"] for node in _all(drawn) if node[0] == "a"}
    assert links == {
        "/job?cluster=lab&job=7",
        user_page("ann"),
        team_page("vision"),
        "/incidents?q=job+7&last=30d",
    }
    said = texts(drawn)
    assert "release it" in said
    assert ", vision · 5.0 of its 50.0 GPU-hours, 10.00 EUR" in said
    assert "10.0 of its 50.0 GPU-hours, 20.00 EUR" in said


def test_the_page_says_what_to_do_next_of_all_and_of_one() -> None:
    for asked in (Asked(), Asked(team="vision"), Asked(user="ann")):
        said = texts(["div", {}, *page([found()], asked, EUROS)])
        assert "Do next" in said
        assert "job 1 : release GPUs that idle" in said
    assert "Do next" not in texts(["div", {}, *page([found()], Asked(team="speech"), EUROS)])


def test_a_bar_shows_where_what_was_held_went() -> None:
    one = Amounts(held=10.0, used_percent=50.0, idle=2.0, blocked=1.0)
    assert shares(one) == pytest.approx({"used": 0.5, "rest": 0.2, "idle": 0.2, "blocked": 0.1})
    drawn: Any = bar(one)
    assert drawn[1]["aria-label"] == (
        "used, not blocked 50 %, allocated, not used 20 %, idle 20 %, blocked by faults 10 %"
    )
    assert [part[1]["width"] for part in drawn[2:]] == ["50.00", "20.00", "20.00", "10.00"]


def test_utilisation_and_what_the_bar_calls_used_are_two_words_for_two_numbers() -> None:
    """A job that hangs reads 100 %: blocked hours count in the first and not in the second."""
    one = Amounts(held=10.0, used_percent=84.0, blocked=7.6)
    assert shares(one)["used"] == pytest.approx(0.24)
    said = texts(["div", {}, *page([found()], Asked(), EUROS)])
    assert "Mean utilisation" in said
    assert "used, not blocked" in said
    assert "Used" not in said
    assert "Used" not in texts(["div", {}, *page([found()], Asked(user="ann"), EUROS)])


def test_a_few_minutes_are_not_told_as_nothing() -> None:
    said = texts(["div", {}, *page([made(share("job 1", "ann", 10.0, 0.04))], Asked(), {})])
    assert "< 0.1" in said
    assert "0.0" in said, "blocked, which is nothing"


@pytest.mark.parametrize("now", [Amounts(), Amounts(held=1.0), Amounts(used_percent=5.0)])
def test_where_use_was_not_measured_there_is_no_bar(now: Amounts) -> None:
    assert bar(now) == "–"


@given(*(some.floats(0, 1000) for _ in range(4)))
def test_the_parts_of_a_bar_are_all_of_it(
    held: float, used: float, idle: float, blocked: float
) -> None:
    """A mean over what was measured may be more than the other parts leave."""
    found = shares(Amounts(held=held, used_percent=used, idle=idle, blocked=blocked))
    assert not found or sum(found.values()) == pytest.approx(1.0)
    assert all(part >= -1e-9 for part in found.values())


def test_prices_of_a_simulated_cluster_are_said_to_be_invented() -> None:
    played = replace(found(), cluster=SIMULATED_CLUSTER)
    said = texts(["div", {}, *page([played], Asked(), {SIMULATED_CLUSTER: EUROS["lab"]})])
    assert "Idle, EUR" in said
    assert "prices are invented" in said
    assert "invented" not in texts(["div", {}, *page([played], Asked(), {})])
    assert "invented" not in texts(["div", {}, *page([found()], Asked(), EUROS)])


@pytest.mark.parametrize("last", ["", "1y", "7d"])
def test_a_span_that_does_not_exist_is_the_usual_one(last: str) -> None:
    assert Asked.of({"last": last}).last == USUAL


@given(some.dictionaries(some.sampled_from(["last", "cluster", "user", "team", "x"]), some.text()))
def test_an_address_made_of_what_was_asked_gives_the_same(query: dict[str, str]) -> None:
    asked = Asked.of(query)
    given_ = parse_qs(urlsplit(asked.href).query, keep_blank_values=True)
    assert Asked.of({name: values[0] for name, values in given_.items()}) == asked
