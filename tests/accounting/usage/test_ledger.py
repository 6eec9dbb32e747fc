"""Quarters, hours and days as columns: they add up whatever the order."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.usage import BUCKET, Bucket, Place, Seconds, Share
from accounting.usage.amounts import AMOUNTS, OTHERS
from accounting.usage.columns import SECONDS
from accounting.usage.ledger import HOUR, Ledger, summed
from accounting.usage.ledger_query import ceiling_of, floor_of
from tests.accounting.usage.quarter import LATER, START

_AMOUNT = st.integers(0, 10_000).map(float)
_SECONDS = st.builds(Seconds, *(_AMOUNT for _ in SECONDS))
_PLACE = st.builds(
    Place, node=st.sampled_from(["n1", "n2"]), model=st.sampled_from(["H100", ""]), seconds=_SECONDS
)
_SHARE = st.builds(
    Share,
    holder=st.sampled_from(["job 1", "job 2", "processes"]),
    user=st.sampled_from(["ann", None]),
    command=st.sampled_from(["train", None]),
    gpus=st.integers(1, 8),
    allocated=_AMOUNT,
    measured=_AMOUNT,
    used=_AMOUNT,
    idle=_AMOUNT,
    account=st.sampled_from(["physics", None]),
    model=st.sampled_from(["H100", None]),
    shared=_AMOUNT,
    energy_joules=_AMOUNT,
    quiet=_AMOUNT,
    idle_long=_AMOUNT,
    idle_long_before=_AMOUNT,
)


@st.composite
def _buckets(draw: Any) -> list[Bucket]:
    many = draw(
        st.lists(st.tuples(st.lists(_PLACE, min_size=1, max_size=4), st.lists(_SHARE, max_size=4)))
    )
    return [
        Bucket(
            cluster="c",
            start=START + number * BUCKET,
            gpus=2,
            nodes=1,
            seconds=sum((one.seconds for one in places), Seconds()),
            places=tuple(places),
            shares=tuple(shares),
            counted_at=LATER,
        )
        for number, (places, shares) in enumerate(many[:6])
    ]


def _all(ledgers: list[Ledger]) -> Ledger:
    return summed(ledgers, "c", START, HOUR, LATER)


def _plain(ledger: Ledger) -> Any:
    def rows(table: Any) -> list[str]:
        return sorted(map(str, table.to_pylist()))

    return ledger.gpus, ledger.quarters, rows(ledger.places), rows(ledger.holders)


@pytest.mark.medium
@given(_buckets(), st.randoms())
@settings(max_examples=25, deadline=None)
def test_the_sum_is_the_same_in_any_order_and_in_parts(given_: list[Bucket], order: Any) -> None:
    ledgers = [Ledger.of(one) for one in given_]
    whole = _all(ledgers)
    mixed = list(ledgers)
    order.shuffle(mixed)
    assert _plain(_all(mixed)) == _plain(whole)
    assert _plain(_all([_all(ledgers[:2]), _all(ledgers[2:])])) == _plain(whole)
    expected = sum((one.seconds for one in given_), Seconds())
    assert whole.seconds == expected
    allocated = sum(share.allocated for one in given_ for share in one.shares)
    assert (pc.sum(whole.holders["allocated"]).as_py() or 0.0) == allocated


@pytest.mark.medium
@given(_buckets())
@settings(max_examples=15, deadline=None)
def test_records_give_back_what_they_were_given(given_: list[Bucket]) -> None:
    for one in given_:
        assert Bucket.from_record(one.to_record()) == one
        assert not Bucket.from_record(one.to_record(), places=False).places
        assert _plain(Ledger.from_record(one.to_record())) == _plain(Ledger.of(one))
    whole = _all([Ledger.of(one) for one in given_])
    back = Ledger.from_record(whole.to_record())
    assert _plain(back) == _plain(whole)
    assert (back.start, back.length, back.cluster) == (START, HOUR, "c")
    sums = Ledger.from_record(whole.to_record(), places=False, holders=False)
    assert (sums.seconds, sums.places.num_rows, sums.holders.num_rows) == (whole.seconds, 1, 0)


@pytest.mark.parametrize("columns", [8, 10])
def test_a_quarter_that_was_recorded_before_there_were_places_is_still_read(columns: int) -> None:
    share = ["job 1", "ann", "train", 2, 900.0, 900.0, 450.0, 0.0, "gpu", "physics"]
    bucket = Bucket(
        cluster="c", start=START, gpus=2, nodes=1, seconds=Seconds(1800.0), counted_at=LATER
    )
    record = bucket.to_record()
    body = {**record.body, "shares": [share[:columns]]}
    del body["places"], body["holders"]
    old = replace(record, body=body)
    (found,) = Bucket.from_record(old).shares
    account = "physics" if columns == 10 else None
    assert (found.user, found.account, found.allocated) == ("ann", account, 900.0)
    assert Ledger.from_record(old).seconds.installed == 1800.0


@pytest.mark.parametrize("minutes", [0, 1, 15, 59, 60, 1439, 1440])
def test_hours_begin_where_they_should(minutes: int) -> None:
    at = floor_of(START, timedelta(days=1)) + timedelta(minutes=minutes)
    for length in (BUCKET, HOUR, timedelta(days=1)):
        assert floor_of(at, length) <= at < floor_of(at, length) + length
        assert ceiling_of(at, length) - length < at <= ceiling_of(at, length)


@pytest.mark.medium
@settings(max_examples=25, deadline=None)
@given(_buckets(), st.integers(1, 4))
def test_of_many_holders_the_largest_keep_their_names_and_no_amount_is_lost(
    buckets: list[Bucket], most: int
) -> None:
    """Against the same in plain words."""
    ledgers = [Ledger.of(one) for one in buckets]
    every = summed(ledgers, "c", START, HOUR, LATER).holders.to_pylist()
    some = summed(ledgers, "c", START, HOUR, LATER, most).holders.to_pylist()
    named = [row for row in some if row["holder"] != OTHERS]
    if len(every) <= most:
        assert some == every
        return
    assert (
        sorted(row["allocated"] for row in named)
        == sorted(row["allocated"] for row in every)[-most:]
    )
    assert all(row in every for row in named)
    groups = ("user", "account", "project", "partition", "model")
    assert _sums(every, groups) == _sums(some, groups)
    rest = [tuple(row[name] for name in groups) for row in some if row["holder"] == OTHERS]
    assert len(rest) == len(set(rest))


def _sums(rows: list[dict[str, Any]], groups: tuple[str, ...]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for row in rows:
        for name in AMOUNTS:
            found[(*(row[group] for group in groups), name)] += row[name]
    return found
