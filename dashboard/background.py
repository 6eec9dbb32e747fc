"""Questions whose answers a page takes as they come: nobody waits for a hub that hangs."""

import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from gpuvigil.errors import HubError
from gpuvigil.hub import Hub
from gpuvigil.log import Log

from .questions import Questions

_T = TypeVar("_T")


class Background:
    """The last answer to each question, renewed by a thread of its own."""

    def __init__(self) -> None:
        self._log = Log("dashboard")
        self._changed = threading.Condition()
        self._answers: dict[Hashable, Any] = {}
        self._asked: set[Hashable] = set()

    def ask(
        self,
        questions: Questions,
        key: Hashable,
        ask: Callable[[Hub], _T],
        *,
        fresh_seconds: float,
        patience_seconds: float,
    ) -> _T | None:
        """What is known, while a newer answer is fetched; None while there is none at all.

        Waits at most `patience_seconds` for an answer that is not older than `fresh_seconds`.
        """

        def fetch() -> None:
            said = None
            try:
                said = questions.ask(key, ask, fresh_seconds)
            except HubError:
                pass  # the page says itself that the hub is away
            except Exception as error:  # noqa: BLE001 - the question is asked again with the next page
                self._log.error("question failed", question=str(key), error=repr(error))
            with self._changed:
                if said is not None:
                    self._answers[key] = said.value
                self._asked.discard(key)
                self._changed.notify_all()

        with self._changed:
            if key not in self._asked:
                self._asked.add(key)
                threading.Thread(target=fetch, name="question", daemon=True).start()
            self._changed.wait_for(lambda: key not in self._asked, patience_seconds)
            answer: _T | None = self._answers.get(key)
            return answer
