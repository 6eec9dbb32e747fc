"""Which ports that wait are one matter: by their leaf, by jobs, and by what nobody knows."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.detectors.port_congested import DETECTOR as CONGESTED
from analyzer.evidence.port_groups import leaf_of
from gpuvigil.model import Finding, Subject

from .scene import NOON, SETTINGS, Scene, allocation, healthy, node, port
from .test_port_waits import PAUSED, active, with_more_ports

MINUTES = replace(SETTINGS, steady_seconds=600.0, trend_seconds=1800.0)
FLEET = replace(healthy(nodes=12, seconds=1900.0), settings=MINUTES)
A, B, C = (1, 2, 3, 4), (5, 6, 7, 8), (9, 10, 11, 12)


def at(scene: Scene, *leaves: str | None) -> Scene:
    """Four nodes after each other have their ports at each of these leaves."""
    found = tuple(
        replace(one, ports=tuple(replace(it, switch=leaves[number // 4]) for it in one.ports))
        for number, one in enumerate(scene.inventories)
    )
    return replace(scene, inventories=found)


def jobs(scene: Scene, *jobs: Sequence[int]) -> Scene:
    """Each runs on these nodes, whose ports carry 1 GB a second."""
    held = [
        allocation(replace(node(number), gpu=f"GPU-{number}-0"), f"job {name}")
        for name, numbers in enumerate(jobs, 1)
        for number in numbers
    ]
    return replace(scene, allocations=tuple(held))


def waiting(
    scene: Scene,
    numbers: Sequence[int],
    lost: float = 0.4,
    seconds: float = 400.0,
    share: float = 0.3,
) -> Scene:
    """So many seconds ago their ports began to wait for 30 % of the time, and to carry less."""
    for number in numbers:
        scene = scene.turned(port(number), PAUSED, 1_000.0, share * 1e6, seconds)
        for way in ("receive_bytes", "transmit_bytes"):
            scene = scene.turned(port(number), way, 1e9, 1e9 * (1.0 - lost), seconds)
    return scene


def congested(scene: Scene) -> list[Finding]:
    return CONGESTED.find(scene.window((CONGESTED,)))


def groups(scene: Scene) -> list[tuple[str, list[int]]]:
    """What is told, with the numbers of the nodes."""
    return [
        (it.fault, sorted(int((one.node or "")[5:]) for one in {it.subject, *it.members}))
        for it in congested(scene)
    ]


ALL = waiting(FLEET, (*A, *B, *C))
LEAF = "switch_congested"
# The other end of the first port's cable.
END = Subject(cluster="c", node="leaf1", device="switch", port="40")


def test_two_jobs_that_wait_at_two_leaves_are_two_matters() -> None:
    two = at(jobs(waiting(FLEET, (*A, *B)), A, B), "leaf1", "leaf2", "leaf3")
    assert groups(two) == [(LEAF, [*A]), (LEAF, [*B])]


def test_three_jobs_that_wait_at_one_leaf_are_one_matter() -> None:
    three = jobs(ALL, A, B, C)
    everyone = [*A, *B, *C]
    assert groups(at(three, "leaf1", "leaf1", "leaf1")) == [(LEAF, everyone)]
    # Where no leaf is known, ports of one name are taken to be at one.
    assert groups(three) == [(LEAF, everyone)]


@pytest.mark.medium
def test_a_job_that_waits_at_two_leaves_makes_one_matter_of_them() -> None:
    (it,) = congested(at(jobs(ALL, (*A, *B, *C)), "leaf1", "leaf2", "leaf3"))
    assert (it.fault, it.condition, len(it.members)) == (LEAF, "nodes_wait", 11)
    assert it.title == "Network congestion slows several nodes"


@pytest.mark.parametrize(("far", "is_one"), [(2, True), (3, False)])
def test_four_fifths_of_the_ports_at_one_leaf_make_it_the_leaf_s(far: int, is_one: bool) -> None:
    numbers = (*A, *B, *C[:far])
    scene = jobs(waiting(FLEET, numbers), numbers)
    (it,) = congested(at(scene, "leaf1", "leaf1", "leaf2"))
    assert (it.condition == "") is is_one


@pytest.mark.medium
def test_rails_of_unrelated_jobs_are_told_each() -> None:
    """Of four nodes the first port waits, of four others the second one."""
    scene = with_more_ports(jobs(waiting(FLEET, (*A, *B)), A, B), ["mlx5_1"])
    quiet = {PAUSED: 0}
    for number in A:
        scene = scene.changed(replace(port(number), device="mlx5_1"), quiet)
    for number in B:
        scene = scene.changed(port(number), quiet)
    found = [(it.subject.device, it.condition) for it in congested(scene)]
    assert found == [("mlx5_0", ""), ("mlx5_1", "")]


@pytest.mark.medium
@pytest.mark.parametrize("known", [True, False])
def test_nodes_of_unrelated_jobs_at_other_leaves_are_told_each(known: bool) -> None:
    """All ports of three nodes wait; each node's job has another node, whose ports do not."""
    scene = jobs(waiting(FLEET, (1, 5, 9)), (1, 2), (5, 6), (9, 10))
    scene = with_more_ports(scene, ["mlx5_1"])
    leaves = ("leaf1", "leaf2", "leaf3") if known else (None, None, None)
    found = congested(at(scene, *leaves))
    if known:
        assert [(it.subject, it.condition) for it in found] == [
            (node(number), "node_network") for number in (1, 5, 9)
        ]
    else:
        (it,) = found
        assert (it.fault, it.condition, len(it.members)) == (LEAF, "nodes_wait", 5)


