"""Amounts, their shares and what they are of: None is not measured, and never 0."""

from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.usage import BUCKET, Bucket, Seconds, Share, Usage, share_percent
from accounting.usage.amounts import AMOUNTS, OTHERS, summed
from accounting.usage.model import floor
from accounting.usage.out_of_service import Part
from accounting.usage.query import COUNTED_HERE
from gpuvigil.clock import EPOCH
from gpuvigil.model import GpuState
from gpuvigil.schedulers.out_of_service import LostTo
from tests.accounting.usage.quarter import END, LATER, START

MINUTE = timedelta(minutes=1)


def share(holder: str = "job 1", user: str | None = "ann", **given_: Any) -> Share:
    amounts = dict.fromkeys(AMOUNTS, 0.0) | {"allocated": 60.0}
    return Share(
        **{"holder": holder, "user": user, "command": None, "gpus": 1, **amounts, **given_}
    )


def a_bucket(**given_: Any) -> Bucket:
    usual = {"gpus": 2, "nodes": 1, "seconds": Seconds(installed=1800.0), "counted_at": LATER}
    return Bucket(**{"cluster": "c", "start": START, **usual, **given_})


def test_nothing_is_counted_until_something_is() -> None:
    assert all(getattr(Seconds(), one.name) == 0.0 for one in fields(Seconds))
    bare = Share(
        holder="job 1",
        user=None,
        command=None,
        gpus=1,
        allocated=1.0,
        measured=1.0,
        used=1.0,
        idle=0.0,
    )
    assert (bare.shared, bare.energy_joules) == (0.0, 0.0)
    assert not a_bucket().settled
    assert timedelta(minutes=15) == BUCKET
    assert timedelta(hours=48) == COUNTED_HERE


@given(st.lists(st.integers(0, 9000).map(float), min_size=34, max_size=34))
def test_each_amount_is_added_to_its_own(amounts: list[float]) -> None:
    one, other = Seconds(*amounts[:17]), Seconds(*amounts[17:])
    for number, each in enumerate(fields(Seconds)):
        assert getattr(one + other, each.name) == amounts[number] + amounts[17 + number]


@pytest.mark.parametrize(
    ("part", "whole", "percent"), [(1, 4, 25.0), (0, 4, 0.0), (0, 0, None), (3, 0.5, 600.0)]
)
def test_of_nothing_there_is_no_share(part: float, whole: float, percent: float | None) -> None:
    assert share_percent(part, whole) == percent


@pytest.mark.parametrize(
    ("seconds", "percent"),
    [
        (Seconds(installed=900, active=300, idle=150, free=450, allocated=450), 50.0),
        # Those whose state is not known are in no share.
        (Seconds(installed=900, active=300, free=300, unknown=300, allocated=300), 50.0),
        # Of what was active by nobody knows whom nobody can say that it was free.
        (Seconds(installed=900, active=600, free=300, allocated=300, unattributed=300), 50.0),
        # At 0 % and held by nobody knows whom: those are unknown, and count once.
        (
            Seconds(
                installed=1200, active=600, free=300, unknown=300, allocated=300, unattributed=600
            ),
            50.0,
        ),
        # An idle one that is held is none of the active ones.
        (
            Seconds(installed=900, active=300, idle=300, free=300, allocated=300, unattributed=300),
            50.0,
        ),
        # Nothing else is known than that they were held, or of no use.
        (Seconds(installed=900, active=900, allocated=300, unattributed=600), None),
        (
            Seconds(installed=900, active=600, unavailable=300, allocated=300, unattributed=300),
            None,
        ),
        (
            Seconds(installed=900, active=599.9, free=300.1, allocated=299.9, unattributed=300),
            49.983,
        ),
        # A tenth of a second is what rounding leaves.
        (
            Seconds(installed=900, active=899.95, free=0.05, allocated=600, unattributed=299.95),
            None,
        ),
        (Seconds(installed=900, active=899.5, free=0.5, allocated=600, unattributed=299.5), 99.917),
        # As a lost GPU may stay allocated, there may be more of those than active ones.
        (
            Seconds(
                installed=900,
                active=100,
                unavailable=300,
                free=500,
                allocated=300,
                unattributed=100,
            ),
            300 / 9,
        ),
        (Seconds(installed=900, free=900), 0.0),
        (Seconds(installed=900, unknown=900), None),
    ],
)
def test_allocated_is_a_share_of_those_of_which_that_is_known(
    seconds: Seconds, percent: float | None
) -> None:
    assert seconds.allocated_percent == (
        None if percent is None else pytest.approx(percent, abs=0.001)
    )


