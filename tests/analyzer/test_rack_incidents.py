"""A rack's air or feed is one incident, whichever of its nodes shows it first and last."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.correlation.rack_incidents import as_of_racks
from analyzer.incidents.book import Book
from gpuvigil.model import Evidence, Finding, Incident, Severity

from .scene import NOON, gpu, incident, node
from .test_book import Keeper
from .test_causes import look
from .test_hides import told

MINUTE = timedelta(minutes=1)
INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL

FIRST = told(
    "gpu_hot", node(2), gpu(2), gpu(2, 1), condition="node_hot", title="node", severity=WARNING
)
# A rack is called by its first node, hit or not.
RACK = told(
    "gpu_hot", node(1), *(gpu(1), node(2), gpu(2), node(3), gpu(3)),
    condition="rack_hot", title="rack", severity=WARNING,
)  # fmt: skip
OF_FIRST = incident("gpu_hot", node(2), condition="node_hot")
OF_RACK = incident("gpu_hot", node(2), condition="rack_hot", members=(node(2).key, node(3).key))


def called(
    active: Sequence[Incident] = (),
    over: Sequence[Incident] = (),
    *more: Finding,
    rack: Finding = RACK,
    is_sure: bool = True,
) -> Finding:
    """The rack's finding, as the incident that it continues."""
    stands = {it.fingerprint: it for it in active}
    believed = {rack.fingerprint} if is_sure else set()
    return as_of_racks([rack, *more], stands, over, believed)[0]


# --- the node that showed it first ----------------------------------------------------------------


def test_a_node_that_is_warm_before_its_rack_and_after_it_is_one_incident() -> None:
    keeper = Keeper(book=Book())
    for found in (FIRST, FIRST, RACK, RACK, RACK, FIRST, RACK):
        look(keeper, found)
    (one,) = keeper.incidents.values()
    assert (one.subject, one.body["condition"]) == (node(2).key, "rack_hot")
    assert set(one.body["members"]) >= {node(1).key, node(2).key, node(3).key}


def test_a_rack_goes_on_as_the_first_of_its_nodes_that_was_told() -> None:
    found = called([OF_FIRST])
    assert (found.subject, found.condition) == (node(2), "rack_hot")
    assert set(found.members) == {node(1), gpu(1), gpu(2), node(3), gpu(3)}
    older = incident("gpu_hot", node(3), since=-2 * MINUTE, condition="node_hot")
    assert called([OF_FIRST, older]).subject == node(3)
    # A first node that is not hit does not become so by it.
    others = told("gpu_hot", node(1), node(2), gpu(2), node(3), gpu(3), condition="rack_hot")
    assert set(called([OF_FIRST], rack=others).members) == {gpu(2), node(3), gpu(3)}


@pytest.mark.parametrize(
    "other",
    [
        # Warm long before, graver, another node's, another matter, and a heatsink's own.
        incident("gpu_hot", node(2), since=-21 * MINUTE, condition="node_hot"),
        replace(OF_FIRST, severity=CRITICAL),
        incident("gpu_hot", node(4), condition="node_hot"),
        incident("gpu_power", node(2)),
        incident("gpu_hot", gpu(2), condition="heatsink"),
    ],
    ids=lambda it: f"{it.fault} {it.condition} {it.severity.value}",
)
def test_what_is_no_first_sign_of_it_stays_a_matter_of_its_own(other: Incident) -> None:
    assert called([other]) == RACK


def test_a_rack_with_an_incident_of_its_own_and_one_seen_once_keep_their_name() -> None:
    own = incident("gpu_hot", node(1), members=(node(2).key,), condition="rack_hot")
    assert called([OF_FIRST, own]) == RACK
    assert called([OF_FIRST], is_sure=False) == RACK
    # What the node still shows beside it goes on as the node's.
    assert called([OF_FIRST], (), FIRST) == RACK


# --- the rack's own -------------------------------------------------------------------------------


def test_a_rack_goes_on_and_comes_back_as_the_incident_that_it_had() -> None:
    assert called([OF_RACK], is_sure=False).subject == node(2)
    ended = replace(OF_RACK, resolved_at=NOON)
    assert called((), [ended], is_sure=False).subject == node(2)
    # Its own is nearer; and what one node had, and has no more, was that node's.
    own = replace(incident("gpu_hot", node(1), members=(node(3).key,)), resolved_at=NOON)
    assert called((), [ended, own]) == RACK
    assert called((), [replace(OF_FIRST, resolved_at=NOON)]) == RACK
    assert called((), [replace(ended, fault="gpu_power", condition="power_feed")]) == RACK


def test_supplies_of_two_nodes_are_not_told_as_that_of_the_first() -> None:
    both = replace(RACK, fault="gpu_power", condition="power_feed", severity=CRITICAL)
    first = replace(incident("gpu_power", node(2), condition="power_brake"), severity=CRITICAL)
    assert called([first], rack=both) == both


# --- a rack's first node --------------------------------------------------------------------------

LEFT = told("gpu_power", node(), gpu(), gpu(1, 1), severity=WARNING, title="own")
RACKS = replace(
    incident("gpu_power", node()),
    severity=WARNING,
    title="rack",
    condition="rack_brake",
    action="rack's",
    source="rack",
    own_limit=True,
    members=(node().key, node(2).key),
    evidence=(Evidence(name="of", value="rack"),),
)


@pytest.mark.parametrize(
    ("finding", "rack", "in_racks_words"),
    [
        ({}, {}, True),
        ({"severity": INFO}, {}, True),
        ({"severity": CRITICAL}, {}, False),
        ({"severity": CRITICAL}, {"severity": CRITICAL}, True),
        ({"members": (node(), node(2))}, {}, False),
        ({}, {"members": (node().key, gpu().key)}, False),
        ({"subject": node(3), "members": ()}, {}, False),
        ({"fault": "gpu_slow"}, {"fault": "gpu_slow"}, False),
    ],
)
def test_what_is_left_of_a_rack_on_its_first_node_is_in_the_racks_words(
    finding: Mapping[str, Any], rack: Mapping[str, Any], in_racks_words: bool
) -> None:
    found = replace(LEFT, **finding)
    old = replace(RACKS, **rack)
    if found.subject == old.subject:
        old = replace(old, fingerprint=found.fingerprint)
    (said,) = as_of_racks([found], {old.fingerprint: old}, (), ())
    words = (said.title, said.condition, said.action, said.source, said.own_limit, said.evidence)
    of_rack = (old.title, old.condition, old.action, old.source, old.own_limit, old.evidence)
    assert (words == of_rack) is in_racks_words
    assert in_racks_words or said == found
