"""One link's page: both ends, whoever tells of them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from dashboard.lists.links import measured
from dashboard.lists.network import Network, network
from dashboard.lists.one_link import End
from dashboard.network.link import page
from gpuvigil.model import SWITCH_DEVICE, ErrorCount, Incident, Subject, Switch
from gpuvigil.web.page_links import link_page, node_page, switch_page

from .test_fabric import FAST, HOUR, changed, host, switch, two_by_two
from .test_network import BUSY, NODES, NOW, bad, moment, port, told

LEAF = Subject(cluster="prod", node="leaf1", device=SWITCH_DEVICE, port="3")
SPINE = replace(LEAF, node="spine1", port="2")


def seen(*incidents: Incident, switches: Iterable[Switch] = (), at: str | None = None) -> Network:
    """Two hosts' ports, measured, and what somebody read of switches."""
    ports = measured(told((port(NODES[0]), BUSY), (port(NODES[1]), BUSY)), ["prod"])
    return network(moment(*incidents, switch=at), ports, None, switches)


def ends(found: Network, asked: Subject) -> Sequence[End]:
    assert found.known is not None
    link = found.known.link(asked, found.findings)
    assert link is not None
    return link.ends


def facts(end: End) -> Mapping[str, str]:
    return dict(end.facts)


def test_a_cable_between_switches_has_both_of_its_ends_whichever_is_asked_for() -> None:
    found = seen(switches=two_by_two("prod"))
    assert [it.subject for it in ends(found, LEAF)] == [LEAF, SPINE]
    assert [it.subject for it in ends(found, SPINE)] == [SPINE, LEAF]
    first = facts(ends(found, LEAF)[0])
    assert first["State"].startswith("up since ")
    assert first["Speed"] == "400 Gbit/s"
    assert first["Symbol errors"] == "0 in the last hour"
    assert "Packets dropped" not in first  # nobody counts them there


