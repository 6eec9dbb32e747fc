"""A page takes the answer that is there, and a question that failed is asked again."""

from datetime import datetime, timezone

from dashboard.background import Background
from dashboard.questions import Questions
from gpuvigil.clock import ManualClock
from gpuvigil.errors import HubUnavailable
from gpuvigil.hub import Hub

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)


def test_a_question_that_failed_in_any_way_is_asked_again() -> None:
    background = Background()
    questions = Questions(lambda: Hub("http://127.0.0.1:9", lambda: "token"), ManualClock(NOW))
    answers: list[Exception | int] = [ValueError("a torn record"), HubUnavailable("away"), 7]

    def answer(_hub: Hub) -> int:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def ask() -> int | None:
        return background.ask(questions, "q", answer, fresh_seconds=0.0, patience_seconds=10.0)

    assert [ask(), ask(), ask()] == [None, None, 7]
