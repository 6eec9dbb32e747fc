"""How many nodes a check may take out of service, whatever all of them find in the same second."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.check.slurm_drain import over_budget
from gpuvigil.schedulers.slurm_nodes import SlurmNode, most_out_of_service, nodes

IDLE, DRAINED = frozenset({"IDLE"}), frozenset({"IDLE", "DRAIN"})


def cluster(free: int, **drained_at: int | None) -> dict[str, SlurmNode]:
    """So many idle nodes, and those that were drained at these seconds."""
    known = {f"free{n}": SlurmNode(name=f"free{n}", states=IDLE) for n in range(free)}
    for name, at in drained_at.items():
        known[name] = SlurmNode(name=name, states=DRAINED, reason="x", reason_at=at)
    return known


@pytest.mark.parametrize(
    ("size", "percent", "most"), [(19, 5.0, 0), (20, 5.0, 1), (39, 5.0, 1), (40, 5.0, 2)]
)
def test_the_budget_is_whole_nodes(size: int, percent: float, most: int) -> None:
    assert most_out_of_service(size, percent) == most


def test_one_more_may_go_just_below_the_budget_and_none_at_it() -> None:
    below = cluster(19, bad=7)
    assert over_budget(below, "free0", 10.0) == ""
    at = cluster(18, bad=7, worse=8)
    assert over_budget(at, "free0", 10.0) == (
        "2 of 20 nodes are out of service, and actions.most_percent (10 %) allows 2"
    )
    assert over_budget(cluster(19, bad=7), "free0", 5.0).startswith("1 of 20 node is")


def test_who_was_out_first_stays_out_and_who_came_too_late_is_given_back() -> None:
    known = cluster(17, first=1, second=2, third=2)
    assert [over_budget(known, name, 10.0) == "" for name in ("first", "second", "third")] == [
        True,
        True,
        False,
    ]
    # What is down without anybody's reason was there before.
    known["down"] = SlurmNode(name="down", states=frozenset({"DOWN"}))
    assert over_budget(known, "first", 10.0) == ""
    assert over_budget(known, "second", 10.0)


def test_a_node_that_is_not_listed_any_more_may_not_be_out() -> None:
    assert over_budget(cluster(1, a=1, b=2), "gone", 50.0)


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=40),
    st.integers(0, 40),
    st.floats(0.0, 100.0),
    st.randoms(use_true_random=False),
)
def test_however_many_drain_at_once_exactly_the_budget_stays_out(
    seconds: list[int], free: int, percent: float, random: Random
) -> None:
    known = cluster(free, **{f"bad{n}": at for n, at in enumerate(seconds)})
    order = [f"bad{n}" for n in range(len(seconds))]
    random.shuffle(order)
    for name in order:  # each reads the list and gives itself back, one after another
        if over_budget(known, name, percent):
            known[name] = SlurmNode(name=name, states=IDLE)
    out = sum(one.out_of_service for one in known.values())
    assert out == min(len(seconds), most_out_of_service(len(known), percent))


def test_a_node_is_read_with_the_time_of_its_reason() -> None:
    shown = (
        "NodeName=n1 Arch=x86_64  State=MIXED+DRAIN ThreadsPerCore=1 Gres=gpu:h100:8(S:0-1)"
        " Reason=gpuvigil gpu_lost: GPU 3 [root@1795413528]\n"
        "NodeName=n2 State=x\n"
        "NodeName=n3  State=IDLE* Reason=no time\n"
        "nonsense"
    )
    found = nodes(shown)
    assert list(found) == ["n1", "n2", "n3"]
    assert found["n1"] == SlurmNode(
        name="n1",
        states=frozenset({"MIXED", "DRAIN"}),
        reason="gpuvigil gpu_lost: GPU 3",
        reason_at=1795413528,
        gpus=8,
    )
    assert found["n2"].out_of_service  # a state that nobody has heard of
    assert found["n3"].reason_at is None
    assert not found["n3"].out_of_service  # "*": it does not respond, which may pass
