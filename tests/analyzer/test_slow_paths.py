"""Packets that wait beyond the port: whose cable it is, by who answers late to whom."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from analyzer.detectors.port_congested import DETECTOR as CONGESTED
from analyzer.evidence.waits_less import would_show_waiting
from gpuvigil.model import Finding

from .scene import Scene, carrying, incident, port, told
from .test_port_waits import EVERY, FLEET

DELAY = "round_trip_delay_seconds"
# Four nodes send to the next one; of 1e9 bytes a second 60 % are left for 400 s.
SLOWER = carrying(FLEET, EVERY, 0.4, 400.0).changed(port(1), {DELAY: 0.0002})


def addressed(scene: Scene, waits: Mapping[int, Sequence[int]], to: str = "10.0.0.{}") -> Scene:
    """Every node's port has an address; those of `waits` wait for the addresses of others."""

    def one(number: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return (f"10.0.0.{number}",), tuple(to.format(it) for it in waits.get(number, ()))

    found = []
    for inventory in scene.inventories:
        (only,) = inventory.ports
        addresses, waits_for = one(int(inventory.subject.node[5:]))
        ports = (replace(only, addresses=addresses, waits_for=waits_for),)
        found.append(replace(inventory, ports=ports))
    return replace(scene, inventories=tuple(found))


def late(waits: Mapping[int, Sequence[int]], delay: float = 0.06, seconds: float = 400.0) -> Scene:
    """Those who wait are answered so late in the last `seconds` of ten minutes, as its mean."""
    scene = SLOWER
    for number in (1, 2, 3, 4):
        scene = scene.changed(port(number), {DELAY: 0.0002})
        if number in waits:
            late = (delay * 600.0 - 0.0002 * (600.0 - seconds)) / seconds
            scene = scene.changed(port(number), {DELAY: late}, seconds)
    return addressed(scene, waits)


def congested(scene: Scene) -> list[Finding]:
    return CONGESTED.find(scene.window((CONGESTED,)))


def test_the_cable_that_all_late_paths_share_is_named() -> None:
    (it,) = congested(late({2: [3], 3: [4]}))
    assert (it.fault, it.subject, it.condition) == ("port_congested", port(3), "slow_link")
    assert it.title == "Network link to the switch is too slow for its traffic"
    assert told(it) == (
        "warning; answers to node-2 mlx5_0 are late by: 60 ms (limit 5 ms);"
        " answers to node-3 mlx5_0 are late by: 60 ms (limit 5 ms);"
        " traffic: 26 % less than before; its job: job 7"
    )


@pytest.mark.parametrize(("milliseconds", "is_told"), [(4.9, False), (5.1, True)])
def test_five_milliseconds_are_late(milliseconds: float, is_told: bool) -> None:
    assert bool(congested(late({2: [3], 3: [4]}, milliseconds / 1e3))) is is_told


@pytest.mark.parametrize(("times", "is_told"), [(3.9, False), (4.1, True)])
def test_answers_that_were_always_late_are_held_against_what_they_were(
    times: float, is_told: bool
) -> None:
    scene = late({2: [3], 3: [4]})
    for number in (2, 3):
        scene = scene.changed(port(number), {DELAY: 0.02})
        scene = scene.changed(port(number), {DELAY: 0.02 * (times * 1.5 - 0.5)}, 400.0)
    assert bool(congested(scene)) is is_told


def test_a_single_late_path_is_told_of_who_is_sent_to_with_what_it_may_be_else() -> None:
    (it,) = congested(late({2: [3]}))
    assert (it.subject, it.condition) == (port(3), "slow_link")
    assert "answers to node-2 mlx5_0 are late by" in told(it)
    assert "it may also be: a link between switches" in told(it)


def test_the_first_of_several_to_be_seen_waits_for_the_others() -> None:
    begun = late({3: [4]}).changed(port(2), {DELAY: 0.06}, 40.0)
    assert congested(begun) == []
    # A busy host answers a little late, and is no end of that path.
    assert congested(begun.changed(port(2), {DELAY: 0.02}, 60.0)) != []
    (it,) = congested(begun.changed(port(2), {DELAY: 0.0002}))
    assert it.subject == port(4)


def test_a_lone_path_waits_until_the_delays_of_all_ports_are_known() -> None:
    alone = late({3: [4]})
    assert congested(alone.changed(port(2), {DELAY: None}, 60.0)) == []
    # A port that never sends reports none.
    (it,) = congested(alone.changed(port(2), {DELAY: None}))
    assert it.subject == port(4)


@pytest.mark.parametrize(("milliseconds", "is_over"), [(4.9, True), (5.1, False)])
def test_a_link_known_by_others_late_answers_does_not_wait_for_its_own_to_fall(
    milliseconds: float, is_over: bool
) -> None:
    steady = FLEET.changed(port(), {DELAY: milliseconds / 1e3})
    stands = replace(incident("port_congested", port()), condition="slow_link")
    assert would_show_waiting(steady.window((CONGESTED,)), stands) is is_over


def test_of_two_that_wait_for_each_other_it_may_be_either() -> None:
    (it,) = congested(late({2: [3], 3: [2]}))
    assert (it.subject, it.condition) == (port(2), "slow_link")
    assert "it may also be: node-3 mlx5_0" in told(it)


SIX = carrying(FLEET, [port(number) for number in range(1, 7)], 0.4, 400.0)


def late_of_six(waits: Mapping[int, Sequence[int]]) -> Scene:
    scene = SIX
    for number in range(1, 7):
        scene = scene.changed(port(number), {DELAY: 0.0002})
        if number in waits:
            scene = scene.changed(port(number), {DELAY: 0.06}, 400.0)
    return addressed(scene, waits)


def test_a_lone_late_path_beside_a_port_that_several_are_late_for_is_not_told() -> None:
    found = congested(late_of_six({1: [2], 4: [5], 5: [6]}))
    assert [it.subject for it in found] == [port(5)]


def test_ports_of_one_name_of_three_nodes_are_their_leaf_s() -> None:
    (it,) = congested(late_of_six({1: [2], 3: [4], 5: [6]}))
    assert (it.fault, it.condition) == ("switch_congested", "")
    assert sorted({it.subject, *it.members}) == [port(2), port(4), port(6)]


@pytest.mark.parametrize("address", ["192.0.2.{}", "10.0.0.9{}"])
def test_who_is_not_of_the_job_is_not_waited_for(address: str) -> None:
    scene = late({2: [3], 3: [4]})
    assert congested(addressed(scene, {2: [3], 3: [4]}, address)) == []


def test_an_address_that_two_ports_have_is_nobody_s() -> None:
    scene = late({2: [3], 3: [4]})
    doubled = tuple(
        replace(it, ports=tuple(replace(of, addresses=("10.0.0.3",)) for of in it.ports))
        if it.subject.node == "node-5"
        else it
        for it in scene.inventories
    )
    # Nor is it known then whether another's late path leads to the same port.
    assert congested(replace(scene, inventories=doubled)) == []


def test_what_the_node_itself_keeps_waiting_is_told_of_it_alone() -> None:
    scene = late({2: [3], 3: [4]}).changed(port(3), {"transmit_queue_bytes": 0})
    scene = scene.changed(port(3), {"transmit_queue_bytes": 10_000_000}, 400.0)
    (it,) = congested(scene)
    assert (it.subject, it.condition) == (port(3), "")
    assert "waits in the node's queue" in told(it)


@pytest.mark.parametrize(("queue", "is_blamed"), [(16_300, True), (16_500, False)])
def test_nobody_else_is_blamed_while_the_node_s_own_queue_begins(
    queue: int, is_blamed: bool
) -> None:
    scene = late({2: [3]}).changed(port(2), {"transmit_queue_bytes": 0})
    scene = scene.changed(port(2), {"transmit_queue_bytes": queue}, 60.0)
    assert [it.subject for it in congested(scene)] == [port(3)] * is_blamed


@pytest.mark.parametrize(("times", "is_blamed"), [(3.9, True), (4.1, False)])
def test_a_queue_that_was_always_there_explains_nothing(times: float, is_blamed: bool) -> None:
    scene = late({2: [3]}).changed(port(2), {"transmit_queue_bytes": 10_000})
    scene = scene.changed(port(2), {"transmit_queue_bytes": int(times * 10_000)}, 60.0)
    assert [it.subject for it in congested(scene)] == [port(3)] * is_blamed


def test_late_answers_that_cost_nothing_are_no_fault() -> None:
    scene = late({2: [3], 3: [4]})
    busy = carrying(FLEET, EVERY, 0.0, 400.0)
    for number in (2, 3):
        busy = busy.changed(port(number), {DELAY: 0.0002})
        busy = busy.changed(port(number), {DELAY: 0.09}, 400.0)
    assert congested(replace(busy, inventories=scene.inventories)) == []


def test_what_is_answered_in_time_again_is_over() -> None:
    scene = late({2: [3], 3: [4]})
    for number in (2, 3):
        scene = scene.changed(port(number), {DELAY: 0.0002}, 60.0)
    assert congested(scene) == []


@pytest.mark.parametrize(("share", "is_over"), [(0.4, True), (0.6, False)])
def test_it_is_over_when_answers_are_half_as_late(share: float, is_over: bool) -> None:
    scene = FLEET.changed(port(), {DELAY: 0.06, "receive_pause_microseconds": 0})
    scene = scene.changed(port(), {"transmit_wait_ticks": 0})
    window = scene.changed(port(), {DELAY: share * 0.06}, 60.0).window((CONGESTED,))
    for condition in ("", "slow_link"):
        stands = replace(incident("port_congested", port()), condition=condition)
        assert would_show_waiting(window, stands) is is_over


def test_a_slow_link_is_not_over_because_a_queue_is_shorter() -> None:
    scene = FLEET.changed(port(), {DELAY: 0.06, "transmit_queue_bytes": 9_000_000})
    window = scene.changed(port(), {"transmit_queue_bytes": 0}, 60.0).window((CONGESTED,))
    stands = replace(incident("port_congested", port()), condition="slow_link")
    assert not would_show_waiting(window, stands)
    assert would_show_waiting(window, replace(stands, condition="shaped"))
