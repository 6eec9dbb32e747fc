"""Tables within records: what was written is read, and what another version wrote is read as far as it goes."""

import base64
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from accounting.usage import BUCKET, Bucket, Place, Seconds, Share, Usage
from accounting.usage.amounts import OTHERS
from accounting.usage.columns import (
    PLACES,
    SECONDS,
    SHARES,
    Rows,
    packed,
    places_of,
    shares_of,
    table_of,
    together,
    unpacked,
)
from accounting.usage.ledger import DAY, HOUR, MOST_ROWS, SIX_HOURS, STATES, Ledger, summed
from gpuvigil.clock import EPOCH
from gpuvigil.model import Record, readable
from tests.accounting.usage.quarter import LATER, START


def place(node: str = "n1", model: str = "H100", **amounts: float) -> Place:
    return Place(node=node, model=model, seconds=Seconds(**amounts))


def share(holder: str = "job 1", allocated: float = 60.0, **given_: Any) -> Share:
    amounts = dict.fromkeys(("measured", "used", "idle"), 0.0)
    return Share(
        **{"holder": holder, "user": "ann", "command": None, "gpus": 1, "allocated": allocated}
        | amounts
        | given_
    )


def ledger(*shares: Share, **given_: Any) -> Ledger:
    bucket = Bucket(
        cluster="c",
        start=START,
        gpus=2,
        nodes=1,
        seconds=Seconds(installed=1800.0),
        shares=shares,
        counted_at=LATER,
    )
    return replace(Ledger.of(bucket), **given_)


# --- tables ---------------------------------------------------------------------------------------


def test_rows_are_a_sequence_of_what_is_read_when_somebody_looks() -> None:
    read: list[int] = []

    def reader(table: pa.Table) -> tuple[Place, ...]:
        read.append(table.num_rows)
        return places_of(table)

    them = (place(installed=900.0), place("n2"))
    rows = Rows(table_of(them, PLACES), reader)
    assert len(rows) == 2
    assert not read
    assert rows == them == tuple(rows) == rows[:]
    assert rows[1] == them[1]
    assert rows != them[:1]
    assert rows != 2
    assert repr(rows) == repr(them)
    assert read == [2]
    assert table_of(rows, PLACES) is rows.table


def test_a_holder_counts_once_for_each_of_its_users() -> None:
    quarters = [(share(), share("job 2")), (share(), share(user="bob")), (share(user=None),), ()]
    buckets = tuple(
        Bucket(
            cluster="c",
            start=START + n * BUCKET,
            gpus=2,
            nodes=1,
            seconds=Seconds(),
            shares=it,
            counted_at=LATER,
        )
        for n, it in enumerate(quarters)
    )
    found = Usage(cluster="c", start=START, end=START + HOUR, buckets=buckets)
    assert (found.holders, replace(found, buckets=()).holders) == (4, 0)


@pytest.mark.parametrize("them", [(), (place(free=7.0), place("", "", idle=8.0))])
def test_places_become_a_table_and_places_again(them: Sequence[Place]) -> None:
    assert places_of(table_of(them, PLACES)) == tuple(them)


def test_a_share_becomes_a_row_and_a_share_again() -> None:
    them = (share(project="lab", energy_joules=4.0), share("job 2", user=None, model="A30"))
    assert shares_of(table_of(them, SHARES)) == them


def test_what_an_earlier_version_did_not_count_is_null_and_what_a_later_one_counts_is_left_out() -> (
    None
):
    given_ = table_of((place(installed=900.0, idle=4.0),), PLACES)
    other = given_.drop_columns(["idle"]).append_column("tomorrow", pa.array([5.0]))
    found = unpacked(packed(other), PLACES)
    assert found.column_names == PLACES.names
    assert found["idle"].to_pylist() == [None]
    assert places_of(found) == (place(installed=900.0),)


def test_a_table_is_kept_to_the_millisecond() -> None:
    found = unpacked(packed(table_of((place(installed=1.23456),), PLACES)), PLACES)
    assert found["installed"].to_pylist() == [1.235]


