"""A node that its job waits for while its leaf is full is the leaf's, also where its port counts no waits."""

from dataclasses import replace

import pytest

from analyzer.correlation.correlate import observe
from analyzer.correlation.full_leaves import slowed_by_leaves
from analyzer.detectors.port_congested import DETECTOR
from gpuvigil.model import Finding, Incident

from .scene import Scene, node, port
from .test_hides import told
from .test_port_groups import FLEET, A, at, jobs
from .test_port_waits import active

LEAF = active("switch_congested", port(1), [port(2), port(3)])
# A job over two leaves, and one of the second alone.
LONG, OTHER = (*A, 5), (6, 7)
KNOWN = at(jobs(FLEET, LONG, OTHER), "leaf1", "leaf2", "leaf3")
UNKNOWN = at(jobs(FLEET, LONG, OTHER), None, None, None)


def slow(number: int, condition: str = "whole_node") -> Finding:
    return told("gpu_slow", node(number), condition=condition)


def covered(scene: Scene, one: Finding, leaf: Incident = LEAF) -> bool:
    found = slowed_by_leaves(scene.window((DETECTOR,)), [one], [leaf])
    assert set(found) <= {one.fingerprint}
    assert {it.fingerprint for it in found.values()} <= {leaf.fingerprint}
    return bool(found)


@pytest.mark.parametrize(
    ("scene", "number", "expected"),
    [
        # At that leaf, and at another one: also for the same job.
        (KNOWN, 4, True),
        (KNOWN, 5, False),
        (KNOWN, 6, False),
        # Where nobody knows leaves, the job that waits there is the tie.
        (UNKNOWN, 4, True),
        (UNKNOWN, 5, True),
        (UNKNOWN, 6, False),
    ],
)
def test_a_slow_node_is_its_full_leaf_s(scene: Scene, number: int, expected: bool) -> None:
    assert covered(scene, slow(number)) is expected


def test_a_job_on_one_node_needs_no_leaf() -> None:
    assert not covered(at(jobs(FLEET, (1, 2, 3), (4,)), "leaf1", None, None), slow(4))
    assert not covered(at(jobs(FLEET, (1, 2, 3)), "leaf1", None, None), slow(4))


def test_what_has_a_reason_of_its_own_or_another_switch_is_not_covered() -> None:
    assert not covered(KNOWN, slow(4, "node_clocks"))
    assert not covered(KNOWN, told("gpu_hung", node(4), condition="whole_node"))
    lost = active("switch_down", port(1), [port(2), port(3)])
    assert not covered(KNOWN, slow(4), lost)


def test_ports_of_no_fabric_are_at_no_leaf() -> None:
    first, *_ = KNOWN.inventories
    for changed in ({"role": "storage"}, {"was_up": False}):
        ports = tuple(replace(it, **changed) for it in first.ports)
        others = tuple(
            replace(it, ports=ports) if it.subject == node(4) else it for it in KNOWN.inventories
        )
        assert not covered(replace(KNOWN, inventories=others), slow(4))


def test_nobody_is_told_of_it_beside_the_leaf() -> None:
    found = [slow(4), slow(8)]
    by_name = {it.fingerprint for it in found}
    seen = observe(KNOWN.window(), found, [LEAF], by_name)
    assert set(seen.candidates) == {slow(8).fingerprint}
    assert seen.covered[slow(4).fingerprint].fingerprint == LEAF.fingerprint
    nobody: list[Incident] = []
    assert set(observe(KNOWN.window(), found, nobody, by_name).candidates) == by_name
