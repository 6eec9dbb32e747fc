"""A GPU that is held and idle: how much must have been measured, and what is said of it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.detectors.gpu_idle_held import (
    DETECTOR,
    idle_held_gpus,
    would_show_idle_held,
    would_show_idleness,
)
from gpuvigil.model import Allocation, Finding, Holder, Subject

from .scene import NOON, SETTINGS, Scene, allocation, gpu, healthy, incident, node, told

SECOND = timedelta(seconds=1)
SPAN, LIMIT = SETTINGS.idle_after_seconds, SETTINGS.idle_below_percent
BEGIN = NOON - timedelta(seconds=SPAN)
FREE = {
    "utilization_percent": 0,
    "memory_utilization_percent": 0,
    "compute_processes": 0,
    "power_watts": 75.0,
}
HELD = {**FREE, "compute_processes": 1}
GIBIBYTE = 1024**3
ALICE = allocation(gpu(), "job 7")


def idle(
    *held: Allocation, fields: Mapping[str, Any] = FREE, seconds: float = SPAN, gpus: int = 1
) -> Scene:
    """One node, whose first GPU did nothing; its first line came so many seconds ago."""
    scene = healthy(nodes=1, seconds=seconds, gpus=gpus).changed(gpu(), fields)
    return replace(scene, allocations=held)


def found(scene: Scene, **settings: Any) -> list[Finding]:
    settled = replace(scene, settings=replace(SETTINGS, **settings))
    return idle_held_gpus(settled.window((DETECTOR,)))


@pytest.mark.parametrize(
    ("used", "idles"),
    [
        ({"sm_activity_percent": LIMIT}, {"sm_activity_percent": LIMIT - 0.01}),
        ({"utilization_percent": LIMIT}, {"utilization_percent": None, "sm_activity_percent": 0.0}),
        ({"memory_utilization_percent": LIMIT}, {"memory_utilization_percent": None}),
        ({"compute_processes": 0}, {"compute_processes": 1}),
        ({"compute_processes": None}, {"compute_processes": 2}),
        ({"up": 0}, {"up": 1}),
        ({"up": None}, {}),
    ],
)
def test_a_gpu_is_idle_up_to_its_limits(used: Mapping[str, Any], idles: Mapping[str, Any]) -> None:
    assert found(idle(fields={**HELD, **used})) == []
    assert len(found(idle(fields={**HELD, **idles}))) == 1


@pytest.mark.parametrize(
    ("watts", "limit", "count"), [(210.0, 700.0, 0), (209.9, 700.0, 1), (210.0, None, 0)]
)
def test_a_gpu_that_draws_what_none_at_rest_does_works_whatever_its_utilisation_says(
    watts: float, limit: float | None, count: int
) -> None:
    scene = idle(fields={**HELD, "power_watts": watts, "power_limit_watts": limit})
    assert len(found(scene)) == count
    active = incident("gpu_idle_held", gpu())
    young = replace(scene, samples=scene.samples[: len(scene.samples) // 4])
    # Its power says so before enough of the span is there to call it idle.
    assert would_show_idle_held(young.window((DETECTOR,)), active) is (count == 0)


@pytest.mark.parametrize(
    ("begun", "ended", "count"),
    [
        (BEGIN, None, 1),
        (BEGIN + SECOND, None, 0),
        (BEGIN - SECOND, NOON - SECOND, 0),
    ],
)
def test_somebody_must_have_held_it_all_the_time(begun: Any, ended: Any, count: int) -> None:
    held = replace(ALICE, started_at=begun, ended_at=ended)
    assert len(found(idle(held))) == count
    # The first of several counts, and what was not measured is nobody's.
    both = replace(ALICE, holder=Holder.parse("job 8"), started_at=NOON - SECOND)
    assert len(found(idle(both, held))) == count
    young = idle(replace(held, started_at=BEGIN + 20 * SECOND), seconds=SPAN - 20)
    assert len(found(young)) == int(ended is None)


@pytest.mark.parametrize(("seconds", "missing", "count"), [(250, 0, 1), (250, 1, 1), (250, 2, 0)])
def test_of_the_span_four_fifths_of_the_samples_must_be_there(
    seconds: float, missing: int, count: int
) -> None:
    """A sample in ten seconds, and of the last ones some are without numbers."""
    empty = dict.fromkeys(FREE)
    scene = idle(ALICE, seconds=seconds).changed(gpu(), empty, 10.0 * missing)
    assert len(found(scene)) == count


@pytest.mark.parametrize(("late", "count"), [(60.0, 1), (60.1, 0)])
def test_of_the_span_the_first_fifth_may_be_missing(late: float, count: int) -> None:
    """Every sample came twice."""
    scene = idle(ALICE)
    begin = BEGIN + timedelta(seconds=late)
    samples = [one for one in scene.samples if one.at > begin]
    first = [replace(one, at=begin) for one in samples if one.at == NOON - 10 * SECOND]
    twice = [replace(one, at=one.at + SECOND) for one in samples]
    assert len(found(replace(scene, samples=(*first, *samples, *twice)))) == count


def test_of_a_span_that_is_no_longer_than_a_tick_one_sample_tells() -> None:
    assert len(found(idle(ALICE, seconds=10.0), idle_after_seconds=10.0)) == 1


# --- whom an incident holds up ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "subject", "count"),
    [
        ("gpu_lost", gpu(2), 0),  # another GPU of the job, on another node
        ("gpu_lost", gpu(3), 1),
        ("host_mount", node(2), 0),
        ("node_silent", node(2), 0),
        ("gpu_program", gpu(2), 1),
    ],
)
def test_a_job_that_an_incident_holds_up_is_not_called_idle(
    fault: str, subject: Subject, count: int
) -> None:
    job = idle(ALICE, allocation(gpu(2), "job 7"))
    for ended, is_known in ((None, True), (BEGIN + SECOND, True), (BEGIN, False)):
        one = replace(incident(fault, subject, -timedelta(hours=1)), resolved_at=ended)
        expected = count if is_known else 1
        assert len(found(replace(job, recent_incidents=(one,)))) == expected, ended


def test_of_who_share_a_gpu_all_must_be_held_up() -> None:
    lost = (incident("gpu_lost", gpu(2)),)
    both = idle(ALICE, allocation(gpu(2), "job 7"), allocation(gpu(), "job 8"))
    assert len(found(replace(both, recent_incidents=lost))) == 1


def test_who_was_called_idle_before_the_fault_is_idle_still() -> None:
    """So that what is open is told as what follows from the fault, or goes on after it."""
    job = idle(ALICE, allocation(gpu(2), "job 7"))
    lost, called = incident("gpu_lost", gpu(2)), incident("gpu_idle_held", gpu())
    assert len(found(replace(job, recent_incidents=(called, lost)))) == 1
    over = replace(called, resolved_at=NOON - SECOND)
    assert found(replace(job, recent_incidents=(over, lost))) == []


# --- what is said ---------------------------------------------------------------------------------


def test_one_gpu_is_told_with_what_was_measured() -> None:
    fields: dict[str, Any] = {**FREE, "memory_used_bytes": GIBIBYTE * 3 // 4}
    fields["clock_event_reasons"] = 0x3
    (it,) = found(idle(ALICE, fields=fields))
    assert told(it) == (
        "info; utilisation: 0 % at most in 5 min (limit 1 % or more); memory held: 0.8 GiB;"
        " clocks: idle, as the driver says;"
        " allocated to: job 7 of alice: train.py, since 10:00:00 UTC on 31 Jan"
    )
    assert it.since == BEGIN
    assert it.action == "Ask alice whether the GPU is still needed (job 7 of alice: train.py)."
    fields |= {"sm_activity_percent": 0.7, "memory_used_bytes": None, "clock_event_reasons": 0x2}
    (it,) = found(idle(ALICE, fields=fields))
    assert told(it).startswith(
        "info; utilisation: 1 % at most in 5 min (limit 1 % or more); allocated to"
    )


def test_what_nobody_measured_is_not_said() -> None:
    (it,) = found(idle(fields={**HELD, "memory_used_bytes": None, "clock_event_reasons": None}))
    assert told(it) == "info; utilisation: 0 % at most in 5 min (limit 1 % or more)"
    assert it.action.startswith("Find the process")


def test_nobody_is_told_of_a_time_before_the_first_sample() -> None:
    (it,) = found(idle(ALICE, seconds=250.0))
    assert it.since == NOON - 250 * SECOND
    assert it.evidence[0].value == "0 % at most in 4 min"


@pytest.mark.parametrize(
    ("changes", "who", "asked"),
    [
        ({"user": None}, "job 7: train.py", "job 7"),
        ({"command": ""}, "job 7 of alice", "alice"),
        ({"began_before": True}, "job 7 of alice: train.py", "alice"),
    ],
)
def test_the_holder_is_named_as_far_as_it_is_known(
    changes: Mapping[str, Any], who: str, asked: str
) -> None:
    (it,) = found(idle(replace(ALICE, **changes)))
    earlier = " or earlier" if "began_before" in changes else ""
    assert it.evidence[-1].value == f"{who}, since 10:00:00 UTC on 31 Jan{earlier}"
    assert it.action == f"Ask {asked} whether the GPU is still needed ({who})."


def several(holders: str, **fields: Any) -> Scene:
    """The GPUs of a node are idle, one after the other held by "7" or "8", or by "-" nobody."""
    gpus = [gpu(1, index) for index in range(len(holders))]
    scene = healthy(nodes=1, seconds=SPAN, gpus=len(gpus))
    for one in gpus:
        scene = scene.changed(one, {**HELD, **fields})
    held = [
        allocation(one, f"job {who}", started_at=NOON - (len(gpus) - place) * timedelta(hours=1))
        for place, (one, who) in enumerate(zip(gpus, holders, strict=True))
        if who != "-"
    ]
    return replace(scene, allocations=tuple(held))


@pytest.mark.parametrize(
    ("holders", "nodes"), [("7", 0), ("78", 0), ("77", 1), ("7788", 2), ("--", 0), ("77-", 1)]
)
def test_several_gpus_of_one_holder_are_one_finding_more(holders: str, nodes: int) -> None:
    them = found(several(holders))
    assert len(them) == len(holders) + nodes
    assert [it.subject for it in them[len(holders) :]] == [node()] * nodes


def test_several_gpus_are_told_together() -> None:
    scene = several("777").without(lambda s: s.subject == gpu() and s.at < NOON - 250 * SECOND)
    *_, it = found(scene)
    assert told(it) == (
        "info; utilisation: under 1 % on each of them in 5 min;"
        " allocated to: job 7 of alice: train.py, since 09:00:00 UTC on 31 Jan;"
        " idle or hung: unknown: the job reports no steps"
    )
    assert it.evidence[-1].detail  # on its page, and in no message
    assert (it.title, it.condition, it.holder) == (
        "3 GPUs allocated to job 7 of alice and idle",
        "several_gpus",
        "job 7",
    )
    assert it.members == (gpu(), gpu(1, 1), gpu(1, 2))
    assert it.since == BEGIN
    assert it.action == "Ask alice whether the GPUs are still needed (job 7 of alice: train.py)."


@pytest.mark.parametrize(
    ("scene", "is_said"),
    [
        (several("77"), True),
        (several("77").changed(gpu(1, 1), {"step_age_seconds": 900.0}), False),
        (several("777").changed(gpu(1, 2), {"utilization_percent": 90}), False),
        # Somebody else's GPU, and one on another node, say nothing of the job's here.
        (several("778").changed(gpu(1, 2), {"utilization_percent": 90}), True),
        (replace(several("77"), allocations=tuple(
            allocation(gpu(1, it), "process 9") for it in range(2))), False),
    ],
)  # fmt: skip
def test_that_a_job_at_rest_may_hang_is_said_where_it_tells_no_steps(
    scene: Scene, is_said: bool
) -> None:
    *_, it = found(scene)
    assert it.condition == "several_gpus"
    assert (it.evidence[-1].name == "idle or hung") is is_said


@pytest.mark.parametrize(("mounts", "is_said"), [(None, True), (0, False), (1, False)])
def test_where_nothing_reads_file_systems_a_job_may_wait_for_storage(
    mounts: int | None, is_said: bool
) -> None:
    for scene in (idle(ALICE), several("77")):
        for it in found(scene.changed(node(), {"mounts_hung": mounts})):
            said = [one for one in it.evidence if "storage" in one.name]
            assert [one.value for one in said] == (
                ["unknown: this node's file systems are not read"] if is_said else []
            )
            assert all(one.detail for one in said)  # on its page, and in no message


# --- whether a span tells -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scene", "tells"),
    [
        (idle(ALICE), True),
        (idle(ALICE, seconds=100.0), False),
        (idle(seconds=100.0), True),  # nobody holds it
        (idle(seconds=100.0, fields=HELD), False),
        (idle(ALICE, seconds=100.0, fields={**FREE, "utilization_percent": LIMIT}), True),
        (idle(seconds=100.0, fields={**FREE, "compute_processes": None}), False),
        (replace(idle(), samples=()), False),
    ],
)
def test_a_span_tells_of_use_of_nobody_and_when_it_is_full(scene: Scene, tells: bool) -> None:
    assert would_show_idleness(scene.window((DETECTOR,)), gpu()) is tells


def test_all_gpus_of_an_incident_must_be_told_of_that_their_node_still_has() -> None:
    full = several("77").window((DETECTOR,))
    short = several("77").without(lambda s: s.subject == gpu() and s.at < NOON - 100 * SECOND)
    half = short.window((DETECTOR,))

    def tells(*members: str, of_half: bool) -> bool:
        one = incident("gpu_idle_held", gpu(), members=members)
        return would_show_idle_held(half if of_half else full, one)

    both = (node().key, gpu().key, gpu(1, 1).key)
    assert (tells(*both, of_half=False), tells(*both, of_half=True)) == (True, False)
    assert (tells(of_half=False), tells(of_half=True)) == (True, False)
    assert tells(gpu(1, 1).key, of_half=True)
    assert tells(gpu(1, 7).key, of_half=True)  # taken out of its node
