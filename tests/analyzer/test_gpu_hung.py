"""What a GPU must do, and for how long, to be called hung, and who is then told of it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analyzer.detectors.gpu_hung import (
    DETECTOR,
    hung_jobs,
    spinning,
    working,
    would_show_hang,
)
from gpuvigil.model import Allocation, Finding, Incident, Subject, fingerprint

from .scene import (
    GPU_FIELDS,
    NOON,
    SETTINGS,
    Scene,
    allocation,
    gpu,
    healthy,
    incident,
    node,
    told,
)

SPINS: Mapping[str, Any] = {
    "utilization_percent": 100,
    "memory_utilization_percent": 0,
    "power_watts": 130.0,
    "power_limit_watts": 700.0,
    "nvlink_receive_bytes": 0,
    "pcie_receive_bytes_per_second": 0.0,
}
ALL = 1e9
MOVED = "nvlink_receive_bytes"


def found(scene: Scene) -> list[Finding]:
    return hung_jobs(scene.window((DETECTOR,)))


def of_one_job(*gpus: Subject) -> tuple[Allocation, ...]:
    return tuple(allocation(one, "job 7") for one in gpus)


def one(span: float, fields: Mapping[str, Any], job: str | None = None) -> Scene:
    """Of one node with two GPUs the first spins for so long, but for these fields."""
    scene = healthy(nodes=1).changed(gpu(), {**SPINS, **fields}, span)
    return scene if job is None else replace(scene, allocations=(allocation(gpu(), job),))


@pytest.mark.medium
@pytest.mark.parametrize(
    ("works", "spins"),
    [
        ({"utilization_percent": 97}, {"utilization_percent": 98}),
        ({"power_watts": 280.0}, {"power_watts": 279.9}),
        ({"power_watts": None}, {}),
        ({"power_limit_watts": None, "power_watts": 280.0}, {"power_limit_watts": None}),
        ({"memory_utilization_percent": 2}, {"memory_utilization_percent": 1}),
        ({"memory_utilization_percent": None}, {}),
        ({"pcie_receive_bytes_per_second": 50e6}, {"pcie_receive_bytes_per_second": 49.9e6}),
        ({"utilization_percent": None}, {"pcie_receive_bytes_per_second": None}),
        ({"up": 1, "utilization_percent": 0}, {MOVED: None}),
    ],
)
@pytest.mark.parametrize(("span", "severity"), [(65.0, "info"), (ALL, "warning")])
def test_a_gpu_spins_from_its_limits_on(
    works: Mapping[str, Any], spins: Mapping[str, Any], span: float, severity: str
) -> None:
    assert found(one(span, works)) == []
    assert [it.severity.value for it in found(one(span, spins))] == [severity]


@pytest.mark.parametrize(
    ("span", "seconds"), [(65.0, SETTINGS.window_seconds), (ALL, SETTINGS.steady_seconds)]
)
def test_a_megabyte_a_second_over_nvlink_is_work(span: float, seconds: float) -> None:
    for moved, count in ((1_000_000 * seconds, 0), (1_000_000 * seconds - 1, 1)):
        scene = one(span, {}).changed(gpu(), {MOVED: int(moved)}, 15)
        recent = [it for it in found(scene) if (it.severity.value == "warning") is (span == ALL)]
        assert len(recent) == count


@pytest.mark.parametrize(("seconds", "count"), [(50.0, 1), (50.1, 0)])
def test_four_fifths_of_a_span_must_have_been_read(seconds: float, count: int) -> None:
    """Lines came from 50 s to 10 s ago."""
    brief = replace(SETTINGS, window_seconds=seconds)
    scene = replace(healthy(nodes=1, seconds=50.0).changed(gpu(), SPINS), settings=brief)
    assert len(found(scene)) == count


def writing(scene: Scene, field: str, per_second: float) -> Scene:
    """The node begins to write, a minute ago."""
    return scene.changed(node(), {field: 0}).turned(node(), field, 0.0, per_second, 60.0)


@pytest.mark.parametrize("field", ["disk_write_bytes", "shared_write_bytes"])
@pytest.mark.parametrize(("per_second", "count"), [(49e6, 1), (51e6, 0)])
def test_a_node_that_writes_fifty_megabytes_a_second_may_be_at_a_checkpoint(
    field: str, per_second: float, count: int
) -> None:
    assert len(found(writing(one(65.0, {}), field, per_second))) == count


@pytest.mark.parametrize(("seconds", "count"), [(599.0, 0), (601.0, 1)])
def test_a_node_that_writes_holds_a_hang_back_for_ten_minutes(seconds: float, count: int) -> None:
    spun = {"spin_seconds": seconds, "longest_spin_seconds": 1.0}
    assert len(found(writing(one(ALL, spun), "shared_write_bytes", 90e6))) == count


def test_one_gpu_that_spins_is_told_in_numbers() -> None:
    (it,) = found(one(65.0, {}))
    power = "power: 130 W at most in 1 min (limit over 280 W for a GPU at work)"
    busy = "utilisation: 98 % or more at every sample"
    assert told(it) == f"info; {busy}; {power}; GPUs: 1 on 1 node, allocated to a process"
    assert (it.subject, it.members, it.holder) == (gpu(), (), "")
    assert (NOON - it.since).total_seconds() == SETTINGS.window_seconds
    (it,) = found(one(ALL, {}, job="job 7"))
    assert told(it) == (
        f"warning; {busy}; {power.replace('1 min', '5 min')}; GPUs: 1 on 1 node, allocated to job 7"
    )
    assert (it.subject, it.members, it.holder) == (gpu(), (), "")
    assert (NOON - it.since).total_seconds() == SETTINGS.steady_seconds


@pytest.mark.parametrize(("seconds", "count"), [(59, 0), (60, 1)])
def test_what_spun_for_a_job_that_has_ended_is_told_once_it_goes_on_without_it(
    seconds: int, count: int
) -> None:
    ended = allocation(gpu(), "job 7", ended_at=NOON - timedelta(seconds=seconds))
    scene = replace(one(ALL, {}), allocations=(ended,))
    assert len(found(scene)) == count
    next_one = replace(scene, allocations=(ended, allocation(gpu(), "job 8")))
    assert len(found(next_one)) == 1


def test_a_job_on_two_nodes_is_told_once_about_the_first_of_them() -> None:
    gpus = (gpu(1, 1), gpu(2), gpu(2, 1))
    scene = replace(healthy(nodes=2), allocations=of_one_job(*gpus))
    for number, subject in enumerate(gpus):
        scene = scene.changed(subject, {**SPINS, "power_watts": 130.0 + number}, 65)
    (it,) = found(scene)
    assert (it.subject, it.members, it.holder) == (node(1), gpus, "c|job 7")
    assert told(it).endswith(
        "power: 132 W at most in 1 min (limit over 280 W for a GPU at work);"
        " GPUs: 3 on 2 nodes, allocated to job 7"
    )


def of_job(on: Subject, job: str = "c|job 7", minutes_ago: float | None = None) -> Incident:
    """An incident about a job that hangs, active or over, told by this node."""
    over = None if minutes_ago is None else NOON - timedelta(minutes=minutes_ago)
    one = incident("gpu_hung", on, resolved_at=over)
    return replace(one, fingerprint=fingerprint("gpu_hung", on, job))


@pytest.mark.parametrize(
    ("known", "told_by"),
    [
        ((), node(1)),
        ((of_job(node(2)),), node(2)),
        ((of_job(node(2), job="c|job 8"),), node(1)),
        # The third node's GPUs do not spin, or nobody has read them yet.
        ((of_job(node(3)),), node(3)),
        ((of_job(node(2), minutes_ago=5.0),), node(2)),
        ((of_job(node(2), minutes_ago=5.0), of_job(node(3))), node(3)),
    ],
)
def test_a_job_on_several_nodes_keeps_the_node_that_it_is_known_by(
    known: tuple[Incident, ...], told_by: Subject
) -> None:
    gpus = (gpu(1), gpu(2), gpu(3))
    scene = replace(healthy(nodes=3), allocations=of_one_job(*gpus), recent_incidents=known)
    for subject in gpus[:2]:
        scene = scene.changed(subject, SPINS)
    (it,) = found(scene)
    assert (it.subject, it.members) == (told_by, gpus[:2])


def test_what_spins_for_long_enough_is_told_whatever_another_gpu_of_its_job_does() -> None:
    """Of four GPUs one spins all the time, two since a minute, and one works or is not read."""
    gpus = tuple(gpu(1, index) for index in range(4))
    scene = replace(healthy(nodes=1, gpus=4), allocations=of_one_job(*gpus))
    for subject in gpus[1:3]:
        scene = scene.changed(subject, SPINS, 65)
    assert found(scene) == []
    lasting = scene.changed(gpus[0], SPINS)
    (it,) = found(lasting)
    assert (told(it).partition(";")[0], it.members) == ("warning", gpus[:3])
    assert (NOON - it.since).total_seconds() == SETTINGS.steady_seconds
    assert "in 5 min" in told(it)
    # One that nobody reads says nothing against it.
    unread = scene.without(lambda sample: sample.subject in {gpus[0], gpus[3]})
    assert [(f.severity.value, f.members) for f in found(unread)] == [("info", gpus[1:3])]


@pytest.mark.parametrize(
    ("watts_before", "at_work", "count"),
    [(280.0, 1, 0), (279.0, 1, 1), (280.0, 2, 1), (280.0, 0, 1)],
)
def test_a_rank_that_works_may_evaluate_for_those_that_worked_within_half_an_hour(
    watts_before: float, at_work: int, count: int
) -> None:
    gpus = tuple(gpu(1, index) for index in range(5))
    settings = replace(SETTINGS, steady_seconds=300.0, trend_seconds=900.0)
    scene = replace(
        healthy(nodes=1, gpus=5, seconds=900.0), allocations=of_one_job(*gpus), settings=settings
    )
    for subject in gpus[at_work:]:
        scene = scene.changed(subject, {**SPINS, "power_watts": watts_before})
        scene = scene.changed(subject, SPINS, 305.0)
    assert len(found(scene)) == count


def of_spins(*spins: tuple[float | None, float | None]) -> Scene:
    """GPUs of one job that spin since a minute, as the collector counts it: now, and at most."""
    gpus = tuple(gpu(1, index) for index in range(len(spins)))
    scene = replace(healthy(nodes=1, seconds=120.0, gpus=len(gpus)), allocations=of_one_job(*gpus))
    for subject, (now, longest) in zip(gpus, spins, strict=True):
        fields = {"spin_seconds": now, "longest_spin_seconds": longest}
        scene = scene.changed(subject, {**SPINS, **fields})
    return scene


@pytest.mark.parametrize(
    ("spins", "severity"),
    [
        (((299.9, 0.0),), "info"),
        (((300.0, 0.0),), "warning"),
        (((300.0, 100.0),), "warning"),
        (((300.0, 100.1),), "info"),
        (((330.0, 110.0),), "warning"),
        (((329.9, 110.0),), "info"),
        (((330.0, 110.0), (None, 20.0)), "warning"),  # one of which nobody knows
        (((329.9, 110.0), (None, 20.0)), "info"),
        (((330.0, 110.0), (None, None)), "warning"),
        (((None, 110.0), (None, None)), "info"),
        (((9000.0, None),), "info"),  # nobody knows how long it may take
    ],
)
def test_a_job_may_spin_for_five_minutes_and_for_three_times_its_longest(
    spins: tuple[tuple[float | None, float | None], ...], severity: str
) -> None:
    assert [it.severity.value for it in found(of_spins(*spins))] == [severity]


def test_what_is_counted_and_read_for_as_long_is_told_with_all_that_was_read() -> None:
    fields = {**SPINS, "spin_seconds": 400.0, "longest_spin_seconds": 0.0}
    (it,) = found(healthy(nodes=1).changed(gpu(), fields))
    assert (NOON - it.since).total_seconds() == SETTINGS.steady_seconds


def test_of_a_gpu_that_nobody_reads_its_job_needs_no_count() -> None:
    scene = of_spins((330.0, 110.0))
    scene = replace(scene, allocations=of_one_job(gpu(), gpu(2)))
    assert [it.severity.value for it in found(scene)] == ["warning"]


# --- a job that tells of its steps ----------------------------------------------------------------


def of_steps(*steps: tuple[float | None, float | None]) -> Scene:
    """GPUs of two nodes and one job: since when, and how long its longest steps take."""
    them = (gpu(1), gpu(2))[: len(steps)]
    scene = replace(healthy(nodes=2, seconds=60.0), allocations=of_one_job(*them))
    for subject, (age, p99) in zip(them, steps, strict=True):
        scene = scene.changed(
            subject, {"step_age_seconds": age, "step_p99_seconds": p99, "step_phase": 2}
        )
    return scene


@pytest.mark.parametrize(
    ("steps", "count"),
    [
        (((59.9, 2.0),), 0),
        (((60.0, 2.0),), 1),
        (((60.0, 12.0),), 1),
        (((60.0, 12.1),), 0),
        (((100.0, 20.0),), 1),
        (((99.9, 20.0),), 0),
        (((100.0, None),), 0),
        (((100.0, 2.0), (100.0, None)), 1),
        (((100.0, 2.0), (None, 2.0)), 1),
        (((100.0, 2.0), (59.9, 2.0)), 0),
        (((100.0, 2.0), (60.0, 2.0)), 1),
    ],
)
def test_steps_have_stopped_after_a_minute_and_five_times_the_longest(
    steps: tuple[tuple[float | None, float | None], ...], count: int
) -> None:
    assert len(found(of_steps(*steps))) == count


def test_a_job_without_steps_is_told_in_numbers() -> None:
    scene = of_steps((80.0, 2.0), (70.0, 13.0))
    (it,) = found(scene)
    limit = "limit 65 s: 5 times its longest steps, 60 s at least"
    assert told(it) == (
        f"warning; its steps: none for 70 s ({limit}); GPUs: 2 on 2 nodes, allocated to job 7"
    )
    assert (it.subject, it.members, it.holder) == (node(1), (gpu(1), gpu(2)), "c|job 7")
    # The limit is ours, and nobody's who makes GPUs.
    assert (it.own_limit, it.source.partition(":")[0]) == (True, "ours")
    assert (NOON - it.since).total_seconds() == 80.0  # its line is ten seconds old
    (it,) = found(replace(of_steps((70.0, 2.0)), allocations=()))
    assert told(it).endswith("60 s at least); GPUs: 1 on 1 node, allocated to a process")
    assert (it.subject, it.members, it.holder) == (gpu(1), (), "")


@pytest.mark.parametrize(("phase", "count"), [(None, 1), (0, 1), (2, 1), (3, 0), (4, 0)])
def test_a_job_that_tells_steps_hangs_at_nothing_used_as_well(
    phase: int | None, count: int
) -> None:
    """At a lock, a file or a socket no kernel spins; who tells a checkpoint or an evaluation pauses."""
    rests = {"utilization_percent": 0, "power_watts": 90.0}
    paused = {"step_phase": phase, "step_phase_seconds": 100.0}
    scene = of_steps((100.0, 2.0), (100.0, 2.0))
    for subject in (gpu(1), gpu(2)):
        scene = scene.changed(subject, {**rests, **paused})
    assert [it.condition for it in found(scene)] == ["no_steps"] * count


def test_of_a_job_whose_steps_stopped_or_go_on_nothing_else_is_said() -> None:
    """Two GPUs of it spin as well, and another job does."""
    both = of_steps((100.0, 2.0), (100.0, 2.0)).changed(gpu(1), SPINS).changed(gpu(2), SPINS)
    assert [it.condition for it in found(both)] == ["no_steps"]
    fine = both.changed(gpu(2), {"step_age_seconds": 1.0})
    assert found(fine) == []
    other = replace(fine, allocations=(*fine.allocations, allocation(gpu(1, 1), "job 8")))
    found_there = found(other.changed(gpu(1, 1), SPINS))
    assert [(it.subject, it.condition) for it in found_there] == [(gpu(1, 1), "")]


# --- what others ask of it ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "spins", "works"),
    [
        ({**SPINS, "power_watts": 279.9}, True, False),
        ({**SPINS, "power_watts": 280.0}, False, True),
        ({**SPINS, "power_watts": None}, False, False),
        ({"power_watts": 100.0, "utilization_percent": 0}, False, False),
        (GPU_FIELDS, False, True),
    ],
)
def test_a_gpu_spins_or_works_or_neither(
    fields: Mapping[str, Any], spins: bool, works: bool
) -> None:
    window = healthy(nodes=1, gpus=1).changed(gpu(), fields).window((DETECTOR,))
    assert (spinning(window), working(window)) == (
        frozenset({gpu()} if spins else ()),
        frozenset({gpu()} if works else ()),
    )


def without_memory(
    watts: float, before: float = 280.0, span: float = 200.0, lately: float | None = None
) -> Scene:
    """One GPU that worked and then spins, of a node whose exporter does not report memory utilisation.

    The steady span is half of the trend; `lately` is what it draws in the last minute of it.
    """
    scene = healthy(nodes=1).changed(gpu(), {"power_watts": before})
    scene = scene.changed(gpu(), {**SPINS, "power_watts": watts}, span)
    if lately is not None:
        scene = scene.changed(gpu(), {"power_watts": lately}, 65.0)
    scene = scene.changed(gpu(), {"memory_utilization_percent": None})
    return replace(scene, settings=replace(SETTINGS, steady_seconds=180.0, trend_seconds=400.0))


@pytest.mark.parametrize(
    ("scene", "severities"),
    [
        (without_memory(174.9, lately=140.0), ["warning"]),
        (without_memory(175.0, lately=140.0), []),
        # A little more, if it never varies.
        (without_memory(209.9), ["warning"]),
        (without_memory(210.0), []),
        (without_memory(200.0, lately=190.1), ["warning"]),
        (without_memory(200.0, lately=189.9), []),
        # What never worked may be a program that needs little, and so may what spins for a minute.
        (without_memory(120.0, before=279.9), []),
        (without_memory(120.0, span=100.0), []),
    ],
)
def test_without_memory_utilisation_who_worked_before_and_draws_hardly_more_than_at_rest_spins(
    scene: Scene, severities: list[str]
) -> None:
    assert [it.severity.value for it in found(scene)] == severities


def test_it_stands_while_nothing_shows_any_more_that_it_worked_before() -> None:
    one = incident("gpu_hung", gpu())
    assert would_show_hang(without_memory(120.0, before=120.0).window(), one) is False
    assert would_show_hang(without_memory(209.9, before=209.9).window(), one) is False
    assert would_show_hang(without_memory(210.0).window(), one) is None
    assert would_show_hang(healthy(nodes=1).window(), one) is None


def test_gpus_of_a_node_that_nobody_is_known_to_hold_hang_together() -> None:
    scene = healthy(nodes=1)
    for index in range(2):
        scene = scene.changed(gpu(1, index), SPINS)
    (one,) = found(scene)
    assert (one.subject, set(one.members)) == (gpu().of_node(), {gpu(1, 0), gpu(1, 1)})


def of_unknown_model(scene: Scene) -> Scene:
    """No power limit is read, and none is known of the model."""
    inventories = tuple(
        replace(it, gpus=tuple(replace(one, model="unknown") for one in it.gpus))
        for it in scene.inventories
    )
    scene = scene.changed(gpu(), {"power_limit_watts": None})
    return replace(scene, inventories=inventories)


@pytest.mark.parametrize(
    ("scene", "severities"),
    [
        (without_memory(149.9, before=600.0, lately=130.0), ["warning"]),
        (without_memory(150.0, before=600.0, lately=130.0), []),
        (without_memory(179.9, before=600.0), ["warning"]),
        (without_memory(180.0, before=600.0), []),
        (without_memory(120.0, before=600.0, span=100.0), []),
        (without_memory(120.0, before=120.0), []),
    ],
)
def test_where_no_power_limit_is_known_what_it_drew_before_is_less_than_that(
    scene: Scene, severities: list[str]
) -> None:
    assert [it.severity.value for it in found(of_unknown_model(scene))] == severities


@pytest.mark.parametrize(("watts", "severities"), [(239.9, ["info"]), (240.0, [])])
def test_where_memory_rests_two_fifths_of_what_it_drew_before_are_work(
    watts: float, severities: list[str]
) -> None:
    scene = healthy(nodes=1).changed(gpu(), {"power_watts": 600.0})
    scene = scene.changed(gpu(), {**SPINS, "power_watts": watts}, 65.0)
    assert [it.severity.value for it in found(of_unknown_model(scene))] == severities


@pytest.mark.parametrize(
    ("fields", "tells"),
    [
        ({"power_watts": 180.0}, False),
        ({"power_watts": 180.1}, None),
        ({"utilization_percent": 97}, None),
        ({"memory_utilization_percent": 1}, False),
        ({"memory_utilization_percent": 2}, None),
    ],
)
def test_it_stands_where_no_limit_is_known_until_more_is_drawn_than_in_half_an_hour(
    fields: Mapping[str, Any], tells: bool | None
) -> None:
    scene = without_memory(120.0, before=120.0).changed(gpu(), fields, 65.0)
    window = of_unknown_model(scene).window()
    assert would_show_hang(window, incident("gpu_hung", gpu())) is tells


RESTS: Mapping[str, Any] = {"utilization_percent": 5, "power_watts": 110.0}


@pytest.mark.parametrize(("percent", "count"), [(5, 0), (6, 1)])
def test_one_that_may_save_is_used_five_percent_at_most(percent: int, count: int) -> None:
    scene = one(65.0, {}).changed(gpu(1, 1), {**RESTS, "utilization_percent": percent}, 65.0)
    assert len(found(scene)) == count
    # What lasts is told.
    assert len(found(one(ALL, {}).changed(gpu(1, 1), RESTS, 65.0))) == 1


@pytest.mark.parametrize(("watts", "count"), [(279.0, 1), (281.0, 0)])
def test_where_nobody_says_whose_gpus_are_one_that_worked_lately_may_save_for_those_that_spin(
    watts: float, count: int
) -> None:
    scene = one(65.0, {}).changed(gpu(1, 1), {"power_watts": watts}).changed(gpu(1, 1), RESTS, 65.0)
    assert len(found(scene)) == count
    held = replace(scene, allocations=(allocation(gpu(1, 1), "job 8"),))
    assert len(found(held)) == 1
