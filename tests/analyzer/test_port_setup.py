"""A port that lacks a GID or a partition of its peers: just below and just above each limit."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.detectors.port_setup import DETECTOR
from gpuvigil.model import Finding, Severity

from .scene import NOON, Scene, healthy, incident, inventory, node, port, told

ROCE = ("RoCE v2 IPv4", "RoCE v2 link-local")
NONE = ("RoCE v2 link-local",)
SECOND = timedelta(seconds=1)
SIX = healthy(nodes=6, seconds=300)


def scene(
    odd: Mapping[int, Sequence[str] | None],
    hosts: int = 6,
    at: timedelta = -60 * SECOND,
    role: str = "fabric",
) -> Scene:
    """The first nodes have port lines, too; of each the port says what it has."""
    found = []
    for number in range(1, hosts + 1):
        one = inventory(node(number))
        has = odd.get(number, ROCE)
        ports = (
            replace(it, kind="roce", role=role, addressing=None if has is None else tuple(has))
            for it in one.ports
        )
        found.append(replace(one, at=NOON + at, ports=tuple(ports)))
    return replace(SIX, inventories=tuple(found))


def find(of: Scene) -> list[Finding]:
    return DETECTOR.find(of.window((DETECTOR,)))


def test_it_says_what_is_missing_how_many_have_it_and_what_is_there() -> None:
    (found,) = find(scene({2: NONE}))
    assert (found.subject, found.severity) == (port(2), Severity.WARNING)
    assert told(found) == (
        "warning; lacks: RoCE v2 IPv4 (peers 5 of 5 others have it); has: RoCE v2 link-local"
    )
    (bare,) = find(scene({2: ()}))
    assert "has: none" in told(bare)


@pytest.mark.parametrize(("hosts", "expected"), [(4, 0), (5, 1)])
def test_four_others_say_what_is_usual(hosts: int, expected: int) -> None:
    assert len(find(scene({2: NONE}, hosts))) == expected


@pytest.mark.parametrize(("without", "expected"), [(3, 3), (4, 0), (11, 0)])
def test_four_fifths_of_the_others_must_have_it(without: int, expected: int) -> None:
    """Of ten others eight have it, or seven, or none."""
    assert len(find(scene(dict.fromkeys(range(1, without + 1), NONE), hosts=11))) == expected


def test_a_port_that_has_something_of_its_own_is_set_up_for_something_else() -> None:
    assert find(scene({2: (*NONE, "RoCE v2 IPv6")})) == []
    assert find(scene({2: ("partition 0x8002", "partition 0xffff")})) == []


def test_who_tells_nothing_is_not_judged_and_counts_for_nobody() -> None:
    assert find(scene({2: None})) == []
    assert find(scene({1: None, 2: NONE, 3: None})) == []
    assert find(scene({2: NONE}, role="management")) == []


@pytest.mark.parametrize(("seconds", "expected"), [(-181, 0), (-179, 1)])
def test_an_inventory_just_after_the_port_was_seen_up_says_nothing(
    seconds: float, expected: int
) -> None:
    """The first line is 300 s old; two minutes later addresses are there."""
    assert len(find(scene({2: NONE}, at=seconds * SECOND))) == expected


@pytest.mark.parametrize(
    ("fields", "expected"), [({"up": 0}, 0), ({"up": None}, 1), ({"up": 1}, 1)]
)
def test_a_port_that_was_down_lately_may_yet_get_it(
    fields: Mapping[str, int | None], expected: int
) -> None:
    assert len(find(scene({2: NONE}).changed(port(2), fields, 15))) == expected


def test_it_stands_while_the_port_does_not_say_and_ends_when_it_has_it() -> None:
    shows = DETECTOR.would_show
    assert shows is not None
    stands = incident("port_setup", port(2))
    for has, expected in ((NONE, True), (ROCE, True), (None, False)):
        window = scene({2: has}).window((DETECTOR,))
        assert shows(window, stands) is expected
