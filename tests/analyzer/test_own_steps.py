"""Which rank a job waits for by what each tells of its own work, and what is to blame for it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from analyzer.correlation.causes import hides
from analyzer.detectors.gpu_slow import DETECTOR, slow_gpus, would_show_slow_gpu
from analyzer.evidence.own_steps import _dealt
from gpuvigil.lineprotocol import parse
from gpuvigil.model import (
    Collective,
    EventKind,
    Finding,
    Incident,
    RankState,
    RankStatus,
    Severity,
    Source,
    Subject,
)
from simulator.cluster import build, gpu_subject
from simulator.faults import InjectedFault
from simulator.sensors import Moment, NodeSensors

from .scene import (
    GPU_FIELDS,
    NOON,
    Sample,
    Scene,
    allocation,
    event,
    gpu,
    healthy,
    in_one_job,
    incident,
    node,
    told,
)

# Two ranks on each of four nodes.
RANKS = [(number, index) for number in range(1, 5) for index in range(2)]
STEP: Mapping[str, Any] = {
    "step_age_seconds": 0.5,
    "step_p99_seconds": 2.0,
    "step_seconds": 1.6,
    "step_input_seconds": 0.0,
}


def job(
    slow: Mapping[int, Mapping[str, Any]],
    own: Sequence[float] = (),
    seconds: float = 1e9,
    ran: float = 120.0,
) -> Scene:
    """Eight ranks that work for a second by themselves; what some tell else in the last `seconds`."""
    scene = healthy(nodes=4, seconds=ran)
    works = own or [1.0] * 8
    for rank, place in enumerate(RANKS):
        said = {"step_own_seconds": works[rank], "step_own_first_seconds": works[rank]}
        scene = scene.changed(gpu(*place), {**STEP, **said, "rank": rank})
        if rank in slow:
            scene = scene.changed(gpu(*place), slow[rank], seconds)
    return replace(scene, allocations=tuple(allocation(gpu(*it), "job 7") for it in RANKS))


def found(scene: Scene) -> list[Finding]:
    return slow_gpus(scene.window((DETECTOR,)))


def own(seconds: float, first: float | None = 1.0, **more: Any) -> dict[str, Any]:
    return {"step_own_seconds": seconds, "step_own_first_seconds": first, **more}


def test_a_rank_that_turned_slow_is_told_in_numbers() -> None:
    (it,) = found(job({5: own(1.3)}))
    assert (it.subject, it.condition, it.members) == (gpu(3, 1), "slow_rank", ())
    assert told(it) == (
        "info; own work in a step: rank 5: 1.3 s"
        " (limit 5 % more than the others, peers 1 s in 7 other ranks of the job);"
        " in its first steps: 1 s; SM clock: +0.0 % beside the job's other GPUs (limit -4 %)"
    )
    # All of the recent span, as far as one can look back.
    assert (NOON - it.since).total_seconds() == pytest.approx(70.0)


@pytest.mark.parametrize("seconds", [35.0, 45.0, 55.0])
def test_the_mean_of_the_last_minute_says_when_it_turned_slow(seconds: float) -> None:
    (it,) = found(job({5: own(1.3)}, seconds=seconds))
    assert (NOON - it.since).total_seconds() == pytest.approx(seconds, abs=20.0)


def lasting(scene: Scene) -> Scene:
    """With the spans of a site that sets none: a steady one is ten minutes."""
    return replace(scene, settings=replace(scene.settings, steady_seconds=600.0))


@pytest.mark.medium
@pytest.mark.parametrize(
    ("seconds", "severity"), [(310.0, Severity.WARNING), (290.0, Severity.INFO)]
)
@pytest.mark.parametrize("ran", [620.0, 400.0])
def test_a_rank_whose_clock_is_as_the_others_is_a_warning_after_five_minutes_and_no_gpu_s(
    seconds: float, severity: Severity, ran: float
) -> None:
    """As with heavier data on it: 1.15 s beside 1 s."""
    for clock in (1_980_000_000, None):
        scene = job({5: own(1.15, sm_clock_hertz=clock)}, seconds=seconds, ran=ran)
        (it,) = found(lasting(scene))
        assert (it.severity, it.subject) == (severity, gpu(3, 1))
        assert it.title == "A rank of the job has become slow: its own work takes longer"
        assert "Keep the GPU out" not in it.action
        assert ("SM clock" in told(it)) is (clock is not None)
    nodes = lasting(job({4: own(1.15), 5: own(1.15)}, seconds=seconds, ran=ran))
    assert [(it.severity, it.title) for it in found(nodes)] == [
        (severity, "Ranks on one node have become slow: their own work takes longer")
    ]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("seconds", "severity"), [(310.0, Severity.WARNING), (290.0, Severity.INFO)]
)
@pytest.mark.parametrize(("dealt", "now"), [(1.25, 1.35), (0.9, 1.05)])
def test_a_rank_of_a_stage_is_a_warning_once_it_lasts_beyond_what_it_was_dealt(
    dealt: float, now: float, seconds: float, severity: Severity
) -> None:
    """Before it turned slow it was far above the middle of its job, or below it."""
    scene = job({5: own(now, dealt)}, [1.0] * 5 + [dealt] + [1.0] * 2, seconds=seconds, ran=620.0)
    (it,) = [it for it in found(lasting(scene)) if it.condition == "slow_rank"]
    assert (it.severity, it.subject) == (severity, gpu(3, 1))


def test_what_was_dealt_is_believed_beyond_what_one_reading_is_off_by() -> None:
    """Where data differ the first steps say nothing of it."""
    dealt = _dealt(np.array([0.2, -0.1, 0.03, -0.03, np.nan]), np.full(5, 0.03))
    assert dealt.tolist() == pytest.approx([0.17, -0.07, 0.0, 0.0, 0.0])


def told_before(**more: Any) -> Incident:
    """A note of the sixth rank that is over."""
    over = incident("gpu_slow", gpu(3, 1), -timedelta(minutes=50), condition="slow_rank", **more)
    return replace(over, state="resolved", resolved_at=NOON - timedelta(minutes=40))


@pytest.mark.parametrize(("ran", "count"), [(timedelta(minutes=41), 0), (timedelta(minutes=39), 1)])
def test_a_note_that_came_and_went_is_not_told_again_of_the_same_job(
    ran: timedelta, count: int
) -> None:
    scene = replace(job({5: own(1.3)}), recent_incidents=(told_before(),))
    held = tuple(replace(it, started_at=NOON - ran) for it in scene.allocations)
    assert len(found(replace(scene, allocations=held))) == count


def test_a_note_that_stands_or_is_of_another_rank_or_had_a_cause_is_told() -> None:
    scene, over = job({5: own(1.3)}), told_before()
    assert found(replace(scene, recent_incidents=(over,))) == []
    for stood in (
        (over, replace(over, state="open", resolved_at=None)),
        (replace(over, fingerprint="of another rank"),),
        (replace(over, covered_by="its cause"),),
    ):
        assert len(found(replace(scene, recent_incidents=stood))) == 1


@pytest.mark.medium
@pytest.mark.parametrize(("seconds", "count"), [(310.0, 1), (290.0, 0)])
def test_a_rank_of_which_a_note_was_told_is_a_warning_once_it_lasts(
    seconds: float, count: int
) -> None:
    scene = lasting(job({5: own(1.15)}, seconds=seconds, ran=620.0))
    them = found(replace(scene, recent_incidents=(told_before(),)))
    assert [it.severity for it in them] == [Severity.WARNING] * count


def test_that_it_comes_last_to_collectives_is_evidence_of_a_rank_that_its_steps_tell() -> None:
    rank = RankStatus(rank=5, stand=RankState.FIRST, gpu="GPU-3-1", microseconds=210)
    last = Collective(
        by=Source.INSPECTOR, holder="job 7", stand=RankState.FIRST, operation="AllReduce", ranks=(rank,),
        compared=240, percent=92, microseconds=840,
    )  # fmt: skip
    it = event(EventKind.COLLECTIVE, node(3), NOON - timedelta(seconds=60.0))
    scene = job({5: own(1.3)}).with_events(replace(it, collectives=(last,)))
    (told_of,) = found(scene)
    assert told_of.condition == "slow_rank"
    assert told_of.evidence[-1].name == "wait in collectives"


def test_a_rank_is_not_told_beside_its_gpu() -> None:
    """Where the GPU's power says that it is the machine, and the job slows down."""
    scene = job({5: own(1.3, power_watts=480.0)}, seconds=65.0, ran=400.0)
    assert [it.condition for it in found(scene)] == ["slow_rank"]
    for place in RANKS:
        scene = scene.changed(gpu(*place), {"step_seconds": 2.0}, 65.0)
    slowed = in_one_job(
        replace(scene, allocations=()), [gpu(*it) for it in RANKS], lost=0.2, seconds=65.0
    )
    (it,) = found(slowed)
    assert (it.subject, it.severity, it.condition) == (gpu(3, 1), Severity.WARNING, "")
    assert "power at its clock" in told(it)