def test_columns_have_the_types_that_are_asked_for_and_texts_stay_numbers() -> None:
    given_ = table_of((share("job 1"), share("job 2")), SHARES)
    numbers = given_.column_names.index("gpus")
    small = given_.set_column(numbers, "gpus", given_["gpus"].cast(pa.int32()))
    texts = given_.column_names.index("holder")
    large = pa.chunked_array([["job 1", "job 2"]], pa.large_string()).dictionary_encode()
    small = small.set_column(texts, "holder", large)
    found = unpacked(packed(small), SHARES)
    assert found["user"].type == pa.dictionary(pa.int32(), pa.string())
    assert found["holder"].type == pa.string()
    assert (found["gpus"].type, found["used"].type) == (pa.int64(), pa.float64())
    assert shares_of(found) == (share("job 1"), share("job 2"))


@pytest.mark.parametrize("text", ["", "=", "no base64!", "QUJD"])
def test_what_is_no_table_is_refused(text: str) -> None:
    good = packed(table_of((place(),), PLACES))
    for torn in (text, f"{good}!", f" {good}", good[:40], base64.b64encode(b"x").decode() + good):
        with pytest.raises((ValueError, TypeError)):
            unpacked(torn, PLACES)


def test_tables_of_either_kind_are_put_together() -> None:
    plain = table_of((share("job 1"),), SHARES)
    read = unpacked(packed(table_of((share("job 2"),), SHARES)), SHARES)
    found = together((plain, read, plain), SHARES)
    assert [one.holder for one in shares_of(found)] == ["job 1", "job 2", "job 1"]
    assert together((), SHARES).num_rows == 0


# --- spans ----------------------------------------------------------------------------------------


def test_spans_are_called_by_their_lengths() -> None:
    assert (timedelta(hours=1), timedelta(hours=6), timedelta(hours=24)) == (HOUR, SIX_HOURS, DAY)
    assert STATES == {HOUR: "hour", SIX_HOURS: "six_hours", DAY: "day"}
    for length in STATES:
        one = ledger(length=length)
        assert one.end == START + length
        assert Ledger.from_record(one.to_record()).length == length


def test_of_two_counts_of_one_moment_the_fuller_one_stays() -> None:
    some, more = (ledger(length=HOUR, quarters=n).to_record() for n in (1, 2))
    assert some.id == more.id
    micros = (LATER - EPOCH) // timedelta(microseconds=1)
    assert (some.version, more.version) == (micros + 1, micros + 2)
    later = ledger(length=HOUR, counted_at=LATER + timedelta(microseconds=9)).to_record()
    assert later.version == micros + 10


def without(record: Record, *names: str, **more: Any) -> Record:
    body = {name: value for name, value in record.body.items() if name not in names}
    return replace(record, body={**body, **more})


def test_what_an_earlier_version_did_not_write_is_read_without_it() -> None:
    record = ledger(length=HOUR, quarters=3).to_record()
    assert record.body["seconds"]["installed"] == 1800.0
    assert Ledger.from_record(without(record, "quarters")).quarters == 1
    sums = Ledger.from_record(without(record, "seconds"), places=False)
    assert sums.seconds.installed == 1800.0
    few = Ledger.from_record(without(record, seconds={"free": 5.0}), places=False)
    assert few.seconds == Seconds(free=5.0)


def test_amounts_of_a_span_are_written_to_the_millisecond() -> None:
    one = summed([ledger(), ledger()], "c", START, HOUR, LATER)
    third = replace(one, places=table_of((place(used=1.23456),), PLACES))
    assert third.to_record().body["seconds"]["used"] == 1.235


@pytest.mark.parametrize("state", ["week", None, 7])
def test_a_span_of_a_length_that_nobody_knows_takes_no_other_down(state: object) -> None:
    strange = without(ledger(length=HOUR).to_record(), state=state)
    good = ledger(length=HOUR).to_record()
    assert len(list(readable([strange, good], Ledger.from_record))) == 1


