"""Records as viewers', teams' and persons' tokens see them: as these roles see them on the
dashboard.

Names are removed here, before an answer is written, by the dashboard's rules (`accounting.people`).
"""

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from accounting.people.names import Names
from accounting.people.records_view import RecordsView
from accounting.people.roles import Person, Role
from gpuvigil.clock import Clock
from gpuvigil.model import UNREADABLE, Record, RecordKind

from ..http.bearer import Bearer, Scope
from ..records.record_book import RecordBook, holder_text

# Kinds whose fields name people and pods; texts of all other kinds may repeat these names.
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
Rows = list[dict[str, Any]]
# All other scopes see everything. The bearer's name is the user or account whose jobs are shown; a
# viewer's names nobody.
_PEOPLE: Mapping[Scope, Callable[[str], Person]] = {
    Scope.VIEWER: lambda _: Person(name="", role=Role.VIEWER),
    Scope.TEAM: lambda account: Person(name="", role=Role.TEAM, teams=frozenset({account})),
    Scope.OWN: lambda user: Person(name="", role=Role.OWN, users=frozenset({user})),
}


class RecordFilter:
    """The rows of the record book as each bearer may see them. Thread-safe."""

    def __init__(self, book: RecordBook, clock: Clock, secret: Callable[[], str]) -> None:
        """`secret` keys the numbers that stand for pods: hubs that share it give the same ones."""
        self._book = book
        self._clock = clock
        self._secret = secret
        self._names = Names()
        self._learning = threading.Lock()
        self._read_to = 0

    def shown(self, bearer: Bearer, rows: Rows, asked: Mapping[str, str] | None = None) -> Rows:
        """Return the rows as the bearer may see them.

        Rows that no longer match the query `asked` once names are removed are left out: a match
        would confirm a guessed name.
        """
        made = _PEOPLE.get(bearer.scope)
        if made is None or not rows:
            return rows
        self._learn()
        key = hashlib.sha256(b"gpuvigil viewer" + self._secret().encode()).digest()
        sight = RecordsView(person=made(bearer.name), names=self._names, key=key)
        seen = (_row(one) for one in sight.records(_records(rows), self._clock.now()))
        return [one for one in seen if _fits(one, asked or {})]

    def _learn(self) -> None:
        """Learn the names in all records of the book up to now, each record once."""
        with self._learning:
            while True:
                rows, end = self._book.changes(self._read_to, _NAMING)
                self._names.learn(_records(rows))
                self._read_to = end
                if not rows:
                    return


def _fits(row: Mapping[str, Any], asked: Mapping[str, str]) -> bool:
    if any(row[key] != asked[key] for key in ("id", "parent") if key in asked):
        return False
    return "holder" not in asked or holder_text(asked["holder"]) in row["body"]


def _records(rows: Iterable[Mapping[str, Any]]) -> list[Record]:
    found = []
    for row in rows:
        try:
            found.append(Record.from_json({**row, "body": json.loads(row["body"])}))
        except UNREADABLE:
            continue  # written by another version: what cannot be read cannot be shown
    return found


def _row(record: Record) -> dict[str, Any]:
    found = record.to_json()
    return {**found, "body": json.dumps(found["body"])}
