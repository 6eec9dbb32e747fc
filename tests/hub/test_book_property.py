"""Any order of writes, claims and ends of claims at two hubs, against a model in memory."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from gpuvigil.config import HubSettings
from gpuvigil.model import Record, RecordKind
from hub.records import LeaseLostError, RecordBook, open_records

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
KINDS = (RecordKind.TRANSITION, RecordKind.NOTICE)
OWNERS = ("a", "b")


@dataclass(slots=True)
class Hubs:
    """Two hubs' books on one database, which can be emptied."""

    engines: list[Engine]
    books: list[RecordBook] = field(default_factory=list)

    def emptied(self) -> list[RecordBook]:
        with self.engines[0].execution_options(writes=True).begin() as connection:
            connection.execute(text("DELETE FROM record"))
            connection.execute(text("UPDATE counter SET sequence = 0"))
        return self.books


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server)]
)
def hubs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Hubs]:
    url = ""
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql").database()
    directory: Path = tmp_path_factory.mktemp("books")
    engines = [
        open_records(HubSettings(data_directory=directory, records_url=url)) for _ in range(2)
    ]
    made = Hubs(engines, [RecordBook(engine) for engine in engines])
    yield made
    for book in made.books:
        book.close()


@dataclass(frozen=True, slots=True)
class Kept:
    """A record as the model knows it."""

    sequence: int
    version: int
    due: bool
    owner: str | None = None
    leased: bool = False


class Model:
    """What the records should be: the slow twin."""

    def __init__(self) -> None:
        self.kept: dict[tuple[RecordKind, str], Kept] = {}
        self.sequence = 0

    def write(self, records: list[Record]) -> None:
        newest: dict[tuple[RecordKind, str], Record] = {}
        for it in records:
            known = newest.get((it.kind, it.id))
            if known is None or known.version < it.version:
                newest[it.kind, it.id] = it
        for key, it in newest.items():
            before = self.kept.get(key)
            if before is not None and before.version >= it.version:
                continue
            self.sequence += 1
            base = before or Kept(0, 0, due=False)
            self.kept[key] = replace(
                base, sequence=self.sequence, version=it.version, due=it.due_at is not None
            )

    def claim(self, kind: RecordKind, owner: str, limit: int) -> list[str]:
        due = [
            (it.sequence, key)
            for key, it in self.kept.items()
            if key[0] is kind and it.due and not it.leased
        ]
        taken = [key for _, key in sorted(due)[:limit]]
        for key in taken:
            self.kept[key] = replace(self.kept[key], owner=owner, leased=True)
        return [name for _, name in taken]

    def finish(self, kind: RecordKind, owner: str, ids: list[str], records: list[Record]) -> bool:
        found = [self.kept.get((kind, name)) for name in ids]
        if any(it is None or it.owner != owner for it in found):
            return False
        for name in ids:
            it = self.kept[kind, name]
            if it.leased:
                self.kept[kind, name] = replace(it, due=False, leased=False)
        self.write(records)
        return True


names = st.sampled_from(["r1", "r2", "r3", "r4"])
kinds = st.sampled_from(KINDS)
owners = st.sampled_from(OWNERS)
records = st.lists(
    st.builds(
        Record,
        kind=kinds,
        id=names,
        at=st.just(NOON),
        subject=st.just("c"),
        version=st.integers(1, 4),
        due_at=st.sampled_from([None, NOON]),
    ),
    max_size=4,
)
steps = st.one_of(
    st.tuples(st.just("write"), records),
    st.tuples(st.just("claim"), kinds, owners, st.integers(1, 3)),
    st.tuples(st.just("finish"), kinds, owners, st.lists(names, min_size=1, max_size=2), records),
)


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 1), steps), max_size=12))
@settings(max_examples=40, deadline=None)
def test_two_hubs_are_one_book(hubs: Hubs, story: list[tuple[int, tuple[object, ...]]]) -> None:
    books, model = hubs.emptied(), Model()
    for which, (verb, *given_) in story:
        book = books[which]
        if verb == "write":
            (written,) = given_
            model.write(written)  # type: ignore[arg-type]
            book.write(written)  # type: ignore[arg-type]
        elif verb == "claim":
            kind, owner, limit = given_
            claimed = book.claim(kind, owner, NOON, HOUR, limit)  # type: ignore[arg-type]
            assert [it["id"] for it in claimed] == model.claim(kind, owner, limit)  # type: ignore[arg-type]
        else:
            assert _finished(book, *given_) == model.finish(*given_)  # type: ignore[arg-type]
        for other in books:
            found, sequence = other.changes(0, KINDS)
            assert sequence == model.sequence
            told = {(it["kind"], it["id"]): (it["sequence"], it["version"]) for it in found}
            assert told == {
                (kind.value, name): (it.sequence, it.version)
                for (kind, name), it in model.kept.items()
            }
            assert [it["sequence"] for it in found] == sorted(it["sequence"] for it in found)


def _finished(
    book: RecordBook, kind: RecordKind, owner: str, ids: list[str], written: list[Record]
) -> bool:
    try:
        book.finish(kind, owner, ids, written, NOON)
    except LeaseLostError:
        return False
    return True


@pytest.mark.medium
def test_more_names_are_looked_up_than_one_question_takes(hubs: Hubs) -> None:
    book = hubs.emptied()[0]
    book.write([Record(kind=RecordKind.NOTICE, id="n39999", at=NOON, subject="c/n1")])
    names_ = (("notice", f"n{number}") for number in range(40_000))
    assert book.subjects(names_) == {"c/n1"}
