"""What one GPU of a node shows first and then several is one incident."""

from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.correlation.correlate import observe
from analyzer.correlation.observation import Observation
from analyzer.incidents.book import Book
from analyzer.window.window import Window
from gpuvigil.model import Finding, Incident, Severity, Subject

from .scene import NOON, gpu, healthy, incident, node
from .test_book import Keeper
from .test_causes import look, slowness

SCENE = healthy(nodes=2, gpus=3)


def of_node(fault: str, *gpus: Subject, condition: str = "") -> Finding:
    return replace(slowness(fault, node()), members=gpus, condition=condition)


def seen(active: list[Incident], *findings: Finding) -> Observation:
    believed = {one.fingerprint for one in findings} | {one.fingerprint for one in active}
    return observe(SCENE.window(), findings, active, believed)


BOTH = (gpu(), gpu(1, 1))
CLOCKS, HOT = of_node("gpu_clocks", *BOTH), of_node("gpu_hot", *BOTH, condition="node_hot")
LINKS = of_node("gpu_pcie", *BOTH, condition="pcie_slow")


@pytest.mark.parametrize("several", [CLOCKS, HOT, LINKS])
def test_it_goes_on_as_the_incident_of_the_first(several: Finding) -> None:
    old = incident(several.fault, gpu(1, 1))
    found = seen([old], several)
    ((print_, one),) = found.candidates.items()
    assert (print_, one.finding.subject, one.finding.members) == (
        old.fingerprint,
        gpu(1, 1),
        (gpu(),),
    )
    assert one.members == tuple(sorted(it.key for it in BOTH))
    assert one.gpus == "2 GPUs (GPU 0-1)"
    assert found.covered == {}
    # Of two that stood each for itself the older one goes on, and covers the other.
    young = incident(several.fault, gpu(), since=timedelta(seconds=-5))
    found = seen([young, old], several)
    assert (set(found.candidates), set(found.covered)) == ({old.fingerprint}, {young.fingerprint})


@pytest.mark.parametrize("several", [CLOCKS, HOT, LINKS])
def test_it_is_the_nodes_own_where_none_of_its_gpus_stood_for_it(several: Finding) -> None:
    for other in (
        incident(several.fault, gpu(1, 2)),  # not one of those
        incident(several.fault, gpu(2)),
        incident("gpu_memory", gpu()),
    ):
        found = seen([other], several)
        assert several.fingerprint in found.candidates
    own = incident(several.fault, node(), members=(gpu().key,))
    found = seen([own, incident(several.fault, gpu())], several)
    assert set(found.candidates) == {own.fingerprint}


@pytest.mark.parametrize("several", [CLOCKS, HOT, LINKS])
def test_it_comes_back_as_what_ended_lately(several: Finding) -> None:
    def seen_after(*over: Incident, active: tuple[Incident, ...] = ()) -> set[str]:
        ended = tuple(replace(it, resolved_at=NOON) for it in over)
        scene = replace(SCENE, recent_incidents=ended)
        prints = {several.fingerprint, *(it.fingerprint for it in active)}
        return set(observe(scene.window(), [several], list(active), prints).candidates)

    first, own = incident(several.fault, gpu(1, 1)), incident(several.fault, node())
    assert seen_after(first) == {first.fingerprint}
    # Its own incident is nearer, and one that stands is nearer than any that ended.
    assert seen_after(first, own) == {own.fingerprint}
    stands = incident(several.fault, gpu())
    assert seen_after(first, own, active=(stands,)) == {stands.fingerprint}
    # Neither another GPU's nor another fault's.
    others = (incident(several.fault, gpu(1, 2)), incident("gpu_slow", gpu()))
    assert seen_after(*others) == {several.fingerprint}