@pytest.mark.parametrize(("seconds", "count"), [(1.0501, 1), (1.0499, 0)])
def test_it_works_a_twentieth_longer_than_at_first_beside_the_others(
    seconds: float, count: int
) -> None:
    assert [it.condition for it in found(job({5: own(seconds)}))] == ["slow_rank"] * count
    # Whatever the others' own stage is.
    works = [1.4, 1.4, 1.0, 1.0, 1.0, 1.0, 0.9, 0.9]
    stage = {7: own(0.9 * 1.3, 0.9)}
    assert [it.condition for it in found(job(stage, works)) if it.severity is Severity.INFO][
        :1
    ] == ["slow_rank"]


@pytest.mark.parametrize(
    ("seconds", "clock", "count"),
    [
        # 5 % and the 2 % of a GPU that came to its power limit once it was warm.
        (1.0716, 0.98, 1),
        (1.0712, 0.98, 0),
        # A higher clock than the others' makes no rank slow.
        (1.0501, 1.02, 1),
        (1.0499, 1.02, 0),
        # One that is told of is the GPU's own.
        (1.0501, 0.9599, 1),
        (1.0501, 0.9601, 0),
    ],
)
def test_what_a_slightly_lower_clock_explains_is_no_change_of_the_rank(
    seconds: float, clock: float, count: int
) -> None:
    scene = job({5: own(seconds, sm_clock_hertz=int(1_980_000_000 * clock))})
    assert [it.condition for it in found(scene)] == ["slow_rank"] * count


