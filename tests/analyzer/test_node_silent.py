"""A node that is heard with holes: bodies that get lost by chance are no silence."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from analyzer.detectors.node_silent import extended_limits, silent_nodes

from .scene import NODE_FIELDS, NOON, TICK, Sample, Scene, healthy, node

_STEP = timedelta(seconds=TICK)
_SPAN = 60  # ticks of the steady span
_MOST = 18  # so many lost in a row are no chance, whatever was lost before
_ALONE = replace(healthy(nodes=1), samples=())


def heard_at(ticks: list[bool]) -> Scene:
    """The newest tick first: whether its body came."""
    ages = [number for number, came in enumerate(ticks) if came]
    samples = [
        Sample(subject=node(), at=NOON - (age + 0.5) * _STEP, fields=NODE_FIELDS) for age in ages
    ]
    return replace(
        _ALONE, samples=tuple(samples), heard={node().key: NOON - (ages[0] + 0.4) * _STEP}
    )


def is_told(ticks: list[bool]) -> bool:
    return bool(silent_nodes(heard_at(ticks).window()))


@st.composite
def lives(draw: st.DrawFn) -> tuple[int, list[bool]]:
    """For how many ticks nothing has come, and which bodies came before; one at least."""
    lost = draw(st.integers(0, 9))
    before = [draw(st.integers(0, 9)) >= lost for _ in range(_SPAN - 20)]
    return draw(st.integers(0, 19)), [True, *before]


@pytest.mark.medium
@settings(max_examples=25, deadline=None)
@given(lives(), st.integers(0, _SPAN))
@example((9, [True, *[False, True, True] * 13]), 0)
def test_what_gets_lost_makes_a_silence_later_never_earlier_and_never_hides_it(
    life: tuple[int, list[bool]], other: int
) -> None:
    quiet, before = life
    told = is_told([False] * quiet + before)
    assert not (told and quiet < 3)
    assert told or quiet <= _MOST
    assert is_told([False] * (quiet + 1) + before) or not told
    # One more hole, be it the oldest body, makes nothing a silence that was none.
    more = [came and number != other for number, came in enumerate(before) if number or came]
    more[0] = True
    if more[-1] == before[-1]:
        assert told or not is_told([False] * quiet + more)


def test_a_third_lost_is_waited_for_and_none_lost_is_not() -> None:
    whole, third = [True] * 40, [True, True, False] * 13 + [True]
    assert [is_told([False] * quiet + whole) for quiet in (2, 3, 4)] == [False, True, True]
    assert [is_told([False] * quiet + third) for quiet in (4, 12, 16)] == [False, False, True]
    # What was lost by one reboot a while ago does not hide the next silence for longer than that.
    assert is_told([False] * _MOST + [True] * 10 + [False] * 20 + [True] * 10)


def test_pages_are_told_how_long_a_node_with_holes_is_waited_for() -> None:
    holes = [True, *[False, True, True] * 13]
    assert extended_limits(heard_at([False] * 2 + holes).window()) == {}
    waited = extended_limits(heard_at([False] * 5 + holes).window())
    assert 50.0 < waited[node().key] <= _MOST * TICK
    assert extended_limits(heard_at([False] * 19 + holes).window()) == {}  # it is told
    assert extended_limits(heard_at([False] * 5 + [True] * 40).window()) == {}
