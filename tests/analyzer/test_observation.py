"""What a look says of each incident to the last second, and which of several findings speaks."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.correlation.correlate import observe
from analyzer.correlation.observation import Observation
from analyzer.correlation.visibility import is_visible
from gpuvigil.model import (
    Ended,
    EndedBy,
    EventKind,
    Finding,
    Group,
    GroupKind,
    Incident,
    Severity,
    Subject,
)
from gpuvigil.silence_conditions import NodeSilence

from .scene import NOON, TICK, Scene, event, gpu, healthy, incident, node, port
from .test_correlate import PATIENT, finding, seen

SECOND, MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)
QUIET = healthy()
ORDERS = (1, -1)


def look(found: Sequence[Finding], active: Sequence[Incident] = ()) -> Observation:
    """What is made of these findings, each of which was seen before."""
    return observe(QUIET.window(), found, active, {one.fingerprint for one in found})


def heard(seconds: timedelta) -> Scene:
    return replace(healthy(), heard={node().key: NOON - seconds}, settings=PATIENT)


@pytest.mark.medium
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


# --- racks ----------------------------------------------------------------------------------------

RACK = replace(
    incident("node_silent", node(), since=-timedelta(minutes=30)),
    fingerprint="of rack r1",
    group=Group(GroupKind.RACK, "r1"),
    members=(node(1).key, gpu(1).key, node(2).key),
)


def silent(*numbers: int, seconds: float = 90.0) -> Scene:
    """These nodes were last heard so long ago."""
    scene = healthy(nodes=3)
    gone = {node(n).key: NOON - timedelta(seconds=seconds) for n in numbers}
    return replace(scene, heard={**scene.heard, **gone})


def taken(subject: Subject, **more: Any) -> Finding:
    return replace(finding("node_silent", subject), condition=NodeSilence.TAKEN_AWAY, **more)


AWAY = (taken(node(1)), taken(node(2)))
EARLY = RACK.since - timedelta(minutes=10)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("more", "goes_on"),
    [
        (finding("gpu_lost", gpu()), False),
        (finding("gpu_settings", gpu()), False),
        (replace(finding("gpu_settings", gpu()), since=EARLY), False),
        (replace(finding("gpu_lost", gpu()), since=EARLY), True),
        (finding("gpu_hot", gpu()), False),
        (replace(finding("gpu_hot", node()), members=(node(1), node(3))), True),
        (replace(finding("gpu_lost", gpu()), subject=gpu(3)), True),
    ],
)
def test_while_somebody_takes_a_dark_racks_nodes_away_it_goes_on_and_speaks_for_them(
    more: Finding, goes_on: bool
) -> None:
    window = silent(1, 2).window()
    said = observe(window, [*AWAY, more], [RACK], {more.fingerprint})
    assert set(said.candidates) == ({more.fingerprint} if goes_on else set())
    assert said.unknown == {RACK.fingerprint}
    by_rack = {print_ for print_, by in said.covered.items() if by.fingerprint == RACK.fingerprint}
    assert by_rack == {one.fingerprint for one in AWAY} | (set() if goes_on else {more.fingerprint})


def test_a_rack_whose_nodes_are_missed_or_heard_does_not_speak_for_them() -> None:
    missed = finding("node_silent", node())
    assert set(observe(silent(1, 2).window(), [missed], [RACK]).candidates) == {missed.fingerprint}
    half = observe(silent(1).window(), [AWAY[0]], [RACK])
    assert set(half.candidates) == {AWAY[0].fingerprint}
    elsewhere = observe(silent(1, 2, 3).window(), [taken(node(3))], [RACK])
    assert set(elsewhere.candidates) == {taken(node(3)).fingerprint}
    other = replace(finding("gpu_xid", gpu()), condition=NodeSilence.TAKEN_AWAY)
    assert set(observe(silent(1, 2).window(), [other], [RACK]).candidates) == {other.fingerprint}


def test_what_follows_from_what_a_rack_covers_is_covered_by_the_rack() -> None:
    gone = finding("gpu_lost", gpu())
    believed = {one.fingerprint for one in AWAY}
    said = observe(silent(1, 2).window(), [*AWAY, gone], [RACK], believed)
    assert {by.fingerprint for by in said.covered.values()} == {RACK.fingerprint}
    assert gone.fingerprint in said.covered


def test_a_racks_silence_is_over_with_its_last_node_and_no_racks_before() -> None:
    scene = silent(2, seconds=9.0)
    assert seen(scene, [RACK]).cured == {
        RACK.fingerprint: Ended(by=EndedBy.REPORTS_AGAIN, at=NOON - 4 * SECOND)
    }
    said = observe(silent(1).window(), [], [RACK])
    assert (said.cured, said.unknown) == (
        {RACK.fingerprint: Ended(by=EndedBy.APART)},
        frozenset(),
    )
    alone = incident("node_silent", node())
    assert observe(silent(1).window(), [], [alone]).cured == {}
    # Of one that is read seldom the hub has not listened for long enough.
    slow = silent()
    slow = replace(
        slow,
        inventories=tuple(
            replace(it, tick_seconds=60.0 if it.subject == node(2) else TICK)
            for it in slow.inventories
        ),
        heard={},
        listening_since=NOON - timedelta(seconds=100),
    )
    said = observe(slow.window(), [], [RACK])
    assert (said.cured, said.unknown) == ({}, frozenset({RACK.fingerprint}))


@pytest.mark.medium
@pytest.mark.parametrize("retired", [(), (1,), (1, 2)])
@pytest.mark.parametrize("numbers", [(), (1,), (2,), (1, 2)])
def test_what_several_nodes_suffer_any_of_them_tells(
    retired: Sequence[int], numbers: Sequence[int]
) -> None:
    feed = replace(incident("gpu_power", node()), members=(node(1).key, node(2).key))
    window = replace(
        silent(*numbers).window(),
        retired={node(n).key: Ended(by=EndedBy.GONE) for n in retired},
    )
    left = {1, 2} - {*numbers} - {*retired}
    assert is_visible(window, feed) is bool(left)


# --- what an incident covers ----------------------------------------------------------------------


def covers(*found: Finding) -> list[str]:
    """What the first covers of the others."""
    said = observe(healthy(nodes=3, gpus=4).window(), found, [], {it.fingerprint for it in found})
    return [text.partition(":")[0] for text in said.candidates[found[0].fingerprint].covers]


def followers(cause: Finding, *active: Incident) -> list[str]:
    """What the first covers of what is open and is not seen."""
    window = healthy(nodes=3, gpus=4).window()
    said = observe(window, [cause], active, {cause.fingerprint})
    return [text.partition(":")[0] for text in said.candidates[cause.fingerprint].covers]


BRAKE = replace(finding("gpu_power", node()), members=(gpu(), gpu(1, 1)))
SWITCH = replace(finding("switch_down", port(1)), members=(port(2), port(3), node(3)))
SILENT_RACK = replace(finding("node_silent", node()), members=(node(1), node(2)))


def test_what_it_names_itself_is_no_news_and_the_rest_is() -> None:
    clocks = [finding("gpu_clocks", gpu(1, index)) for index in range(4)]
    assert covers(BRAKE, *clocks) == ["node-1 GPU 2", "node-1 GPU 3"]
    old = [replace(incident("gpu_clocks", it.subject), label=str(it.subject.gpu)) for it in clocks]
    stood = followers(BRAKE, *old)
    assert [text for text in stood if text in {"GPU-1-2", "GPU-1-3"}] == ["GPU-1-2", "GPU-1-3"]


@pytest.mark.medium
def test_a_switch_names_the_ports_and_nodes_that_it_took_and_covers_what_is_else() -> None:
    bad, gone = finding("port_errors", port(1)), finding("node_silent", node(3))
    lost = finding("port_down", port(1))
    assert covers(SWITCH, lost, gone) == []
    assert covers(SWITCH, bad, lost, gone) == ["node-1 mlx5_0"]
    old = [incident(it.fault, it.subject, label=it.fault) for it in (bad, lost, gone)]
    assert followers(SWITCH, *old) == ["port_errors"]
    # A port that flaps, and a rack that is silent, cover what is down.
    flaps = finding("port_flapping", port())
    assert covers(flaps, finding("port_down", port())) == ["node-1 mlx5_0"]
    assert covers(SILENT_RACK, finding("port_down", port())) == ["node-1 mlx5_0"]
