"""What waits in a node's own queue of a port, before it ever reaches the wire."""

from dataclasses import replace

import pytest

from analyzer.detectors.port_congested import DETECTOR as CONGESTED
from analyzer.evidence.waits_less import would_show_waiting
from gpuvigil.model import Finding, PortIdentity

from .scene import Scene, allocation, carrying, incident, node, port, told
from .test_port_waits import EVERY, FLEET

QUEUE, HELD_BACK = "transmit_queue_bytes", "transmit_held_back"
# Of 1e9 bytes a second 60 % are left for 400 s of the 600 s that are looked at.
SLOWER = carrying(FLEET, EVERY, 0.4, 400.0)
SENT = 1e9 * (200.0 + 0.6 * 400.0) / 600.0


def congested(scene: Scene) -> list[Finding]:
    return CONGESTED.find(scene.window((CONGESTED,)))


def queued(scene: Scene, milliseconds: float, seconds: float = 400.0) -> Scene:
    """One port's packets wait so long in the mean of ten minutes, all of it in the last `seconds`."""
    scene = scene.changed(port(), {QUEUE: 0})
    waiting = milliseconds / 1e3 * SENT * 600.0 / seconds
    return scene.changed(port(), {QUEUE: round(waiting)}, seconds)


def test_a_port_whose_packets_wait_in_its_node_is_told_with_how_long() -> None:
    (it,) = congested(queued(SLOWER, 5.0))
    assert (it.fault, it.subject, it.condition) == ("port_congested", port(), "")
    assert told(it) == (
        "warning; waits in the node's queue: 5 ms (limit 1 ms); traffic: 26 % less than before;"
        " its job: job 7; beyond the port: not observable without switch counters"
    )


@pytest.mark.parametrize(("milliseconds", "is_told"), [(0.93, False), (1.07, True)])
def test_a_wait_of_a_millisecond_is_told(milliseconds: float, is_told: bool) -> None:
    assert bool(congested(queued(SLOWER, milliseconds))) is is_told


@pytest.mark.parametrize(("times", "is_told"), [(3.7, False), (4.3, True)])
def test_a_queue_is_held_against_what_it_was(times: float, is_told: bool) -> None:
    usual = 2e-3 * 1e9
    scene = SLOWER.changed(port(), {QUEUE: round(usual)})
    late = (times * 2e-3 * SENT * 600.0 - usual * 200.0) / 400.0
    assert bool(congested(scene.changed(port(), {QUEUE: round(late)}, 400.0))) is is_told


def test_a_queue_that_costs_nothing_is_no_fault() -> None:
    assert congested(queued(carrying(FLEET, EVERY, 0.0), 50.0)) == []


def test_what_waited_before_the_last_minute_is_over() -> None:
    assert congested(queued(SLOWER, 5.0).changed(port(), {QUEUE: 0}, 60.0)) == []


def test_what_the_node_itself_holds_back_is_said_and_nothing_beyond_the_port() -> None:
    scene = queued(SLOWER, 5.0).changed(port(), {HELD_BACK: 0})
    (it,) = congested(scene.turned(port(), HELD_BACK, 0.0, 1500.0, 400.0))
    assert (it.subject, it.condition) == (port(), "shaped")
    assert it.title == "Traffic shaper on the node slows a network port"
    assert told(it) == (
        "warning; waits in the node's queue: 5 ms (limit 1 ms);"
        " held back by a traffic shaper: 992 times a second;"
        " traffic: 26 % less than before; its job: job 7"
    )


@pytest.mark.parametrize(("before", "is_shaped"), [(300.0, True), (400.0, False)])
def test_a_shaper_that_always_holds_back_is_no_cause(before: float, is_shaped: bool) -> None:
    scene = queued(SLOWER, 5.0).changed(port(), {HELD_BACK: 0})
    (it,) = congested(scene.turned(port(), HELD_BACK, before, 2000.0, 400.0))
    assert (it.condition == "shaped") is is_shaped


def test_who_is_stopped_from_beyond_the_port_is_not_held_back_by_its_node() -> None:
    scene = SLOWER
    for one in EVERY:
        scene = scene.changed(one, {QUEUE: 0, HELD_BACK: 0})
        scene = scene.changed(one, {QUEUE: 10_000_000}, 400.0)
        scene = scene.turned(one, HELD_BACK, 0.0, 1500.0, 400.0)
        scene = scene.turned(one, "receive_pause_microseconds", 1_000.0, 300_000.0, 400.0)
    assert [(it.fault, it.condition) for it in congested(scene)] == [("switch_congested", "")]


