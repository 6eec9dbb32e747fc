"""Who fails again and again: GPU, slot or node."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.hardware.repeat_offenders import (
    HARDWARE,
    LEMON_SCORE,
    SPAN,
    Advice,
    Before,
    Offender,
    Part,
    before,
    deaths,
    failures,
    history,
    offenders,
)
from gpuvigil.model import SELFTEST_CLUSTER, SIMULATED_CLUSTER, Incident, Severity, Subject
from gpuvigil.silence_conditions import NodeSilence

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
DAY = timedelta(days=1)
CRITICAL, WARNING, INFO = Severity.CRITICAL, Severity.WARNING, Severity.INFO


def incident(
    days_ago: float = 0.0,
    *,
    fault: str = "gpu_lost",
    severity: Severity = CRITICAL,
    place: tuple[str, str] = ("c", "node-1"),
    slot: str = "0000:1b:00.0",
    serial: str = "s1",
    state: str = "resolved",
) -> Incident:
    subject = Subject(cluster=place[0], node=place[1], gpu=f"GPU-{serial}" if slot else None)
    since = NOON - days_ago * DAY
    return Incident(
        id=f"{fault} {subject.key} {since.isoformat()}",
        fingerprint="f",
        fault=fault,
        subject=subject,
        severity=severity,
        state=state,
        title=fault,
        since=since,
        updated_at=since,
        serial=serial if slot else "",
        slot=slot,
    )


def found(*incidents: Incident) -> dict[tuple[Part, str], Offender]:
    return {(one.part, one.name): one for one in offenders(failures(incidents), NOON)}


def test_two_pages_within_two_weeks_make_a_lemon_and_one_does_not() -> None:
    once = found(incident(0.0))
    assert [one.is_lemon for one in once.values()] == [False] * 3
    twice = found(incident(0.0), incident(10.0))
    assert {one.part for one in twice.values() if one.is_lemon} == set(Part)


def test_an_old_failure_weighs_half_and_then_nothing() -> None:
    assert found(incident(0.0))[Part.GPU, "s1"].score == pytest.approx(1.0)
    assert found(incident(14.0))[Part.GPU, "s1"].score == pytest.approx(0.5)


def test_thirty_days_count_and_not_a_moment_more() -> None:
    moment = 1e-6 / 86_400.0
    edge = found(incident(30.0))[Part.GPU, "s1"]
    assert edge.score == pytest.approx(0.5 ** (30.0 / 14.0))
    assert found(incident(30.0 - moment)).keys() == {
        (Part.NODE, "node-1"),
        (Part.SLOT, "0000:1b:00.0"),
        (Part.GPU, "s1"),
    }
    assert not found(incident(30.0 + moment))
    assert history(incident(0.0), failures([incident(30.0)]))
    assert not history(incident(0.0), failures([incident(30.0 + moment)]))


def test_many_failures_of_months_ago_rank_nowhere() -> None:
    old = [incident(40.0 + n) for n in range(20)]
    ranked = offenders(failures([*old, incident(1.0, serial="s2", slot="b")]), NOON)
    assert {len(one.failures) for one in ranked} == {1}


def test_a_gpu_is_followed_to_another_node() -> None:
    moved = found(incident(3.0), incident(0.0, place=("c", "node-2"), slot="0000:43:00.0"))
    assert moved[Part.GPU, "s1"].is_lemon
    assert moved[Part.GPU, "s1"].node == "node-2"
    assert not moved[Part.NODE, "node-1"].is_lemon
    assert not moved[Part.SLOT, "0000:43:00.0"].is_lemon


def test_a_slot_is_blamed_where_another_gpu_fails_too() -> None:
    here = found(incident(3.0), incident(0.0, serial="s2"))
    assert here[Part.SLOT, "0000:1b:00.0"].is_lemon
    assert not here[Part.GPU, "s1"].is_lemon


@pytest.mark.parametrize(
    "other",
    [
        incident(1.0, place=(SELFTEST_CLUSTER, "node-1")),
        incident(1.0, fault="gpu_program", severity=INFO),
        incident(1.0, fault="gpu_idle_held", severity=WARNING),
        incident(1.0, severity=INFO),
        incident(1.0, state="suspect"),
        incident(1.0, state="dismissed"),
    ],
)
def test_what_is_no_failure_of_hardware_counts_nowhere(other: Incident) -> None:
    assert failures([other]) == ()
    assert history(other, failures([incident(3.0)])) == ""


def test_simulated_gpus_are_not_mixed_with_real_ones() -> None:
    real = incident(0.0)
    one = incident(1.0, place=(SIMULATED_CLUSTER, "node-1"))
    both = offenders(failures([real, one]), NOON)
    assert [len(it.failures) for it in both] == [1] * 6


def test_what_follows_within_an_hour_is_the_same_failure() -> None:
    storm = [incident(1.0 - minutes / 1440, fault=name) for minutes, name in enumerate(
        ("gpu_xid", "gpu_lost", "gpu_silent")
    )]  # fmt: skip
    assert len(found(*storm)[Part.SLOT, "0000:1b:00.0"].failures) == 1
    assert history(storm[-1], failures(storm)) == ""


# A node that falls silent is not among them: most are rebooted or taken back on purpose.
def test_what_is_used_set_up_or_reached_badly_is_no_failing_hardware() -> None:
    of_others = ("gpu_program", "gpu_idle_held", "gpu_memory_held", "gpu_hung", "gpu_settings")
    of_nodes = ("gpus_missing", "driver_not_loaded", "fabric_down", "node_silent", "host_disk")
    of_reach = ("port_congested", "switch_down", "host_mount", "host_space", "clock_wrong")
    assert HARDWARE.isdisjoint({*of_others, *of_nodes, *of_reach})
    assert {
        "gpu_lost",
        "gpu_hot",
        "host_power",
        "host_fan",
        "host_memory",
        "port_errors",
    } < HARDWARE


SENTENCES: Sequence[tuple[Sequence[Incident], str]] = (
    ((), ""),
    (
        (incident(20.0), incident(9.0)),
        "Again: 3rd time in 20 days on this GPU in this slot",
    ),
    (
        (incident(20.0, serial="s2"), incident(9.0, serial="s3")),
        "Again: 3rd time in 20 days at this slot, with 3 GPUs: it followed the slot, not the GPU",
    ),
    (
        (incident(9.0, place=("c", "node-2")),),
        "Again: 2nd time in 9 days on this GPU, in 2 slots: it followed the GPU, not the slot",
    ),
    (
        (incident(9.0, slot="", fault="host_memory"),),
        "2nd failure of hardware in 9 days on this node",
    ),
    ((incident(30.1),), ""),
    # What comes later is no history.
    ((incident(-1.0),), ""),
)


@pytest.mark.parametrize(("before", "sentence"), SENTENCES)
def test_an_incident_says_what_happened_before(before: Sequence[Incident], sentence: str) -> None:
    now = incident(0.0)
    assert history(now, failures([*before, now])) == sentence


def test_where_no_serial_is_read_the_slot_speaks() -> None:
    before, now = incident(3.0, serial=""), incident(0.0, serial="")
    assert history(now, failures([before])) == "Again: 2nd time in 3 days at this slot"


@pytest.mark.parametrize(
    ("days", "fault", "severity", "slot", "other", "advice"),
    [
        (14.0, "gpu_lost", CRITICAL, "0000:1b:00.0", "s1", Advice.RETURN_GPU.value),
        (14.1, "gpu_lost", CRITICAL, "0000:1b:00.0", "s1", ""),
        (9.0, "gpu_lost", CRITICAL, "0000:1b:00.0", "s2", Advice.LOOK_AT_SLOT.value),
        (9.0, "gpu_lost", CRITICAL, "0000:43:00.0", "s1", Advice.RETURN_GPU.value),
        (9.0, "gpu_lost", CRITICAL, "0000:43:00.0", "s2", ""),  # another part of the node
        (9.0, "gpu_memory", WARNING, "0000:1b:00.0", "s1", ""),
        (9.0, "gpu_hot", WARNING, "0000:1b:00.0", "s1", ""),
    ],
)
def test_a_lemon_is_to_be_taken_out(
    days: float, fault: str, severity: Severity, slot: str, other: str, advice: str
) -> None:
    now = incident(fault=fault, severity=severity)
    old = incident(days, fault=fault, severity=severity, slot=slot, serial=other)
    assert before(now, failures([old, now])).advice == advice


@pytest.mark.parametrize(
    ("hours", "said"), [(47.0, "1 d 23 h"), (48.0, "2 days"), (1.9, "1 h 54 min")]
)
def test_times_that_lie_close_are_told_in_hours(hours: float, said: str) -> None:
    sentence = history(incident(), failures([incident(hours / 24.0)]))
    assert sentence == f"Again: 2nd time in {said} on this GPU in this slot"


@pytest.mark.parametrize(("hours", "count"), [(1.0, 1), (1.01, 2)])
def test_one_that_came_back_counts_each_time_that_it_was_there(hours: float, count: int) -> None:
    back = replace(incident(), earlier=(NOON - timedelta(hours=hours),))
    assert len(found(back)[Part.GPU, "s1"].failures) == count
    assert bool(history(back, failures([back]))) is (count > 1)


def test_a_node_that_died_before_says_so_and_is_no_lemon_of_hardware() -> None:
    def died(days: float, condition: str = NodeSilence.DEAD, **change: Any) -> Incident:
        one = incident(days, fault="node_silent", slot="", severity=CRITICAL)
        return replace(one, condition=condition, **change)

    now = died(0.0)
    assert failures([now]) == ()
    said = before(now, deaths([died(9.0), died(3.0), now]))
    assert said.sentence == "Again: 3rd time in 9 days that this node went down"
    assert said.advice == Advice.TAKE_NODE_OUT.value
    assert before(now, deaths([died(14.1), now])).advice == ""
    assert before(now, deaths([now])) == Before()
    # What went in order, what was up, and what a rack did, is no death of the node.
    in_order = (NodeSilence.SHUT_DOWN, NodeSilence.WAS_REBOOTED, NodeSilence.COLLECTOR)
    assert deaths([died(1.0, condition) for condition in in_order]) == ()
    assert deaths([died(1.0, members=("c/a", "c/b")), died(1.0, covered_by="f")]) == ()


_INCIDENTS = st.builds(
    incident,
    days_ago=st.floats(-2.0, 40.0),
    fault=st.sampled_from(["gpu_lost", "gpu_xid", "host_memory", "gpu_idle_held"]),
    severity=st.sampled_from(list(Severity)),
    place=st.tuples(st.sampled_from(["c", SELFTEST_CLUSTER]), st.sampled_from(["n1", "n2"])),
    slot=st.sampled_from(["a", "b"]),
    serial=st.sampled_from(["s1", "s2", ""]),
)


@settings(max_examples=40)
@given(them=st.lists(_INCIDENTS, max_size=12), data=st.data())
def test_order_and_repetition_change_nothing_and_time_only_lowers(
    them: list[Incident], data: st.DataObject
) -> None:
    unique = list({one.id: one for one in them}.values())
    mixed = data.draw(st.permutations(unique))
    scored = offenders(failures(unique), NOON)
    assert offenders(failures(mixed), NOON) == scored
    for one in scored:
        assert 0.0 < one.score <= len(one.failures)
        assert all(NOON - SPAN <= it.at <= NOON for it in one.failures)
    old = {(o.part, o.cluster, o.node, o.name): o.score for o in scored}
    past = [one for one in failures(unique) if one.at <= NOON]
    for one in offenders(past, NOON + DAY):
        assert one.score <= old[one.part, one.cluster, one.node, one.name]
    assert LEMON_SCORE > 1.0
