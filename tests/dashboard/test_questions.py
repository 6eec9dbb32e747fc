"""One answer for everybody who asks the same, and the last one when the hub is away."""

import threading
from datetime import datetime, timezone

import pytest

from dashboard.data.freshness import unanswered
from dashboard.data.questions import (
    FIRST_LATE_SECONDS,
    FORGOTTEN_SECONDS,
    LATE_SECONDS,
    LONGEST_SECONDS,
    MOST_KEPT,
    MOST_UNDER_WAY,
    TIMES_AS_LONG,
    AnswerPending,
    CachedAnswer,
    QueryCache,
)
from dashboard.layout import panels
from gpuvigil.clock import ManualClock
from gpuvigil.errors import HubError, HubUnavailable
from gpuvigil.hub_client import Hub

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)


class Answers:
    """A question with an answer that can be counted and can fail."""

    def __init__(self) -> None:
        self.asked = 0
        self.away = False

    def __call__(self, _hub: Hub) -> int:
        self.asked += 1
        if self.away:
            raise HubUnavailable("hub at http://127.0.0.1:9 does not answer")
        return self.asked


def questions(clock: ManualClock) -> QueryCache:
    return QueryCache(lambda: Hub("http://127.0.0.1:9", lambda: "token"), clock)


def test_an_answer_is_asked_for_again_only_when_it_is_no_longer_fresh() -> None:
    clock, answers = ManualClock(NOW), Answers()
    asked = questions(clock)
    assert [asked.ask("q", answers, 5.0).value for _ in range(3)] == [1, 1, 1]
    clock.advance(5.0)
    assert asked.ask("q", answers, 5.0).value == 2


def test_the_last_answer_stays_with_its_age_and_the_reason_while_the_hub_is_away() -> None:
    clock, answers = ManualClock(NOW), Answers()
    asked = questions(clock)
    asked.ask("q", answers, 5.0)
    answers.away = True
    clock.advance(7.0)
    said = asked.ask("q", answers, 5.0)
    assert (said.value, said.age_seconds) == (1, 7.0)
    assert "does not answer" in said.error
    asked.ask("q", answers, 5.0)
    assert answers.asked == 2, "a hub that is away is not asked by every page at once"
    answers.away = False
    clock.advance(5.0)
    assert (asked.ask("q", answers, 5.0).value, asked.ask("q", answers, 5.0).error) == (3, "")


def test_a_question_that_was_never_answered_is_an_error_and_is_asked_again() -> None:
    clock, answers = ManualClock(NOW), Answers()
    asked = questions(clock)
    answers.away = True
    with pytest.raises(HubError, match="does not answer"):
        asked.ask("q", answers, 5.0)
    answers.away = False
    clock.advance(5.0)
    assert asked.ask("q", answers, 5.0).error == ""


def test_who_asks_while_another_waits_gets_the_same_answer() -> None:
    asked, answers = questions(ManualClock(NOW)), Answers()
    waiting, go = threading.Event(), threading.Event()
    found: list[int] = []

    def slow(hub: Hub) -> int:
        waiting.set()
        assert go.wait(10)
        return answers(hub)

    def ask() -> None:
        found.append(asked.ask("q", slow, 60.0).value)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert waiting.wait(10)
    go.set()
    for thread in threads:
        thread.join(10)
    assert found == [1] * 8
    assert answers.asked == 1


def test_what_was_forgotten_is_asked_anew_and_only_so_much_is_kept() -> None:
    asked, answers = questions(ManualClock(NOW)), Answers()
    asked.ask("q", answers, 60.0)
    asked.forget("q")
    assert asked.ask("q", answers, 60.0).value == 2
    for number in range(MOST_KEPT):
        asked.ask(number, answers, 60.0)
    assert asked.ask("q", answers, 60.0).value == MOST_KEPT + 3


def test_what_nobody_asked_for_long_is_forgotten() -> None:
    clock, answers = ManualClock(NOW), Answers()
    asked = questions(clock)
    asked.ask("q", answers, 10 * FORGOTTEN_SECONDS)
    clock.advance(FORGOTTEN_SECONDS + 1)
    asked.ask("other", answers, 60.0)
    assert asked.ask("q", answers, 10 * FORGOTTEN_SECONDS).value == 3


