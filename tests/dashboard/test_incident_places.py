"""What an incident is about and what it names leads to a page, and a filter finds all its nodes: pure."""

from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from dashboard.data.attention import attention
from dashboard.incidents.filters import Filters
from dashboard.incidents.listing import listing, open_entry
from dashboard.incidents.named_places import NamedPlaces
from dashboard.layout.tree import Node
from dashboard.model.incident_place import Inventories, place_page, rack_of
from gpuvigil.faults import FAULTS
from gpuvigil.faults.relations import Shared
from gpuvigil.model import (
    SWITCH_DEVICE,
    Group,
    GroupKind,
    Impact,
    Incident,
    PortIdentity,
    Severity,
    Subject,
)

from .scene import NOON, gpu, incident, inventory, node

OF_RACK = next(key for key, row in FAULTS.items() if row.shared is Shared.RACK)
LEAF = PortIdentity(
    device="mlx5_0", port="1", kind="infiniband", role="fabric", was_up=True, switch="leaf1"
)


def fleet(racks: int = 3, nodes: int = 4) -> Inventories:
    """Nodes n0, n1, ... of cluster lab, so many in each rack r0, r1, ..."""
    made = [
        inventory(node(f"n{number}", "lab"), rack=f"r{number // nodes}", ports=(LEAF,))
        for number in range(racks * nodes)
    ]
    return {one.subject: one for one in made}


def about(*names: str, fault: str = "node_silent", **values: Any) -> Incident:
    subjects = [node(name, "lab") for name in names]
    one = incident(fault, subjects[0], Severity.CRITICAL)
    return replace(one, members=tuple(it.key for it in subjects), **values)


def test_what_is_about_a_rack_leads_to_the_page_of_the_rack() -> None:
    silent = about("n4", "n5", "n6", group=Group(GroupKind.RACK, "R1"))
    assert rack_of(silent, fleet()) == "r1"  # as its nodes write it
    assert rack_of(silent, {}) == "R1"
    assert place_page(silent, NOON, fleet()) == "/hardware?cluster=lab&rack=r1"
    warm = about("n4", "n5", fault=OF_RACK)
    assert rack_of(warm, fleet()) == "r1"
    for other in (about("n4", fault=OF_RACK), about("n4", "n5"), about("n4")):
        assert rack_of(other, fleet()) == ""
        assert place_page(other, NOON, fleet()).startswith("/node?cluster=lab&node=n4&")
    domain = about("n4", "n5", fault=OF_RACK, group=Group(GroupKind.NVLINK_DOMAIN, "d"))
    assert rack_of(domain, fleet()) == ""


def test_the_filter_by_node_finds_every_node_of_an_incident() -> None:
    rack, alone = (
        about("n4", "n5", "n6"),
        incident("gpu_lost", gpu(0, node("n5", "lab")), Severity.INFO),
    )
    shown = [open_entry(item) for item in attention((rack, alone), (), NOON)]

    def found(**asked: str) -> list[str]:
        return sorted(one.fault for one in listing(shown, (), Filters(**asked)).open_rows)

    assert found(node="n6") == found(q="n6") == ["node_silent"]
    assert found(node="n5") == ["gpu_lost", "node_silent"]
    assert found(node="n7") == []
    counts = {it.value: it.count for it in listing(shown, (), Filters()).choices["node"]}
    assert counts == {"n5": 2, "n4": 1, "n6": 1}


def links(nodes: list[Node]) -> dict[str, str]:
    """The address of each link, by its text."""
    return {it[2]: it[1]["href"] for it in nodes if isinstance(it, list)}


def test_names_in_evidence_are_links_and_other_words_are_not() -> None:
    one = about("n4", "n5", group=Group(GroupKind.RACK, "r1"))
    one = replace(one, impact=Impact(holders=("job 7",), users=("ann",)))
    places = NamedPlaces(incident=one, until=NOON, inventories=fleet())
    found = links(
        places.linked(
            "rack r1: n4, n5 GPU 3, n6 mlx5_0 and n77 at leaf1 port 12 or leaf2, job 7 of ann, job 8."
        )
    )
    assert list(found) == [
        "r1",
        "n4",
        "n5 GPU 3",
        "n6 mlx5_0",
        "leaf1 port 12",
        "job 7",
        "ann",
        "job 8",
    ]
    paths = [urlsplit(href).path for href in found.values()]
    assert paths == ["/hardware", "/node", "/gpu", "/node", "/network", "/job", "/people", "/job"]
    assert parse_qs(urlsplit(found["n5 GPU 3"]).query)["gpu"] == [gpu(3, node("n5", "lab")).gpu]
    assert parse_qs(urlsplit(found["n6 mlx5_0"]).query)["port"] == ["mlx5_0/1"]


@pytest.mark.parametrize("text", ["nodes of rack-004: 3", "nodes of rack rack-004: 3"])
def test_a_rack_whose_name_says_what_it_is_is_a_link(text: str) -> None:
    one = about("n4", "n5", group=Group(GroupKind.RACK, "rack-004"))
    places = NamedPlaces(incident=one, until=NOON, inventories={})
    assert list(links(places.linked(text))) == ["rack-004"]


@pytest.mark.parametrize("text", ["", "4 of 12 nodes", "n4-old, an4 and n4.lab", "r1", "job seven"])
def test_what_names_nothing_known_stays_text(text: str) -> None:
    places = NamedPlaces(incident=about("n4"), until=NOON, inventories=fleet())
    assert places.linked(text) == ([text] if text else [])


def test_a_range_of_gpus_leads_to_the_node_and_a_switch_to_its_page() -> None:
    leaf = Subject(cluster="lab", node="leaf9", device=SWITCH_DEVICE, port="0")
    one = incident("switch_down", leaf, Severity.CRITICAL)
    places = NamedPlaces(incident=one, until=NOON, inventories=fleet())
    assert links(places.linked("n4 GPU 0-7, leaf9")).keys() == {"n4", "leaf9"}
    assert places.linked("n4 GPU 0-7")[1] == " GPU 0-7"