def test_that_others_run_at_slightly_lower_clocks_hides_no_rank_of_a_few() -> None:
    scene = job({1: own(1.1)})
    for number, place in enumerate(RANKS):
        clock = 0.985 if number in {2, 3} else 1.0
        said = {"sm_clock_hertz": int(1_980_000_000 * clock)}
        scene = scene.changed(gpu(*place), said if number < 4 else {"step_own_seconds": None})
    assert [(it.condition, it.subject) for it in found(scene)] == [("slow_rank", gpu(1, 1))]


@pytest.mark.parametrize(("seconds", "count"), [(1.1001, 1), (1.0999, 0)])
def test_who_was_so_from_the_beginning_works_a_tenth_longer(seconds: float, count: int) -> None:
    assert [it.condition for it in found(job({5: own(seconds, seconds)}))] == [
        "uneven_stage"
    ] * count


@pytest.mark.parametrize(("watts", "kind"), [(0.9699, "slow_from_start"), (0.9701, "uneven_stage")])
def test_who_draws_less_than_those_that_wait_has_no_more_to_do_than_they(
    watts: float, kind: str
) -> None:
    """Of work that was cut unevenly who has more draws no less."""
    usual = GPU_FIELDS["power_watts"]
    (it,) = found(job({5: own(1.3, 1.3, power_watts=usual * watts)}))
    assert (it.condition, it.severity) == (kind, Severity.INFO)
    assert ("been slow since the job began" in it.title) is (kind == "slow_from_start")


@pytest.mark.parametrize(
    ("watts", "lately", "kind"),
    [
        (0.9699, 0.9848, "slow_from_start"),
        (0.9701, 0.9848, "uneven_stage"),
        (0.96, 0.9850, "uneven_stage"),
    ],
)
@pytest.mark.parametrize("hertz", [1_980_000_000, None])
def test_it_has_drawn_less_for_ten_minutes_and_half_of_that_in_the_last(
    watts: float, lately: float, kind: str, hertz: int | None
) -> None:
    """A minute of a job that is half idle scatters as much; a node may tell no clocks."""
    usual = GPU_FIELDS["power_watts"]
    more: dict[str, Any] = {"step_own_first_seconds": 1.3, "step_own_seconds": 1.3}
    scene = job({5: more}, ran=620.0)
    for place in RANKS:
        scene = scene.changed(gpu(*place), {"sm_clock_hertz": hertz})
    # Sixty readings, of which six are of the last minute.
    before = (60.0 * watts - 6.0 * lately) / 54.0
    scene = scene.changed(gpu(3, 1), {"power_watts": usual * before})
    scene = scene.changed(gpu(3, 1), {"power_watts": usual * lately}, 65.0)
    assert [it.condition for it in found(lasting(scene))] == [kind]


@pytest.mark.parametrize(
    ("ran", "seconds", "count"),
    [(110.0, 1.19, 1), (110.0, 1.187, 0), (120.0, 1.133, 1), (120.0, 1.131, 0)],
)
def test_of_ranks_that_differ_it_stands_out(ran: float, seconds: float, count: int) -> None:
    """By five deviations: 1.3 %, times 1.48 for a median, times 1.75 for eight, or 1.25 once they are known."""
    works = [0.98, 0.99, 0.99, 1.0, 1.0, 1.0, 1.01, 1.02]
    works = [1.0 + (one - 1.0) * 1.32 for one in works]
    said = {rank: own(one) for rank, one in enumerate(works)}
    assert len(found(job({**said, 5: own(seconds)}, ran=ran))) == count


DIFFER = [1.0 + 1.32 * it for it in (-0.02, -0.01, -0.01, 0.0, 0.0, 0.0, 0.01, 0.02)]


def with_one_reading(less: float, ago: float, slow: float) -> Scene:
    """Ranks that differ, of which the sixth is slow, and all of which were once as much quicker."""
    works = [*DIFFER[:5], slow, *DIFFER[6:]]
    scene = job({rank: own(one) for rank, one in enumerate(works)}, ran=120.0)
    for place, one in zip(RANKS, works, strict=True):
        once = scene.changed(gpu(*place), own((1.0 - less) * one), ago)
        scene = once.changed(gpu(*place), own(one), ago - 10.0)
    return scene


@pytest.mark.parametrize(("seconds", "count"), [(1.19, 1), (1.187, 0)])
def test_in_a_pause_few_ranks_are_a_guess(seconds: float, count: int) -> None:
    """Each reading of the last minute is the same one."""
    assert len(found(with_one_reading(0.001, 75.0, seconds))) == count


@pytest.mark.parametrize(("less", "count"), [(0.058, 1), (0.059, 0)])
def test_few_ranks_whose_data_differ_are_a_guess(less: float, count: int) -> None:
    """Where four deviations of a reading are more than a tenth."""
    assert len(found(with_one_reading(less, 45.0, 1.16))) == count


