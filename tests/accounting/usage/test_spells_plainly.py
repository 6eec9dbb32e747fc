"""Idle spells, counted minute by minute in plain words beside what `idle_spell_seconds` makes of whole arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from random import Random
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.usage.ownership import Owner
from accounting.usage.sharing import Held, Units
from accounting.usage.spells import Stretch, idle_spell_seconds

AFTER = timedelta(minutes=4)
BEFORE, NOW = 13, 9
OWNERS = (
    Owner(user="ann", holder="job 1", command="a"),
    Owner(user="ben", holder="job 1"),
    Owner(user="ann", holder="job 1", command="b"),
)
Minute = tuple[bool, bool, float]  # known, measured, used
NOTHING: Minute = (False, False, 0.0)
STILL: Minute = (True, True, 0.0)


def busy(used: float) -> Minute:
    return (True, True, used)


# Mostly still ones, so that spells become long; of a load of 0.8 one of 0.68 is the least that is a part of a spell.
KINDS: Sequence[Minute] = (
    *[STILL] * 6,
    *(NOTHING, (True, False, 0.0), busy(0.009), busy(0.01)),
    *(busy(used) for used in (0.1, 0.4, 0.5, 0.68, 0.8)),
)
SECONDS = (60.0, 60.0, 60.0, 60.0, 30.0, 20.0, 0.5, 0.0, 0.0)
_Value = TypeVar("_Value")


def across(chance: Random, kinds: Sequence[_Value], minutes: int) -> list[_Value]:
    """Values that stay for some minutes."""
    found: list[_Value] = []
    while len(found) < minutes:
        found += [chance.choice(kinds)] * chance.choice((1, 1, 2, 4, 5, 6, 9))
    return found[:minutes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    owner: int
    unit: int
    seconds: Sequence[float]


def rows(chance: Random, minutes: int) -> list[Row]:
    pairs = chance.sample(list(product(range(3), range(2))), chance.choice((0, 1, 2, 3, 4)))
    return [
        Row(owner=owner, unit=unit, seconds=across(chance, SECONDS, minutes))
        for owner, unit in pairs
    ]


def stretch(units: Sequence[Sequence[Minute]], of: Sequence[Row], minutes: int) -> Stretch:
    parts = np.array([row.seconds for row in of], np.float64).reshape(len(of), minutes)
    known, measured, used = (np.array([[it[n] for it in one] for one in units]) for n in range(3))
    return Stretch(
        held=Held(
            gpu=np.array([row.unit for row in of], np.int64),
            owner=np.array([row.owner for row in of], np.int64),
            owners=OWNERS,
            parts=parts,
            shared=np.zeros(len(of), np.bool_),
        ),
        units=Units(
            known=known,
            measured=measured,
            used=used,
            power=np.zeros(used.shape),
            physical=np.arange(len(units)),
            models=("",),
            model=np.zeros(len(units), np.int64),
        ),
    )


def is_still(minute: Minute) -> bool:
    return minute[1] and minute[2] < 0.01


@dataclass(slots=True, kw_only=True)
class Spell:
    lasted: float = 0.0
    lasted_before: float = 0.0
    idle: float = 0.0
    idle_before: float = 0.0
    idle_left: float = 0.0  # in a last minute right before the quarter


def plainly(units: Sequence[Minute], seconds: Sequence[float]) -> tuple[float, float]:
    """What of the spells of one holder and unit counts in the minutes from `BEFORE` on, and before."""
    size = len(units)
    still = [seconds[m] > 0 and is_still(units[m]) for m in range(size)]
    gap = list[bool]()
    for m in range(size):
        back = m
        while back >= 0 and seconds[back] > 0 and not units[back][0]:
            back -= 1
        gap.append(0 < m - back <= 5 and back >= 0 and still[back])
    whole = [a or b for a, b in zip(still, gap, strict=True)]
    load = [seconds[m] > 0 and units[m][1] and not still[m] for m in range(size)]
    found, spell, goes_on = list[Spell](), Spell(), False
    for m in range(size):
        last, behind = m > 0 and whole[m - 1], m + 1 < size
        begins = load[m] and not last and behind and still[m + 1]
        ends = load[m] and last and behind and not whole[m + 1]
        if not (whole[m] or begins or ends):
            goes_on = False
            continue
        if begins or not goes_on:
            spell, goes_on = Spell(), True
            found.append(spell)
        beside = m - 1 if begins else m + 1
        level = units[beside][2] if 0 <= beside < size and load[beside] else 0.0
        share = 1.0 - units[m][2] / level if level else 0.5
        share = 1.0 if still[m] else share if share >= 0.15 else 0.0
        most = max(seconds[max(m - 1, 0) : m + 2])
        lasted = 60.0 * seconds[m] / most * (1.0 if gap[m] else share)
        idle = 0.0 if gap[m] else seconds[m] * share
        spell.lasted += lasted
        if m >= BEFORE:
            spell.idle += idle
        elif m == BEFORE - 1 and ends:
            spell.idle_left += idle
        else:
            spell.lasted_before += lasted
            spell.idle_before += idle
    limit = AFTER.total_seconds() - 0.5
    long = [one for one in found if one.lasted > limit]
    owed = [one.idle_before for one in long if one.lasted_before <= limit]
    return sum(one.idle for one in long), sum(one.idle_left for one in long) + sum(owed)


@given(st.integers(0, 2**32))
def test_spells_are_what_they_are_minute_by_minute(seed: int) -> None:
    chance = Random(seed)
    for _ in range(3):
        before = [across(chance, KINDS, BEFORE) for _ in range(3)]
        now = [across(chance, KINDS, NOW) for _ in range(2)]
        same = chance.choice([(0, 1), (1, 0), (-1, 0), (1, -1), (2, 1)])
        check(before, now, rows(chance, BEFORE), rows(chance, NOW), same)


@pytest.mark.parametrize(("part", "told"), [(29.6, 239.6), (29.4, 0.0)])
def test_a_spell_may_lack_half_a_second_of_its_span(part: float, told: float) -> None:
    loaded = [busy(1.0), busy(0.5), *[STILL] * 3, busy(1.0 - part / 60.0), *[busy(1.0)] * 3]
    before = [[busy(1.0)] * BEFORE]
    has = Row(owner=0, unit=0, seconds=[60.0] * NOW)
    check(before, [loaded], [], [has], [0])
    found = plainly([*before[0], *loaded], [60.0] * (BEFORE + NOW))
    assert found == pytest.approx((told, 0.0))


def test_minutes_without_a_word_may_come_right_before_the_last_minute_of_a_spell() -> None:
    quiet = [busy(0.8), *[STILL] * 9, *[NOTHING] * 3]
    loaded = [busy(0.4), *[busy(0.8)] * 8]
    had = Row(owner=0, unit=0, seconds=[60.0] * BEFORE)
    has = Row(owner=0, unit=0, seconds=[60.0] * NOW)
    check([quiet], [loaded], [had], [has], [0])
    assert plainly([*quiet, *loaded], [60.0] * (BEFORE + NOW)) == (30.0, 0.0)


def check(
    before: Sequence[Sequence[Minute]],
    now: Sequence[Sequence[Minute]],
    had: Sequence[Row],
    has: Sequence[Row],
    same: Sequence[int],
) -> None:
    found = idle_spell_seconds(
        stretch(before, had, BEFORE), stretch(now, has, NOW), np.array(same, np.int64), AFTER
    )
    told = list(zip(found["idle_long"].tolist(), found["idle_long_before"].tolist(), strict=True))
    expected = [(0.0, 0.0)] * len(has)
    done = set[tuple[tuple[str, str], int]]()
    for number, row in enumerate(has):
        key, was = OWNERS[row.owner].key, same[row.unit]
        earlier = before[was] if was >= 0 else [NOTHING] * BEFORE
        # One that may end with the quarter's first minute counts as well.
        fresh = any(map(is_still, earlier[-7:]))
        idle = [is_still(it) or (fresh and m == 0) for m, it in enumerate(now[row.unit])]
        if (key, row.unit) in done or not any(
            s > 0 and it for s, it in zip(row.seconds, idle, strict=True)
        ):
            continue
        done.add((key, row.unit))
        past = [it.seconds for it in had if OWNERS[it.owner].key == key and it.unit == was >= 0]
        own = [it.seconds for it in has if OWNERS[it.owner].key == key and it.unit == row.unit]
        seconds = [sum(it) for it in zip(*past, strict=True)] or [0.0] * BEFORE
        seconds += [sum(it) for it in zip(*own, strict=True)]
        expected[number] = plainly([*earlier, *now[row.unit]], seconds)
    assert told == [pytest.approx(one, abs=1e-6) for one in expected]
