"""For how long a node was heard with each version that it had."""

from collections import defaultdict
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.compare.exposure import NO_HISTORY, History, ReportingSpan, histories
from gpuvigil.model import Attribute, Setup, Subject

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
HOUR_SECONDS = 3600.0
MOMENT = timedelta(microseconds=1)


def setup(hours: float, value: str, by: Attribute = Attribute.DRIVER, node: str = "n") -> Setup:
    subject = Subject(cluster="c", node=node)
    return Setup(node=subject, at=NOON + hours * HOUR, values={by: value})


def history(*told: tuple[float, str]) -> History:
    return histories([setup(*one) for one in told], Attribute.DRIVER).get("n", NO_HISTORY)


def heard(start: float, end: float, hours: float | None = None) -> ReportingSpan:
    seconds = (end - start if hours is None else hours) * HOUR_SECONDS
    return ReportingSpan(
        node="n", start=NOON + start * HOUR, end=NOON + end * HOUR, seconds=seconds
    )


def hours(of: History, piece: ReportingSpan) -> dict[str | None, float]:
    found: dict[str | None, float] = defaultdict(float)
    for value, seconds in of.shares(piece):
        found[value] += seconds / HOUR_SECONDS
    return dict(found)


def test_a_value_holds_from_its_first_moment_on_and_not_before() -> None:
    one = history((0, "a"), (5, "b"))
    assert one.at(NOON - MOMENT) is None
    assert one.at(NOON) == one.at(NOON + 5 * HOUR - MOMENT) == "a"
    assert one.at(NOON + 5 * HOUR) == one.at(NOON + 900 * DAY) == "b"


def test_what_only_repeats_the_value_before_is_no_turn() -> None:
    one = history((0, "a"), (1, "a"), (2, "b"), (3, "a"))
    assert [(at - NOON) / HOUR for at in one.times] == [0.0, 2.0, 3.0]
    assert one.values == ("a", "b", "a")


def test_only_a_change_within_is_a_turn() -> None:
    one = history((0, "a"), (2, "b"))
    assert one.turns(NOON + 2 * HOUR - MOMENT, NOON + 2 * HOUR + MOMENT)
    assert not one.turns(NOON + 2 * HOUR, NOON + 9 * HOUR)
    assert not one.turns(NOON - HOUR, NOON + 2 * HOUR)
    assert not history((0, "a")).turns(NOON - HOUR, NOON + HOUR)


@pytest.mark.parametrize(
    ("by", "before"),
    [
        (Attribute.DRIVER, None),
        (Attribute.KERNEL, None),
        (Attribute.VBIOS, None),
        (Attribute.NIC_FIRMWARE, None),
        # Where it stands, and what it is, was so before somebody said it.
        (Attribute.RACK, "a"),
        (Attribute.MODEL, "a"),
    ],
)
def test_only_what_lasts_is_taken_to_have_been_so_before(by: Attribute, before: str | None) -> None:
    one = histories([setup(0, "a", by), setup(1, "b", by)], by)["n"]
    assert (one.at(NOON - 400 * DAY), one.at(NOON), one.at(NOON + HOUR)) == (before, "a", "b")


def test_hours_before_and_after_an_upgrade_go_to_different_versions() -> None:
    one = history((-30, "a"), (6, "b"))
    assert hours(one, heard(0, 24)) == {"a": 6.0, "b": 18.0}
    assert hours(one, heard(-6, 6)) == {"a": 12.0}
    assert hours(one, heard(6, 7)) == {"b": 1.0}
    # Of a silence nobody knows when in it that was.
    assert hours(one, heard(0, 24, 12.0)) == {"a": 3.0, "b": 9.0}
    assert hours(NO_HISTORY, heard(0, 24, 12.0)) == {None: 12.0}


def test_a_node_that_came_in_the_piece_was_known_all_the_time_that_it_was_heard() -> None:
    one = history((18, "a"))
    assert hours(one, heard(0, 24, 6.0)) == {"a": 6.0}
    assert hours(one, heard(0, 24, 5.0)) == {"a": 5.0}
    assert hours(one, heard(0, 24, 7.0)) == {"a": 6.0, None: 1.0}
    assert hours(one, heard(0, 18)) == {None: 18.0}


def test_a_node_that_says_nothing_of_it_has_no_history() -> None:
    told = [setup(0, "a"), setup(0, "6.8", Attribute.KERNEL, "other")]
    assert set(histories(told, Attribute.KERNEL)) == {"other"}


TOLD = st.lists(st.tuples(st.integers(-50, 50), st.sampled_from("abc")), unique_by=lambda it: it[0])


@given(TOLD, st.integers(-60, 60), st.integers(1, 60), st.floats(0.0, 1.0), st.randoms())
def test_nothing_is_lost_and_the_order_of_records_does_not_matter(
    told: list[tuple[int, str]], start: int, length: int, share: float, chance: st.DataObject
) -> None:
    piece = heard(start, start + length, length * share)
    one = history(*told)
    found = hours(one, piece)
    assert sum(found.values()) == pytest.approx(length * share, abs=1e-9)
    assert all(value >= 0.0 for value in found.values())
    mixed = list(told)
    chance.shuffle(mixed)  # type: ignore[attr-defined]
    assert history(*mixed) == one


@given(TOLD, st.integers(-60, 60), st.integers(1, 60), st.floats(0.01, 0.99))
def test_a_piece_that_was_heard_whole_may_be_cut_anywhere(
    told: list[tuple[int, str]], start: int, length: int, share: float
) -> None:
    one, middle = history(*told), start + length * share
    parts = [hours(one, heard(*ends)) for ends in ((start, middle), (middle, start + length))]
    whole = hours(one, heard(start, start + length))
    for value in "abc", None:
        added = sum(part.get(value, 0.0) for part in parts)
        assert added == pytest.approx(whole.get(value, 0.0), abs=1e-6)
