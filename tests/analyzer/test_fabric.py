"""Cables and switches as whoever reads the fabric sees them: just below and just above each limit."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from analyzer.correlation.correlate import observe
from analyzer.correlation.visibility import is_visible
from analyzer.detectors.port_degraded import degraded_ports
from analyzer.detectors.port_down import broken_ports
from analyzer.detectors.port_errors import bad_ports
from analyzer.detectors.switch_down import switches_down
from analyzer.evidence.fabric import far_end, hosts_of
from analyzer.evidence.fabric_links import switch_port_drops
from analyzer.fleet_state import Fleet
from analyzer.window.window import Window
from gpuvigil.model import (
    ErrorCount,
    EventKind,
    Finding,
    Severity,
    Subject,
    Switch,
    SwitchPort,
)

from .scene import NOON, SETTINGS, allocation, event, gpu, healthy, incident, port

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
HDR = 200_000_000_000
LEAVES, HOSTS = 2, 6
"""Leaf 1 has port 1 of every host, leaf 2 none; both have two cables to the spine."""


def a_port(number: int, peer: str, peer_port: int = 1, **more: Any) -> SwitchPort:
    found = SwitchPort(
        number=number,
        up=True,
        since=NOON - DAY,
        physical_state="LinkUp",
        peer=peer,
        peer_port=peer_port,
        at_switch=" " not in peer,
        bits_per_second=HDR,
        lanes=4,
        best_bits_per_second=HDR,
        counts=(ErrorCount(at=NOON - DAY),),
    )
    return replace(found, **more)


def a_switch(name: str, *ports: SwitchPort, **more: Any) -> Switch:
    subject = Subject(cluster="c", node=name)
    return replace(Switch(subject=subject, at=NOON, guid=f"00{name}", ports=ports), **more)


def fabric() -> dict[str, Switch]:
    hosts = [a_port(n, f"node-{n} mlx5_0") for n in range(1, HOSTS + 1)]
    uplinks = [[a_port(20 + n, "spine1", 10 * leaf + n) for n in (1, 2)] for leaf in (1, 2)]
    spine = [a_port(10 * leaf + n, f"leaf{leaf}", 20 + n) for leaf in (1, 2) for n in (1, 2)]
    return {
        "leaf1": a_switch("leaf1", *hosts, *uplinks[0]),
        "leaf2": a_switch("leaf2", *uplinks[1]),
        "spine1": a_switch("spine1", *spine),
    }


Fabric = dict[str, Switch]


def changed(those: Fabric, name: str, number: int, **more: Any) -> Fabric:
    ports = tuple(replace(it, **more) if it.number == number else it for it in those[name].ports)
    return {**those, name: replace(those[name], ports=ports)}


def down(those: Fabric, name: str, number: int, since: datetime = NOON - MINUTE) -> Fabric:
    lost = {"up": False, "since": since, "physical_state": "Polling", "bits_per_second": None}
    return changed(those, name, number, **lost, lanes=None)


def window(those: Fabric, collectors: int = 0, now: datetime = NOON) -> Window:
    """`collectors`: so many of the hosts have one."""
    switches = {it.subject.key: it for it in those.values()}
    if not collectors:
        return Window(now=now, settings=SETTINGS, switches=switches)
    return replace(healthy(nodes=collectors).window(), now=now, switches=switches)


def named(found: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(it.subject.node, it.subject.port or "") for it in found]


def of(found: Finding) -> dict[str, str]:
    return {it.name: it.value for it in found.evidence}


def test_of_a_healthy_fabric_nothing_is_told() -> None:
    for collectors in (0, HOSTS):
        seen = window(fabric(), collectors)
        for find in (broken_ports, degraded_ports, bad_ports, switches_down):
            assert find(seen) == []


def test_a_cable_between_switches_that_lost_its_link_is_one_finding_with_both_ends() -> None:
    lost = down(down(fabric(), "leaf1", 21), "spine1", 11, NOON - 2 * MINUTE)
    (found,) = broken_ports(window(lost))
    assert (found.fault, found.condition, found.severity) == (
        "port_down",
        "uplink_down",
        Severity.WARNING,
    )
    assert found.subject == lost["leaf1"].port_subject(21)
    assert found.since == NOON - 2 * MINUTE
    assert of(found)["other end"] == "spine1 port 11"
    assert of(found)["links between the two that are up"] == "1 of 2"
    assert of(found)["speed before"] == "200 Gb/s"
    # The switch at one end may have told of it first.
    assert named(broken_ports(window(down(fabric(), "spine1", 11)))) == [("leaf1", "21")]


@pytest.mark.parametrize(("seconds", "told"), [(3.9, False), (4.0, True)])
def test_what_only_one_look_has_seen_is_not_told(seconds: float, told: bool) -> None:
    since = NOON - timedelta(seconds=seconds)
    assert bool(broken_ports(window(down(fabric(), "leaf1", 21, since)))) is told
    slow = changed(fabric(), "leaf1", 21, bits_per_second=HDR // 4, since=since)
    assert bool(degraded_ports(window(slow))) is told
    gone = fabric() | {"leaf1": replace(fabric()["leaf1"], lost_at=since)}
    assert bool(switches_down(window(gone))) is told


@pytest.mark.parametrize(("minutes", "told"), [(14.9, True), (15.0, False)])
def test_of_a_fabric_that_nobody_reads_any_more_nothing_is_told(minutes: float, told: bool) -> None:
    lost = down(fabric(), "leaf1", 21)
    seen = window(lost, now=NOON + timedelta(minutes=minutes))
    assert bool(broken_ports(seen)) is told
    active = incident("port_down", lost["leaf1"].port_subject(21))
    assert is_visible(seen, active) is told
    gone = fabric() | {"leaf1": replace(fabric()["leaf1"], lost_at=NOON - MINUTE)}
    assert bool(switches_down(window(gone, now=seen.now))) is told


def test_a_port_that_somebody_switched_off_is_none() -> None:
    lost = down(fabric(), "leaf1", 21)
    for name, number in (("leaf1", 21), ("spine1", 11)):
        off = changed(lost, name, number, physical_state="Disabled")
        assert broken_ports(window(off)) == []


def test_a_host_that_is_off_is_none_and_one_of_its_ports_is() -> None:
    those = down(fabric(), "leaf1", 1)
    assert broken_ports(window(those)) == []
    second = a_port(30, "node-1 mlx5_1")
    more = replace(those["leaf2"], ports=(*those["leaf2"].ports, second))
    (found,) = broken_ports(window(those | {"leaf2": more}))
    assert (found.subject, found.condition) == (those["leaf1"].port_subject(1), "")
    assert of(found)["other end"] == "node-1 mlx5_0"
    # Its own collector tells, where it has one.
    assert broken_ports(window(those | {"leaf2": more}, collectors=1)) == []


def test_a_link_slower_than_it_was_is_told_until_nearly_all_are() -> None:
    (found,) = degraded_ports(
        window(changed(fabric(), "leaf1", 21, bits_per_second=HDR // 4, lanes=1))
    )
    assert found.subject == fabric()["leaf1"].port_subject(21)
    assert (of(found)["speed"], of(found)["lanes"]) == ("50 Gb/s", "1")
    hosts = fabric()
    for number in range(1, HOSTS + 1):
        hosts = changed(hosts, "leaf1", number, bits_per_second=HDR // 2)
    assert degraded_ports(window(hosts)) == []  # somebody wants it so


@pytest.mark.parametrize(("fast", "told"), [(3, False), (4, True)])
def test_a_cable_slower_than_those_beside_it_is_told(fast: int, told: bool) -> None:
    slow = {"bits_per_second": HDR // 4, "best_bits_per_second": HDR // 4}
    ports = [a_port(n, "spine1", n) for n in range(1, fast + 1)]
    ports.append(a_port(40, "spine1", 40, **slow))
    seen = window({"leaf1": a_switch("leaf1", *ports), "spine1": a_switch("spine1")})
    assert bool(degraded_ports(seen)) is told


def test_hosts_of_another_sort_are_not_held_against_the_others() -> None:
    slow = {"bits_per_second": HDR // 2, "best_bits_per_second": HDR // 2}
    assert degraded_ports(window(changed(fabric(), "leaf1", 3, **slow))) == []


def test_clusters_are_kept_apart() -> None:
    mine = fabric()
    theirs = {
        f"2{name}": replace(it, subject=Subject(cluster="c2", node=name), at=NOON)
        for name, it in down(fabric(), "leaf1", 1).items()
    }
    # Their node-1 is off, ours of the same name is not.
    assert broken_ports(window(mine | theirs)) == []
    gone = {**mine, "leaf1": replace(mine["leaf1"], lost_at=NOON - MINUTE)}
    cut = {
        f"2{name}": replace(it, subject=Subject(cluster="c2", node=name))
        for name, it in down(fabric(), "spine1", 11).items()
    }
    (found,) = broken_ports(window(gone | cut))
    assert (found.subject.cluster, of(found)["links between the two that are up"]) == (
        "c2",
        "1 of 2",
    )


def test_a_cable_to_a_switch_that_nobody_tells_of_any_more_is_none() -> None:
    lost = down(fabric(), "spine1", 11)
    del lost["leaf1"]
    assert broken_ports(window(lost)) == []


def test_a_full_counter_is_told_for_an_hour_after_it_filled() -> None:
    def at(minutes: float) -> Window:
        filled = NOON - timedelta(minutes=minutes)
        counts = (
            ErrorCount(at=filled - MINUTE, link_recoveries=254),
            ErrorCount(at=filled, link_recoveries=255),
        )
        return window(changed(fabric(), "leaf1", 21, counts=counts))

    (found,) = bad_ports(at(30))
    assert of(found)["link recoveries at leaf1 port 21"] == "255, where the counter ends"
    before = (ErrorCount(at=NOON - MINUTE, link_recoveries=255),)  # nobody saw it fill
    assert bad_ports(window(changed(fabric(), "leaf1", 21, counts=before))) == []


def test_a_host_that_was_moved_is_at_its_new_switch() -> None:
    those = down(fabric(), "leaf1", 2)
    new = a_port(7, "node-2 mlx5_0", since=NOON - MINUTE)
    those["leaf2"] = replace(those["leaf2"], ports=(*those["leaf2"].ports, new))
    seen = window(those, collectors=4)
    assert far_end(seen, port(2)) == ("leaf2", "7")
    assert port(2) not in hosts_of(seen, those["leaf1"])


def test_a_node_with_a_domain_is_known_by_its_name_without_it() -> None:
    seen = window(fabric(), collectors=1)
    (one,) = seen.inventories.values()
    whole = replace(one, subject=Subject(cluster="c", node="node-1.example.org"))
    there = replace(seen, inventories={whole.subject.key: whole})
    (found,) = hosts_of(there, fabric()["leaf1"])
    assert found.node == "node-1.example.org"


def test_a_record_that_calculates_with_words_is_refused() -> None:
    record = fabric()["leaf1"].to_record()
    for name, value in (("bits_per_second", "x"), ("peer", 3), ("number", 1.5), ("lanes", True)):
        port_ = {**record.body["ports"][0], name: value}
        with pytest.raises(TypeError):
            Switch.from_record(replace(record, body={**record.body, "ports": [port_]}))


LIMITS = [
    ("symbol_errors", 20, 21),
    ("receive_errors", 6000, 6001),
    ("link_recoveries", 2, 3),
    ("local_integrity_errors", 9, 10),
]


@pytest.mark.parametrize(("name", "below", "above"), LIMITS)
def test_errors_of_ten_minutes_are_told_by_cable(name: str, below: int, above: int) -> None:
    def grown(by: int, at: datetime = NOON - MINUTE) -> Window:
        counts = (ErrorCount(at=NOON - DAY, **{name: 7}), ErrorCount(at=at, **{name: 7 + by}))
        return window(changed(fabric(), "spine1", 11, counts=counts))

    assert bad_ports(grown(below)) == []
    (found,) = bad_ports(grown(above))
    assert (found.fault, named([found])) == ("port_errors", [("leaf1", "21")])
    assert of(found)[f"{name.replace('_', ' ')} at spine1 port 11"] == f"{above} in 10 min"
    assert found.since == NOON - MINUTE
    # Longer ago it is over.
    assert bad_ports(grown(above, NOON - 10 * MINUTE)) == []


@pytest.mark.parametrize(
    ("values", "grown"),
    [
        ([500, 0, 500], 0),  # it did not answer once
        ([500, 0, 530], 30),
        ([500, 0], 0),  # cleared
        ([500, 0, 40], 0),
        ([500, 0, 40, 90], 50),
        ([0, 10, 21], 21),
    ],
)
def test_a_port_that_did_not_answer_once_or_was_cleared_has_no_errors_by_that(
    values: list[int], grown: int
) -> None:
    start = NOON - timedelta(minutes=len(values))
    counts = tuple(
        ErrorCount(at=start + n * MINUTE, symbol_errors=value) for n, value in enumerate(values)
    )
    found = bad_ports(window(changed(fabric(), "leaf1", 21, counts=counts)))
    said = [of(it)["symbol errors at leaf1 port 21"] for it in found]
    assert said == ([f"{grown} in 10 min"] if grown else [])


def test_a_low_value_just_before_the_last_ten_minutes_is_no_growth_in_them() -> None:
    ages = ((12, 500), (11, 0), (1, 500))
    counts = tuple(ErrorCount(at=NOON - m * MINUTE, symbol_errors=n) for m, n in ages)
    assert bad_ports(window(changed(fabric(), "leaf1", 21, counts=counts))) == []


def test_errors_that_came_with_the_link_are_none() -> None:
    counts = (ErrorCount(at=NOON - DAY), ErrorCount(at=NOON - MINUTE, symbol_errors=500))
    young = changed(fabric(), "leaf1", 21, counts=counts, since=NOON - MINUTE)
    assert bad_ports(window(young)) == []
    assert bad_ports(window(changed(young, "leaf1", 21, up=False))) == []
    before = changed(young, "leaf1", 21, since=NOON - 2 * MINUTE)
    assert named(bad_ports(window(before))) == [("leaf1", "21")]


def test_what_the_switch_counts_of_a_host_is_told_unless_the_host_told_it() -> None:
    counts = (ErrorCount(at=NOON - DAY), ErrorCount(at=NOON - MINUTE, symbol_errors=500))
    seen = window(changed(fabric(), "leaf1", 2, counts=counts), collectors=HOSTS)
    (found,) = bad_ports(seen)
    assert (named([found]), found.members) == ([("leaf1", "2")], (port(2),))
    active = incident("port_errors", port(2))
    assert bad_ports(replace(seen, recent_incidents=(active,))) == []
    # What had come by its end it told.
    for seconds, again in ((59, []), (61, [found])):
        over = replace(active, resolved_at=NOON - timedelta(seconds=seconds))
        assert bad_ports(replace(seen, recent_incidents=(over,))) == again


@pytest.mark.parametrize(("celsius", "told"), [(74, 1), (75, 0)])
def test_what_a_hot_module_does_to_its_link_is_told_as_that_at_the_switch_too(
    celsius: int, told: int
) -> None:
    counts = (ErrorCount(at=NOON - DAY), ErrorCount(at=NOON - MINUTE, symbol_errors=500))
    those = changed(fabric(), "leaf1", 2, counts=counts)
    scene = healthy(nodes=HOSTS).changed(port(2), {"module_celsius": celsius})
    switches = {it.subject.key: it for it in those.values()}
    found = bad_ports(replace(scene.window(), switches=switches))
    assert len(found) == told


@pytest.mark.medium
@pytest.mark.parametrize("still", [False, True])
def test_what_the_switch_told_first_goes_on_while_the_host_counts_errors(still: bool) -> None:
    scene = healthy(nodes=HOSTS, seconds=600).rising(port(2), "symbol_errors", 1.0)
    counts = (ErrorCount(at=NOON - DAY), ErrorCount(at=NOON - MINUTE, symbol_errors=500))
    those = changed(fabric(), "leaf1", 2, counts=counts) if still else fabric()
    switches = {it.subject.key: it for it in those.values()}
    end = those["leaf1"].port_subject(2)
    told = replace(incident("port_errors", end), members=(port(2).key,))
    (found,) = bad_ports(replace(scene.window(), switches=switches, recent_incidents=(told,)))
    assert (found.subject, found.members) == (end, (port(2),))
    over = replace(told, resolved_at=NOON)
    hosts = bad_ports(replace(scene.window(), switches=switches, recent_incidents=(over,)))
    assert port(2) in {it.subject for it in hosts}


def test_a_cable_that_was_moved_leaves_its_old_switch_port_unblamed() -> None:
    scene = healthy(nodes=HOSTS, seconds=600).rising(port(2), "symbol_errors", 1.0)
    before = fabric()
    left = tuple(it for it in before["leaf1"].ports if it.number != 2)
    there = (*before["leaf2"].ports, a_port(2, "node-2 mlx5_0"))
    those = {
        **before,
        "leaf1": replace(before["leaf1"], ports=left),
        "leaf2": replace(before["leaf2"], ports=there),
    }
    switches = {it.subject.key: it for it in those.values()}
    end = before["leaf1"].port_subject(2)
    told = replace(incident("port_errors", end), members=(port(2).key,))
    found = bad_ports(replace(scene.window(), switches=switches, recent_incidents=(told,)))
    assert [it.subject for it in found] == [port(2)]


def lost_leaf(collectors: int) -> Window:
    those = fabric()
    those["leaf1"] = replace(those["leaf1"], lost_at=NOON - MINUTE)
    for number in (11, 12):
        those = down(those, "spine1", number)
    return window(those, collectors)


def test_an_aggregation_node_in_a_spine_is_no_host() -> None:
    those = fabric()
    sharp = a_port(65, "Mellanox Technologies Aggregation Node")
    ports = (*those["spine1"].ports, replace(sharp, at_switch=False))
    those["spine1"] = replace(those["spine1"], ports=ports, lost_at=NOON - MINUTE)
    (found,) = switches_down(window(those))
    assert found.severity is Severity.WARNING


def test_a_switch_that_does_not_answer_is_one_finding_with_its_hosts() -> None:
    seen = lost_leaf(HOSTS)
    assert broken_ports(seen) == []  # its cables are no faults of their own
    (found,) = switches_down(seen)
    assert (found.fault, found.condition, found.severity) == (
        "switch_down",
        "switch_lost",
        Severity.CRITICAL,
    )
    assert found.members == tuple(port(n) for n in range(1, HOSTS + 1))
    assert of(found)["hosts' ports there"] == str(HOSTS)
    (candidate,) = observe(seen, [found], (), {found.fingerprint}).candidates.values()
    assert (candidate.label, candidate.title) == ("switch leaf1", "Switch does not answer")
    (alone,) = switches_down(lost_leaf(0))
    (candidate,) = observe(lost_leaf(0), [alone], (), {alone.fingerprint}).candidates.values()
    assert candidate.label == "leaf1"


@pytest.mark.parametrize(("seconds", "incidents"), [(120, 1), (121, 2)])
def test_switches_that_go_within_two_minutes_have_one_cause(seconds: int, incidents: int) -> None:
    those, began = fabric(), NOON - 5 * MINUTE
    those["spine1"] = replace(those["spine1"], lost_at=began)
    those["leaf2"] = replace(those["leaf2"], lost_at=began)
    those["leaf1"] = replace(those["leaf1"], lost_at=began + timedelta(seconds=seconds))
    seen = window(those, collectors=HOSTS)
    found = switches_down(seen)
    assert len(found) == incidents
    candidates = observe(seen, found, (), {it.fingerprint for it in found}).candidates.values()
    labels = {it.label: it.title for it in candidates}
    two = "switches leaf2, spine1" + ("" if incidents == 2 else ", leaf1")
    expected = {two: "Switches do not answer"}
    if incidents == 2:
        expected["switch leaf1"] = "Switch does not answer"
    assert labels == expected
    assert found[0].severity is (Severity.CRITICAL if incidents == 1 else Severity.WARNING)


def test_a_spine_is_a_warning() -> None:
    those = fabric()
    those["spine1"] = replace(those["spine1"], lost_at=NOON - MINUTE)
    (found,) = switches_down(window(those))
    assert (found.subject.node, found.severity) == ("spine1", Severity.WARNING)


@pytest.mark.parametrize(("switched_off", "told"), [(3, True), (4, False)])
def test_a_spine_that_somebody_took_out_of_service_is_none(switched_off: int, told: bool) -> None:
    those = fabric()
    those["spine1"] = replace(those["spine1"], lost_at=NOON - MINUTE)
    ends = [("leaf1", 21), ("leaf1", 22), ("leaf2", 21), ("leaf2", 22)]
    for name, number in ends:
        those = down(those, name, number)
    for name, number in ends[:switched_off]:
        those = changed(those, name, number, physical_state="Disabled")
    assert bool(switches_down(window(those))) is told


def test_a_leaf_with_hosts_is_told_though_its_cables_are_switched_off() -> None:
    those = fabric()
    those["leaf1"] = replace(those["leaf1"], lost_at=NOON - MINUTE)
    for number in (11, 12):
        those = changed(down(those, "spine1", number), "spine1", number, physical_state="Disabled")
    assert named(switches_down(window(those))) == [("leaf1", "0")]


def test_a_lost_leaf_takes_also_the_ports_of_nodes_that_tell_no_events() -> None:
    scene = healthy(nodes=HOSTS, seconds=700)
    for number in range(1, HOSTS + 1):
        scene = scene.changed(port(number), {"up": 0, "physical_state": 2}, 645)
        if number < HOSTS:
            at = NOON - timedelta(seconds=645)
            scene = scene.with_events(event(EventKind.PORT_DOWN, port(number), at))
    seen = scene.window()
    (silent,) = [it for it in broken_ports(seen) if it.subject == port(HOSTS)]
    (found,) = switches_down(seen)
    assert port(HOSTS) not in found.members
    seen = replace(seen, switches=lost_leaf(0).switches)
    (found,) = switches_down(seen)
    assert port(HOSTS) in found.members
    assert of(found)["do not answer"].startswith("leaf1")
    believed = {found.fingerprint, silent.fingerprint}
    told = observe(seen, [found, silent], (), believed).candidates
    assert set(told) == {found.fingerprint}


def test_a_leaf_whose_nodes_told_of_it_is_told_once_and_by_its_name() -> None:
    scene = healthy(nodes=4, seconds=100)
    for number in (1, 2, 3, 4):
        scene = scene.changed(port(number), {"up": 0, "physical_state": 2}, 45)
        at = NOON - timedelta(seconds=40)
        scene = scene.with_events(event(EventKind.PORT_DOWN, port(number), at))
    seen = replace(scene.window(), switches=lost_leaf(0).switches)
    (found,) = switches_down(seen)
    assert found.subject == port(1)
    (candidate,) = observe(seen, [found], (), {found.fingerprint}).candidates.values()
    assert candidate.label == "switch leaf1 (mlx5_0 of node-1, node-2, node-3 and 1 more node)"


def test_the_jobs_of_a_lost_leaf_are_named_and_of_an_uplink_nobody_knows() -> None:
    seen = lost_leaf(HOSTS)
    held = allocation(gpu(1), "job 1042")
    seen = replace(seen, allocations={gpu(1).key: (held,)})
    (found,) = switches_down(seen)
    (candidate,) = observe(seen, [found], (), {found.fingerprint}).candidates.values()
    assert candidate.impact.users == ("alice",)
    cut = window(down(fabric(), "leaf1", 21))
    (found,) = broken_ports(cut)
    (candidate,) = observe(cut, [found], (), {found.fingerprint}).candidates.values()
    assert candidate.impact.text == "whose jobs go over it is not known"
    assert candidate.impact.jobs_across is None
    assert candidate.label == "leaf1 port 21 → spine1 port 11"


def test_a_port_of_a_host_says_where_the_fabric_has_it() -> None:
    scene = healthy(nodes=4, seconds=100).rising(port(), "symbol_errors", 1.0)
    seen = replace(scene.window(), switches=window(fabric()).switches)
    found = bad_ports(seen)
    (candidate,) = observe(seen, found, (), {it.fingerprint for it in found}).candidates.values()
    assert of(candidate.finding)["other end"] == "leaf1 port 1"


def test_switches_are_remembered_as_told_for_a_day() -> None:
    fleet = Fleet()
    told = fabric()["leaf1"]
    fleet.ingest(told.to_record())
    assert fleet.switches() == {told.subject.key: told}
    fleet.forget(NOON + DAY)
    assert fleet.switches() == {told.subject.key: told}
    fleet.forget(NOON + DAY + timedelta(seconds=1))
    assert fleet.switches() == {}


def test_a_look_at_one_node_says_nothing_of_the_fabric() -> None:
    assert broken_ports(window(down(fabric(), "leaf1", 21)).of_node(port(1).of_node())) == []


@pytest.mark.parametrize(("dropped", "said"), [
    (0, [("beyond the port", "not observable without switch counters")]),
    (1, [("packets dropped at leaf1", "1 at port 21 in 10 min")]),
])  # fmt: skip
def test_what_an_infiniband_leaf_drops_is_evidence_and_that_it_drops_nothing_is_none(
    dropped: int, said: list[tuple[str, str]]
) -> None:
    counts = tuple(
        ErrorCount(at=NOON - ago, transmit_discards=count)
        for ago, count in ((5 * MINUTE, 0), (MINUTE, dropped))
    )
    found = switch_port_drops(window(changed(fabric(), "leaf1", 21, counts=counts), HOSTS), port(2))
    assert [(it.name, it.value) for it in found] == said