def test_two_ports_of_a_leaf_are_told_once() -> None:
    two = at(jobs(waiting(FLEET, A[:2]), A), "leaf1", "leaf2", "leaf3")
    assert groups(two) == [(LEAF, [1, 2])]
    other = jobs(waiting(FLEET, (1, 5)), A, B)
    assert groups(at(other, "leaf1", "leaf1", "leaf3")) == [(LEAF, [1, 5])]
    alone = [("port_congested", [1]), ("port_congested", [5])]
    assert groups(at(other, "leaf1", "leaf2", "leaf3")) == alone
    # Of two of unrelated jobs nobody knows that they share a leaf.
    assert groups(other) == alone


def test_ports_of_a_job_on_other_rails_are_told_each() -> None:
    scene = with_more_ports(jobs(waiting(FLEET, A), A), ["mlx5_1"])
    for number, device in ((1, "mlx5_1"), (2, "mlx5_0"), (3, "mlx5_0"), (3, "mlx5_1"), (4, "mlx5_0"), (4, "mlx5_1")):  # fmt: skip
        scene = scene.changed(replace(port(number), device=device), {PAUSED: 0})
    assert groups(scene) == [("port_congested", [1]), ("port_congested", [2])]


@pytest.mark.parametrize(("lost", "others"), [(0.060, [2, 3]), (0.050, [])])
def test_ports_that_wait_and_lost_half_of_what_is_told_say_that_one_is_not_alone(
    lost: float, others: list[int]
) -> None:
    """Over ten minutes two thirds of what is lost: 4 % and 3.3 %, and 3.5 % say it."""
    scene = jobs(waiting(waiting(FLEET, (1,)), (2, 3), lost, share=0.15), A)
    assert groups(scene) == [(LEAF if others else "port_congested", [1, *others])]


def test_ports_that_lost_too_little_are_not_told_by_themselves() -> None:
    assert groups(jobs(waiting(FLEET, A, 0.060), A)) == []


@pytest.mark.medium
def test_one_more_that_waits_is_no_matter_of_its_own_where_its_leaf_is_told() -> None:
    scene = at(jobs(waiting(FLEET, (8,)), A, B), "leaf1", "leaf2", "leaf2")
    here, elsewhere = active(LEAF, port(5), [port(6), port(7)]), active(LEAF, port(1))
    assert groups(replace(scene, recent_incidents=(here,))) == []
    assert groups(replace(scene, recent_incidents=(elsewhere,))) == [("port_congested", [8])]
    over = replace(here, resolved_at=NOON - timedelta(minutes=1))
    assert groups(replace(scene, recent_incidents=(over,))) == [("port_congested", [8])]


def test_a_leaf_that_is_not_said_is_the_one_where_that_port_of_its_rack_is() -> None:
    scene = at(FLEET, "leaf1", "leaf1", "leaf2")
    racks = ["r1"] * 8 + ["r2"] * 4
    found = [replace(one, rack=rack) for one, rack in zip(scene.inventories, racks, strict=True)]
    (only,) = found[7].ports
    found[7] = replace(found[7], ports=(replace(only, switch=None),))
    window = replace(scene, inventories=tuple(found)).window((CONGESTED,))
    assert [leaf_of(window, port(number)) for number in (1, 8, 9)] == ["leaf1", "leaf1", "leaf2"]
    nobody: Subject = replace(port(1), cluster="other")
    assert leaf_of(window, nobody) is None


@pytest.mark.parametrize(
    ("fault", "of", "condition", "called_by"),
    [
        ("port_module", port(1), "", 2),
        ("port_errors", port(1), "", 2),
        ("port_congested", node(1), "node_network", 2),
        ("port_congested", port(1), "slow_link", 2),
        # What has waited first is of the same matter; another port's fault, or what is no link's, is not.
        ("port_congested", port(1), "", 1),
        ("port_congested", port(1), "drops", 1),
        ("port_errors", port(5), "", 1),
        ("port_errors", END, "", 2),
        ("gpu_hot", node(1), "", 1),
    ],
)
def test_a_leaf_is_called_by_a_port_without_a_fault_of_its_own(
    fault: str, of: Subject, condition: str, called_by: int
) -> None:
    scene = at(jobs(waiting(FLEET, A), A), "leaf1", "leaf2", "leaf3")
    members = [port(1)] if of == END else []
    known = replace(active(fault, of, members), condition=condition)
    (it,) = congested(replace(scene, recent_incidents=(known,)))
    assert (it.fault, it.subject, len(it.members)) == (LEAF, port(called_by), 3)
    (over,) = congested(replace(scene, recent_incidents=(replace(known, resolved_at=NOON),)))
    assert over.subject == port(1)


def test_where_every_port_of_a_leaf_has_a_fault_of_its_own_the_first_is_its_name() -> None:
    scene = at(jobs(waiting(FLEET, A), A), "leaf1", "leaf2", "leaf3")
    known = tuple(active("port_errors", port(number)) for number in A)
    (it,) = congested(replace(scene, recent_incidents=known))
    assert it.subject == port(1)
