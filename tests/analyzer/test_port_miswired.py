"""A cable in the wrong rail is told with where it belongs; nothing where that is not clear."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.detectors.port_miswired import DETECTOR
from analyzer.window.window import Window
from gpuvigil.model import Finding, Nic, PcieLink, PortIdentity, Severity, Subject

from .scene import NOON, SETTINGS, healthy, inventory, node, told
from .test_breaker import Watch
from .test_fabric import a_port, a_switch

RAILS = ("leaf0", "leaf1", "leaf2", "leaf3")
SWAPPED = ("leaf1", "leaf0", "leaf2", "leaf3")
LINK = PcieLink(lanes=16, gigatransfers=32.0)
SLOTS = ("0000:19:00.0", "0000:3b:00.0", "0000:9b:00.0", "0000:db:00.0")


def at(*leaves: str | None) -> tuple[PortIdentity, ...]:
    return tuple(
        PortIdentity(
            device=f"mlx5_{rail}",
            port="1",
            kind="roce",
            role="fabric",
            was_up=True,
            switch=leaf,
            switch_port=leaf and f"swp{rail}",
        )
        for rail, leaf in enumerate(leaves)
    )


def cards(*slots: str) -> tuple[Nic, ...]:
    return tuple(
        Nic(address=slot, devices=(f"mlx5_{rail}",), model="15b3:1021", link=LINK, best=LINK)
        for rail, slot in enumerate(slots)
    )


def fabric(
    odd: Mapping[int, Sequence[str | None]],
    hosts: int = 5,
    usual: Sequence[str | None] = RAILS,
    slots: Mapping[int, Sequence[str]] | None = None,
) -> Window:
    """Hosts 1 and up, each with its ports at the usual leaves; `slots`: where their cards are, from the first rail."""
    found = {}
    for number in range(1, hosts + 1):
        where = () if slots is None else slots.get(number, SLOTS[: len(usual)])
        one = replace(
            inventory(node(number)), ports=at(*odd.get(number, usual)), nics=cards(*where)
        )
        found[one.subject.key] = one
    return Window(now=NOON, settings=SETTINGS, inventories=found)


def nic(number: int, rail: int) -> Subject:
    return replace(node(number), device=f"mlx5_{rail}", port="1")


def find(window: Window) -> list[Finding]:
    return DETECTOR.find(window)


def test_two_swapped_cables_of_a_host_are_one_note_that_names_both_ends_of_both() -> None:
    (found,) = find(fabric({2: SWAPPED}))
    assert (found.fault, found.severity) == ("port_miswired", Severity.INFO)
    assert (found.subject, found.members) == (nic(2, 0), (nic(2, 1),))
    assert told(found) == (
        "info; is at: leaf1 (rail mlx5_1); belongs at: leaf0 (rail mlx5_0), as on 4 of 5 hosts;"
        " swapped with: mlx5_1, at leaf0 (rail mlx5_0) port swp1"
    )


def test_one_cable_says_where_it_belongs_and_two_hosts_may_have_swapped_theirs() -> None:
    (one,) = find(fabric({2: ("leaf1", *RAILS[1:])}))
    assert (one.subject, one.members) == (nic(2, 0), ())
    (both,) = find(fabric({2: ("leaf1", *RAILS[1:]), 4: ("leaf0", "leaf0", *RAILS[2:])}, hosts=10))
    assert (both.subject, both.members) == (nic(2, 0), (nic(4, 1),))
    assert "swapped with: node-4 mlx5_1, at leaf0 (rail mlx5_0) port swp1" in told(both)


@pytest.mark.parametrize(("hosts", "expected"), [(4, 0), (5, 1)])
def test_of_fewer_than_five_hosts_nothing_is_said(hosts: int, expected: int) -> None:
    assert len(find(fabric({1: SWAPPED}, hosts))) == expected


@pytest.mark.parametrize(("swapped", "expected"), [(2, 2), (3, 0), (5, 0)])
def test_where_fewer_than_four_fifths_agree_nothing_is_said(swapped: int, expected: int) -> None:
    assert len(find(fabric(dict.fromkeys(range(1, swapped + 1), SWAPPED), 10))) == expected


def test_ports_at_one_switch_or_at_none_are_in_no_wrong_rail() -> None:
    assert find(fabric({}, usual=["leaf0"] * 4)) == []
    assert find(fabric({}, usual=[None] * 4)) == []
    assert find(fabric({2: (None, *RAILS[1:])})) == []


def test_a_host_that_counts_its_ports_otherwise_has_its_cables_where_they_belong() -> None:
    assert find(fabric({2: (*RAILS[1:], RAILS[0])})) == []
    # Its two cards are the other way round by their slots, and so are the names of their ports.
    renamed = (SLOTS[1], SLOTS[0], *SLOTS[2:])
    assert find(fabric({2: SWAPPED}, slots={2: renamed})) == []
    assert len(find(fabric({2: SWAPPED}, slots={}))) == 1
    # As named, its cables are where everybody's are; as plugged in, they are swapped.
    assert find(fabric({}, slots={2: renamed})) == []


def test_of_a_host_with_two_rails_its_cards_must_say_that_it_counts_like_the_others() -> None:
    two = {2: ("leaf1", "leaf0")}
    assert find(fabric(two, usual=RAILS[:2])) == []
    assert find(fabric(two, usual=RAILS[:2], slots={2: (SLOTS[1], SLOTS[0])})) == []
    assert len(find(fabric(two, usual=RAILS[:2], slots={}))) == 1
    # One cable alone is moved by no other way of counting.
    assert len(find(fabric({2: ("leaf1", "leaf1")}, usual=RAILS[:2]))) == 1


def test_an_infiniband_fabric_says_it_where_hosts_hear_nothing() -> None:
    window = fabric({}, usual=(None, None, None))
    leaves = {}
    for leaf in range(3):
        ports = [
            a_port(number, f"node-{number} mlx5_{rail}")
            for number in range(1, 6)
            for rail in [(1, 0, 2)[leaf] if number == 3 else leaf]
        ]
        leaves[f"c/leaf{leaf}"] = a_switch(f"leaf{leaf}", *ports)
    (found,) = find(replace(window, switches=leaves))
    assert (found.subject, found.members) == (nic(3, 0), (nic(3, 1),))


def leaves(*names: str, without: Sequence[str], stranger: str = "") -> dict[str, Any]:
    """Read switches by key: each has a named port at every host, and one at the spine but some."""
    found = {}
    for rail, name in enumerate(names):
        of_hosts = [
            a_port(number, f"node-{number} mlx5_{rail}", name=f"swp{number}")
            for number in range(1, 6)
        ]
        up = [] if name in without else [a_port(33, "spine1", rail + 1, name="swp33")]
        other = a_port(34, f"{stranger} eth0", name="swp34")
        found[f"c/{name}"] = a_switch(name, *of_hosts, *up, *([other] if stranger else []))
    spine = [
        a_port(rail + 1, name, 33, name=f"swp{rail + 1}")
        for rail, name in enumerate(names)
        if name not in without
    ]
    return found | {"c/spine1": a_switch("spine1", *spine)}


@pytest.mark.parametrize(("without", "expected"), [(0, 0), (1, 1), (2, 2), (3, 0), (4, 0)])
def test_a_leaf_without_an_uplink_is_a_note_about_the_switch(without: int, expected: int) -> None:
    """Where half of the leaves and more have none, nobody knows; three of six are built so."""
    names = [f"leaf{n}" for n in range(6)]
    of = replace(fabric({}, usual=names), switches=leaves(*names, without=names[:without]))
    found = find(of)
    assert len(found) == expected
    for number, it in enumerate(found):
        assert (it.fault, it.condition, it.severity) == (
            "port_miswired",
            "no_uplink",
            Severity.INFO,
        )
        assert it.subject.key == f"c/leaf{number}/port/switch/0"
    if without == 1:
        assert told(found[0]) == (
            "info; uplinks: 0 (peers one or more on 5 other leaves); ports that are up: 5"
        )


def test_a_leaf_where_somebody_unknown_is_plugged_in_may_have_an_uplink() -> None:
    names = [f"leaf{n}" for n in range(6)]
    base = fabric({}, usual=names)
    read = leaves(*names, without=["leaf0"])
    odd = leaves(*names, without=["leaf0"], stranger="spine9")
    assert find(replace(base, switches={**read, "c/leaf0": odd["c/leaf0"]})) == []
    # What is at other switches, too, is a network for management.
    assert len(find(replace(base, switches=odd))) == 1
    # One that does not answer, or that nobody reads, is not judged.
    lost = replace(read["c/leaf0"], lost_at=NOON)
    assert find(replace(base, switches={**read, "c/leaf0": lost})) == []
    assert find(replace(base, switches={k: it for k, it in read.items() if k != "c/leaf0"})) == []


def test_clusters_are_told_apart() -> None:
    here, there = fabric({}, hosts=4), fabric({1: SWAPPED}, hosts=1)
    (one,) = there.inventories.values()
    other = replace(one, subject=replace(one.subject, cluster="d"))
    both = {**here.inventories, other.subject.key: other}
    assert find(replace(here, inventories=both)) == []


@pytest.mark.medium
def test_it_ends_once_the_cables_are_where_they_belong_and_stands_while_nobody_can_say() -> None:
    scene = healthy(nodes=5, seconds=120)
    watch, after = Watch(scene), timedelta()

    def told_anew(
        odd: Mapping[int, Sequence[str | None]], usual: Sequence[str | None] = RAILS
    ) -> None:
        nonlocal after
        for one in fabric(odd, usual=usual).inventories.values():
            watch.analysis.ingest(one.to_record())
        for _ in range(8):
            after += timedelta(seconds=10)
            watch.look(after, scene)

    told_anew({2: SWAPPED})
    (one,) = watch.active()
    assert (one.fault, one.label) == (
        "port_miswired",
        "node-2 mlx5_0 → leaf1 port swp0",
    )
    told_anew({}, usual=[None] * 4)
    assert [it.id for it in watch.active()] == [one.id]
    told_anew({})
    assert watch.active() == []


@pytest.mark.medium
def test_a_pass_over_thousands_of_ports_learns_anew_only_when_a_port_has_moved() -> None:
    window = fabric({700: SWAPPED}, hosts=1250, slots={})

    def seconds(of: Window) -> float:
        begun = time.process_time()
        assert len(find(of)) == 1
        return time.process_time() - begun

    first = seconds(window)
    one = window.inventories[node(9).key]
    later = replace(one, at=one.at + timedelta(minutes=10))
    again = seconds(replace(window, inventories={**window.inventories, node(9).key: later}))
    # What a port tells beside its cable changes all the time.
    waits = []
    for last in range(3):  # the processor may be asked for other things meanwhile
        ports = tuple(replace(it, waits_for=(f"10.0.0.{last}",)) for it in one.ports)
        other = replace(later, ports=ports)
        waits.append(
            seconds(replace(window, inventories={**window.inventories, node(9).key: other}))
        )
    assert max(again, min(waits)) < first / 3
