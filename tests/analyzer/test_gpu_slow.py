"""Which GPU a job waits for, and when nobody can say."""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.correlation.correlate import observe
from analyzer.correlation.visibility import is_visible
from analyzer.detectors.gpu_slow import slow_gpus
from analyzer.window.window import Window
from gpuvigil.model import (
    Collective,
    Event,
    EventKind,
    Finding,
    Holder,
    Incident,
    RankState,
    RankStatus,
    Severity,
    Source,
    Subject,
)

from .scene import (
    NOON,
    SETTINGS,
    Scene,
    allocation,
    event,
    gpu,
    healthy,
    in_one_job,
    incident,
    node,
)

GPUS = [gpu(number, index) for number in (1, 2) for index in range(4)]
QUIET = healthy(nodes=2, gpus=4)
MINUTE = timedelta(seconds=60)
LESS: dict[str, Any] = {"power_watts": 520.0}


def found(scene: Scene) -> list[Finding]:
    return slow_gpus(scene.window())


def slowed(scene: Scene = QUIET, lost: float = 0.1, seconds: float = 65.0) -> Scene:
    return in_one_job(scene, GPUS, lost=lost, seconds=seconds)


def test_the_one_that_draws_less_while_its_job_slows_down_is_told_with_numbers() -> None:
    (finding,) = found(slowed(QUIET.changed(gpu(), LESS, 65)))
    assert (finding.subject, finding.severity) == (gpu(), Severity.WARNING)
    job, power, watts = finding.evidence
    assert job.value == "job 7 gets 10 % less done than in the 4 min before"
    assert power.value.startswith("-5.5 % in 1 min")
    assert power.peers == "7 other GPUs of the job"
    assert (watts.value, watts.peers) == ("520 W at 1980 MHz", "550 W at 1980 MHz")


def last_in_collectives(index: int = 0, ago: float = 60.0) -> Event:
    """As NCCL Inspector's lines have it: who comes last is in a collective for the shortest time."""
    rank = RankStatus(rank=3, stand=RankState.FIRST, gpu=f"GPU-1-{index}", microseconds=210)
    first = Collective(
        by=Source.INSPECTOR,
        holder="job 7",
        stand=RankState.FIRST,
        operation="AllReduce",
        ranks=(rank,),
        compared=240,
        percent=92,
        microseconds=840,
    )
    at = NOON - timedelta(seconds=ago)
    return replace(event(EventKind.COLLECTIVE, node(), at), collectives=(first,))


@pytest.mark.parametrize(("ago", "count"), [(899.0, 1), (901.0, 0)])
def test_that_the_others_wait_for_it_in_collectives_is_evidence(ago: float, count: int) -> None:
    scene = slowed(QUIET.changed(gpu(), LESS, 65))
    (it,) = found(scene.with_events(last_in_collectives(ago=ago)))
    assert [e.text for e in it.evidence if e.name == "wait in collectives"] == count * [
        "wait in collectives: rank 3 is in AllReduce for 210 µs, the shortest in 92 % of 240,"
        " by NCCL Inspector (peers 840 µs)"
    ]
    slow = next(
        it for it in found(scene.with_events(last_in_collectives(1))) if it.subject == gpu()
    )
    assert "wait in collectives" not in {e.name for e in slow.evidence}


@pytest.mark.parametrize(("ago", "count"), [(899.0, 1), (901.0, 0)])
def test_who_comes_last_to_collectives_is_a_note_where_nothing_else_is_known(
    ago: float, count: int
) -> None:
    """A rank that was dealt more comes last, too."""
    scene = slowed(lost=0.0).with_events(last_in_collectives(ago=ago))
    them = found(scene)
    assert [(it.subject, it.severity, it.condition) for it in them] == count * [
        (gpu(), Severity.INFO, "last_in_collectives")
    ]
    stands = incident("gpu_slow", gpu(), condition="last_in_collectives")
    assert is_visible(scene.window(), stands)
    assert found(replace(scene, allocations=())) == []


