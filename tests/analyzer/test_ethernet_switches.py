"""Switches whose ports have names and whose other ends are known by LLDP, as a site's Prometheus tells of them."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from analyzer.detectors.port_congested import DETECTOR as CONGESTED
from analyzer.detectors.port_degraded import degraded_ports
from analyzer.detectors.port_down import broken_ports
from analyzer.detectors.port_errors import bad_ports
from analyzer.detectors.port_losses import DETECTOR as LOSSES
from analyzer.detectors.switch_down import switches_down
from analyzer.evidence.fabric import far_end
from analyzer.evidence.fabric_links import switch_port_drops
from analyzer.window.window import Window
from gpuvigil.model import ErrorCount, Finding, Inventory, Severity, Subject, Switch, SwitchPort
from gpuvigil.topology import Source, from_switches

from .scene import NOON, SETTINGS, Scene, carrying, healthy, port

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
FAST = 400_000_000_000
HOSTS = 4
NOTHING = ErrorCount(
    at=NOON - DAY, symbol_errors=None, link_recoveries=None, local_integrity_errors=None
)


def a_port(number: int, name: str, **more: Any) -> SwitchPort:
    found = SwitchPort(
        number=number,
        up=True,
        since=NOON - DAY,
        name=name,
        bits_per_second=FAST,
        best_bits_per_second=FAST,
        counts=(NOTHING,),
    )
    return replace(found, **more)


def to(peer: str, name: str) -> dict[str, Any]:
    return {"peer": peer, "peer_port_name": name, "peer_guid": peer, "at_switch": True}


def a_switch(name: str, *ports: SwitchPort, **more: Any) -> Switch:
    found = Switch(subject=Subject(cluster="c", node=name), at=NOON, guid=name, ports=ports)
    return replace(found, **more)


Fabric = dict[str, Switch]


def fabric() -> Fabric:
    """Leaf 1 has every host, and does not know it; both leaves have a cable to the spine."""
    hosts = [a_port(n, f"Ethernet1/{n}") for n in range(1, HOSTS + 1)]
    return {
        "leaf1": a_switch("leaf1", *hosts, a_port(9, "Ethernet1/49", **to("spine1", "eth-1"))),
        "leaf2": a_switch("leaf2", a_port(1, "Ethernet1/49", **to("spine1", "eth-2"))),
        "spine1": a_switch(
            "spine1",
            a_port(1, "eth-1", **to("leaf1", "Ethernet1/49")),
            a_port(2, "eth-2", **to("leaf2", "Ethernet1/49")),
        ),
    }


def changed(those: Fabric, switch: str, name: str, **more: Any) -> Fabric:
    ports = tuple(replace(it, **more) if it.name == name else it for it in those[switch].ports)
    return {**those, switch: replace(those[switch], ports=ports)}


def down(those: Fabric, switch: str, name: str, since: datetime = NOON - MINUTE) -> Fabric:
    return changed(those, switch, name, up=False, since=since, bits_per_second=None)


def hearing(inventory: Inventory, switch: str = "Leaf1.example.org", name: str = "") -> Inventory:
    """With what lldpd heard at its port."""
    number = inventory.subject.node.rpartition("-")[2]
    at = name or f"Ethernet1/{number}"
    heard = replace(inventory.ports[0], switch=switch, switch_port=at)
    return replace(inventory, ports=(heard,))


def window(those: Fabric, hosts: bool = True) -> Window:
    """`hosts`: they have collectors, and lldpd."""
    switches = {it.subject.key: it for it in those.values()}
    seen = healthy(nodes=HOSTS).window() if hosts else Window(now=NOON, settings=SETTINGS)
    inventories = {key: hearing(it) for key, it in seen.inventories.items()}
    return replace(seen, switches=switches, inventories=inventories)


def of(found: Finding) -> dict[str, str]:
    return {it.name: it.value for it in found.evidence}


def counted(minutes: float = 1, **counts: Any) -> tuple[ErrorCount, ...]:
    """What a port counted in the last minutes, from 0 on."""
    none: dict[str, Any] = dict.fromkeys(counts, 0)
    before = replace(NOTHING, **none)
    return before, replace(before, at=NOON - minutes * MINUTE, **counts)


def test_of_a_healthy_fabric_nothing_is_told() -> None:
    for hosts in (True, False):
        for find in (broken_ports, degraded_ports, bad_ports, switches_down):
            assert find(window(fabric(), hosts)) == []


def test_a_cable_between_switches_is_one_finding_by_its_ports_names() -> None:
    lost = down(down(fabric(), "leaf1", "Ethernet1/49"), "spine1", "eth-1")
    (found,) = broken_ports(window(lost))
    assert found.subject.key == "c/leaf1/port/switch/Ethernet1%2F49"
    assert (of(found)["other end"], found.condition) == ("spine1 port eth-1", "uplink_down")
    assert "physical state" not in of(found)
    assert (
        broken_ports(window(changed(lost, "leaf1", "Ethernet1/49", physical_state="Disabled")))
        == []
    )
    # Of a port of which nobody knows what hangs there, it is not known whether it should be up.
    assert broken_ports(window(down(fabric(), "leaf1", "Ethernet1/2"), hosts=False)) == []


def test_a_host_says_by_lldp_at_which_port_it_hangs() -> None:
    seen = window(fabric())
    assert far_end(seen, port(2)) == ("leaf1", "Ethernet1/2")
    # After a host was moved two may say so, and nobody knows which is right.
    both = {key: hearing(it, name="Ethernet1/2") for key, it in seen.inventories.items()}
    assert far_end(replace(seen, inventories=both), port(2)) is None
    # Addresses are no names with domains.
    ten = {"10.0.0.1": replace(fabric()["leaf1"], subject=Subject(cluster="c", node="10.0.0.1"))}
    away = {key: hearing(it, switch="10.0.0.2") for key, it in seen.inventories.items()}
    assert far_end(replace(window(ten), inventories=away), port(2)) is None


def test_of_two_switches_of_one_short_name_the_whole_name_tells() -> None:
    leaf = fabric()["leaf1"]
    both = {
        name: replace(leaf, subject=Subject(cluster="c", node=name))
        for name in ("leaf1.dc1", "leaf1.dc2")
    }
    seen = window(both)
    for heard, told in (
        ("Leaf1.DC2", ("leaf1.dc2", "Ethernet1/2")),
        ("leaf1", None),
        ("leaf1.dc3", None),
    ):
        inventories = {key: hearing(it, switch=heard) for key, it in seen.inventories.items()}
        assert far_end(replace(seen, inventories=inventories), port(2)) == told


def test_a_leaf_that_is_lost_is_critical_by_the_hosts_that_heard_it() -> None:
    gone = fabric()
    gone["leaf1"] = replace(gone["leaf1"], lost_at=NOON - MINUTE, guid="10.0.0.7")
    (found,) = switches_down(window(gone))
    assert found.severity is Severity.CRITICAL
    assert set(found.members) == {port(n) for n in range(1, HOSTS + 1)}
    assert of(found)["hosts' ports there"] == str(HOSTS)
    assert of(found)["switches"] == "leaf1 (10.0.0.7)"
    (unknown,) = switches_down(window(gone, hosts=False))
    assert unknown.severity is Severity.WARNING
    (spine,) = switches_down(
        window({**fabric(), "spine1": replace(fabric()["spine1"], lost_at=NOON - MINUTE)})
    )
    assert (spine.severity, of(spine)["switches"]) == (Severity.WARNING, "spine1")


@pytest.mark.parametrize(("host", "told"), [("node-2", 0), ("storage-1", 1)])
def test_of_a_host_that_lldp_calls_by_an_address_its_collector_tells(host: str, told: int) -> None:
    those = changed(fabric(), "leaf1", "Ethernet1/1", peer=f"{host} 0c:42:a1:00:00:01")
    those = changed(those, "leaf1", "Ethernet1/2", peer=f"{host} 0c:42:a1:00:00:02")
    seen = window(down(those, "leaf1", "Ethernet1/2"))
    unheard = {
        key: replace(it, ports=(replace(it.ports[0], switch=None, switch_port=None),))
        for key, it in seen.inventories.items()
    }
    assert len(broken_ports(replace(seen, inventories=unheard))) == told


@pytest.mark.parametrize(("host", "told"), [("node-2", 0), ("storage-1", 1)])
def test_a_slow_link_of_a_host_with_a_collector_is_the_collectors(host: str, told: int) -> None:
    slow = a_port(2, "", peer=f"{host} mlx5_7", bits_per_second=FAST // 2)
    leaf = fabric()["leaf1"]
    seen = window({"leaf1": replace(leaf, ports=(*leaf.ports, slow))})
    assert len(degraded_ports(seen)) == told


def untold(those: Fabric, *places: tuple[str, str]) -> Fabric:
    """By LLDP the other ends have names that are not those of their ports."""
    for number, place in enumerate(places):
        those = changed(those, *place, peer_port_name=f"{number * 4}")
    return those


def twins() -> Fabric:
    """Two cables between leaf 1 and the spine, of which no end says where it is at the other switch."""
    those = fabric()
    for at, name, far in (("leaf1", "Ethernet1/50", "spine1"), ("spine1", "eth-3", "leaf1")):
        more = a_port(50, name, **to(far, ""))
        those[at] = replace(those[at], ports=(*those[at].ports, more))
    names = ("leaf1", "Ethernet1/49"), ("leaf1", "Ethernet1/50"), ("spine1", "eth-1")
    return untold(those, *names, ("spine1", "eth-3"))


@pytest.mark.parametrize("places", [
    [("leaf1", "Ethernet1/49")], [("spine1", "eth-1")], [("leaf1", "Ethernet1/49"), ("spine1", "eth-1")],
])  # fmt: skip
def test_a_cable_is_one_where_lldp_calls_ports_otherwise(places: list[tuple[str, str]]) -> None:
    lost = down(down(fabric(), "leaf1", "Ethernet1/49"), "spine1", "eth-1")
    (found,) = broken_ports(window(untold(lost, *places)))
    assert found.subject.key == "c/leaf1/port/switch/Ethernet1%2F49"
    assert of(found)["other end"] == "spine1 port eth-1"
    assert of(found)["links between the two that are up"] == "0 of 1"


def test_of_several_cables_the_ends_that_are_down_are_one() -> None:
    assert broken_ports(window(twins())) == []
    (found,) = broken_ports(window(down(down(twins(), "leaf1", "Ethernet1/50"), "spine1", "eth-1")))
    assert found.subject.port == "Ethernet1/50"
    # Which end is its other one nobody knows: it is said as LLDP has it.
    assert of(found)["other end"] == "spine1 port 4"
    assert of(found)["links between the two that are up"] == "1 of 2"
    (one_sided,) = broken_ports(window(down(twins(), "spine1", "eth-3")))
    assert (one_sided.subject.node, one_sided.subject.port) == ("spine1", "eth-3")


def test_errors_are_told_of_the_end_that_counts_them_where_its_other_one_is_not_known() -> None:
    bad = changed(twins(), "spine1", "eth-3", counts=counted(receive_errors=9000))
    (found,) = bad_ports(window(bad))
    assert (found.subject.node, found.subject.port) == ("spine1", "eth-3")
    assert of(found)["other end"] == "leaf1 port 12"


def test_a_spine_with_a_port_for_management_has_no_hosts() -> None:
    those = fabric()
    for number, (name, it) in enumerate(those.items()):
        oob = a_port(99, "mgmt0", peer=f"oob1 Gi1/0/{number}")
        those[name] = replace(it, ports=(*it.ports, oob))
    those["spine1"] = replace(those["spine1"], lost_at=NOON - MINUTE)
    (found,) = switches_down(window(those))
    assert (found.severity, of(found)["hosts' ports there"]) == (Severity.WARNING, "0")
    found_uplinks = {(it.lower, it.upper) for it in from_switches(those.values()).uplinks}
    assert found_uplinks == {("leaf1", "spine1"), ("leaf2", "spine1")}


def test_a_slow_cable_between_switches_is_told_without_lanes() -> None:
    slow = changed(fabric(), "leaf1", "Ethernet1/49", bits_per_second=FAST // 2)
    (found,) = degraded_ports(window(slow))
    assert of(found) == {"speed": "200 Gb/s", "other end": "spine1 port eth-1"}


@pytest.mark.parametrize("hosts", [True, False])
def test_a_host_that_is_off_may_have_a_slow_link(hosts: bool) -> None:
    slow = {"bits_per_second": FAST // 400, "peer": "node-2 eth0"}
    assert degraded_ports(window(changed(fabric(), "leaf1", "Ethernet1/2", **slow), hosts)) == []


@pytest.mark.parametrize(("errors", "told"), [(6000, False), (6001, True)])
def test_errors_are_told_and_what_is_not_measured_is_none(errors: int, told: bool) -> None:
    bad = changed(fabric(), "leaf2", "Ethernet1/49", counts=counted(receive_errors=errors))
    found = bad_ports(window(bad))
    assert bool(found) is told
    for it in found:
        assert of(it) == {
            "receive errors at leaf2 port Ethernet1/49": "6001 in 10 min",
            "other end": "spine1 port eth-2",
        }


def test_errors_at_a_port_with_an_unknown_other_end_are_told_too() -> None:
    bad = changed(fabric(), "leaf1", "Ethernet1/2", counts=counted(receive_errors=9000))
    (found,) = bad_ports(window(bad, hosts=False))
    assert of(found)["other end"] == "not known"
    (known,) = bad_ports(window(bad))
    assert (known.members, of(known)["other end"]) == ((port(2),), "node-2 mlx5_0")


def test_a_counter_with_a_name_does_not_end_where_those_of_infiniband_do() -> None:
    counts = (
        replace(NOTHING, receive_errors=65_530),
        replace(NOTHING, at=NOON - 30 * MINUTE, receive_errors=65_535),
    )
    assert bad_ports(window(changed(fabric(), "leaf2", "Ethernet1/49", counts=counts))) == []


def test_what_a_switch_drops_and_pauses_is_evidence_of_its_hosts_ports() -> None:
    those = changed(fabric(), "leaf1", "Ethernet1/2", counts=counted(transmit_discards=20))
    most = counted(transmit_discards=12_345, pause_frames_sent=0)
    those = changed(those, "leaf1", "Ethernet1/49", counts=most)
    assert {it.name: it.value for it in switch_port_drops(window(those), port(2))} == {
        "packets dropped at leaf1": "12,345 at port Ethernet1/49, 20 at port Ethernet1/2 in 10 min",
        "pause frames sent at leaf1": "none",
    }
    # What is over, not measured, or at a switch that nobody knows.
    old = changed(fabric(), "leaf1", "Ethernet1/2", counts=counted(10, transmit_discards=20))
    assert [it.value for it in switch_port_drops(window(old), port(2))] == ["none"]
    for seen in (window(fabric()), window({})):
        (unknown,) = switch_port_drops(seen, port(2))
        assert unknown.value == "not observable without switch counters"
    many = fabric()
    for n in range(1, HOSTS + 1):
        many = changed(many, "leaf1", f"Ethernet1/{n}", counts=counted(transmit_discards=n))
    (shown,) = switch_port_drops(window(many), port(2))
    assert (
        shown.value
        == "4 at port Ethernet1/4, 3 at port Ethernet1/3, 2 at port Ethernet1/2 and 1 more port in 10 min"
    )


def test_detectors_of_congestion_and_losses_say_it() -> None:
    settings = replace(SETTINGS, steady_seconds=600.0, trend_seconds=1800.0)
    hosts = [port(n) for n in range(1, HOSTS + 1)]
    scene = carrying(replace(healthy(nodes=6, seconds=1900.0), settings=settings), hosts, 0.4)
    for one in hosts:
        scene = scene.turned(one, "receive_pause_microseconds", 1_000.0, 3e5, 70.0)
    drops = counted(transmit_discards=77)
    known = window(changed(fabric(), "leaf1", "Ethernet1/49", counts=drops))
    seen = replace(
        scene.window((CONGESTED, LOSSES)), switches=known.switches, inventories=known.inventories
    )
    found = CONGESTED.find(seen)
    assert [of(it).get("packets dropped at leaf1") for it in found] == [
        "77 at port Ethernet1/49 in 10 min"
    ]
    assert all("beyond the port" not in of(it) for it in found)


@pytest.mark.medium
def test_a_shallow_buffer_that_drops_bursts_is_told_by_what_is_sent_again_and_by_nothing_else() -> (
    None
):
    """The switch in front of the receiver drops; who feels it are the senders, at another leaf."""
    settings = replace(SETTINGS, steady_seconds=600.0, trend_seconds=1800.0)
    scene = replace(healthy(nodes=6, seconds=1900.0), settings=settings)
    none = counted(transmit_discards=0)
    bursts = {"counts": counted(transmit_discards=50_000), "peer": "node-9 mlx5_0"}
    leaf2 = a_port(2, "Ethernet1/9", **bursts)
    those = {**fabric(), "leaf2": a_switch("leaf2", *fabric()["leaf2"].ports, leaf2)}
    those = changed(those, "leaf1", "Ethernet1/1", counts=none)

    def found(of: Scene) -> list[Finding]:
        known = window(those)
        seen = of.window((CONGESTED, LOSSES))
        seen = replace(seen, switches=known.switches, inventories=known.inventories)
        return [*CONGESTED.find(seen), *LOSSES.find(seen)]

    assert found(scene) == []
    assert found(scene.rising(port(1), "retransmits", 0.5)) == []
    (lost,) = found(scene.rising(port(1), "retransmits", 2.0))
    assert (lost.fault, lost.subject) == ("port_packet_loss", port(1))
    assert of(lost)["packets dropped at leaf1"] == "none"
    assert of(lost)["packets dropped elsewhere"] == (
        "50,000 at leaf2 port Ethernet1/9 (node-9 mlx5_0) in 10 min"
    )


def test_the_topology_has_cables_between_switches_and_leaves_hosts_to_their_own_word() -> None:
    found = from_switches(changed(fabric(), "leaf1", "Ethernet1/2", peer="node-2 eth0").values())
    assert found.wires == ()
    uplinks = {
        (it.lower, it.lower_port, it.upper, it.upper_port, it.source) for it in found.uplinks
    }
    assert ("leaf1", "Ethernet1/49", "spine1", "eth-1", Source.LLDP) in uplinks
    assert len(uplinks) == 2