@pytest.mark.parametrize(
    ("ago", "least", "count"),
    [(45.0, 0.882, 1), (45.0, 0.881, 0), (75.0, 0.74, 1), (75.0, 0.738, 0)],
)
def test_no_rank_stands_out_by_what_a_reading_scatters(
    ago: float, least: float, count: int
) -> None:
    """As uneven data make them, now and in its first steps; by half of the steady span's where a minute has one
    reading alone.
    """
    assert len(found(with_others_once(least, ago))) == count


def with_others_once(least: float, ago: float) -> Scene:
    """The sixth is slow; all others were quicker at one reading."""
    scene = job({5: own(1.3)}, ran=120.0)
    for place in RANKS:
        if place != RANKS[5]:
            once = scene.changed(gpu(*place), own(least), ago)
            scene = once.changed(gpu(*place), own(1.0), ago - 10.0)
    return scene


def stepping(scene: Scene, steps: int, paused: float = 0.0) -> Scene:
    """Each rank has made so many steps by each reading, but in the last `paused` seconds."""

    def counts(sample: Sample) -> Sample:
        worked = min((sample.at - NOON).total_seconds(), -paused)
        return replace(sample, fields={**sample.fields, "step": int(1000 + steps * worked / 10.0)})

    return replace(scene, samples=tuple(map(counts, scene.samples)))


@pytest.mark.parametrize(
    ("steps", "seconds", "paused", "least", "count"),
    [
        # Seven readings of other steps, as where none are counted.
        (6, 1.6, 0.0, 0.884, 1),
        (6, 1.6, 0.0, 0.883, 0),
        # Eighteen steps are not four readings, and seven of which two are of a pause are five.
        (3, 3.2, 0.0, 0.922, 1),
        (3, 3.2, 0.0, 0.920, 0),
        (6, 1.6, 25.0, 0.905, 1),
        (6, 1.6, 25.0, 0.903, 0),
    ],
)
def test_readings_of_the_same_steps_count_once(
    steps: int, seconds: float, paused: float, least: float, count: int
) -> None:
    scene = with_others_once(least, 45.0)
    for place in RANKS:
        scene = scene.changed(gpu(*place), {"step_seconds": seconds})
    assert len(found(stepping(scene, steps, paused))) == count


@pytest.mark.parametrize(("steps", "count"), [(2, 1), (1, 0)])
def test_where_a_minute_has_under_two_readings_the_longer_span_tells_how_they_scatter(
    steps: int, count: int
) -> None:
    """Ten steps in it; all others were quicker a while ago."""
    scene = with_others_once(0.85, 75.0)
    for place in RANKS:
        scene = scene.changed(gpu(*place), {"step_seconds": 10.0 / steps})
    assert len(found(stepping(scene, steps))) == count


@pytest.mark.parametrize(
    ("others", "clock", "is_gpu"),
    [(1, 0.979, True), (2, 0.979, False), (2, 0.981, True)],
)
def test_where_a_third_of_a_job_runs_at_a_lower_clock_it_is_no_gpu_s_own(
    others: int, clock: float, is_gpu: bool
) -> None:
    """Half as much lower as the one that is slow."""
    scene = job({5: own(1.3, sm_clock_hertz=int(1_980_000_000 * 0.95))})
    for place in RANKS[:others]:
        scene = scene.changed(gpu(*place), {"sm_clock_hertz": int(1_980_000_000 * clock)})
    (it,) = found(scene)
    assert it.title.startswith("GPU slows its job down") is is_gpu
    assert it.severity is (Severity.WARNING if is_gpu else Severity.INFO)


@pytest.mark.parametrize(("since", "count"), [(30.0, 1), (25.0, 0)])
def test_it_has_been_so_for_half_a_minute(since: float, count: int) -> None:
    """By its mean over the last minute, of which five lines came."""
    assert len(found(job({5: own(1.3)}, seconds=since))) == count
    # One that is slow by chance is another one in a while.
    assert found(job({5: own(1.0)}, [1.0] * 5 + [1.3, 1.0, 1.0], seconds=15.0)) == []


def test_data_that_make_another_rank_slow_each_time_are_nobodys_fault() -> None:
    scene = job({})
    for turn in range(6):
        place = gpu(*RANKS[turn])
        scene = scene.changed(place, own(1.5), 10.0 * (turn + 1))
        scene = scene.changed(place, own(1.0), 10.0 * turn)
    assert found(scene) == []


@pytest.mark.parametrize(("ranks", "count"), [(4, 1), (3, 0)])
def test_four_ranks_must_tell(ranks: int, count: int) -> None:
    scene = job({1: own(1.3)})
    for place in RANKS[ranks:]:
        scene = scene.changed(gpu(*place), {"step_own_seconds": None})
    assert len(found(scene)) == count


@pytest.mark.parametrize(("lines", "count"), [(3, 1), (2, 0)])
def test_three_lines_must_tell(lines: int, count: int) -> None:
    scene = job({5: own(1.3)})
    scene = scene.without(
        lambda it: it.subject == gpu(3, 1) and (NOON - it.at).seconds > 10 * lines
    )
    assert len(found(scene)) == count


@pytest.mark.parametrize(("age", "count"), [(59.9, 1), (60.0, 0)])
def test_a_rank_that_hangs_is_not_called_slow(age: float, count: int) -> None:
    assert len(found(job({5: own(1.3, step_age_seconds=age)}))) == count


