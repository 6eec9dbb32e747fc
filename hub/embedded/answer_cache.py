"""A cache of answers: each is valid until something in it changes."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa

from .question import Series, Window

Asked = Window | Series
# First and last time of the incoming lines, by measurement; None when all lines may change.
Change = Mapping[str, tuple[int, int]] | None

_MOST_BYTES = 64 * 1024 * 1024
# Memory of an answer beside its values, however few: the objects of a table of many columns, and
# its question. Its texts come on top.
_EACH_BYTES = 16 * 1024


class AnswerCache:
    """A cache of the answers asked for last, limited in bytes; any thread may call.

    An answer is dropped by the first commit that touches its range, and is not cached when it was
    made while one was under way.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._known: OrderedDict[Asked, pa.Table] = OrderedDict()
        self._bytes = 0
        self._changes: list[Change] = []
        self._made: dict[object, Asked] = {}  # being made, and valid so far

    def known(self, question: Asked) -> pa.Table | None:
        """Return the cached answer, or None."""
        with self._lock:
            found = self._known.get(question)
            if found is not None:
                self._known.move_to_end(question)
            return found

    def answer(self, question: Asked, ask: Callable[[Asked], pa.Table]) -> pa.Table:
        """Return the answer of `ask`, and cache it."""
        mine = object()
        with self._lock:
            if not any(_touches(change, question) for change in self._changes):
                self._made[mine] = question
        try:
            found = ask(question)
            with self._lock:
                if mine in self._made:
                    self._keep(question, found)
            return found
        finally:
            with self._lock:
                self._made.pop(mine, None)

    @contextmanager
    def changing(self, change: Change) -> Iterator[None]:
        """Mark a commit under way that may change answers, and drop the answers that it touches."""
        with self._lock:
            self._changes.append(change)
            for question in [it for it in self._known if _touches(change, it)]:
                self._drop(question)
            for mine in [it for it, made in self._made.items() if _touches(change, made)]:
                del self._made[mine]
        try:
            yield
        finally:
            with self._lock:
                # By identity: two commits may be equal.
                at = next(n for n, it in enumerate(self._changes) if it is change)
                del self._changes[at]

    def _keep(self, question: Asked, found: pa.Table) -> None:
        self._drop(question)
        size = cost_bytes(question, found)
        # An answer larger than the whole cache evicts nothing.
        if size > self._most_bytes:
            return
        self._known[question] = found
        self._bytes += size
        while self._bytes > self._most_bytes:
            self._drop(next(iter(self._known)))

    def _drop(self, question: Asked) -> None:
        gone = self._known.pop(question, None)
        if gone is not None:
            self._bytes -= cost_bytes(question, gone)


def cost_bytes(question: Asked, found: pa.Table) -> int:
    """Return the memory a cached answer takes: its question at most four bytes per character."""
    if isinstance(question, Window):
        texts = [it.column for it in question.aggregates]
    else:
        texts = [*question.fields, *(text for pair in question.where for text in pair)]
    size: int = found.nbytes + _EACH_BYTES + 4 * sum(map(len, texts))
    return size


def _touches(change: Change, question: Asked) -> bool:
    if change is None:
        return True
    times = change.get(question.measurement.name)
    return times is not None and times[0] < question.end_ns and times[1] >= question.start_ns
