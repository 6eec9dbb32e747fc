"""Which ports a switch took along, to the last microsecond and the last node, and what is said of it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.detectors.switch_down import AT_ONCE, DETECTOR, switches_down
from gpuvigil.model import EventKind, Finding, PortIdentity, Subject

from .scene import NOON, Scene, event, healthy, incident, node, port
from .test_port_drops import lost, with_two_ports

SECOND, MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)
WENT = NOON - 40 * SECOND
FOUR = healthy(nodes=4, seconds=100.0, gpus=0)


def found(scene: Scene) -> list[Finding]:
    return switches_down(scene.window((DETECTOR,)))


def ports_of(scene: Scene) -> list[set[Subject]]:
    return [{it.subject, *it.members} for it in found(scene)]


def racked(scene: Scene, size: int) -> Scene:
    """Each rack has so many nodes."""
    return replace(
        scene,
        inventories=tuple(
            replace(it, rack=f"r{number // size}") for number, it in enumerate(scene.inventories)
        ),
    )


@pytest.mark.parametrize(("after", "count"), [(-MICROSECOND, 0), (0 * SECOND, 1), (SECOND, 1)])
def test_a_younger_line_that_says_up_takes_a_port_out(after: timedelta, count: int) -> None:
    """The newest lines are forty seconds old."""
    old = FOUR.without(lambda s: s.subject.kind == "port" and s.at > WENT)
    words = [event(EventKind.PORT_DOWN, port(n), WENT + after) for n in (1, 2, 3)]
    assert len(found(old.with_events(*words))) == count


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({"up": 0}, 1),
        ({"up": 0, "enabled": 1}, 1),
        ({"up": 0, "enabled": 0}, 0),
        ({"up": 1}, 0),
        ({"up": None}, 0),
    ],
)
def test_a_younger_line_must_say_that_a_port_is_down_and_wanted(
    fields: Mapping[str, Any], count: int
) -> None:
    scene = FOUR
    for number in (1, 2, 3):
        scene = scene.changed(port(number), fields, 40)
        scene = scene.with_events(event(EventKind.PORT_DOWN, port(number), WENT))
    assert len(found(scene)) == count
    unread = scene.without(lambda s: s.subject.kind == "port")
    assert len(found(unread)) == 1
    # One that came up since is no part of it, nor is one that is no fabric's.
    up = event(EventKind.PORT_UP, port(1), WENT + SECOND)
    assert found(unread.with_events(up)) == []
    management = tuple(
        replace(it, ports=tuple(replace(p, role="management") for p in it.ports))
        for it in unread.inventories
    )
    assert found(replace(unread, inventories=management)) == []


@pytest.mark.parametrize(
    ("fell_before", "stood", "taken"),
    [
        (195, "", True),
        (215, "", False),
        (215, "switch_down", True),
        # Its cable was gone before.
        (125, "port_down", False),
    ],
)
def test_a_node_that_tells_no_events_loses_its_port_with_those_of_its_rack(
    fell_before: int, stood: str, taken: bool
) -> None:
    scene = racked(healthy(nodes=5, seconds=300.0, gpus=0), 5).changed(
        port(5), {"up": 0}, fell_before
    )
    scene = lost(scene, 1, 2, 3)
    [one] = found(scene)
    assert port(5) not in ports_of(racked(scene, 1))[0]
    window = scene.window((DETECTOR,))
    if stood:
        subject = one.subject if stood == one.fault else port(5)
        told = replace(incident(stood, subject), members=(port(5).key,))
        window = replace(window, recent_incidents=(told,))
    [one] = switches_down(window)
    ports = {one.subject, *one.members}
    assert (port(5) in ports) is taken
    assert port(4) not in ports  # it is up
    up = scene.changed(port(5), {"up": 1}, 25)
    assert port(5) not in ports_of(up)[0]


@pytest.mark.parametrize(("size", "numbers"), [(6, {1, 2, 3}), (7, {1, 2, 3, 8})])
def test_half_of_a_racks_nodes_are_what_a_leaf_takes(size: int, numbers: Collection[int]) -> None:
    scene = racked(healthy(nodes=14, seconds=60.0, gpus=0), size)
    assert ports_of(lost(scene, 1, 2, 3, 8)) == [{port(n) for n in numbers}]


@pytest.mark.parametrize(("others", "by_rail"), [((), True), ((1,), True), ((1, 2), False)])
def test_a_rail_is_told_where_fewer_than_half_of_its_nodes_have_nothing_left(
    others: Sequence[int], by_rail: bool
) -> None:
    """Four nodes lose a port, of which some have no other one."""
    both = with_two_ports(FOUR)
    scene = replace(
        both,
        inventories=tuple(
            replace(it, ports=it.ports[:1]) if int(it.subject.node[5:]) in others else it
            for it in both.inventories
        ),
    )
    (it,) = found(lost(scene, 1, 2, 3, 4))
    assert (it.title, it.condition) == (("", "") if by_rail else (AT_ONCE, "ports_at_once"))
    said = {one.name: one.value for one in it.evidence}
    assert said["nodes without any fabric port"] == f"{len(others)} of 4"
    assert "last port down" not in said
    assert "fell silent with it" not in said


@pytest.mark.parametrize(
    ("racks", "is_known"),
    [(("a", "a", "a"), True), (("a", "a", "b"), False), ((None, None, None), False)],
)
def test_nodes_of_one_rack_that_lose_all_their_ports_have_lost_their_switch(
    racks: Sequence[str | None], is_known: bool
) -> None:
    scene = healthy(nodes=3, seconds=60.0, gpus=0)
    named = tuple(replace(it, rack=rack) for it, rack in zip(scene.inventories, racks, strict=True))
    (it,) = found(lost(replace(scene, inventories=named), 1, 2, 3))
    assert (it.title == "") is is_known


@pytest.mark.parametrize(("nodes", "more"), [(8, ""), (9, " and 1 more"), (11, " and 3 more")])
def test_no_more_than_eight_nodes_are_named(nodes: int, more: str) -> None:
    scene = lost(healthy(nodes=nodes, seconds=60.0, gpus=0), *range(1, nodes + 1))
    (it,) = found(scene)
    names = sorted(node(n).node for n in range(1, nodes + 1))[:8]
    said = {one.name: one.value for one in it.evidence}
    assert said["ports down"] == f"mlx5_0 of {nodes} nodes: {', '.join(names)}{more}"


@pytest.mark.parametrize("rack", [None, "r0"])
def test_two_nodes_are_a_switch_where_their_rack_has_no_third_with_such_a_port(
    rack: str | None,
) -> None:
    scene = racked(healthy(nodes=4, seconds=60.0, gpus=0), 4)
    other = PortIdentity(device="eth9", port="1", kind="ethernet", role="fabric", was_up=True)
    without = tuple(
        replace(it, rack=rack, ports=(other,)) if number >= 2 else replace(it, rack=rack)
        for number, it in enumerate(scene.inventories)
    )
    pair = replace(scene, inventories=without).without(
        lambda s: s.subject.kind == "port" and s.subject.of_node() in {node(3), node(4)}
    )
    assert ports_of(lost(pair, 1, 2)) == ([{port(1), port(2)}] if rack else [])
    # One more that has it up says that these are two cables.
    three = replace(scene, inventories=tuple(replace(it, rack=rack) for it in scene.inventories))
    assert ports_of(lost(three, 1, 2)) == []
