"""Which ports that send packets again are one matter, what it is called, and what explains it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from analyzer.correlation.correlate import observe
from analyzer.detectors.port_losses import DETECTOR as LOSSES
from analyzer.window.window import Window
from gpuvigil.model import Finding, Incident, Subject

from .scene import Scene, incident, port
from .test_ethernet_switches import HOSTS, fabric, hearing
from .test_port_groups import FLEET, at, jobs

ONE_LEAF = ("leaf1", "leaf1", "leaf2")


def losing(
    scene: Scene, numbers: Sequence[int], per_second: float = 90.0, lost: float = 0.3
) -> Scene:
    """For the last minute these nodes' ports send again, and carry less."""
    for number in numbers:
        scene = scene.turned(port(number), "retransmits", 0.0, per_second, 70.0)
        for way in ("receive_bytes", "transmit_bytes"):
            scene = scene.turned(port(number), way, 1e9, 1e9 * (1.0 - lost), 70.0)
    return scene


def window(scene: Scene, *stood: Incident) -> Window:
    return replace(scene, recent_incidents=stood).window((LOSSES,))


def found(scene: Scene, *stood: Incident) -> list[Finding]:
    return LOSSES.find(window(scene, *stood))


def nodes(it: Finding) -> list[int]:
    return sorted(int((one.node or "")[5:]) for one in {it.subject, *it.members})


def active(number: int, *more: int, fault: str = "port_packet_loss") -> Incident:
    members = tuple(port(it).key for it in (number, *more))
    known = replace(incident(fault, port(number)), members=members)
    return replace(known, condition="nodes_lose" if more else "")


@pytest.mark.parametrize(
    ("numbers", "leaves", "told"),
    [
        # One leaf, whatever jobs are there; two are enough where it is known.
        ((1, 2, 6), ONE_LEAF, [([1, 2, 6], "leaf_loses")]),
        ((1, 6), ONE_LEAF, [([1, 6], "leaf_loses")]),
        # Two leaves that no job has in common are two matters.
        ((1, 2, 9, 10), ONE_LEAF, [([1, 2], "leaf_loses"), ([9, 10], "leaf_loses")]),
        ((1, 9), ONE_LEAF, [([1], ""), ([9], "")]),
        # Where no leaf is known, ports of one name may be at one: three at once are no chance.
        ((1, 5, 9), (None, None, None), [([1, 5, 9], "nodes_lose")]),
        ((1, 5), (None, None, None), [([1], ""), ([5], "")]),
        # A job over both is enough.
        ((1, 2), (None, None, None), [([1, 2], "nodes_lose")]),
    ],
)
def test_ports_at_one_leaf_or_of_one_job_that_lose_packets_are_one_matter(
    numbers: Sequence[int], leaves: Sequence[str | None], told: list[tuple[list[int], str]]
) -> None:
    scene = jobs(losing(FLEET, numbers), (1, 2, 3, 4), (5, 6, 7, 8), (9, 10, 11, 12))
    assert [(nodes(it), it.condition) for it in found(at(scene, *leaves))] == told


def test_a_job_over_two_leaves_makes_one_matter_of_them_that_is_no_leaf_s() -> None:
    scene = at(jobs(losing(FLEET, (1, 9)), (1, 2, 9, 10)), *ONE_LEAF)
    (it,) = found(scene)
    assert (nodes(it), it.condition) == ([1, 9], "nodes_lose")
    assert it.title == "Packets get lost between several nodes"
    said = {one.name: one.value for one in it.evidence}
    assert said["packets sent again per second"] == "node-1 mlx5_0 90, node-9 mlx5_0 90"
    assert said["which link"] == "hosts cannot tell; these ports share it"
    assert abs(it.lost - 0.3) < 0.02


def test_one_that_stands_goes_on_by_its_name_while_it_grows_and_while_one_port_is_left() -> None:
    scene = at(jobs(losing(FLEET, (1, 2)), (1, 2, 3, 4)), *ONE_LEAF)
    (it,) = found(scene, active(2))
    assert (it.subject, it.members) == (port(2), (port(1),))
    left = at(jobs(losing(FLEET, (1,)), (1, 2, 3, 4)), *ONE_LEAF)
    (it,) = found(left, active(2, 1))
    assert (it.subject, it.members, it.condition) == (port(2), (port(1),), "leaf_loses")
    # What is over, or was another port's, has no say.
    for other in (replace(active(2, 1), resolved_at=FLEET.now), active(5, 6)):
        (it,) = found(left, other)
        assert (it.subject, it.members, it.condition) == (port(1), (), "")


@pytest.mark.parametrize(
    ("fault", "first"), [("port_errors", 2), ("port_degraded", 2), ("port_congested", 1)]
)
def test_the_port_whose_own_fault_explains_it_has_its_name(fault: str, first: int) -> None:
    scene = at(jobs(losing(FLEET, (1, 2)), (1, 2, 3, 4)), *ONE_LEAF)
    cause = incident(fault, port(2))
    (it,) = found(scene, cause)
    assert it.subject == port(first)


def uplink() -> Incident:
    end = Subject(cluster="c", node="leaf1", device="switch", port="Ethernet1/49")
    return incident("port_errors", end)


def with_switches(scene: Scene, known: Incident) -> Window:
    heard = {
        key: hearing(it) if int((it.subject.node or "")[5:]) <= HOSTS else it
        for key, it in window(scene).inventories.items()
    }
    those = {it.subject.key: it for it in fabric().values()}
    return replace(window(scene, known), switches=those, inventories=heard)


@pytest.mark.medium
def test_a_cable_between_switches_that_counts_errors_explains_what_is_lost_at_its_leaf() -> None:
    known = uplink()
    seen = with_switches(jobs(losing(FLEET, (1, 2)), (1, 2, 3, 4)), known)
    (it,) = LOSSES.find(seen)
    assert (it.subject, it.members) == (known.subject, (port(1), port(2)))
    cable = Finding(
        fault="port_errors", subject=known.subject, severity=known.severity, since=known.since,
        evidence=(), detector="port_errors", action="", source="", own_limit=False,
    )  # fmt: skip
    (one,) = observe(seen, [cable, it], [known], {known.fingerprint}).candidates.values()
    assert one.finding.fault == "port_errors"
    assert one.impact.text == "job 1 of alice moves 30 % less data (4 GPUs on 4 nodes)"
    # A lone port may lose them on its own way, and at another leaf the cable takes nothing.
    (lone,) = LOSSES.find(with_switches(jobs(losing(FLEET, (1,)), (1, 2, 3, 4)), known))
    assert lone.subject == port(1)
    far = jobs(losing(FLEET, (5, 6)), (5, 6, 7, 8))
    (other,) = LOSSES.find(with_switches(far, known))
    assert other.subject == port(5)