def test_a_slow_end_says_what_it_was_and_its_errors_are_those_of_the_last_hour() -> None:
    counts = (ErrorCount(at=NOW - HOUR, symbol_errors=7), ErrorCount(at=NOW, symbol_errors=1847))
    slow = changed(two_by_two("prod"), "leaf1", 3, bits_per_second=FAST // 4, counts=counts)
    said = facts(ends(seen(switches=slow), LEAF)[0])
    assert said["Speed"] == "100 of 400 Gbit/s"
    assert said["Symbol errors"] == "1,840 in the last hour"


@pytest.mark.parametrize(("ages", "said"), [((60, 14, 10, 0), "3"), ((60, 14, 9, 0), "5")])
def test_of_what_a_switch_drops_only_the_last_minutes_are_told(
    ages: tuple[int, ...], said: str
) -> None:
    dropped = (1, 10, 12, 15)
    counts = tuple(
        ErrorCount(at=NOW - age * HOUR / 60, transmit_discards=number)
        for age, number in zip(ages, dropped, strict=True)
    )
    busy = changed(two_by_two("prod"), "leaf1", 3, counts=counts)
    found = facts(ends(seen(switches=busy), LEAF)[0])["Packets dropped"]
    assert found == f"{said} in the last {10 if said == '3' else 14} minutes"


def test_a_host_s_link_is_found_from_either_end_by_what_the_switch_says() -> None:
    leaf = switch("leaf1", host(7, "n-1"), cluster="prod")
    here = port(NODES[0])
    found = seen(switches=[leaf])
    there = replace(LEAF, port="7")
    assert [it.subject for it in ends(found, here)] == [here, there]
    assert [it.subject for it in ends(found, there)] == [there, here]
    said = facts(ends(found, here)[0])
    assert (said["Kind"], said["Speed"], said["Load"]) == ("roce, fabric", "400 Gbit/s", "50 %")
    assert said["Wait"] == "3 % of the time"
    assert "Wait vs peers" not in said


def test_a_host_s_link_is_found_by_what_the_host_heard() -> None:
    here, there = port(NODES[0]), replace(LEAF, port="Ethernet7")
    leaf = switch("leaf1", replace(host(7, ""), name="Ethernet7", peer=""), cluster="prod")
    found = seen(switches=[leaf], at="leaf1")
    assert [it.subject for it in ends(found, here)] == [here, there]
    assert ends(found, there)[1].subject in {port(one) for one in NODES} | {
        port(one, "mlx5_1") for one in NODES
    }


@pytest.mark.parametrize("heard", ["leaf1.example.org", "Leaf1", "leaf1"])
def test_a_switch_is_known_by_its_name_with_a_domain_and_without(heard: str) -> None:
    here, there = port(NODES[0]), replace(LEAF, port="Ethernet7")
    leaf = switch("leaf1", replace(host(7, ""), name="Ethernet7", peer=""), cluster="prod")
    found = seen(switches=[leaf], at=heard)
    assert [it.subject for it in ends(found, here)] == [here, there]
    assert len(ends(found, there)) == 2


def test_where_nobody_tells_of_the_other_end_the_page_says_what_it_takes() -> None:
    drawn = json.dumps(page(seen(), port(NODES[0]).key, NOW))
    assert "The other end is not known" in drawn
    assert "No finding." in drawn
    assert "/node?cluster=prod&node=n-1&port=mlx5_0%2F1" in drawn


def test_what_stands_about_either_end_is_on_the_page_with_what_to_do() -> None:
    leaf = switch("leaf1", host(7, "n-1"), cluster="prod")
    errors = replace(bad(port(NODES[0]), "job 7"), action="Swap the cable.")
    found = seen(errors, bad(port(NODES[1])), switches=[leaf])
    drawn = json.dumps(page(found, replace(LEAF, port="7").key, NOW), ensure_ascii=False)
    assert "n-1 mlx5_0 → leaf1 port 7" in drawn
    assert "Swap the cable." in drawn
    assert drawn.count("/incidents?incident=") == 1


def test_a_switch_itself_is_shown_with_its_ports() -> None:
    fine = two_by_two("prod")
    lost = [replace(fine[0], lost_at=NOW - HOUR), *fine[1:]]
    drawn = json.dumps(page(seen(switches=lost), replace(LEAF, port="0").key, NOW))
    assert "silent since" in drawn
    assert '"6 of 6 up"' in drawn
    assert "The other end is not known" not in drawn
    leads_to = {switch_page("prod", "spine1"), node_page("prod", "n11")}
    leads_to.add(link_page(replace(LEAF, port="3")))
    assert all(f'"{href}"' in drawn for href in leads_to)
    # Which of them is slow is seen without opening each.
    slow = changed(fine, "leaf1", 3, bits_per_second=FAST // 4)
    assert '["td", {"class": "apart"}, "100 of 400 Gbit/s"]' in json.dumps(
        page(seen(switches=slow), replace(LEAF, port="0").key, NOW)
    )
    assert '"apart"' not in drawn
    # The page of one of its ports does not list the others.
    port = json.dumps(page(seen(switches=fine), replace(LEAF, port="3").key, NOW))
    assert link_page(replace(LEAF, port="5")) not in port


@pytest.mark.parametrize(
    "asked", ["", "prod/n-9/port/mlx5_0/1", "%%/x", "prod/leaf1/port/switch/99"]
)
def test_a_link_of_which_nobody_tells_is_said_to_be_none(asked: str) -> None:
    drawn = json.dumps(page(seen(switches=two_by_two("prod")), asked, NOW))
    assert "No such link" in drawn


def test_what_stands_about_links_of_a_switch_is_on_its_page_with_its_place() -> None:
    leaf = switch("leaf1", host(7, "n-1"), cluster="prod")
    here, elsewhere = (bad(port(one), "job 7") for one in NODES[:2])
    itself = replace(LEAF, port="0")
    found = seen(here, elsewhere, switches=[leaf])
    assert found.known is not None
    link = found.known.link(itself, found.findings)
    assert link is not None
    assert [it.id for it in link.findings] == [here.id]
    said = json.dumps(page(found, itself.key, NOW), ensure_ascii=False)
    assert f'" ({here.label})"' in said
    assert '"No finding."' not in said
    heard = seen(here, switches=two_by_two("prod"), at="leaf1.example.org")
    assert heard.known is not None
    told_of = heard.known.link(itself, heard.findings)
    assert told_of is not None
    assert [it.id for it in told_of.findings] == [here.id]
    spine = heard.known.link(replace(itself, node="spine1"), heard.findings)
    assert spine is not None
    assert not spine.findings