def test_who_comes_last_to_collectives_and_works_as_the_others_is_no_note() -> None:
    scene = slowed(lost=0.0).with_events(last_in_collectives())
    for subject in GPUS:
        told = {"step_own_seconds": 1.0, "step_own_first_seconds": 1.0, "step_seconds": 1.6,
                "step_age_seconds": 0.5, "step_p99_seconds": 2.0}  # fmt: skip
        scene = scene.changed(subject, told)
    assert found(scene) == []


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"sm_clock_hertz": 1_850_000_000, "power_watts": 480.0}, "SM clock"),
        # At its power limit the regulator turns what it does not draw into clock.
        ({"sm_clock_hertz": 1_980_000_000 * 1.03}, "power at its clock"),
    ],
)
def test_clock_and_power_are_held_against_each_other(fields: dict[str, Any], why: str) -> None:
    (finding,) = found(slowed(QUIET.changed(gpu(), fields, 65)))
    assert finding.evidence[1].name == why


@pytest.mark.parametrize(
    "scene",
    [
        slowed(),  # the job slows down, and no GPU stands apart
        slowed(QUIET.changed(gpu(), LESS), lost=0.1),  # it always drew less than its peers
        slowed(QUIET.changed(gpu(), LESS, 65), lost=0.0),  # nobody waits for it
        slowed(QUIET.changed(gpu(), LESS, 65), lost=0.6),  # the job does something else
        slowed(QUIET.changed(gpu(), {"power_watts": 600.0}, 65)),  # it waits less, or more is asked
        slowed(QUIET.changed(gpu(), {**LESS, "utilization_percent": 0}, 65)),  # it rests
        slowed(QUIET.changed(gpu(), {"power_watts": 120.0}, 65)),  # it does nothing
    ],
)
def test_what_is_no_slow_gpu(scene: Scene) -> None:
    assert found(scene) == []


@pytest.mark.parametrize(
    ("lost", "watts", "count"),
    [
        (0.5, 460.0, 1),
        (0.5, 465.0, 0),  # it draws less by under a quarter of what is lost
        (0.5, 366.0, 1),
        (0.5, 360.0, 0),  # it does something else
        (0.66, 400.0, 1),
        (0.68, 400.0, 0),  # the job does something else
    ],
)
def test_a_gpu_of_which_half_is_gone_draws_far_less_than_those_that_wait_for_it(
    lost: float, watts: float, count: int
) -> None:
    scene = slowed(QUIET.changed(gpu(), {"power_watts": watts}, 65), lost=lost)
    assert [(it.subject, it.severity) for it in found(scene)] == [(gpu(), Severity.WARNING)] * count


def test_nobody_is_blamed_where_the_pace_of_the_job_is_not_measured() -> None:
    scene = slowed(QUIET.changed(gpu(), LESS, 65))
    for subject in GPUS:
        scene = scene.changed(subject, {"nvlink_receive_bytes": None})
    assert found(scene) == []


@pytest.mark.parametrize(("seconds", "count"), [(1.07, 0), (1.08, 1)])
def test_the_length_of_its_steps_is_a_job_s_pace_too(seconds: float, count: int) -> None:
    """7 % in a minute; what moves over NVLink may tell nothing, as in a job that pauses again and again."""
    scene = QUIET.changed(gpu(), LESS, 65)
    for subject in GPUS:
        scene = scene.changed(subject, {"step_seconds": 1.0})
        scene = scene.changed(subject, {"step_seconds": seconds}, 65)
    assert len(found(slowed(scene, lost=0.0))) == count


def test_where_no_gpu_of_the_job_tells_its_clock_power_alone_is_held_against_the_others() -> None:
    scene = slowed(QUIET.changed(gpu(), LESS, 65))
    assert found(scene.changed(gpu(), {"sm_clock_hertz": None})) == []
    for subject in GPUS:
        scene = scene.changed(subject, {"sm_clock_hertz": None})
    (finding,) = found(scene)
    assert finding.evidence[1].value.startswith("-5.5 % in 1 min")
    assert (finding.evidence[2].value, finding.evidence[2].peers) == ("520 W", "550 W")