@pytest.mark.parametrize(("step_seconds", "count"), [(1.9, 1), (1.91, 0)])
def test_who_waits_longer_than_the_others_is_not_the_one_they_wait_for(
    step_seconds: float, count: int
) -> None:
    """The others wait for 0.6 s."""
    assert len(found(job({5: own(1.3, step_seconds=step_seconds)}))) == count
    assert len(found(job({5: own(1.3, step_seconds=None)}))) == 1


def test_two_of_a_node_are_its_node_and_what_many_do_is_how_the_work_was_dealt() -> None:
    (it,) = found(job({4: own(1.3), 5: own(1.4)}))
    assert (it.subject, it.members) == (node(3), (gpu(3), gpu(3, 1)))
    assert told(it).startswith(
        "info; ranks: 2 of the node at once; own work in a step: rank 5: 1.4"
    )
    assert len(found(job({1: own(1.3), 5: own(1.4)}))) == 2
    # On three nodes, or more than a third.
    eleven = job({1: own(1.3), 5: own(1.4), 7: own(1.3)})
    assert found(eleven) == []


@pytest.mark.parametrize(
    ("first", "sick"),
    [(1.238, True), (1.239, False), (None, None)],
)
def test_who_was_so_from_the_beginning_is_a_note_and_no_machine(
    first: float | None, sick: bool | None
) -> None:
    """A twentieth longer than at first is from 1.238 to 1.3."""
    kinds = {True: ["slow_rank"], False: ["uneven_stage"], None: []}
    assert [it.condition for it in found(job({5: own(1.3, first)}))] == kinds[sick]


@pytest.mark.parametrize(
    ("first", "clock", "kind", "said"),
    [
        (1.0, 0.9599, "slow_rank", "SM clock: -4.0 % beside"),
        # From the beginning where it explains half: of 1.3 times that is 0.877.
        (1.3, 0.8769, "slow_rank", "SM clock: -12.3 % beside"),
        (1.3, 0.8772, "uneven_stage", "their clocks explain less than half of it"),
        (1.3, 0.9601, "uneven_stage", "their clocks are as the others'"),
    ],
)
def test_a_lower_clock_says_that_it_is_the_machine(
    first: float, clock: float, kind: str, said: str
) -> None:
    """Who has more to do draws more, and runs lower for it at its power limit."""
    scene = job({5: own(1.3, first, sm_clock_hertz=int(1_980_000_000 * clock))})
    (it,) = found(scene)
    assert it.condition == kind
    assert said in told(it)
    assert it.severity is (Severity.WARNING if kind == "slow_rank" else Severity.INFO)
    assert it.title.startswith("GPU slows its job down") is (kind == "slow_rank")


@pytest.mark.parametrize(
    ("rank", "phase", "kind"),
    [
        (0, 3, "uneven_stage"),
        (0, 4, "uneven_stage"),
        (0, 2, "slow_from_start"),
        (1, 3, "slow_from_start"),
    ],
)
def test_what_the_first_rank_draws_says_nothing_where_it_may_have_saved_for_the_others(
    rank: int, phase: int, kind: str
) -> None:
    """At some moment of the steady span."""
    slow = own(1.3, 1.3, power_watts=0.9 * GPU_FIELDS["power_watts"])
    scene = job({rank: {**slow, "step_phase": 2}})
    once = scene.changed(gpu(*RANKS[rank]), {"step_phase": phase}, 40.0)
    (it,) = found(once.changed(gpu(*RANKS[rank]), {"step_phase": 2}, 30.0))
    assert it.condition == kind


def test_two_of_a_node_at_a_lower_clock_are_their_node_at_once() -> None:
    slow = own(1.3, sm_clock_hertz=1_800_000_000)
    scene = job({4: slow, 5: slow}, seconds=30.0)
    (it,) = found(scene.rising(gpu(3), "hardware_thermal_slowdown_seconds", 1.0))
    assert (it.subject, it.severity) == (node(3), Severity.WARNING)
    assert it.title.startswith("Node slows its job down")


def test_lower_clocks_of_all_of_a_node_without_a_reason_may_be_set() -> None:
    slow = own(1.3, sm_clock_hertz=1_800_000_000)
    (it,) = found(job({4: slow, 5: slow}, seconds=30.0))
    assert (it.subject, it.severity, it.condition) == (node(3), Severity.WARNING, "node_clocks")
    assert it.title == "Job waits for a node whose GPUs all run at lower clocks"
    (one,) = found(job({4: slow}, seconds=30.0))
    assert (one.subject, one.severity) == (gpu(3), Severity.WARNING)


ALONE = gpu(4)
OTHER = gpu(4, 1)