def test_nothing_is_a_sum_of_no_rows() -> None:
    none = summed([], "c", START, HOUR, LATER)
    assert (none.gpus, none.quarters, none.seconds) == (0, 0, Seconds())
    assert (none.places.num_rows, none.holders.num_rows) == (0, 0)
    most = summed([ledger(gpus=3), ledger(gpus=5), ledger(gpus=4)], "c", START, HOUR, LATER)
    assert (most.gpus, most.quarters) == (5, 3)


def names_of(found: Ledger) -> list[str]:
    return sorted(one.holder or "nobody" for one in shares_of(found.holders))


def test_of_equal_holders_the_first_by_name_keep_theirs() -> None:
    equal = ledger(*(share(f"job {n}") for n in (3, 1, 4, 2)), share("job 9", 90.0))
    for most, kept in ((1, []), (2, ["job 1"]), (3, ["job 1", "job 2"])):
        found = summed([equal], "c", START, HOUR, LATER, most)
        assert names_of(found) == [*kept, "job 9", OTHERS]
        (rest,) = (one for one in shares_of(found.holders) if one.is_rest)
        assert rest.allocated == 60.0 * (4 - len(kept))
    assert names_of(summed([equal], "c", START, HOUR, LATER, 5)) == [
        *(f"job {n}" for n in (1, 2, 3, 4, 9))
    ]


def test_what_was_left_stays_what_is_left_however_much_it_is() -> None:
    given_ = ledger(share(OTHERS, 500.0), share("job 1", 90.0), share("job 2", 60.0))
    found = summed([given_], "c", START, HOUR, LATER, 2)
    assert [(one.holder, one.allocated) for one in shares_of(found.holders)] == [
        ("job 1", 90.0),
        (OTHERS, 560.0),
    ]


def test_a_holder_whose_name_is_not_there_is_none_of_what_is_left() -> None:
    named = table_of((share("job 1", 5.0), share("job 2", 4.0), share("job 3", 4.0)), SHARES)
    place_ = named.column_names.index("holder")
    names = pa.array([None, None, "job 3"], pa.string())
    given_ = ledger(holders=named.set_column(place_, "holder", names))
    found = summed([given_], "c", START, HOUR, LATER, 2).holders.to_pylist()
    assert [(one["holder"], one["allocated"]) for one in found] == [(None, 9.0), ("job 3", 4.0)]
    one = summed([given_], "c", START, HOUR, LATER, 1).holders.to_pylist()
    assert [(it["holder"], it["allocated"]) for it in one] == [(None, 9.0), (OTHERS, 4.0)]


@pytest.mark.parametrize(("size", "rows"), [(20_000, 20_000), (20_001, 20_001), (20_002, 20_001)])
def test_a_sum_names_so_many_holders_and_no_more(size: int, rows: int) -> None:
    columns: dict[str, Any] = {name: [None] * size for name in SHARES.names}
    columns |= {"holder": [f"job {n:05}" for n in range(size)], "gpus": [1] * size}
    columns |= {"allocated": [float(n) for n in range(1, size + 1)], "used": [1.0] * size}
    table = pa.table(columns, SHARES)
    found = summed([ledger(holders=table)], "c", START, HOUR, LATER)
    assert found.holders.num_rows == rows
    assert MOST_ROWS == 20_000
    assert (OTHERS in found.holders["holder"].to_pylist()) is (size > rows - 1 >= 20_000)


def test_a_sum_has_a_place_for_each_node_and_model() -> None:
    one = ledger(places=table_of((place(free=1.0), place("n1", "A30", free=2.0)), PLACES))
    other = ledger(places=table_of((place(free=4.0), place("n2", free=8.0)), PLACES))
    found = places_of(summed([one, other], "c", START, HOUR, LATER).places)
    assert {(it.node, it.model): it.seconds.free for it in found} == {
        ("n1", "H100"): 5.0,
        ("n1", "A30"): 2.0,
        ("n2", "H100"): 8.0,
    }
    assert len(SECONDS) == 17
    assert one.length == BUCKET