def test_a_node_s_own_shaper_is_told_by_the_longer_look() -> None:
    scene = queued(carrying(FLEET, EVERY, 0.4), 500.0, 60.0).changed(port(), {HELD_BACK: 0})
    assert congested(scene.turned(port(), HELD_BACK, 0.0, 1500.0, 60.0)) == []


@pytest.mark.medium
@pytest.mark.parametrize(("size", "is_told"), [(65_000, False), (66_000, True)])
def test_a_single_segment_is_no_queue(size: int, is_told: bool) -> None:
    slow = FLEET
    for way in ("receive_bytes", "transmit_bytes"):
        for one in EVERY:
            slow = slow.turned(one, way, 30e6, 15e6, 700.0)
    slow = replace(slow, allocations=SLOWER.allocations).changed(port(), {QUEUE: 0})
    assert bool(congested(slow.changed(port(), {QUEUE: size}, 700.0))) is is_told


@pytest.mark.medium
@pytest.mark.parametrize(("sent", "is_told"), [(0.9e6, False), (1.1e6, True)])
def test_where_next_to_nothing_is_sent_nothing_waits(sent: float, is_told: bool) -> None:
    slow = FLEET
    for one in EVERY:
        slow = slow.turned(one, "receive_bytes", 30e6, 15e6, 700.0)
        slow = slow.turned(one, "transmit_bytes", 30e6, sent, 700.0)
    slow = replace(slow, allocations=SLOWER.allocations).changed(port(), {QUEUE: 0})
    assert bool(congested(slow.changed(port(), {QUEUE: 200_000}, 700.0))) is is_told


def test_ports_that_their_nodes_hold_back_are_no_leaf_s() -> None:
    scene = SLOWER
    for one in EVERY:
        scene = scene.changed(one, {QUEUE: 0, HELD_BACK: 0})
        scene = scene.changed(one, {QUEUE: 10_000_000}, 400.0)
        scene = scene.turned(one, HELD_BACK, 0.0, 1500.0, 400.0)
    assert [(it.subject, it.condition) for it in congested(scene)] == [
        (one, "shaped") for one in EVERY
    ]


def as_ethernet(scene: Scene, *roles: str) -> Scene:
    """Every node's ports are Ethernet's; the first is of the first role, the others carry nothing."""

    def changed(ports: tuple[PortIdentity, ...]) -> tuple[PortIdentity, ...]:
        (first,) = ports
        return tuple(
            replace(
                first,
                device=first.device if not place else f"eth{place}",
                kind="ethernet",
                role=role,
            )
            for place, role in enumerate(roles)
        )

    found = tuple(replace(it, ports=changed(it.ports)) for it in scene.inventories)
    return replace(scene, inventories=found)


@pytest.mark.parametrize(("roles", "is_told"), [
    (("storage", "management"), True),
    (("management",), True),
    (("management", "storage"), False),
    (("storage", "fabric"), False),
])  # fmt: skip
def test_without_rdma_jobs_talk_through_ethernet(roles: tuple[str, ...], is_told: bool) -> None:
    assert bool(congested(as_ethernet(queued(SLOWER, 5.0), *roles))) is is_told


def active(scene: Scene) -> bool:
    window = scene.window((CONGESTED,))
    return would_show_waiting(window, incident("port_congested", port()))


@pytest.mark.parametrize(("share", "is_over"), [(0.4, True), (0.6, False)])
def test_it_is_over_when_half_as_much_waits(share: float, is_over: bool) -> None:
    scene = FLEET.changed(port(), {QUEUE: 10_000_000, "receive_pause_microseconds": 0})
    scene = scene.changed(port(), {"transmit_wait_ticks": 0})
    assert active(scene.changed(port(), {QUEUE: round(share * 1e7)}, 60.0)) is is_over


def test_a_job_that_begins_to_wait_for_nobody_is_none_of_it() -> None:
    scene = replace(queued(SLOWER, 5.0), allocations=(allocation(node(), "job 7"),))
    assert congested(scene) == []