@pytest.mark.parametrize(
    ("fields", "others", "condition"),
    [
        ({}, {}, "slow_rank"),
        # What the node's others at work have.
        ({}, {"sm_clock_hertz": 1_836_000_000}, "node_clocks"),
        ({}, {"sm_clock_hertz": 1_837_000_000}, "slow_rank"),
        # The driver says that somebody set it, or that it is something else.
        ({"clock_event_reasons": 0x2}, {}, "node_clocks"),
        ({"clock_event_reasons": 0x4}, {}, "slow_rank"),
        # No other one works: nobody can tell, where the driver does not.
        ({"clock_event_reasons": None}, {"utilization_percent": 9.0}, "node_clocks"),
        ({"clock_event_reasons": 0}, {"utilization_percent": 9.0}, "slow_rank"),
        ({"clock_event_reasons": None}, {"utilization_percent": 10.0}, "slow_rank"),
    ],
)
def test_of_a_job_with_one_gpu_on_a_node_lower_clocks_are_its_own_where_nobody_set_them(
    fields: Mapping[str, Any], others: Mapping[str, Any], condition: str
) -> None:
    slow = own(1.3, sm_clock_hertz=1_800_000_000, **fields)
    scene = job({6: slow}, ran=200.0)
    held = [it for it in scene.allocations if it.subject != OTHER]
    scene = replace(scene.changed(OTHER, others), allocations=tuple(held))
    (it,) = found(scene)
    assert (it.subject, it.severity, it.condition) == (ALONE, Severity.WARNING, condition)
    assert it.title.startswith("Job waits for a GPU") is (condition == "node_clocks")
    # Within half a minute, too.
    (soon,) = found(replace(job({6: slow}, seconds=35.0, ran=200.0), allocations=tuple(held)))
    assert soon.condition == ("node_clocks" if fields.get("clock_event_reasons") == 0x2 else "slow_rank")  # fmt: skip
    hot = found(scene.rising(ALONE, "hardware_thermal_slowdown_seconds", 1.0))
    assert [one.condition for one in hot] == ["slow_rank"]


def test_a_stage_that_has_more_to_do_is_one_note_for_its_job() -> None:
    (it,) = found(job({1: own(1.5, 1.5), 4: own(1.4, 1.4), 5: own(1.4, 1.4)}))
    assert (it.subject, it.severity) == (node(1), Severity.INFO)
    assert it.members == (gpu(1, 1), gpu(3), gpu(3, 1))
    assert it.holder == "c|job 7"
    assert "ranks: 3 of job 7, from its first steps on; their clocks are as the others'" in told(it)
    (it,) = found(job({1: own(1.5, 1.5)}))
    assert (it.subject, it.members, it.holder) == (node(1), (gpu(1, 1),), "c|job 7")


@pytest.mark.parametrize(
    ("seconds", "members"), [(1.0793, (gpu(3), gpu(3, 1))), (1.0791, (gpu(3),))]
)
def test_with_a_rank_that_has_more_to_do_are_those_that_nearly_do(
    seconds: float, members: Sequence[Subject]
) -> None:
    """From four fifths of a tenth: so that a stage at the limit is not another note each minute."""
    (it,) = found(job({4: own(1.3, 1.3), 5: own(seconds, seconds)}))
    assert (it.condition, it.subject, it.members) == ("uneven_stage", node(3), members)
    assert found(job({5: own(1.0793, 1.0793)})) == []


def test_a_note_about_stages_stands_while_all_of_the_job_changes_its_pace() -> None:
    """For a minute each rank's readings lie far apart, and nobody stands out for it."""
    scene = job({5: own(1.3, 1.3)})
    for rank, place in enumerate(RANKS):
        seconds = 1.3 if rank == 5 else 1.0
        scene = scene.changed(gpu(*place), own(2.0 * seconds, seconds), 60.0)
        scene = scene.changed(gpu(*place), own(seconds, seconds), 30.0)
    assert found(scene) == []
    note = replace(incident("gpu_slow", gpu(3, 1)), condition="uneven_stage")
    note = replace(note, since=NOON - timedelta(seconds=9))
    assert would_show_slow_gpu(scene.window((DETECTOR,)), note) is False


def test_processes_of_no_job_are_not_held_against_each_other() -> None:
    assert found(replace(job({5: own(1.3)}), allocations=())) == []


@pytest.mark.parametrize(("seconds", "is_fine"), [(1.024, True), (1.025, False)])
def test_what_stands_is_over_once_the_rank_works_as_the_others(
    seconds: float, is_fine: bool
) -> None:
    """Half as far as would be told."""
    window = job({5: own(seconds)}).window((DETECTOR,))
    assert would_show_slow_gpu(window, incident("gpu_slow", gpu(3, 1))) is is_fine
    assert would_show_slow_gpu(window, incident("gpu_slow", gpu(9))) is False


@pytest.mark.parametrize(("times", "is_fine"), [(1.024, True), (1.025, False)])
def test_a_rank_of_a_heavier_stage_is_slow_no_more_once_it_is_nearly_as_at_first(
    times: float, is_fine: bool
) -> None:
    """Told from a twentieth on, over within half of that: not in and out at one limit."""
    turned = incident("gpu_slow", gpu(3, 1))
    for condition, over in (("slow_rank", is_fine), ("slow_from_start", False)):
        scene = job({5: own(1.3 * times, 1.3)})
        stands = replace(turned, condition=condition)
        assert would_show_slow_gpu(scene.window((DETECTOR,)), stands) is over


