"""A host with fewer rails than its peers is a note; a cluster that is built so says nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.detectors.rail_missing import DETECTOR
from gpuvigil.model import Finding, Inventory, Severity, Subject

from .scene import NOON, Scene, healthy, incident, inventory, node, port, told
from .test_port_miswired import RAILS, at

SECOND = timedelta(seconds=1)
SIX = healthy(nodes=6, seconds=300)
SHORT = RAILS[:3]


def host(number: int, leaves: Sequence[str | None], age: float = 60.0) -> Inventory:
    return replace(inventory(node(number)), at=NOON - age * SECOND, ports=at(*leaves))


def scene(
    odd: Mapping[int, Sequence[str | None]],
    hosts: int = 6,
    usual: Sequence[str | None] = RAILS,
    age: float = 60.0,
) -> Scene:
    """Numbers come from the first rail of the first nodes."""
    found = [host(number, odd.get(number, usual), age) for number in range(1, hosts + 1)]
    return replace(SIX, inventories=tuple(found))


def find(of: Scene) -> list[Finding]:
    return DETECTOR.find(of.window((DETECTOR,)))


def changed(of: Scene, number: int, **more: object) -> Scene:
    hosts = [replace(it, **more) if it.subject == node(number) else it for it in of.inventories]  # type: ignore[arg-type]
    return replace(of, inventories=tuple(hosts))


def test_a_host_with_one_rail_fewer_is_a_note_that_says_which() -> None:
    (found,) = find(scene({2: SHORT}))
    assert (found.fault, found.subject, found.severity) == ("rail_missing", node(2), Severity.INFO)
    assert told(found) == ("info; missing: no port at mlx5_3; complete: 5 of 6 hosts")
    # Where nobody knows a switch, the names of ports say it.
    assert len(find(scene({2: (None,) * 3}, usual=(None,) * 4))) == 1


def test_a_port_that_was_never_up_is_no_rail() -> None:
    ports = at(*RAILS)
    dark = replace(ports[3], was_up=False, switch=None, switch_port=None)
    (found,) = find(changed(scene({}), 2, ports=(*ports[:3], dark)))
    assert "missing: mlx5_3 was never up" in told(found)


@pytest.mark.parametrize(("hosts", "expected"), [(4, 0), (5, 1)])
def test_of_fewer_than_five_hosts_nothing_is_said(hosts: int, expected: int) -> None:
    assert len(find(scene({2: SHORT}, hosts))) == expected


@pytest.mark.parametrize(("short", "expected"), [(2, 2), (3, 0), (15, 0), (30, 0)])
def test_more_than_two_hosts_that_lack_the_same_are_built_so(short: int, expected: int) -> None:
    """Of thirty; numbers come from the first six, and of a host without any nothing is said."""
    assert len(find(scene(dict.fromkeys(range(1, short + 1), SHORT), hosts=30))) == expected


def test_hosts_that_are_built_otherwise_may_have_other_rails() -> None:
    other = tuple(replace(it, model="L40S") for it in inventory(node(2)).gpus)
    assert find(changed(scene({2: SHORT}), 2, gpus=other)) == []
    assert find(changed(scene({2: SHORT}), 2, gpus=())) == []


@pytest.mark.parametrize(("age", "expected"), [(181.0, 0), (179.0, 1)])
def test_just_after_its_links_came_up_nothing_is_said(age: float, expected: int) -> None:
    """The first line is 300 s old; two minutes later the others are there."""
    assert len(find(scene({2: SHORT}, age=age))) == expected


def test_a_host_whose_other_links_come_and_go_is_being_worked_on() -> None:
    assert find(scene({2: SHORT}).changed(port(2), {"up": 0}, 15)) == []
    assert find(scene({2: SHORT}).without(lambda it: it.subject == port(2))) == []


def test_a_port_that_went_away_is_told_as_that() -> None:
    gone = Subject(cluster="c", node="node-2", device="mlx5_3", port="1")
    of = scene({2: SHORT})
    assert find(replace(of, recent_incidents=(incident("port_down", gone),))) == []
    assert len(find(replace(of, recent_incidents=(incident("port_down", port(2)),)))) == 1


def test_it_stands_while_there_are_others_to_compare_it_with() -> None:
    shows = DETECTOR.would_show
    assert shows is not None
    stands = incident("rail_missing", node(2))
    for hosts, expected in ((5, True), (4, False)):
        window = scene({2: SHORT}, hosts).window((DETECTOR,))
        assert shows(window, stands) is expected