def test_nobody_waits_for_a_hub_that_hangs_once_there_was_an_answer() -> None:
    clock, go = ManualClock(NOW), threading.Event()
    asked, hangs = questions(clock), threading.Event()

    def answer(_hub: Hub) -> int:
        if hangs.is_set():
            assert go.wait(30)
            return 2
        return 1

    def ask() -> CachedAnswer:
        return asked.ask("q", answer, 5.0, patience_seconds=0.01, first_seconds=10.0)

    assert ask().value == 1
    hangs.set()
    clock.advance(6.0)
    assert (ask().value, ask().error) == (1, "")
    clock.advance(LATE_SECONDS + 1)
    assert (ask().value, ask().error) == (1, "the hub has not answered for 6 s")
    go.set()
    late = asked.ask("q", answer, 5.0, patience_seconds=10.0)
    assert (late.value, late.error) == (2, "")


def test_who_asks_first_waits_no_longer_than_they_want() -> None:
    go = threading.Event()
    asked = questions(ManualClock(NOW))
    with pytest.raises(AnswerPending, match="has not answered yet"):
        asked.ask("q", lambda _hub: go.wait(30), 5.0, first_seconds=0.01)
    go.set()
    assert asked.ask("q", lambda _hub: go.wait(30), 5.0, first_seconds=10.0).value


@pytest.mark.parametrize(
    ("waited", "shown"), [(FIRST_LATE_SECONDS, "gv-loading"), (FIRST_LATE_SECONDS + 0.1, "gv-note")]
)
def test_a_page_whose_first_answer_is_under_way_is_loading_until_that_is_late(
    waited: float, shown: str
) -> None:
    clock, go = ManualClock(NOW), threading.Event()
    asked = questions(clock)

    def said() -> str:
        with pytest.raises(HubError) as owed:
            asked.ask("q", lambda _hub: go.wait(30), 5.0, first_seconds=0.0)
        return panels.notes([unanswered("Usage is not known", owed.value)])

    assert said() == '<div class="gv-loading" role="status">Loading …</div>'
    clock.advance(waited)
    assert f'class="{shown}"' in said()
    go.set()


def test_a_hub_that_failed_at_once_is_no_loading() -> None:
    asked, answers = questions(ManualClock(NOW)), Answers()
    answers.away = True
    with pytest.raises(HubError) as owed:
        asked.ask("q", answers, 5.0)
    said = unanswered("Usage is not known", owed.value)
    assert said.startswith("Usage is not known: hub at ")
    assert "gv-note" in panels.notes([said])


def test_an_answer_that_cannot_be_read_is_an_error_and_is_asked_for_again() -> None:
    clock, torn = ManualClock(NOW), [True]
    asked = questions(clock)

    def answer(_hub: Hub) -> int:
        if torn.pop() if torn else False:
            raise ValueError("a torn record")
        return 7

    with pytest.raises(HubError, match=r"cannot be read.*a torn record"):
        asked.ask("q", answer, 5.0)
    clock.advance(5.0)
    assert asked.ask("q", answer, 5.0).value == 7


def test_only_so_many_are_under_way_and_the_next_is_asked_when_they_leave_room() -> None:
    asked, answers, go = questions(ManualClock(NOW)), Answers(), threading.Event()

    def hang(number: int) -> None:
        with pytest.raises(HubError):
            asked.ask(number, lambda _hub: go.wait(30), 60.0, first_seconds=0.0)

    for number in range(MOST_UNDER_WAY - 1):
        hang(number)
    assert asked.ask("last that has room", answers, 60.0).value == 1
    hang(MOST_UNDER_WAY)
    with pytest.raises(AnswerPending, match="has not answered yet"):
        asked.ask("one too many", answers, 60.0)
    assert answers.asked == 1
    go.set()
    for number in range(MOST_UNDER_WAY - 1):
        assert asked.ask(number, lambda _hub: False, 60.0, first_seconds=10.0).value is True
    assert asked.ask("one too many", answers, 60.0).value == 2


@pytest.mark.parametrize(
    ("took", "kept"), [(1.0, 5.0), (2.0, TIMES_AS_LONG * 2.0), (300.0, LONGEST_SECONDS)]
)
def test_what_takes_long_to_answer_is_asked_for_less_often(took: float, kept: float) -> None:
    clock, answers = ManualClock(NOW), Answers()
    asked = questions(clock)

    def slow(hub: Hub) -> int:
        clock.advance(took)
        return answers(hub)

    assert asked.ask("q", slow, 5.0).value == 1
    clock.advance(kept - 0.1)
    assert asked.ask("q", slow, 5.0).value == 1
    clock.advance(0.1)
    assert asked.ask("q", slow, 5.0).value == 2