def test_a_note_about_stages_and_a_rank_of_one_that_turned_slow_do_not_hide_each_other() -> None:
    stage = {4: own(1.3, 1.3), 5: own(1.3, 1.3)}
    (note,) = found(job(stage))
    assert gpu(3, 1) in note.members
    left, slow = found(job({**stage, 5: own(1.5, 1.3)}))
    assert (left.fingerprint, left.members) == (note.fingerprint, (gpu(3),))
    assert (slow.condition, slow.subject) == ("slow_rank", gpu(3, 1))
    assert not hides(note, slow)
    assert not hides(slow, note)


def test_a_note_about_one_rank_goes_on_as_the_warning_that_it_is_slow() -> None:
    """Who works longer is told at once, and why once its GPU draws less than the others'."""
    (note,) = found(job({5: own(1.3, 1.3)}))
    (both,) = found(job({4: own(1.3, 1.3), 5: own(1.3, 1.3)}))
    slow = replace(found(job({5: own(1.3)}))[0], condition="slow_from_start")
    assert (note.condition, slow.subject, note.members) == (
        "uneven_stage", gpu(3, 1), (gpu(3, 1),),
    )  # fmt: skip
    assert hides(slow, note)
    assert not hides(note, slow)
    assert not hides(slow, both)


def test_a_note_about_stages_stands_until_they_are_even_or_the_job_is_over() -> None:
    note = replace(
        incident("gpu_slow", gpu(3, 1)), condition="uneven_stage", since=NOON - timedelta(seconds=9)
    )
    for seconds, is_fine in ((1.0489, False), (1.0488, True)):
        scene = job({5: own(seconds, seconds)})
        assert would_show_slow_gpu(scene.window((DETECTOR,)), note) is is_fine
        over = replace(scene, allocations=())
        assert would_show_slow_gpu(over.window((DETECTOR,)), note) is True


@pytest.mark.parametrize(("ran", "count"), [(400.0, 1), (170.0, 0)])
def test_a_rank_turns_slow_beside_what_it_took_in_the_last_ten_minutes(
    ran: float, count: int
) -> None:
    """All ranks run at other clocks than at first, each by its chip, as when a rack's power is short."""
    works = [1.0, 1.1, 0.92, 1.07, 0.95, 1.0, 1.09, 0.93]
    scene = job({rank: own(it) for rank, it in enumerate(works)}, ran=ran)
    assert found(lasting(scene)) == []
    for gpu_of, seconds in ((gpu(3, 1), 1.15), (gpu(3, 1), 1.2)):
        turned = scene.changed(gpu_of, {"step_own_seconds": seconds}, 45.0)
        assert [it.subject for it in found(lasting(turned))] == [gpu_of] * count


@pytest.mark.parametrize(
    ("ran", "first", "count"),
    [
        # Twelve readings before the last minute, or too few to say more than its first one does.
        (200.0, 0.966, 0),
        (160.0, 0.966, 1),
        # It has taken three quarters of a twentieth longer for all of the time.
        (200.0, 0.9640, 1),
        (200.0, 0.9642, 0),
    ],
)
def test_one_low_reading_at_first_makes_no_rank_slow(ran: float, first: float, count: int) -> None:
    scene = job({5: own(1.0, first)}, ran=ran).changed(gpu(3, 1), {"step_own_seconds": 1.02}, 65.0)
    assert [it.condition for it in found(lasting(scene))] == ["slow_rank"] * count


@pytest.mark.parametrize(("first", "kind"), [(1.1085, "slow_rank"), (1.1087, "uneven_stage")])
def test_a_rank_that_is_as_at_first_again_did_not_turn_slow(first: float, kind: str) -> None:
    """It ran lighter for ten minutes: 1.15 s now is three quarters of a twentieth more than that, or less."""
    scene = job({5: own(1.0, first)}, ran=400.0)
    turned = scene.changed(gpu(3, 1), {"step_own_seconds": 1.15}, 65.0)
    assert [it.condition for it in found(lasting(turned))] == [kind]


def test_a_rank_that_has_not_told_its_first_steps_yet_did_not_turn_slow() -> None:
    young = job({rank: own(1.0, None) for rank in range(8)}, ran=400.0)
    turned = young.changed(gpu(3, 1), {"step_own_seconds": 1.09}, 65.0)
    assert found(lasting(turned)) == []


@pytest.mark.medium
def test_the_slow_rank_of_the_demo_is_told_within_two_minutes() -> None:
    """Injected into a training of the plain simulation, and no word before it or of another rank."""
    origin = NOON - timedelta(seconds=400.0)
    demo = build(4, 8, 1).nodes[0]
    slow = InjectedFault(
        name="slow-rank", node=demo.subject.node, at=NOON - timedelta(seconds=110.0), gpu=3
    )
    rows = [
        (it, line)
        for it in range(0, 400, 10)
        for line in parse(
            (NodeSensors(demo).body(Moment(origin=origin, elapsed_seconds=it, tick=it), [slow]) or "").encode()
        ).lines
        if line.measurement == "gpu"
    ]  # fmt: skip
    subjects = {one.uuid: gpu_subject(demo, index) for index, one in enumerate(demo.gpus)}
    samples = tuple(
        Sample(
            subject=subjects[dict(line.tags)["uuid"]],
            at=origin + timedelta(seconds=it),
            fields=dict(line.fields),
        )
        for it, line in rows
    )
    held = tuple(allocation(one, "job 7") for one in subjects.values())
    scene = lasting(Scene(samples=samples, allocations=held))
    [it] = found(scene)
    assert (it.subject, it.condition) == (subjects[demo.gpus[3].uuid], "slow_rank")
    assert "rank 3: " in told(it)
    before = tuple(one for one in samples if one.at < slow.at)
    assert found(replace(scene, samples=before, now=slow.at)) == []