@pytest.mark.parametrize("slow", [gpu(1), gpu(2)])
def test_gpus_of_a_node_that_tells_no_clocks_are_held_against_each_other(slow: Subject) -> None:
    """So are those of the job's other node, which tells them."""
    scene = slowed(QUIET.changed(slow, LESS, 65))
    for subject in GPUS[:4]:
        scene = scene.changed(subject, {"sm_clock_hertz": None})
    assert [it.subject for it in found(scene)] == [slow]


@pytest.mark.parametrize(("of_job", "count"), [(209.0, 0), (211.0, 1)])  # of 700 W
def test_in_a_job_that_hardly_works_none_is_to_blame(of_job: float, count: int) -> None:
    scene = QUIET
    for subject in GPUS:
        scene = scene.changed(subject, {"power_watts": of_job})
    scene = slowed(scene.changed(gpu(), {"power_watts": 0.94 * of_job}, 65))
    assert len(found(scene)) == count


def test_where_half_are_slow_none_is_to_blame() -> None:
    scene = QUIET
    for subject in GPUS[:4]:
        scene = scene.changed(subject, LESS, 65)
    assert found(slowed(scene)) == []


@pytest.mark.parametrize(("percent", "count"), [(88, 0), (89, 1), (None, 1)])
def test_a_job_whose_gpus_pause_waits_for_its_input_and_not_for_one_of_them(
    percent: int | None, count: int
) -> None:
    """93 % before, and a tenth of the pace is lost; who waits for a GPU spins."""
    scene = QUIET.changed(gpu(), LESS, 65)
    for subject in GPUS[1:]:
        scene = scene.changed(subject, {"utilization_percent": percent}, 65)
    assert len(found(slowed(scene))) == count


def test_it_takes_a_job_that_has_its_gpus_to_itself_and_long_enough() -> None:
    scene = slowed(QUIET.changed(gpu(), LESS, 65))
    young = tuple(replace(a, started_at=NOON - timedelta(minutes=4)) for a in scene.allocations)
    assert found(replace(scene, allocations=young)) == []
    few = tuple(a for a in scene.allocations if a.subject in GPUS[:3])
    assert found(replace(scene, allocations=few)) == []
    processes = tuple(replace(a, holder=Holder.parse("pid 7")) for a in scene.allocations)
    assert found(replace(scene, allocations=processes)) == []


@pytest.mark.medium
@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(0.8, 1.2), min_size=8, max_size=8))
def test_what_a_gpu_always_draws_beside_its_peers_plays_no_part(shares: list[float]) -> None:
    scene = QUIET
    for subject, share in zip(GPUS, shares, strict=True):
        scene = scene.changed(subject, {"power_watts": 550.0 * share})
    assert found(slowed(scene)) == []
    scene = scene.changed(gpu(), {"power_watts": 520.0 * shares[0]}, 65)
    assert [finding.subject for finding in found(slowed(scene))] == [gpu()]


FAR = replace(SETTINGS, steady_seconds=100.0, trend_seconds=400.0)


@pytest.mark.parametrize(("lost", "count"), [(0.065, 0), (0.075, 1)])
def test_a_minute_tells_of_seven_percent(lost: float, count: int) -> None:
    assert len(found(slowed(QUIET.changed(gpu(), LESS, 65), lost=lost))) == count


@pytest.mark.parametrize(("lost", "count"), [(0.025, 0), (0.035, 1)])
def test_a_longer_look_tells_of_three_percent(lost: float, count: int) -> None:
    scene = slowed(QUIET.changed(gpu(), LESS, 105), lost=lost, seconds=105)
    assert len(found(replace(scene, settings=FAR))) == count


