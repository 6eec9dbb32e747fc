"""A node that is silent: from when on, and what its jobs and its cluster say of it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from analyzer.detectors.node_silent import DETECTOR, Hearing, extended_limits, hearing, silent_nodes
from analyzer.window.window import Window
from gpuvigil.config import AnalyzerSettings
from gpuvigil.faults import FAULTS
from gpuvigil.model import (
    Allocation,
    Ended,
    EndedBy,
    EventKind,
    Finding,
    Severity,
    Subject,
    job_holder,
    process_holder,
)
from gpuvigil.silence_conditions import NodeSilence

from .scene import (
    NOON,
    SETTINGS,
    TICK,
    Scene,
    allocation,
    event,
    gpu,
    healthy,
    incident,
    inventory,
    node,
    told,
)
from .test_hardware import SPINS

BY_ALICE = Ended(by=EndedBy.RETIRED, who="alice")

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
LIMIT = SETTINGS.silent_after_seconds
PAIR = healthy(nodes=2, seconds=60.0)
FIVE = healthy(nodes=5, seconds=60.0)


def ago(seconds: float) -> datetime:
    return NOON - timedelta(seconds=seconds)


def quiet(scene: Scene, silent: Mapping[int, float], *held: Allocation, **settings: Any) -> Scene:
    """These nodes were last heard so many seconds ago."""
    heard = {node(number).key: ago(seconds) for number, seconds in silent.items()}
    return replace(
        scene,
        heard={**scene.heard, **heard},
        allocations=held,
        settings=replace(SETTINGS, **settings),
    )


def window(scene: Scene) -> Window:
    return scene.window((DETECTOR,))


def found(scene: Scene) -> list[Finding]:
    return silent_nodes(window(scene))


# --- whether it is silent -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heard", "listening", "what"),
    [
        (LIMIT - 0.1, 3600.0, Hearing.HEARD),
        (LIMIT, 3600.0, Hearing.SILENT),
        (1.0, None, Hearing.HEARD),
        (LIMIT, None, Hearing.UNSURE),
        (None, None, Hearing.UNSURE),
        (None, LIMIT - 0.1, Hearing.UNSURE),
        (None, LIMIT, Hearing.SILENT),
        (3600.0, LIMIT - 0.1, Hearing.UNSURE),
        (3600.0, LIMIT, Hearing.SILENT),
    ],
)
def test_a_node_is_silent_after_its_time_while_the_hub_listened(
    heard: float | None, listening: float | None, what: Hearing
) -> None:
    scene = replace(
        PAIR,
        heard={} if heard is None else {node().key: ago(heard)},
        listening_since=None if listening is None else ago(listening),
    )
    assert hearing(window(scene), node()) is what
    retired = replace(window(scene), retired={node().key: BY_ALICE})
    assert hearing(retired, node()) is Hearing.NOT_EXPECTED
    assert (node() in {it.subject for it in found(scene)}) is (what is Hearing.SILENT)


@pytest.mark.parametrize("cluster", ["simulated", "selftest"])
@pytest.mark.parametrize(
    ("heard", "what"),
    [(None, "NOT_EXPECTED"), (61.0, "NOT_EXPECTED"), (60.0, "SILENT"), (59.0, "SILENT")],
)
def test_what_is_only_played_is_expected_once_it_was_heard(
    cluster: str, heard: float | None, what: str
) -> None:
    one = node(cluster=cluster)
    scene = replace(
        healthy(nodes=1, seconds=10.0, cluster=cluster),
        heard={} if heard is None else {one.key: ago(heard)},
        listening_since=ago(60.0),
    )
    assert one.simulated or one.marked
    assert hearing(window(scene), one).name == what


def with_holes(lost: int) -> Scene:
    """Of thirty-one lines of a node so many are missing in the middle."""
    missing = {ago(TICK * place) for place in range(5, 5 + lost)}
    span = replace(SETTINGS, steady_seconds=310.0)
    scene = replace(healthy(nodes=2, seconds=310.0), settings=span)
    return scene.without(lambda sample: sample.subject == node() and sample.at in missing)


@pytest.mark.parametrize(
    ("scene", "limit"),
    [
        (healthy(seconds=300.0), LIMIT),
        (healthy(seconds=300.0).changed(node(), {"dropped_bodies": None}), LIMIT),
        (healthy(seconds=300.0).changed(node(), {"dropped_bodies": 3}, 15), 4 * LIMIT),
        (healthy(seconds=300.0).without(lambda s: s.subject == node()), LIMIT),
        (with_holes(1), 60.0),
        (with_holes(5), 100.0),
        (with_holes(10), 160.0),
        (with_holes(12), 180.0),
        (with_holes(20), 180.0),
        (with_holes(5).changed(node(), {"dropped_bodies": 3}, 15), 4 * LIMIT),
        (with_holes(10).changed(node(), {"dropped_bodies": 3}, 15), 160.0),
    ],
)
def test_a_node_that_is_heard_with_holes_is_waited_for(scene: Scene, limit: float) -> None:
    def at(seconds: float) -> Scene:
        return replace(scene, heard={**scene.heard, node().key: ago(seconds)})

    assert [it.subject for it in found(at(limit))] == [node()]
    assert found(at(limit - 0.1)) == []
    waits = {node().key: limit} if limit > LIMIT else {}
    assert extended_limits(window(at(limit - 0.1))) == waits
    assert extended_limits(window(at(LIMIT))) == waits
    assert extended_limits(window(at(LIMIT - 0.1))) == extended_limits(window(at(limit))) == {}


# --- most of a cluster ----------------------------------------------------------------------------


def unheard(scene: Scene) -> list[int]:
    """The nodes that are silent with their whole cluster, and as such certainly so."""
    return [
        int(it.subject.node.rpartition("-")[2]) for it in found(scene) if it.certain and it.evidence
    ]


LATE = 1.5 * TICK + 5.0  # from when on a body is overdue


@pytest.mark.parametrize(
    ("silent", "numbers"),
    [
        ({1: 31, 2: 31, 3: 31, 4: 31}, [1, 2, 3, 4]),
        ({1: 31, 2: 31, 3: 31}, []),
        ({1: 31, 2: LATE + 0.1, 3: LATE + 0.1, 4: LATE + 0.1}, [1, 2, 3, 4]),
        ({1: 31, 2: LATE + 0.1, 3: LATE + 0.1, 4: LATE}, []),
        ({1: 36, 2: 21, 3: 21, 4: 21}, [1, 2, 3, 4]),
        ({1: 36.1, 2: 21, 3: 21, 4: 21}, []),
        # All that is overdue is not silent yet.
        ({1: 29, 2: 29, 3: 29, 4: 29}, []),
        # One that was silent before is told for itself.
        ({1: 90, 2: 31, 3: 31, 4: 31, 5: 31}, [2, 3, 4, 5]),
    ],
)
def test_most_of_a_cluster_at_once_is_one_matter(
    silent: Mapping[int, float], numbers: list[int]
) -> None:
    assert unheard(quiet(FIVE, silent)) == numbers


def test_what_takes_long_to_tell_is_waited_for_with_the_others() -> None:
    slow = tuple(
        replace(it, tick_seconds=3 * TICK) if it.subject == node(4) else it
        for it in FIVE.inventories
    )
    scene = replace(FIVE, inventories=slow)
    assert unheard(quiet(scene, {1: 31, 2: 31, 3: 31, 4: 51})) == [1, 2, 3, 4]
    assert unheard(quiet(scene, {1: 31, 2: 31, 3: 31, 4: 50})) == []


def stopped(scene: Scene, number: int, seconds: float) -> Scene:
    """Somebody stopped the collector of this node."""
    last = event(EventKind.STOPPED, node(number), ago(seconds))
    return scene.without(lambda s: s.subject == node(number) and s.at > last.at).with_events(last)


def test_who_went_in_order_or_is_not_expected_is_no_part_of_it() -> None:
    all_overdue = quiet(FIVE, {1: 31, 2: 31, 3: 31, 4: 21})
    assert unheard(all_overdue) == [1, 2, 3, 4]
    assert unheard(stopped(all_overdue, 4, 21)) == []
    assert unheard(stopped(all_overdue, 3, 31)) == []
    retired = replace(window(all_overdue), retired={node(4).key: BY_ALICE})
    assert not any(it.certain for it in silent_nodes(retired))
    assert unheard(replace(all_overdue, listening_since=ago(31))) == [1, 2, 3, 4]
    assert found(replace(all_overdue, listening_since=None)) == []


def test_one_of_most_of_a_cluster_is_told_with_when_it_was_heard() -> None:
    (it, *_) = found(quiet(FIVE, {1: 31, 2: 31, 3: 31, 4: 31}))
    assert told(it) == "warning; last data: 11:59:29 UTC on 31 Jan (limit every 10 s)"
    assert (it.since, it.condition, it.certain) == (ago(31), "", True)
    never = replace(FIVE, heard={}, listening_since=ago(40))
    them = found(never)
    assert [it.since for it in them] == [ago(40)] * 5
    assert told(them[0]) == "warning; last data: none since the hub started (limit every 10 s)"


# --- what the rest of its jobs says ---------------------------------------------------------------

HERE, THERE = allocation(gpu(), "job 7"), allocation(gpu(2), "job 7")
DEAD, COLLECTOR = NodeSilence.DEAD.value, NodeSilence.COLLECTOR.value
WAITS = PAIR.changed(gpu(2), SPINS)


def verdict(silent: float, *held: Allocation, scene: Scene = PAIR) -> str:
    (it,) = found(quiet(scene, {1: silent}, *held))
    return it.condition


@pytest.mark.parametrize(
    ("scene", "seconds", "what"),
    [
        (WAITS, 179.9, ""),
        (WAITS, 180.0, DEAD),
        (WAITS, 3600.0, DEAD),
        (PAIR, 630.0, ""),
        (PAIR, 630.1, COLLECTOR),
    ],
)
def test_gpus_that_wait_say_dead_and_those_that_work_on_for_long_say_alive(
    scene: Scene, seconds: float, what: str
) -> None:
    assert verdict(seconds, HERE, THERE, scene=scene) == what
    # As many that wait as work say nothing, nor does another job, or one of no scheduler.
    both = scene.changed(gpu(2, 1), {} if scene is WAITS else SPINS)
    assert verdict(seconds, HERE, THERE, replace(THERE, subject=gpu(2, 1)), scene=both) == ""
    assert verdict(seconds, HERE, replace(THERE, holder=job_holder(8)), scene=scene) == ""
    alone = (replace(HERE, holder=process_holder(7)), replace(THERE, holder=process_holder(7)))
    assert verdict(seconds, *alone, scene=scene) == ""


def test_where_no_memory_utilisation_is_read_a_fall_from_work_to_waiting_says_dead() -> None:
    unread = {**SPINS, "memory_utilization_percent": None}
    fell = healthy(nodes=2, seconds=1800.0).changed(gpu(2), unread, 70)
    assert verdict(180.0, HERE, THERE, scene=fell) == DEAD
    # One that drew as little all the while may be at what it always does.
    always = healthy(nodes=2, seconds=1800.0).changed(gpu(2), unread)
    assert verdict(180.0, HERE, THERE, scene=always) == ""
    hot = fell.changed(gpu(2), {**unread, "power_watts": 180.0}, 70)
    assert verdict(180.0, HERE, THERE, scene=hot) == ""


@pytest.mark.parametrize(
    ("ended", "code", "what"),
    [
        (99.0, "1:0", DEAD),
        (100.0, "1:0", ""),  # it was over when the node went
        (99.0, None, ""),
        (99.0, "0:0", ""),
    ],
)
def test_a_job_that_was_cut_off_elsewhere_says_dead(
    ended: float, code: str | None, what: str
) -> None:
    begun = ago(160.0)
    here = replace(HERE, started_at=begun)
    there = replace(THERE, started_at=begun, ended_at=ago(ended), exit_code=code)
    assert verdict(100.0, here, there) == what
    goes_on = (allocation(gpu(1, 1), "job 8"), allocation(gpu(2, 1), "job 8"))
    assert verdict(100.0, here, there, *goes_on) == ""


@pytest.mark.parametrize(("after", "what"), [(630.0, DEAD), (631.0, COLLECTOR)])
def test_the_last_end_of_its_jobs_elsewhere_tells(after: float, what: str) -> None:
    ended = replace(THERE, ended_at=ago(2000.0 - after), exit_code="1:0")
    early = replace(THERE, subject=gpu(2, 1), ended_at=ago(1990.0))
    assert verdict(2000.0, HERE, ended, early) == what
    assert verdict(2000.0, HERE, early, ended) == what


def test_a_job_that_began_since_is_another_one() -> None:
    at_once = replace(THERE, started_at=ago(2000.0))
    assert verdict(2000.0, HERE, at_once) == COLLECTOR
    assert verdict(2000.0, HERE, replace(THERE, started_at=ago(1999.0))) == ""
    # On the node itself, too: and what was over by its next body is none that it took along.
    assert verdict(2000.0, replace(HERE, started_at=ago(2000.0)), THERE) == COLLECTOR
    assert verdict(2000.0, replace(HERE, started_at=ago(1999.0)), THERE) == ""
    assert verdict(2000.0, replace(HERE, ended_at=ago(1989.0)), THERE) == COLLECTOR
    assert verdict(2000.0, replace(HERE, ended_at=ago(1990.0)), THERE) == ""


def test_the_verdict_is_told_in_words() -> None:
    end = "11:59:00 UTC on 31 Jan"
    cases = {
        "the rest of its jobs: waits for it": quiet(WAITS, {1: 200}, HERE, THERE),
        "the rest of its jobs: works on": quiet(PAIR, {1: 2000}, HERE, THERE),
        f"its jobs: ended elsewhere by {end}": quiet(
            PAIR, {1: 100}, HERE, replace(THERE, ended_at=ago(60), exit_code="1:0")
        ),
        f"its jobs: went on elsewhere until {end}": quiet(
            PAIR, {1: 2000}, HERE, replace(THERE, ended_at=ago(60))
        ),
    }
    for words, scene in cases.items():
        (it,) = found(scene)
        assert [item.text for item in it.evidence][1:] == [words]
        assert (it.action, it.title) == (
            NodeSilence(it.condition).action,
            NodeSilence(it.condition).heading,
        )
        assert not it.certain


@pytest.mark.parametrize(("seconds", "count"), [(539.9, 0), (540.0, 1)])
@pytest.mark.parametrize("held", [True, False])
def test_a_node_of_which_nothing_tells_is_late_for_nine_minutes(
    seconds: float, count: int, held: bool
) -> None:
    patient = quiet(PAIR, {1: seconds}, HERE, silent_verdict_seconds=540.0)
    assert len(found(patient if held else replace(patient, allocations=()))) == count


def test_twice_the_limit_that_is_offered_for_it_tells_of_a_silent_node_later() -> None:
    key = FAULTS["node_silent"].tuned_by
    assert key is not None
    silent, usual = {1: 600.0}, AnalyzerSettings()
    for times, count in ((1, 1), (2, 0)):
        now = {"silent_verdict_seconds": usual.silent_verdict_seconds}
        settings = {**now, key: times * getattr(usual, key)}
        assert len(found(quiet(PAIR, silent, HERE, **settings))) == count


@pytest.mark.parametrize(("seconds", "count"), [(589.9, 0), (590.0, 1)])
def test_the_nine_minutes_of_a_node_that_is_read_seldom_begin_when_it_is_due(
    seconds: float, count: int
) -> None:
    """Once a minute instead of every ten seconds."""
    seldom = tuple(replace(it, tick_seconds=60.0) for it in PAIR.inventories)
    scene = replace(PAIR, inventories=seldom)
    assert len(found(quiet(scene, {1: seconds}, HERE, silent_verdict_seconds=540.0))) == count


@pytest.mark.parametrize(("seconds", "count"), [(809.9, 0), (810.0, 1)])
def test_a_node_that_is_often_silent_for_three_minutes_is_late_for_longer(
    seconds: float, count: int
) -> None:
    """Half as long again as it lately was, beside the nine minutes; another node waits for nobody."""
    scene = quiet(PAIR, {1: seconds}, HERE, silent_verdict_seconds=540.0)
    often = replace(window(scene), usual_gap_seconds={node(1).key: 180.0})
    assert len(silent_nodes(often)) == count
    assert len(silent_nodes(replace(often, usual_gap_seconds={node(2).key: 180.0}))) == 1


def test_a_node_for_which_its_jobs_wait_is_told_at_once() -> None:
    ended = replace(THERE, ended_at=ago(30), exit_code="1:0")
    (dead,) = found(quiet(PAIR, {1: 120.0}, HERE, ended, silent_verdict_seconds=540.0))
    assert dead.condition == NodeSilence.DEAD


@pytest.mark.parametrize(("seconds", "count"), [(179.9, 0), (180.0, 4)])
def test_neighbours_that_fall_silent_together_speak_for_each_other(
    seconds: float, count: int
) -> None:
    """Of a rack three nodes and the rack are told after a third of the time."""
    scene = quiet(
        healthy(nodes=12), dict.fromkeys((1, 2, 3), seconds), silent_verdict_seconds=540.0
    )
    racks = tuple(
        replace(one, rack=f"r{number // 4}") for number, one in enumerate(scene.inventories)
    )
    assert len(found(replace(scene, inventories=racks))) == count


# --- a node that nobody held ----------------------------------------------------------------------

ELSEWHERE = allocation(gpu(2), "job 8")


@pytest.mark.parametrize(("minutes", "count"), [(8.99, 0), (9.0, 1)])
def test_a_free_node_may_reboot_for_nine_minutes(minutes: float, count: int) -> None:
    them = found(quiet(PAIR, {1: minutes * 60}, ELSEWHERE))
    said = [(it.condition, it.title, it.members, it.severity) for it in them]
    assert said == [("", "", (), Severity.WARNING)] * count


def test_what_was_told_of_a_node_is_told_until_it_is_heard() -> None:
    """Also where it turns out that nobody held it, or that it went in order."""
    free = quiet(PAIR, {1: 300.0}, ELSEWHERE)
    told_before = incident("node_silent", node(), since=timedelta(minutes=-5))
    for scene in (free, stopped(free, 1, 300)):
        assert found(scene) == []
        window = replace(scene.window((DETECTOR,)), recent_incidents=(told_before,))
        (it,) = silent_nodes(window)
        assert it.subject == node()


@pytest.mark.parametrize(
    ("held", "count"),
    [
        (allocation(gpu(), "pid 7", started_at=ago(300)), 1),
        (allocation(gpu(), "pid 7", started_at=ago(299)), 0),
        (allocation(gpu(), "pid 7", ended_at=ago(290)), 0),
        (allocation(gpu(), "pid 7", ended_at=ago(289)), 1),
        # A job that may have ended with the node, nobody knows: nobody held it before, or it was done.
        (replace(THERE, subject=gpu(), ended_at=ago(299)), 1),
        (replace(THERE, subject=gpu(), ended_at=ago(290)), 1),
        (replace(THERE, subject=gpu(), ended_at=ago(300)), 0),
        (replace(THERE, subject=gpu(), ended_at=ago(290), exit_code="0:0"), 0),
        (replace(THERE, subject=gpu(), ended_at=ago(290), exit_code="1:0"), 1),
        (replace(THERE, subject=gpu(), ended_at=ago(300), exit_code="1:0"), 0),
        (replace(ELSEWHERE, subject=gpu(2, cluster="d")), 1),
    ],
)
def test_a_node_is_free_where_its_clusters_holders_are_told_and_none_had_it(
    held: Allocation, count: int
) -> None:
    others = () if held.subject.cluster == "d" else (ELSEWHERE,)
    assert len(found(quiet(PAIR, {1: 300}, held, *others))) == count


def test_of_a_node_without_an_inventory_or_a_word_nobody_knows_whether_it_was_free() -> None:
    scene = quiet(PAIR, {1: 300}, ELSEWHERE)
    nameless = replace(scene, inventories=(inventory(node(2)),))
    assert [it.severity for it in found(nameless)] == [Severity.WARNING]
    heard = {key: at for key, at in scene.heard.items() if key != node().key}
    never = replace(scene, heard=heard, listening_since=ago(300))
    assert [it.severity for it in found(never)] == [Severity.WARNING]


ALIKE = "not allocated; 3 such nodes left one by one within an hour"


@pytest.mark.parametrize(
    ("silent", "told"),
    [
        ({1: 1800, 2: 1500}, []),
        ({1: 3599, 2: 1500}, []),
        ({1: 3600, 2: 1500}, [1]),
        ({1: 1800, 2: 1500, 3: 1200}, []),
        ({1: 9000, 2: 8700, 3: 8400}, []),
    ],
)
def test_idle_nodes_that_leave_one_by_one_are_scaled_down(
    silent: Mapping[int, float], told: list[int]
) -> None:
    them = found(quiet(healthy(nodes=8, seconds=60.0), silent, allocation(gpu(8), "job 8")))
    assert [it.subject for it in them] == [node(number) for number in told]


@pytest.mark.parametrize(
    ("said", "jobs", "told"),
    [
        (("power off", "power off"), (), []),
        (("power off", "reboot"), (), []),  # one of two, which wait for an hour
        (("reboot", "reboot"), (), [1]),  # those will be back
        (("power off", "power off"), (2, 3), [1]),  # with the work of somebody
    ],
)
def test_who_left_without_a_word_left_as_those_did_that_had_one(
    said: tuple[str, str], jobs: tuple[int, ...], told: list[int]
) -> None:
    silent = {1: 1800.0, 2: 1500.0, 3: 1250.0}
    held = [allocation(gpu(number), f"job {number}") for number in (*jobs, 8)]
    scene = quiet(healthy(nodes=8, seconds=60.0), silent, *held)
    words = [
        replace(event(EventKind.SHUTDOWN, node(number), ago(silent[number])), message=why)
        for number, why in zip((2, 3), said, strict=True)
    ]
    them = found(scene.with_events(*words))
    assert [it.subject for it in them if it.subject == node(1)] == [node(number) for number in told]


@pytest.mark.parametrize(("minutes", "told"), [(8.9, []), (9.0, [1])])
def test_a_node_that_got_work_since_was_not_scaled_down(minutes: float, told: list[int]) -> None:
    """Its scheduler finds it, and it had the time that a reboot takes."""
    work = replace(allocation(gpu(1), "job 9"), started_at=ago(60.0 * minutes))
    silent = {1: 9000.0, 2: 8700.0, 3: 8400.0, 4: 8100.0}
    scene = quiet(healthy(nodes=8, seconds=60.0), silent, allocation(gpu(8), "job 8"), work)
    assert [it.subject for it in found(scene)] == [node(number) for number in told]


def test_a_node_that_was_told_of_before_it_was_one_of_several_says_so() -> None:
    silent = {1: 9000.0, 2: 8700.0, 3: 8400.0}
    scene = quiet(healthy(nodes=8, seconds=60.0), silent, allocation(gpu(8), "job 8"))
    stands = incident("node_silent", node(), since=timedelta(seconds=-9000))
    (it,) = silent_nodes(replace(scene.window((DETECTOR,)), recent_incidents=(stands,)))
    assert (it.condition, it.severity.value) == (NodeSilence.SCALED_DOWN, "info")
    assert [item.value for item in it.evidence][1:] == [ALIKE]


def test_a_collector_that_was_stopped_is_told_after_an_hour() -> None:
    assert found(stopped(quiet(PAIR, {1: 3590}, HERE), 1, 3590)) == []
    (it,) = found(stopped(quiet(PAIR, {1: 3600}, HERE), 1, 3600))
    assert (it.condition, it.severity.value) == (NodeSilence.STOPPED, "warning")
    assert [item.name for item in it.evidence] == ["last data", "collector"]
    assert it.source == "the node's own last word, or its scheduler's"
    assert it.subject == Subject(cluster="c", node="node-1")