@pytest.mark.parametrize("fault", ["gpu_clocks", "gpu_hot", "gpu_pcie"])
def test_while_it_stands_for_several_no_other_gpu_of_the_node_opens_one(fault: str) -> None:
    alone, other = slowness(fault, gpu(1, 2)), slowness(fault, gpu(2))
    grown = incident(fault, gpu(), members=tuple(it.key for it in BOTH))
    found = seen([grown], alone, other)
    assert (set(found.candidates), set(found.covered)) == (
        {other.fingerprint},
        {alone.fingerprint},
    )
    # One GPU's own says nothing of the others.
    single = incident(fault, gpu(), members=(gpu().key,))
    assert alone.fingerprint in seen([single], alone).candidates


def test_several_gpus_clocks_name_the_slowness_of_one_of_them() -> None:
    keeper = Keeper(book=Book())
    slow = slowness("gpu_slow", gpu())
    for found in ((slow,), (slow,), (slow, CLOCKS), (slow, CLOCKS), (CLOCKS,)):
        look(keeper, *found)
    (one,) = keeper.book.active()
    assert (one.fault, one.condition, one.subject) == ("gpu_slow", "gpu_clocks", gpu())
    # Beside a slowness that nobody told of yet the clocks speak for both.
    assert set(seen([], slowness("gpu_slow", gpu()), CLOCKS).candidates) == {CLOCKS.fingerprint}
    assert len(seen([], slowness("gpu_slow", gpu(1, 2)), CLOCKS).candidates) == 2


def test_a_fan_that_warms_one_gpu_and_then_the_node_is_one_incident_in_the_end() -> None:
    keeper = Keeper(book=Book())
    heatsink = replace(slowness("gpu_hot", gpu()), condition="heatsink")
    for found in ((heatsink,), (heatsink,), (HOT,), (HOT,), (heatsink,), (HOT,)):
        look(keeper, *found)
    (one,) = keeper.incidents.values()
    assert one.subject == gpu().key
    assert one.body["condition"] == "node_hot"


@pytest.mark.parametrize(
    ("severity", "faults"),
    [
        (Severity.INFO, {"host_space", "host_disk"}),
        (Severity.WARNING, {"host_space"}),
    ],
)
def test_a_file_system_without_room_explains_that_its_collector_cannot_write(
    severity: Severity, faults: set[str]
) -> None:
    """One of 95 % is only a note, and need not be the spool's."""
    space, disk = slowness("host_space", node(), severity), slowness("host_disk", node())
    found = seen([], space, disk)
    assert {one.finding.fault for one in found.candidates.values()} == faults
    if len(faults) == 1:
        (one,) = found.candidates.values()
        assert one.covers == (
            "node-1: Collector cannot write its spool: the disk is full or fails",
        )
    assert seen([], disk).candidates
    assert len(seen([], space, slowness("host_disk", node(2))).candidates) == 2


def test_what_stands_explains_as_much_while_its_own_numbers_are_missing() -> None:
    disk = slowness("host_disk", node())
    space = replace(incident("host_space", node()), severity=Severity.WARNING)
    unread = SCENE.without(lambda sample: sample.subject == node()).window()

    def covers(window: Window, found: Finding, stands: Incident) -> bool:
        look = observe(window, [found], [stands], {found.fingerprint})
        assert (found.fingerprint in look.candidates) is (found.fingerprint not in look.covered)
        return found.fingerprint in look.covered

    assert covers(unread, disk, space)
    assert covers(SCENE.window(), disk, space)  # there is room again: what it lost, it lost before
    supply, held_back = incident("host_power", node()), slowness("gpu_power", gpu())
    assert covers(unread, held_back, supply)
    assert not covers(SCENE.window(), held_back, supply)  # its numbers say that it works again
    assert not covers(unread, replace(disk, severity=Severity.CRITICAL), space)
    elsewhere = replace(incident("host_space", node(2)), severity=Severity.WARNING)
    assert not covers(unread, disk, elsewhere)
    assert not covers(unread, slowness("gpu_hot", gpu()), space)