@pytest.mark.parametrize("fields", [LESS, {"sm_clock_hertz": 1_800_000_000}])
@pytest.mark.parametrize("seconds", [65.0, 85.0, 105.0])
def test_the_mean_of_a_longer_look_says_when_it_turned_slow(
    seconds: float, fields: dict[str, Any]
) -> None:
    """Of four GPUs, of which the last minute alone tells nothing."""
    scene = slowed(QUIET.changed(gpu(), fields, seconds), seconds=seconds)
    few = tuple(a for a in scene.allocations if a.subject in GPUS[:4])
    (it,) = found(replace(scene, allocations=few, settings=FAR))
    assert (NOON - it.since).total_seconds() == pytest.approx(seconds, abs=11.0)


def of_few(scene: Scene, gpus: int = 4) -> Scene:
    return replace(
        scene, allocations=tuple(a for a in scene.allocations if a.subject in GPUS[:gpus])
    )


@pytest.mark.parametrize(
    ("gpus", "watts", "seconds", "count"),
    [
        (8, 530.0, 65, 1),
        (7, 530.0, 65, 0),
        (7, 522.0, 65, 1),
        (4, 522.0, 65, 1),
        (4, 524.0, 65, 0),
        (3, 450.0, 65, 0),
        (4, 530.0, 105, 1),
    ],
)
def test_a_minute_tells_of_fewer_than_eight_gpus_five_percent_and_a_longer_look_less(
    gpus: int, watts: float, seconds: float, count: int
) -> None:
    scene = slowed(QUIET.changed(gpu(), {"power_watts": watts}, seconds), seconds=seconds)
    settings = FAR if seconds > 100 else SETTINGS
    assert len(found(replace(of_few(scene, gpus), settings=settings))) == count


@pytest.mark.parametrize(("gpus", "swing", "count"), [(4, 0.03, 1), (4, 0.05, 0), (8, 0.05, 1)])
def test_few_gpus_are_apart_by_as_much_as_they_go_up_and_down(
    gpus: int, swing: float, count: int
) -> None:
    """8 % less; all go up and down together by so much on either side."""
    scene = slowed(QUIET.changed(gpu(), {"power_watts": 506.0}, 65))
    samples = tuple(
        replace(
            s, fields={**s.fields, "power_watts": s.fields["power_watts"] * (1.0 + way * swing)}
        )
        if s.subject in GPUS
        else s
        for s in scene.samples
        for way in (1 if s.at.second % 20 < 10 else -1,)
    )
    assert len(found(of_few(replace(scene, samples=samples), gpus))) == count


@pytest.mark.parametrize(("watts", "count"), [(525.0, 1), (523.0, 0)])
def test_of_few_gpus_who_is_slow_is_three_times_as_far_away_as_any_other(
    watts: float, count: int
) -> None:
    """It draws 9.1 % less; of four the other one that draws less moves the median by half of that."""
    scene = QUIET.changed(gpu(), {"power_watts": 500.0}, 65)
    scene = slowed(scene.changed(GPUS[1], {"power_watts": watts}, 65))
    assert len(found(of_few(scene))) == count


@pytest.mark.parametrize(("percent", "count"), [(91, 1), (89, 0)])
def test_of_few_gpus_one_that_rests_more_than_the_others_is_not_slow(
    percent: int, count: int
) -> None:
    """Used for 93 %: it may save for them."""
    scene = slowed(QUIET.changed(gpu(), {**LESS, "utilization_percent": percent}, 65))
    assert len(found(of_few(scene))) == count


@pytest.mark.parametrize(("percent", "count"), [(85, 1), (93, 0)])
def test_one_that_saved_before_and_draws_more_since_hides_no_slow_gpu(
    percent: int, count: int
) -> None:
    """It rested while it saved; otherwise one that draws more says that work was dealt anew."""
    scene = QUIET.changed(GPUS[1], {"power_watts": 480.0, "utilization_percent": percent})
    scene = scene.changed(GPUS[1], {"power_watts": 550.0, "utilization_percent": 93}, 65)
    assert len(found(slowed(scene.changed(gpu(), LESS, 65)))) == count


