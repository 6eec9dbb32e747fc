"""What waits in a node's own queue of a port, before it ever reaches the wire."""

from dataclasses import replace

import pytest

from analyzer.detectors.port_congested import DETECTOR as CONGESTED
from analyzer.detectors.port_congested import says_whether_it_waits
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
    assert it.title == "Network is slow: a traffic shaper on the node holds the port back"
    assert told(it) == (
        "warning; waits in the node's queue: 5 ms (limit 1 ms);"
        " held back by a traffic shaper: 992 times a second;"
        " traffic: 26 % less than before; its job: job 7"
    )


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


def standing(scene: Scene) -> bool:
    window = scene.window((CONGESTED,))
    return says_whether_it_waits(window, incident("port_congested", port()))


@pytest.mark.parametrize(("share", "is_over"), [(0.4, True), (0.6, False)])
def test_it_is_over_when_half_as_much_waits(share: float, is_over: bool) -> None:
    scene = FLEET.changed(port(), {QUEUE: 10_000_000, "receive_pause_microseconds": 0})
    scene = scene.changed(port(), {"transmit_wait_ticks": 0})
    assert standing(scene.changed(port(), {QUEUE: round(share * 1e7)}, 60.0)) is is_over


def test_a_job_that_begins_to_wait_for_nobody_is_none_of_it() -> None:
    scene = replace(queued(SLOWER, 5.0), allocations=(allocation(node(), "job 7"),))
    assert congested(scene) == []