def test_in_service_is_what_was_lost_to_nothing() -> None:
    lost = {f"lost_{to.value}": 60.0 * n for n, to in enumerate(LostTo, start=1)}
    seconds = Seconds(installed=1800.0, judged=1000.0, **lost)
    assert {to: seconds.lost(to) for to in LostTo} == {
        to: 60.0 * n for n, to in enumerate(LostTo, start=1)
    }
    assert seconds.in_service_percent == 40.0
    assert Seconds(installed=1800.0).in_service_percent is None


@pytest.mark.parametrize(
    ("seconds", "measured"),
    [
        (Seconds(unattributed=0.5), False),
        (Seconds(), True),
        (Seconds(unattributed=0.5, allocated=0.5), True),
    ],
)
def test_idle_and_free_are_not_measured_where_nobody_could_say_who_held_what(
    seconds: Seconds, measured: bool
) -> None:
    for state in GpuState:
        known = measured or state not in {GpuState.IDLE, GpuState.FREE}
        assert seconds.measured_of(state) == (0.0 if known else None)
        some = replace(seconds, **{state.value: 0.5})
        assert some.measured_of(state) == some.of(state) == 0.5


def test_shares_of_a_holder_are_added_and_keep_what_all_of_them_say() -> None:
    amounts: dict[str, Any] = {name: float(n) for n, name in enumerate(AMOUNTS, start=1)}
    one = share(gpus=2, model="H100", project="lab", **amounts)
    other = share(gpus=1, model="H100", command="train", account="physics", **amounts)
    both = summed([one, other])
    assert {name: getattr(both, name) for name in AMOUNTS} == {
        name: 2 * amount for name, amount in amounts.items()
    }
    assert (both.gpus, both.model, both.holder, both.user) == (2, "H100", "job 1", "ann")
    assert (both.command, both.account, both.project, both.partition) == (
        "train",
        "physics",
        "lab",
        None,
    )
    assert summed([one, replace(other, model="A30")]).model is None
    assert summed([other, one]).gpus == 2


def test_what_is_left_of_a_user_is_no_holder() -> None:
    assert share(OTHERS).is_rest
    assert not share().is_rest
    assert share().key == ("ann", "job 1")
    assert share(user=None).key == ("", "job 1")


# --- a quarter of it ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("installed", "counted_at", "counted", "began"),
    [
        (1800.0, LATER, BUCKET, START),
        (600.0, LATER, 5 * MINUTE, END - 5 * MINUTE),
        (600.0, START + 7 * MINUTE, 5 * MINUTE, START + 2 * MINUTE),
        (1801.0, LATER, BUCKET, START),
        (1800.0, START + 7 * MINUTE, BUCKET, START),
    ],
)
def test_a_quarter_was_counted_for_as_long_as_its_gpus_were_on_average(
    installed: float, counted_at: Any, counted: timedelta, began: Any
) -> None:
    one = a_bucket(seconds=Seconds(installed=installed), counted_at=counted_at)
    assert (one.counted, one.began) == (counted, began)


def test_without_gpus_no_time_was_counted() -> None:
    none = a_bucket(gpus=0, seconds=Seconds())
    assert (none.counted, none.began) == (timedelta(), END)