def read_at(scene: Scene, subject: Subject, lines: Collection[int]) -> Scene:
    """The scene with these lines of a GPU's last minute only, counted from its newest; and none but
    every line before it.
    """
    times = sorted({s.at for s in scene.samples if s.subject == subject}, reverse=True)
    kept = {at for line, at in enumerate(times) if line in lines or NOON - at >= MINUTE}
    return replace(
        scene, samples=tuple(s for s in scene.samples if s.subject != subject or s.at in kept)
    )


@pytest.mark.parametrize(("lines", "count"), [((0, 1, 2, 3, 5), 1), ((0, 1, 3, 5), 0)])
def test_means_of_other_moments_blame_nobody(lines: Collection[int], count: int) -> None:
    """Its job's other GPUs have six lines in a minute: one may be lost on the way, two may not."""
    assert len(found(read_at(slowed(QUIET.changed(gpu(), LESS, 65)), gpu(), lines))) == count


@pytest.mark.parametrize(("lines", "count"), [((0, 1, 2, 3, 5), 1), ((0, 2, 3, 5), 0)])
def test_a_mean_of_few_lines_blames_nobody(lines: Collection[int], count: int) -> None:
    """All nodes read their GPUs at these moments; every thirty seconds as on some it is two."""
    scene = slowed(QUIET.changed(gpu(), LESS, 65))
    for subject in GPUS:
        scene = read_at(scene, subject, lines)
    assert len(found(scene)) == count


@pytest.mark.parametrize(("watts", "count"), [(568.0, 1), (569.0, 0)])
def test_who_is_slow_is_far_further_away_than_any_other(watts: float, count: int) -> None:
    """It draws 5.6 % less; another one 3.3 % more."""
    scene = QUIET.changed(gpu(), LESS, 65).changed(gpu(2, 1), {"power_watts": watts}, 65)
    assert len(found(slowed(scene))) == count


@pytest.mark.parametrize(
    ("before", "lately", "count"),
    [(0.16, 0.06, 1), (0.19, 0.04, 0), (-0.005, 0.17, 1), (-0.09, 0.225, 0)],
)
def test_a_job_that_stops_and_goes_blames_nobody(before: float, lately: float, count: int) -> None:
    """It loses about a tenth in the mean of 100 s, and this share before the last minute and in it."""
    scene = slowed(QUIET.changed(gpu(), LESS, 105), lost=0.0, seconds=105)
    of = dict.fromkeys(GPUS, "nvlink_receive_bytes")
    first = min(s.at for s in scene.samples)

    def moved(at: datetime) -> int:
        spans = ((399.0, 100.0, 1.0), (100.0, 60.0, 1.0 - before), (60.0, 0.0, 1.0 - lately))
        ago, begun = (NOON - at).total_seconds(), (NOON - first).total_seconds()
        parts = (max(min(start, begun) - max(end, ago), 0.0) * rate for start, end, rate in spans)
        return int(1e9 * sum(parts))

    samples = tuple(
        replace(s, fields={**s.fields, of[s.subject]: moved(s.at)}) if s.subject in of else s
        for s in scene.samples
    )
    assert len(found(replace(scene, samples=samples, settings=FAR))) == count


def test_the_longer_look_finds_less_and_only_while_it_lasts() -> None:
    scene = replace(
        slowed(QUIET.changed(gpu(), {"power_watts": 535.0}, 105), seconds=105), settings=FAR
    )
    (finding,) = found(scene)
    assert finding.evidence[0].value.endswith(" less done than in the 5 min before")
    assert finding.evidence[1].value.startswith("-2.7 % in 1.66667 min")
    over = scene.changed(gpu(), {"power_watts": 550.0}, 65)
    assert found(over) == []


def active(subject: Subject) -> Incident:
    return Incident(
        id="i",
        fingerprint="f",
        fault="gpu_slow",
        subject=subject,
        severity=Severity.WARNING,
        state="open",
        title="",
        since=NOON - timedelta(hours=1),
        updated_at=NOON,
        version=1,
    )


