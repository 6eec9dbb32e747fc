"""A GPU that is held for hours and little used: what little is, whom it says it of, and whom never."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.correlation.correlate import observe
from analyzer.detectors.gpu_idle_held import DETECTOR as IDLE
from analyzer.detectors.gpu_underused import (
    DETECTOR,
    lapsed,
    underused_gpus,
    would_show_underuse,
)
from gpuvigil.config import IdleSettings
from gpuvigil.model import Allocation, Finding, Severity, Subject

from .scene import NOON, SETTINGS, Sample, Scene, allocation, gpu, healthy, incident, node, told

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
SPAN = SETTINGS.underused_after_seconds
BEGIN, START = NOON - SPAN * SECOND, SETTINGS.idle_after_seconds * SECOND
GIB = 1024**3
ALICE = allocation(gpu(), "job 7")
LOW = {"utilization_percent": 6}
BUSY = {"utilization_percent": 97, "memory_total_bytes": 80 * GIB, "memory_used_bytes": 60 * GIB}


def scene(
    fields: Mapping[str, Any], *held: Allocation, seconds: float = SPAN, gpus: int = 1
) -> Scene:
    """One node, whose first GPU does this all the time; alice has it."""
    found = healthy(nodes=1, seconds=seconds, gpus=gpus).changed(gpu(), fields)
    return replace(found, allocations=held or (ALICE,))


def found(one: Scene) -> list[Finding]:
    return underused_gpus(one.window((DETECTOR,)))


def percents(*shares: tuple[float, float]) -> Scene:
    """Utilisation that is each value for its share of the span, the last at the end."""
    one, begun = scene(LOW), 0.0
    for share, value in shares:
        one = one.changed(gpu(), {"utilization_percent": value}, SPAN * (1.0 - begun))
        begun += share
    return one


# --- what little is -------------------------------------------------------------------------------


@pytest.mark.parametrize(("percent", "count"), [(1, 1), (6, 1), (9, 1), (10, 0), (36, 0)])
def test_a_gpu_is_hardly_used_under_a_tenth_of_the_time(percent: float, count: int) -> None:
    assert len(found(scene({"utilization_percent": percent}))) == count
    # A little less for a while makes the mean one of a little less.
    assert len(found(percents((0.1, percent - 1), (0.9, percent)))) == int(percent <= 10)


@pytest.mark.parametrize(
    ("busy", "sm", "count"),
    [(81, 49.9, 1), (80, 49.9, 1), (79, 49.9, 0), (81, 50.0, 0), (97, None, 0), (None, 12.0, 0)],
)
def test_a_busy_gpu_is_little_used_where_half_of_its_multiprocessors_are_free(
    busy: float | None, sm: float | None, count: int
) -> None:
    fields = {**BUSY, "utilization_percent": busy, "sm_activity_percent": sm}
    assert len(found(scene(fields))) == count


@pytest.mark.parametrize(("sm", "memory", "count"), [(24, 19, 1), (26, 19, 0), (24, 20, 0)])
def test_a_slice_would_do_for_a_quarter_of_both(sm: float, memory: int, count: int) -> None:
    fields = {"utilization_percent": 60, "sm_activity_percent": sm}
    fields |= {"memory_used_bytes": memory * GIB, "memory_total_bytes": 80 * GIB}
    assert len(found(scene(fields))) == count


def test_one_that_is_low_and_steady_is_told_by_how_much_and_whose_it_is() -> None:
    (it,) = found(scene(LOW))
    assert told(it) == (
        "info; feed it faster, or take a slice: is used for 6.0 % of the time in the mean, and never"
        " for more than 6 %, over 6 min; allocated to: job 7 of alice: train.py, since 10:00:00 UTC on 31 Jan"
    )
    assert it.action == (
        "Ask alice to load data faster (more workers, local copies), or take a slice (MIG) or fewer"
        " GPUs (job 7 of alice: train.py)."
    )
    assert (it.severity, it.since, it.subject) == (Severity.INFO, BEGIN, gpu())
    (nobody,) = found(scene(LOW, replace(ALICE, user=None)))
    assert nobody.action.startswith("Ask job 7 to load")


@pytest.mark.parametrize(("most", "bursts"), [(49, False), (50, True), (98, True)])
def test_one_that_is_busy_for_minutes_and_then_does_nothing_works_in_bursts(
    most: float, bursts: bool
) -> None:
    (it,) = found(percents((0.07, most), (0.5, 0), (0.43, 1)))
    assert it.evidence[0].name.startswith("gather" if bursts else "feed")
    assert ("works in bursts" in it.evidence[0].value) is bursts


# --- who holds it ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since", "count"),
    [(BEGIN - START, 1), (BEGIN - START + SECOND, 0), (NOON - timedelta(hours=9), 1)],
)
def test_a_job_has_its_start_for_itself(since: Any, count: int) -> None:
    assert len(found(scene(LOW, replace(ALICE, started_at=since)))) == count


@pytest.mark.parametrize(
    "held",
    [
        (replace(ALICE, ended_at=NOON - SECOND),),
        (ALICE, allocation(gpu(), "job 8")),
        (replace(ALICE, part="MIG 1g.10gb"),),
        (replace(ALICE, part="shared"),),
        (replace(ALICE, command="python -m vllm.entrypoints.openai.api_server"),),
        (replace(ALICE, command="jupyter-lab"),),
        (replace(ALICE, command="bash"),),
        (allocation(gpu(), "job Deployment/team/chat"),),
    ],
)
def test_nobody_is_blamed_for_what_is_shared_over_or_there_when_asked(
    held: tuple[Allocation, ...],
) -> None:
    assert found(scene(LOW, *held)) == []


def test_a_server_whose_requests_are_counted_is_there_when_asked() -> None:
    one = scene(LOW)
    asked = Sample(subject=gpu(), at=NOON - MINUTE, fields={"requests_running": 0})
    assert len(found(one)) == 1
    assert found(replace(one, of_servers=(asked,))) == []
    other = replace(asked, subject=gpu(1, 1))
    assert len(found(replace(one, of_servers=(other,)))) == 1


@pytest.mark.parametrize(("partition", "count"), [("standby", 0), ("gpu", 1)])
def test_who_is_declared_to_stand_by_is_not_blamed(partition: str, count: int) -> None:
    held = replace(ALICE, partition=partition, account="a")
    declared = (
        IdleSettings(match=('partition="standby"', 'account="a"'), standby=True),
        IdleSettings(),
    )
    assert len(found(replace(scene(LOW, held), declared=declared))) == count


# --- what else it may be --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "subject", "count"),
    [
        ("gpu_lost", gpu(), 0),
        ("gpu_lost", gpu(2), 0),  # a peer of its job
        ("gpu_lost", gpu(3), 1),
        ("host_mount", node(), 0),
        ("port_down", replace(node(2), device="mlx5_0", port="1"), 0),
        ("gpu_program", gpu(), 1),
    ],
)
def test_a_fault_that_holds_its_job_up_excuses_it(fault: str, subject: Subject, count: int) -> None:
    both = scene(LOW, ALICE, allocation(gpu(2), "job 7"))
    for ended, is_known in ((None, True), (NOON - MINUTE, True), (NOON - 9 * START, False)):
        one = replace(incident(fault, subject, -10 * START), resolved_at=ended)
        expected = count if is_known else 1
        assert len(found(replace(both, recent_incidents=(one,)))) == expected, ended


def test_a_silence_excuses_unless_its_node_was_measured_all_the_same() -> None:
    """A node whose numbers come late is called silent again and again, and works on."""
    mine = incident("node_silent", node(), -START)
    assert len(found(replace(scene(LOW), recent_incidents=(mine,)))) == 1
    down = replace(mine, condition="was_down", resolved_at=NOON - MINUTE)
    assert found(replace(scene(LOW), recent_incidents=(down,))) == []
    both = scene(LOW, ALICE, allocation(gpu(2), "job 7"))  # of the second node nothing is there
    other = incident("node_silent", node(2), -START)
    assert found(replace(both, recent_incidents=(other,))) == []
    rack = replace(mine, members=(node().key, node(2).key))
    assert found(replace(both, recent_incidents=(rack,))) == []


def test_of_a_gpu_that_was_called_idle_it_is_not_said_over_the_same_span() -> None:
    idle = incident("gpu_idle_held", gpu(), -5 * MINUTE)
    assert found(replace(scene(LOW), recent_incidents=(idle,))) == []
    over = replace(idle, resolved_at=NOON - MINUTE)
    assert found(replace(scene(LOW), recent_incidents=(over,))) == []
    of_node = incident("gpu_idle_held", node(), -5 * MINUTE, members=(node().key, gpu().key))
    assert found(replace(scene(LOW), recent_incidents=(of_node,))) == []
    assert (
        len(found(replace(scene(LOW), recent_incidents=(replace(idle, subject=gpu(1, 1)),)))) == 1
    )


def test_one_that_is_idle_by_now_is_not_called_under_used() -> None:
    """Busy until the idle span, and nothing since: of the hours that is little, and it is idle."""
    still = {"utilization_percent": 0, "memory_utilization_percent": 0}
    one = scene({"utilization_percent": 30}).changed(gpu(), still, SETTINGS.idle_after_seconds)
    window = one.window((DETECTOR,))
    assert underused_gpus(window) == []
    assert len(IDLE.find(window)) == 1
    none = scene(still)
    assert found(none) == []


def test_what_holds_the_gpu_up_now_hides_it() -> None:
    one = scene(LOW)
    window = one.window()
    lost = replace(found(one)[0], fault="gpu_lost", severity=Severity.CRITICAL, certain=True)
    seen = observe(window, [*underused_gpus(window), lost], [])
    assert [it.finding.fault for it in seen.candidates.values()] == ["gpu_lost"]


def test_what_was_not_measured_says_nothing() -> None:
    assert found(scene({"utilization_percent": None, "memory_utilization_percent": None})) == []
    late = scene(LOW, seconds=0.7 * SPAN)
    assert found(late) == []
    some = scene(LOW)
    few = some.without(lambda sample: sample.at.second % 20 == 0)
    assert len(found(few)) == 1
    half = some.without(lambda sample: BEGIN + 0.3 * SPAN * SECOND < sample.at < NOON - MINUTE)
    assert found(half) == []


# --- several, and how long ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("holders", "nodes"), [("7", 0), ("78", 0), ("77", 1), ("7788", 2), ("77-", 1)]
)
def test_several_gpus_of_one_holder_are_one_finding_more(holders: str, nodes: int) -> None:
    gpus = [gpu(1, index) for index in range(len(holders))]
    one = healthy(nodes=1, seconds=SPAN, gpus=len(gpus))
    for place in gpus:
        one = one.changed(place, LOW)
    held = [
        allocation(place, f"job {who}")
        for place, who in zip(gpus, holders, strict=True)
        if who != "-"
    ]
    them = found(replace(one, allocations=tuple(held)))
    assert len(them) == len(held) + nodes
    for it in them[len(held) :]:
        assert (it.subject, it.condition) == (node(), "several_gpus")
        assert (
            it.title
            == f"2 GPUs allocated to {it.holder} of alice for hours, and little of them used"
        )
        assert it.evidence[0].value.startswith("the first of them is used for 6.0 %")
        assert len(it.members) == 2


@pytest.mark.parametrize(
    ("fields", "tells"),
    [
        ({"utilization_percent": 12}, False),  # a hair above the limit
        ({"utilization_percent": 13}, True),
        ({**BUSY, "sm_activity_percent": 62.0}, False),
        ({**BUSY, "sm_activity_percent": 63.0}, True),
        ({**BUSY, "utilization_percent": 65, "sm_activity_percent": 40.0}, False),
        ({**BUSY, "utilization_percent": 63, "sm_activity_percent": 40.0}, True),
        (LOW, False),
    ],
)
def test_an_incident_goes_on_until_clearly_more_is_used(
    fields: Mapping[str, Any], tells: bool
) -> None:
    one = incident("gpu_underused", gpu())
    assert would_show_underuse(scene(fields).window((DETECTOR,)), one) is tells


def test_an_incident_is_over_once_the_gpu_is_idle_or_its_holder_held_up() -> None:
    one = incident("gpu_underused", gpu())
    still = {"utilization_percent": 0, "memory_utilization_percent": 0}
    idle = scene({"utilization_percent": 6}).changed(gpu(), still, SETTINGS.idle_after_seconds)
    assert would_show_underuse(idle.window((DETECTOR,)), one)
    lost = replace(scene(LOW), recent_incidents=(incident("gpu_lost", gpu()),))
    assert would_show_underuse(lost.window((DETECTOR,)), one)
    assert lapsed(lost.window((DETECTOR,)), one) == NOON
    assert lapsed(scene(LOW).window((DETECTOR,)), one) is None


def test_an_incident_is_over_with_its_holder_and_not_with_its_data() -> None:
    one = incident("gpu_underused", node(), members=(node().key, gpu().key))
    ended = scene(LOW, replace(ALICE, ended_at=NOON - SECOND))
    assert would_show_underuse(ended.window((DETECTOR,)), one)
    short = scene({"utilization_percent": 97}, seconds=0.5 * SPAN)
    assert not would_show_underuse(short.window((DETECTOR,)), one)
    quiet = scene({"utilization_percent": 97}).without(lambda it: it.at >= NOON - START)
    assert not would_show_underuse(quiet.window((DETECTOR,)), one)
    nothing = replace(scene(LOW), samples=())
    assert not would_show_underuse(nothing.window((DETECTOR,)), one)
    gone = replace(one, members=(gpu(1, 9).key,))  # taken out of its node
    assert would_show_underuse(nothing.window((DETECTOR,)), gone)