@given(st.integers(-(10**9), 10**9))
def test_a_quarter_begins_at_the_last_quarter_of_an_hour(seconds: int) -> None:
    at = START + timedelta(seconds=seconds)
    assert floor(at) <= at < floor(at) + BUCKET
    assert (floor(at) - EPOCH).total_seconds() % 900 == 0


def test_a_record_says_to_the_millisecond_and_is_replaced_by_a_later_count() -> None:
    at = LATER + timedelta(microseconds=1)
    one = a_bucket(seconds=Seconds(installed=900.12349), counted_at=at, settled=True)
    record = one.to_record()
    assert record.version == (at - EPOCH) // timedelta(microseconds=1)
    assert record.body["seconds"]["installed"] == 900.123
    assert record.id == "c|2026-01-31T12:00:00.000000Z"
    back = Bucket.from_record(record)
    assert back.settled
    assert (back.watched_since, back.out) == (None, None)
    told = replace(one, watched_since=START, out={("n1", ""): (Part(LostTo.FAULT, 0.0, 61.5),)})
    again = Bucket.from_record(told.to_record())
    assert (again.watched_since, again.out) == (told.watched_since, told.out)


# --- a span of it ---------------------------------------------------------------------------------


def usage(*buckets: Bucket, cluster: str = "c") -> Usage:
    return Usage(cluster=cluster, start=START, end=START + BUCKET, buckets=buckets)


def test_a_span_has_the_most_that_there_was_at_once_and_the_sums_of_all() -> None:
    seconds = Seconds(
        installed=1000.0, unknown=200.0, free=300.0, allocated=500.0, measured=400.0, used=100.0
    )
    found = usage(a_bucket(gpus=3, nodes=1, seconds=seconds), a_bucket(nodes=4, seconds=seconds))
    assert (found.gpus, found.nodes, found.seconds) == (3, 4, seconds + seconds)
    assert found.used_percent == 25.0
    assert found.allocated_percent == 62.5
    assert not found.simulated
    none = usage(cluster="simulated")
    assert (none.gpus, none.nodes, none.seconds) == (0, 0, Seconds())
    assert none.used_percent is None
    assert none.simulated


def test_a_holder_has_the_gpus_of_all_its_models_at_once_and_the_most_of_all_quarters() -> None:
    first = a_bucket(
        shares=[
            share(gpus=2, model="H100", allocated=100.0),
            share(gpus=1, model="A30", allocated=50.0),
            share("job 2", "ben", gpus=1, model="H100", allocated=400.0),
        ]
    )
    second = a_bucket(shares=[share(gpus=2, model="H100", allocated=10.0)])
    ben, ann = usage(first, second).shares
    assert (ben.holder, ben.gpus, ben.model, ben.allocated) == ("job 2", 1, "H100", 400.0)
    assert (ann.holder, ann.gpus, ann.model, ann.allocated) == ("job 1", 3, None, 160.0)


def test_what_is_left_of_a_user_stays_one_for_each_account_and_partition() -> None:
    rest = [
        share(OTHERS, account=account, partition=partition)
        for account, partition in (("x", "gpu"), ("x", None), ("y", "gpu"), (None, None))
    ]
    job = [share(account="x"), share(account="y")]  # a job is one, whatever it was charged to
    found = usage(a_bucket(shares=[*rest, *job]), a_bucket(shares=rest)).shares
    assert len(found) == 5
    assert all(one.allocated == 120.0 for one in found)
    assert {(one.account, one.partition) for one in found if one.is_rest} == {
        ("x", "gpu"),
        ("x", None),
        ("y", "gpu"),
        (None, None),
    }


def test_of_equal_holders_the_first_by_name_is_first() -> None:
    shares = [share("job 2", "ann"), share("job 1", "ann"), share("job 3", None)]
    found = usage(a_bucket(shares=shares)).shares
    assert [one.holder for one in found] == ["job 3", "job 1", "job 2"]
