"""What a viewer's token is shown of records: what the role *viewer* of nobody's team sees.

Names are taken out here, before an answer is written, by the rules of the pages (`accounting.people`).
"""

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from accounting.people.names import Names
from accounting.people.roles import Person, Role
from accounting.people.sight import Sight
from gpuvigil.clock import Clock
from gpuvigil.model import UNREADABLE, Record, RecordKind

from ..http.bearer import Bearer, Scope
from ..http.responses import Refused
from ..records.record_book import Book

# Whose words say what people and pods are called; sentences of all other kinds may repeat it.
_NAMING = (
    RecordKind.ALLOCATION,
    RecordKind.JOB,
    RecordKind.ACKNOWLEDGEMENT,
    RecordKind.SILENCE,
    RecordKind.OPINION,
    RecordKind.RMA,
    RecordKind.RETIREMENT,
    RecordKind.ACCEPTANCE,
    RecordKind.ANNOTATION,
    RecordKind.AUDIT,
)
# Whose ids and parents hold a holder, which a pod's is by name.
_HELD = frozenset({RecordKind.ALLOCATION, RecordKind.JOB})
Rows = list[dict[str, Any]]


class Viewing:
    """Rows of the book as each bearer may see them; threads may share it."""

    def __init__(self, book: Book, clock: Clock, secret: Callable[[], str]) -> None:
        """`secret` makes the numbers that stand for pods: the same at every hub that shares it."""
        self._book = book
        self._clock = clock
        self._secret = secret
        self._names = Names()
        self._learning = threading.Lock()
        self._read_to = 0

    def shown(self, bearer: Bearer, rows: Rows) -> Rows:
        """All but a viewer see them as they are."""
        if bearer.scope is not Scope.VIEWER or not rows:
            return rows
        self._learn()
        nobody = Person(name="", role=Role.VIEWER)
        key = hashlib.sha256(b"gpuvigil viewer" + self._secret().encode()).digest()
        sight = Sight(person=nobody, names=self._names, key=key)
        return [_row(one) for one in sight.records(_records(rows), self._clock.now())]

    def _learn(self) -> None:
        """Names that were told before, and by now: all of the book, once."""
        with self._learning:
            while True:
                rows, end = self._book.changes(self._read_to, _NAMING)
                self._names.learn(_records(rows))
                self._read_to = end
                if not rows:
                    return


def check_question(bearer: Bearer, kind: RecordKind, asked: Mapping[str, str]) -> None:
    """Refused with 403 when a viewer asks by what it may not know: an answer would confirm a guess."""
    over = {key for key in ("holder", "parent") if asked.get(key, "").startswith("pod")}
    if kind in _HELD:
        over |= {"id"} & asked.keys()
    if bearer.scope is Scope.VIEWER and over:
        names = " and ".join(sorted(over))
        raise Refused(
            403, f"a viewer's token sees no names, and cannot ask for a {kind.value} by {names}"
        )


def _records(rows: Iterable[Mapping[str, Any]]) -> list[Record]:
    found = []
    for row in rows:
        try:
            found.append(Record.from_json({**row, "body": json.loads(row["body"])}))
        except UNREADABLE:
            continue  # of another version: what cannot be read cannot be shown
    return found


def _row(record: Record) -> dict[str, Any]:
    found = record.to_json()
    return {**found, "body": json.dumps(found["body"])}
