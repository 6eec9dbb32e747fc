"""A port with another MTU than its peers: just below and just above each limit."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.detectors.port_mtu import DETECTOR
from gpuvigil.model import Finding, Severity

from .scene import NOON, Scene, healthy, incident, inventory, node, port, told

SECOND = timedelta(seconds=1)
LARGE, SMALL = 9000, 1500
# The first ports carry 1 GB a second each way.
TWO = healthy(nodes=2, seconds=300)


def scene(
    odd: Mapping[int, int | None],
    hosts: int = 6,
    at: timedelta = -60 * SECOND,
    role: str = "fabric",
    per_second: float = 1e9,
) -> Scene:
    """Of each host the port says its MTU."""
    found = []
    for number in range(1, hosts + 1):
        one = inventory(node(number))
        ports = (
            replace(it, kind="roce", role=role, mtu=odd.get(number, LARGE)) for it in one.ports
        )
        found.append(replace(one, at=NOON + at, ports=tuple(ports)))
    of = replace(TWO, inventories=tuple(found))
    for number in (1, 2):
        for way in ("receive_bytes", "transmit_bytes"):
            of = of.rising(port(number), way, per_second)
    return of


def find(of: Scene) -> list[Finding]:
    return DETECTOR.find(of.window((DETECTOR,)))


def test_it_says_both_numbers_and_how_many_have_the_usual_one() -> None:
    (found,) = find(scene({2: SMALL}))
    assert (found.subject, found.severity) == (port(2), Severity.WARNING)
    assert told(found) == "warning; MTU: 1500 bytes (peers 9000 bytes on 5 of 5 others)"
    (larger,) = find(scene({2: 9216}))
    assert "MTU: 9216 bytes" in told(larger)


def test_where_all_have_one_nothing_is_said() -> None:
    assert find(scene({})) == []


@pytest.mark.parametrize(("hosts", "expected"), [(5, 0), (6, 1)])
def test_five_others_say_what_is_usual(hosts: int, expected: int) -> None:
    assert len(find(scene({2: SMALL}, hosts))) == expected


@pytest.mark.parametrize(("hosts", "expected"), [(10, 0), (11, 1)])
def test_nine_of_ten_others_must_have_it(hosts: int, expected: int) -> None:
    """Eight of nine others have it, or nine of ten."""
    assert len(find(scene({2: SMALL, 10: SMALL}, hosts))) == expected


@pytest.mark.parametrize(("odd", "expected"), [(3, 2), (4, 0)])
def test_where_more_than_three_have_another_one_they_are_built_so(odd: int, expected: int) -> None:
    """Of the odd ones two carry data."""
    apart = dict.fromkeys(range(1, odd + 1), SMALL)
    assert len(find(scene(apart, hosts=60))) == expected


def test_who_tells_none_is_not_judged_and_counts_for_nobody() -> None:
    assert find(scene({2: None})) == []
    assert find(scene({2: SMALL, 3: None})) == []
    assert find(scene({2: SMALL}, role="management")) == []


def test_ports_of_another_name_kind_or_role_are_no_peers() -> None:
    whole = scene({2: SMALL})
    changes: tuple[dict[str, Any], ...] = (
        {"device": "mlx5_9"},
        {"port": "2"},
        {"kind": "ethernet"},
        {"role": "storage"},
    )
    for change in changes:
        one = whole.inventories[5]
        other = replace(one, ports=tuple(replace(it, **change) for it in one.ports))
        assert find(replace(whole, inventories=(*whole.inventories[:5], other))) == []


@pytest.mark.parametrize(("per_second", "expected"), [(0.49e6, 0), (0.51e6, 1)])
def test_a_port_that_carries_nothing_is_not_told(per_second: float, expected: int) -> None:
    assert len(find(scene({2: SMALL}, per_second=per_second))) == expected


@pytest.mark.parametrize(("seconds", "expected"), [(-181, 0), (-179, 1)])
def test_an_inventory_just_after_the_port_was_seen_up_says_nothing(
    seconds: float, expected: int
) -> None:
    """The first line is 300 s old; two minutes later the network is set up."""
    assert len(find(scene({2: SMALL}, at=seconds * SECOND))) == expected


@pytest.mark.parametrize(
    ("fields", "expected"), [({"up": 0}, 0), ({"up": None}, 1), ({"up": 1}, 1)]
)
def test_a_port_that_was_down_lately_may_yet_get_it(
    fields: Mapping[str, int | None], expected: int
) -> None:
    assert len(find(scene({2: SMALL}).changed(port(2), fields, 15))) == expected


@pytest.mark.parametrize(
    ("speed", "expected"), [(100_000_000_000, 0), (400_000_000_000, 1), (None, 1)]
)
def test_a_port_of_another_speed_is_another_card(speed: int | None, expected: int) -> None:
    whole = scene({2: SMALL}).changed(port(2), {"speed_bits_per_second": speed})
    assert len(find(whole)) == expected


def test_it_stands_while_it_has_another_one_and_ends_when_it_has_theirs() -> None:
    shows = DETECTOR.would_show
    assert shows is not None
    stands = incident("port_mtu", port(2))
    for mtu, expected in ((SMALL, False), (LARGE, True), (None, False)):
        window = scene({2: mtu}, per_second=0.0).window((DETECTOR,))
        assert shows(window, stands) is expected
