"""The life of an incident is its table and nothing else."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.errors import LifecycleError
from gpuvigil.lifecycle import ACTIVE, TRANSITIONS, Signal, State, diagram, step


@pytest.mark.parametrize(("pair", "after"), TRANSITIONS.items())
def test_every_row_of_the_table_is_a_step(pair: tuple[State, Signal], after: State) -> None:
    assert step(*pair) is after


@pytest.mark.parametrize("pair", sorted(set(itertools.product(State, Signal)) - set(TRANSITIONS)))
def test_every_other_pair_is_an_error_that_names_it(pair: tuple[State, Signal]) -> None:
    with pytest.raises(LifecycleError) as caught:
        step(*pair)
    assert str(caught.value) == f"an incident that is {pair[0].value} cannot be {pair[1].value}"


@given(st.lists(st.sampled_from(Signal)))
def test_no_row_of_signals_leads_back_to_suspect_or_out_of_dismissed(signals: list[Signal]) -> None:
    state = State.SUSPECT
    for signal in signals:
        if (state, signal) in TRANSITIONS:
            before, state = state, step(state, signal)
            assert state is not State.SUSPECT
            assert before is not State.DISMISSED


def test_whatever_stands_can_be_cleared() -> None:
    assert all(step(state, Signal.CLEARED) is State.RESOLVED for state in ACTIVE)


def test_every_state_can_be_reached_and_every_signal_is_used() -> None:
    assert {*TRANSITIONS.values(), State.SUSPECT} == set(State)
    assert {signal for _, signal in TRANSITIONS} == set(Signal)


def test_the_diagram_has_an_arrow_per_row() -> None:
    lines = diagram().splitlines()
    assert lines[:2] == ["stateDiagram-v2", "    [*] --> suspect"]
    assert "    open --> resolved: cleared" in lines
    assert len(lines) == len(TRANSITIONS) + 2