def test_what_is_slow_for_longer_than_anybody_looks_back_is_not_over() -> None:
    lasting = slowed(QUIET.changed(gpu(), LESS), lost=0.0)
    assert not is_visible(lasting.window(), active(gpu()))
    back = QUIET.changed(gpu(), LESS).changed(gpu(), {"power_watts": 550.0}, 65)
    window = slowed(back, lost=-0.1).window()
    assert is_visible(window, active(gpu()))
    assert slow_gpus(window) == []


def test_in_a_later_job_it_is_over_when_it_draws_what_the_others_draw() -> None:
    def shows(watts: float, minutes: float, hertz: float = 1_980_000_000) -> bool:
        fields = {"power_watts": watts, "sm_clock_hertz": hertz}
        scene = slowed(QUIET.changed(gpu(), fields), lost=0.0)
        begun = NOON - timedelta(minutes=minutes)
        jobs = tuple(replace(a, started_at=begun) for a in scene.allocations)
        window = replace(scene, allocations=jobs, settings=FAR).window()
        return is_visible(window, active(gpu()))

    assert shows(545.0, minutes=30)
    assert not shows(520.0, minutes=30)
    # A tenth less in clock is slow, although for that clock it draws more than they do.
    assert not shows(490.0, minutes=30, hertz=0.9 * 1_980_000_000)
    # What would be told of if it were a change is not over.
    assert not shows(538.0, minutes=30)
    # It is the job in which it was slow, or too young a one.
    assert not shows(545.0, minutes=90)
    assert not shows(545.0, minutes=3)


def test_without_a_job_that_could_show_it_nobody_knows_it_any_more_after_a_day() -> None:
    def cured(gpus: int, hours: float, holder: str = "job 8") -> str:
        held = tuple(
            replace(a, holder=Holder.parse(holder), started_at=NOON - timedelta(minutes=50))
            for a in slowed().allocations[:gpus]
        )
        scene = replace(QUIET, allocations=held)
        seen = replace(active(gpu()), updated_at=NOON - timedelta(hours=hours))
        cured = observe(scene.window(), (), (seen,)).cured
        return cured["f"].text if "f" in cured else ""

    assert cured(1, hours=25).startswith("not seen since ")
    assert cured(8, hours=25, holder="pid 7").endswith("run a benchmark on it")
    assert cured(1, hours=23) == ""
    assert cured(4, hours=25) == ""


def test_after_the_job_in_which_it_was_slow_there_is_a_day_to_show_it() -> None:
    def cured(hours: float) -> bool:
        ended = replace(
            allocation(gpu(), "job 7", started_at=NOON - timedelta(days=9)),
            ended_at=NOON - timedelta(hours=hours),
        )
        scene = replace(QUIET, allocations=(ended,))
        seen = replace(active(gpu()), since=NOON - timedelta(days=8))
        long_ago = replace(seen, updated_at=NOON - timedelta(days=7))
        return bool(observe(scene.window(), (), (long_ago,)).cured)

    assert not cured(hours=2)
    assert cured(hours=24)


MANY = [gpu(number, index) for number in (1, 2, 3, 4) for index in range(4)]
LARGE = healthy(nodes=4, gpus=4)


def in_large_job(
    *slow: Subject, seconds: float = 105.0, fields: dict[str, Any] = LESS, scene: Scene = LARGE
) -> list[Finding]:
    for subject in slow:
        scene = scene.changed(subject, fields, seconds)
    job = in_one_job(scene, MANY, lost=0.1, seconds=seconds)
    return found(replace(job, settings=FAR if seconds > 100.0 else SETTINGS))


def test_where_several_of_one_node_are_slow_it_is_the_node_and_one_matter() -> None:
    # In one minute it may be how the node was read.
    assert in_large_job(*MANY[4:8], seconds=65.0) == []
    (finding,) = in_large_job(*MANY[4:8])
    assert (finding.subject, finding.members) == (node(2), tuple(MANY[4:8]))
    assert finding.evidence[0].value == "4 of the node at once"
    assert finding.action.startswith("Look at the node")
    assert [one.subject for one in in_large_job(MANY[0], *MANY[4:6])] == [gpu(), node(2)]


