"""What a look says of each incident to the last second, and which of several findings speaks."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.correlation.correlate import is_visible, observe
from analyzer.correlation.observation import Observation
from gpuvigil.model import (
    EventKind,
    Finding,
    Group,
    GroupKind,
    Incident,
    Severity,
)

from .scene import NOON, TICK, Scene, event, gpu, healthy, incident, node
from .test_correlate import PATIENT, finding, seen

SECOND, MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)
QUIET = healthy()
ORDERS = (1, -1)


def look(found: Sequence[Finding], standing: Sequence[Incident] = ()) -> Observation:
    """What is made of these findings, each of which was seen before."""
    return observe(QUIET.window(), found, standing, {one.fingerprint for one in found})


def heard(seconds: timedelta) -> Scene:
    return replace(healthy(), heard={node().key: NOON - seconds}, settings=PATIENT)


@pytest.mark.parametrize(
    ("late", "tells"), [(0 * SECOND, True), (-MICROSECOND, True), (MICROSECOND, False)]
)
def test_what_a_node_would_show_is_known_until_three_of_its_ticks_are_missing(
    late: timedelta, tells: bool
) -> None:
    old = incident("gpu_silent", gpu())
    scene = heard(timedelta(seconds=3 * TICK) + late)
    assert is_visible(scene.window(), old) is tells
    assert (old.fingerprint in seen(scene, [old]).unknown) is not tells


@pytest.mark.parametrize("order", ORDERS)
def test_of_two_findings_of_one_name_the_graver_speaks_and_of_equals_the_certain_one(
    order: int,
) -> None:
    one = finding("gpu_memory", gpu())
    unsure = [replace(one, certain=certain, title=str(certain)) for certain in (True, False)]
    (said,) = look(unsure[::order]).candidates.values()
    assert (said.finding.certain, said.title) == (True, "True")
    grave = [
        replace(one, severity=severity, title=severity.value, certain=severity is Severity.INFO)
        for severity in Severity
    ]
    (said,) = look(grave[::order]).candidates.values()
    assert said.severity is Severity.CRITICAL
    # Of all that is equal, the detector that comes first by its name.
    alike = [replace(one, detector=name, title=name) for name in ("a", "b")]
    (said,) = look(alike[::order]).candidates.values()
    assert said.title == "a"


@pytest.mark.parametrize("order", ORDERS)
def test_a_cause_on_several_nodes_is_as_urgent_as_the_gravest_that_it_ends_elsewhere(
    order: int,
) -> None:
    feed = replace(finding("gpu_power", node()), members=(node(1), node(2), node(3)))
    feed = replace(feed, severity=Severity.INFO)
    own = replace(finding("gpu_power", node(2)), severity=Severity.INFO)
    old = [
        replace(incident("gpu_power", node(number)), severity=severity)
        for number, severity in ((2, Severity.WARNING), (3, Severity.CRITICAL))
    ]
    (said,) = look([feed, own], old[::order]).candidates.values()
    assert (said.finding.subject, said.severity) == (node(), Severity.CRITICAL)
    (said,) = look([feed, own], old[:1]).candidates.values()
    assert said.severity is Severity.WARNING
    (said,) = look([replace(feed, severity=Severity.CRITICAL), own], old[:1]).candidates.values()
    assert said.severity is Severity.CRITICAL


def test_a_cure_at_the_very_begin_of_an_incident_ends_it() -> None:
    old = incident("gpu_lost", gpu())
    for after, ends in ((-MICROSECOND, False), (0 * SECOND, True)):
        back = event(EventKind.GPU_BACK, gpu(), old.since + after)
        assert (old.fingerprint in seen(QUIET.with_events(back), [old]).cured) is ends


@pytest.mark.parametrize(
    ("fault", "cluster", "is_told"),
    [("node_silent", "c", False), ("node_silent", "d", True), ("gpu_xid", "c", True)],
)
def test_while_half_of_a_cluster_is_silent_none_of_its_racks_is_told(
    fault: str, cluster: str, is_told: bool
) -> None:
    nodes = tuple(node(number).key for number in range(1, 9))
    whole = replace(incident(fault, node(cluster=cluster)), group=Group(GroupKind.CLUSTER, cluster))
    rack = replace(finding("node_silent", node()), group=Group(GroupKind.RACK, "r1"))
    rack = replace(rack, members=(node(1), node(2)))
    told = look([rack], [replace(whole, members=nodes)]).candidates
    assert (rack.fingerprint in told) is is_told
    # What is about one node goes on to be told.
    lost = finding("gpu_lost", gpu(2))
    assert lost.fingerprint in look([lost], [replace(whole, members=nodes)]).candidates


def test_what_is_there_or_covered_is_neither_cured_nor_unknown() -> None:
    old = incident("gpu_lost", gpu())
    back = event(EventKind.GPU_BACK, gpu(), NOON - SECOND)
    for scene in (QUIET.with_events(back), QUIET.without(lambda s: s.subject == gpu())):
        for found in (finding("gpu_lost", gpu()), finding("node_silent", node())):
            print_ = found.fingerprint
            said = observe(scene.window(), [found], [old], {print_})
            assert set(said.candidates) == {print_}
            assert (old.fingerprint in said.covered) is (found.fault == "node_silent")
            assert (said.cured, said.unknown) == ({}, frozenset())