def over_half_an_hour(scene: Scene) -> Scene:
    """With all spans of a site that sets none."""
    return replace(scene, settings=replace(lasting(scene).settings, trend_seconds=1800.0))


@pytest.mark.medium
@pytest.mark.parametrize(
    ("seconds", "first", "count"),
    [
        (1.0501, 1.005, 1),
        (1.0499, 1.005, 0),
        # Three quarters of a twentieth longer than at first, or less: it is as it was then.
        (1.07, 1.0314, 1),
        (1.07, 1.0317, 0),
    ],
)
def test_ten_minutes_beside_the_twenty_before_tell_what_a_first_reading_hides(
    seconds: float, first: float, count: int
) -> None:
    """It turned slow so long ago that neither the last minute nor its first steps say so."""
    scene = job({5: own(1.0, first)}, ran=1100.0)
    turned = scene.changed(gpu(3, 1), {"step_own_seconds": seconds}, 605.0)
    told = [(it.condition, it.severity) for it in found(over_half_an_hour(turned))]
    assert told == [("slow_rank", Severity.WARNING)] * count


@pytest.mark.parametrize(("ran", "count"), [(720.0, 1), (710.0, 0)])
def test_twelve_readings_before_the_last_ten_minutes_must_tell(ran: float, count: int) -> None:
    scene = job({5: own(1.0, 1.02)}, ran=ran)
    turned = scene.changed(gpu(3, 1), {"step_own_seconds": 1.07}, 605.0)
    assert len(found(over_half_an_hour(turned))) == count


@pytest.mark.parametrize(("ago", "count"), [(1800.0, 1), (1799.0, 0)])
def test_what_another_job_took_on_the_same_gpus_says_nothing(ago: float, count: int) -> None:
    """The half hour is all of one job's, or it is not asked."""
    scene = job({5: own(1.0, 1.02)}, ran=720.0)
    turned = scene.changed(gpu(3, 1), {"step_own_seconds": 1.07}, 605.0)
    since = NOON - timedelta(seconds=ago)
    held = tuple(replace(it, started_at=since) for it in scene.allocations)
    assert len(found(over_half_an_hour(replace(turned, allocations=held)))) == count


# Stages that were cut unevenly, two ranks in each; who has more to do draws no less.
STAGES = [1.25, 1.25, 1.0, 1.0, 0.98, 0.98, 0.95, 0.95]
_WATTS = [666.0, 663.0, 654.0, 654.0, 637.0, 637.0, 609.0, 608.0]


def staged(rank: int, longer: float, watts: float, scatter: float = 0.0) -> Scene:
    """One rank was slow from the beginning."""
    works = [it * (longer if number == rank else 1.0) for number, it in enumerate(STAGES)]
    drawn = [watts if number == rank else it for number, it in enumerate(_WATTS)]
    them = enumerate(zip(works, drawn, strict=True))
    scene = job({number: own(it, it, power_watts=w) for number, (it, w) in them})
    for place, work in zip(RANKS, works, strict=True) if scatter else ():
        scene = scene.changed(gpu(*place), own(work * (1.0 - scatter), work), 45.0)
        scene = scene.changed(gpu(*place), own(work, work), 35.0)
    return scene


@pytest.mark.parametrize(("watts", "count"), [(589.7, 1), (589.8, 0)])
def test_of_uneven_stages_who_works_longer_and_draws_least_is_slow(
    watts: float, count: int
) -> None:
    """By 3 % below any other: however unevenly the work was cut, who has more to do draws no less."""
    them = found(staged(5, 1.23, watts))
    assert [(it.subject, it.condition) for it in them] == [(gpu(3, 1), "slow_from_start")] * count
    assert all(it.title.startswith("A rank of the job has been slow since") for it in them)
    stands = replace(incident("gpu_slow", gpu(3, 1)), condition="slow_from_start")
    says = would_show_slow_gpu(staged(5, 1.23, watts).window((DETECTOR,)), stands)
    # Once told it stands, whatever it draws, until it works as the others.
    assert says is False


@pytest.mark.parametrize(("longer", "count"), [(1.123, 1), (1.122, 0)])
def test_it_works_a_tenth_longer_than_the_middle_of_its_job(longer: float, count: int) -> None:
    """Of which a stage is, at 1 s."""
    assert len(found(staged(5, longer, 580.0))) == count


def test_a_heavier_stage_is_no_slow_rank_whatever_its_chips_draw() -> None:
    assert found(staged(0, 1.0, 600.0)) == []
    # The lightest draws least, by far.
    assert found(staged(7, 1.0, 500.0)) == []


@pytest.mark.parametrize(("scatter", "count"), [(0.05, 1), (0.15, 0)])
def test_data_that_differ_make_nobody_slow_from_the_beginning(scatter: float, count: int) -> None:
    assert len(found(staged(5, 1.23, 580.0, scatter))) == count