LOWER: dict[str, Any] = {"sm_clock_hertz": 1_656_000_000}


@pytest.mark.parametrize(
    ("gpus", "severity", "condition"),
    [(3, Severity.WARNING, "node_clocks"), (2, Severity.WARNING, "whole_node")],
)
def test_clocks_that_are_lower_on_all_of_a_node_may_be_a_setting_and_blame_no_hardware(
    gpus: int, severity: Severity, condition: str
) -> None:
    """Of three quarters of the job's GPUs there."""
    (finding,) = in_large_job(*MANY[4 : 4 + gpus], fields=LOWER)
    assert (finding.subject, finding.severity, finding.condition) == (node(2), severity, condition)
    assert finding.members == tuple(MANY[4 : 4 + gpus])
    # One that does less at its clock, too, is none.
    less = {"sm_clock_hertz": 1_970_000_000, "power_watts": 480.0}
    assert in_large_job(*MANY[4:8], fields=less)[0].condition == "whole_node"


@pytest.mark.parametrize(
    ("per_second", "condition"), [(0.11, "node_clocks"), (0.112, "whole_node")]
)
@pytest.mark.parametrize(
    "reason",
    [
        "hardware_thermal_slowdown_seconds",
        "software_thermal_slowdown_seconds",
        "power_brake_seconds",
    ],
)
def test_a_reason_for_a_tenth_of_the_span_says_that_lower_clocks_are_no_setting(
    reason: str, per_second: float, condition: str
) -> None:
    """Lines of 90 seconds, of a span of 100."""
    scene = LARGE.rising(MANY[5], reason, per_second)
    (finding,) = in_large_job(*MANY[4:8], fields=LOWER, scene=scene)
    assert finding.condition == condition


@pytest.mark.parametrize(
    ("others", "condition"), [(1_689_000_000, "node_clocks"), (1_690_000_000, "")]
)
def test_of_a_job_with_one_gpu_on_a_node_a_lower_clock_may_be_set_where_the_node_s_others_have_it(
    others: int, condition: str
) -> None:
    """Within 2 % of its own."""
    scene = LARGE.changed(MANY[4], LOWER, 105.0)
    for subject in MANY[5:8]:
        scene = scene.changed(subject, {"sm_clock_hertz": others})
    job = in_one_job(scene, [*MANY[:5], *MANY[8:]], lost=0.1, seconds=105.0)
    # What a clock was at most is asked of the span in which it is lower.
    (finding,) = found(replace(job, settings=FAR))
    assert (finding.subject, finding.condition) == (MANY[4], condition)


def test_what_some_gpus_on_many_nodes_do_is_a_role_and_no_fault() -> None:
    assert len(in_large_job(MANY[0], MANY[4])) == 2
    assert in_large_job(MANY[0], MANY[4], MANY[8]) == []


def test_a_slow_node_is_over_when_each_of_its_gpus_is() -> None:
    def shows(*back: Subject) -> bool:
        scene = QUIET
        for subject in GPUS[:2]:
            scene = scene.changed(subject, LESS)
        for subject in back:
            scene = scene.changed(subject, {"power_watts": 550.0}, 65)
        keys = tuple(one.key for one in (node(), *GPUS[:2]))
        return is_visible(slowed(scene, lost=-0.1).window(), replace(active(node()), members=keys))

    assert not shows(GPUS[0])
    assert shows(*GPUS[:2])


def test_what_a_window_says_of_all_is_worked_out_once_and_anew_for_another_one() -> None:
    asked: list[str] = []

    def of(window: Window, name: str) -> int:
        asked.append(name)
        return len(window.inventories)

    window = QUIET.window()
    assert [window.once(of, name) for name in ("a", "b", "a")] == [2, 2, 2]
    assert asked == ["a", "b"]
    assert window.of_node(node()).once(of, "a") == 1
