"""Bodies together in a commit, and what each gets told."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from gpuvigil.clock import SystemClock
from gpuvigil.config import HubSettings
from hub.bodies.deduplication import Arrival, Deduplicator, Identity, Lane
from hub.embedded import Embedded
from hub.telemetry.body import Body, Outcome
from hub.telemetry.committer import Committer, commit, pause_seconds
from hub.telemetry.counters import Counters
from tests.polling import wait_until

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


class Fussy(Embedded):
    """A store that breaks, in a way nobody thought of, on rows of the node `poison`."""

    def append(self, tables: Mapping[str, pa.Table], arrivals: Sequence[Arrival]) -> None:
        if any("poison" in table["node"].to_pylist() for table in tables.values()):
            raise ZeroDivisionError
        super().append(tables, arrivals)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Fussy]:
    opened = Fussy(tmp_path / "t.duckdb", 256 * 1024 * 1024, 1)
    yield opened
    opened.close()


def a_body(
    node: str,
    sequence: int | None = None,
    told: list[Outcome] | None = None,
    row: str = "live",
) -> Body:
    lane = Lane(cluster="c", node=node, boot="b", lane=row)
    return Body(
        text=f"node,cluster=c,node={node} load_average=1 5".encode(),
        precision="s",
        received_at=NOON,
        identity=None if sequence is None else Identity(lane=lane, sequence=sequence),
        done=(lambda _: None) if told is None else told.append,
    )


def rows(store: Embedded) -> list[str]:
    found: list[str] = store.ask('SELECT node FROM "node" ORDER BY node')["node"].to_pylist()
    return found


def test_a_body_that_is_there_twice_in_one_commit_is_stored_once(store: Fussy) -> None:
    outcomes = commit(store, Deduplicator(), [a_body("a", 1), a_body("a", 1), a_body("a", 2)])
    assert [it.duplicate for it in outcomes] == [False, True, False]
    assert rows(store) == ["a", "a"]


def test_bodies_without_an_identity_are_stored_as_often_as_they_come(store: Fussy) -> None:
    commit(store, Deduplicator(), [a_body("a"), a_body("a")])
    assert rows(store) == ["a", "a"]


@pytest.mark.medium
def test_what_was_seen_is_known_after_opening_again_also_when_compacted(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    first = Embedded(path, 256 * 1024 * 1024, 1)
    seen = Deduplicator()
    commit(first, seen, [a_body("a", n) for n in (1, 2, 4)])
    commit(first, seen, [a_body("a", 3)])
    assert len(first.seen()) == 3
    first.replace_seen(seen.compact(NOON))
    first.close()
    again = Embedded(path, 256 * 1024 * 1024, 1)
    assert [(it.first, it.last) for it in again.seen()] == [(1, 4)]
    known = Deduplicator()
    known.add(again.seen())
    assert commit(again, known, [a_body("a", 3)]) == [Outcome(duplicate=True)]
    again.close()


def forget_nothing(_before: datetime) -> None:
    """A hub without records."""


def test_a_body_that_breaks_the_store_does_not_take_its_neighbours_down(store: Fussy) -> None:
    settings = HubSettings()
    committer = Committer(store, settings, SystemClock(), Counters(), forget_nothing)
    told: dict[str, list[Outcome]] = {name: [] for name in ("a", "poison", "b")}
    for name, outcomes in told.items():
        assert committer.put(a_body(name, 1, outcomes))
    committer.start()
    committer.stop()
    assert told["a"] == told["b"] == [Outcome(lines=1)]
    assert told["poison"][0].error is not None
    assert rows(store) == ["a", "b"]


def test_a_queue_takes_one_body_of_any_size_and_then_no_more_than_its_bytes(store: Fussy) -> None:
    settings = HubSettings(queue_bytes=60)
    committer = Committer(store, settings, SystemClock(), Counters(), forget_nothing)
    assert committer.put(a_body("n" * 100))
    assert not committer.put(a_body("b"))
    committer.start()
    committer.stop()
    assert committer.waiting() == (0, 0)
    assert not committer.put(a_body("after the end"))


@pytest.mark.parametrize(
    ("took", "seconds"),
    [
        (0.0, 0.1),
        (0.049, 0.1),  # never more than ten a second
        (0.051, 0.102),  # and no more than half of the time
        (0.499, 0.998),
        (0.501, 1.0),  # a busy hub commits as often as ever
        (9.0, 1.0),
    ],
)
def test_a_backlog_brings_the_next_commit_forward(took: float, seconds: float) -> None:
    live, backlog = a_body("a", 1), a_body("b", 1, row="backlog")
    assert pause_seconds(1.0, took, [live, backlog]) == pytest.approx(seconds)
    assert pause_seconds(1.0, took, [live, a_body("c")]) == 1.0
    assert pause_seconds(1.0, took, []) == 1.0


def test_what_drains_does_not_wait_for_the_usual_commit_and_live_rows_come_with_it(
    store: Fussy,
) -> None:
    settings = HubSettings(commit_seconds=20.0)
    committer = Committer(store, settings, SystemClock(), Counters(), forget_nothing)
    committer.start()
    for number in (1, 2):  # the second waits for a commit
        told: list[Outcome] = []
        assert committer.put(a_body("a", number, told, row="backlog"))
        assert committer.put(a_body("live", number))
        wait_until("it is committed", partial(bool, told), 15.0)
    wait_until("all are", lambda: rows(store) == ["a", "a", "live", "live"], 15.0)
    committer.stop()
