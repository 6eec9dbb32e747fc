"""What the page of efficiency draws of the terminal's tables."""

import json
from datetime import timedelta

import pytest

from dashboard.efficiency.drawing import page
from dashboard.efficiency.hub_queries import Tables
from dashboard.layout.grids import MOST_ROWS
from dashboard.lists import holders, inefficient
from dashboard.lists.table import Grid, Value, or_why
from gpuvigil.errors import StoreError, StoreUnavailable
from gpuvigil.model import SIMULATED_CLUSTER
from tests.dashboard.scene import NOON


def drawn(idle: Grid, little: Grid | None = None) -> str:
    empty = Grid(columns=inefficient.COLUMNS, rows=[], empty="Nobody.")
    found = Tables(
        now=NOON,
        idle=idle,
        inefficient=little or empty,
        idle_after=timedelta(minutes=30),
    )
    return json.dumps(page(found), ensure_ascii=False)


def idle(user: str, why: str | None) -> tuple[Value, ...]:
    return (
        2,
        4,
        timedelta(minutes=90),
        why,
        None,
        user,
        "job 7",
        None,
        "n-1",
        None,
        None,
        None,
        "c",
        False,
    )


def test_columns_of_which_no_row_says_anything_are_left_out() -> None:
    grid = Grid(columns=holders.IDLE, rows=[idle("ann", "no requests"), idle("<b>", None)])
    said = drawn(grid)
    assert '"Idle for"' in said
    assert '"1 h 30 min"' in said
    assert '"no requests"' in said
    assert '"<b>"' in said  # as text: the tree never makes markup of it
    assert '"–"' in said  # the reason that is not known
    assert '"Partition"' not in said
    assert '"Cost' not in said


def test_who_idles_longest_is_said_first_and_what_idles_for_less_than_counts_says_so() -> None:
    longest, young = list(idle("<b>ann", None)), list(idle("bob", None))
    young[2] = None
    said = drawn(Grid(columns=holders.IDLE, rows=[tuple(young), tuple(longest)]))
    assert "4 GPUs allocated to 2 jobs or users are at 0 % now. " in said
    assert ', for 1 h 30 min."' in said
    assert '{"href": "/people?user=%3Cb%3Eann"}, "<b>ann"' in said
    assert '"under 30 min"' in said
    said = drawn(Grid(columns=holders.IDLE, rows=[tuple(young)]))
    assert "2 GPUs allocated to one job or user are at 0 % now. " in said
    assert "None of them has been idle for 30 min yet." in said
    assert "at 0 %" not in drawn(Grid(columns=holders.IDLE, rows=[], empty="None."))


def test_each_of_several_nodes_is_a_link_and_the_rest_are_counted() -> None:
    row = list(idle("ann", None))
    row[row.index("n-1")] = " ".join(f"n-{number}" for number in range(1, 7))
    said = drawn(Grid(columns=holders.IDLE, rows=[tuple(row)]))
    for number in range(1, 5):
        assert f'{{"href": "/node?cluster=c&node=n-{number}"}}, "n-{number}"' in said
    assert '" and 2 more"' in said
    assert "n-5" not in said


def test_a_long_table_is_cut_and_says_where_the_whole_is() -> None:
    rows: list[tuple[Value, ...]] = [
        (1.0, 5.0, 1, f"u{n}", "job", "a", "b", *[None] * 6) for n in range(MOST_ROWS + 3)
    ]
    said = drawn(
        Grid(columns=holders.IDLE, rows=[], empty="None."),
        Grid(columns=inefficient.COLUMNS, rows=rows, head=["9 free GPUs lie scattered."]),
    )
    assert "3 more: gpuvigil inefficient" in said
    assert '"u29"' in said
    assert '"u30"' not in said
    assert said.index("Free, but scattered") < said.index("9 free GPUs lie scattered.")
    assert "Free, but scattered" not in drawn(Grid(columns=holders.IDLE, rows=[], empty="None."))


def test_a_table_that_cannot_be_asked_for_says_so_and_the_others_stay() -> None:
    def too_much() -> Grid:
        raise StoreError("the answer has more than 268435456 bytes")

    found = or_why(too_much, holders.IDLE)
    said = drawn(found)
    assert "Not known: the answer has more than 268435456 bytes" in said
    assert "Nobody." in said

    def nobody() -> Grid:
        raise StoreUnavailable("the store does not answer")

    with pytest.raises(StoreUnavailable):
        or_why(nobody, holders.IDLE)


def test_a_table_with_a_simulated_cluster_is_marked_as_such() -> None:
    real = idle("ann", None)
    assert "SIMULATED" not in drawn(Grid(columns=holders.IDLE, rows=[real]))
    played = Grid(columns=holders.IDLE, rows=[real, (*real[:-2], SIMULATED_CLUSTER, False)])
    assert drawn(played).count("SIMULATED: no real hardware") == 1
