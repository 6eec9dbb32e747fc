"""What an incident is called in a line with other words."""

from dataclasses import replace

import pytest

from dashboard.model.short_label import LONGEST, short_label
from gpuvigil.model import Severity

from .scene import incident, node

LEAF = "switch leaf-01-0 (mlx5_0 of sim-000, sim-001, sim-002, sim-003 and 12 more nodes)"


def called(label: str, nodes: int = 1) -> str:
    one = incident("port_congested", node("sim-000"), Severity.WARNING, label=label)
    members = tuple(node(f"sim-{number:03d}").key for number in range(nodes))
    return short_label(replace(one, members=members))


def test_what_stands_in_brackets_is_left_out() -> None:
    assert called(LEAF, 16) == "switch leaf-01-0"
    assert called("4 links of leaf-01-0 (to spine-01, spine-02)", 1) == "4 links of leaf-01-0"


def test_of_several_nodes_without_a_name_for_all_the_first_and_how_many_more_are_named() -> None:
    assert called("mlx5_0 of sim-000, sim-001, sim-002, sim-003 and 12 more nodes", 16) == (
        "sim-000 and 15 more nodes"
    )
    assert called("a node with a name that is as long as only people can make them") == (
        "a node with a name that is as long as only people can make them"
    )
    assert called("", 2) == ""


@pytest.mark.parametrize(("length", "is_kept"), [(LONGEST, True), (LONGEST + 1, False)])
def test_a_label_that_has_room_is_not_shortened(length: int, is_kept: bool) -> None:
    label = "leaf (mlx5_0 of n1, n2)".ljust(length, "x")
    assert (called(label) == label) is is_kept
