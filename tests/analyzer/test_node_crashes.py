"""A node that goes down again and again: without a word, with jobs, and for how long that is told."""

from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.detectors.node_crashes import crashing_nodes
from gpuvigil.model import Allocation, EventKind, Finding, Holder, Severity

from .scene import NOON, Scene, allocation, event, gpu, healthy, incident, node, told

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)


def held(began: float, ended: float | None = None, code: str | None = "1:0") -> Allocation:
    """A job from so many hours ago until so many."""
    end = None if ended is None else NOON - ended * HOUR
    one = allocation(gpu(), "job 7", started_at=NOON - began * HOUR, ended_at=end)
    return replace(one, exit_code=None if end is None else code)


LONG = held(48.0)


def crashed(*hours: float, jobs: tuple[Allocation, ...] = (LONG,)) -> Scene:
    """A node that was started so many hours ago."""
    boots = (event(EventKind.BOOT, node(), NOON - ago * HOUR) for ago in hours)
    return replace(healthy(nodes=2).with_events(*boots), allocations=jobs)


def dumped(*hours: float, jobs: tuple[Allocation, ...] = ()) -> Scene:
    """A node whose kernel left a dump before each of these starts."""
    boots = (
        replace(
            event(EventKind.BOOT, node(), NOON - ago * HOUR),
            crashed=True,
            message="the node was booted after a crash",
        )
        for ago in hours
    )
    return replace(healthy(nodes=2).with_events(*boots), allocations=jobs)


def test_a_kernel_that_left_a_dump_is_told_the_first_time_with_a_job_or_without() -> None:
    (it,) = found(dumped(1.0))
    assert (it.subject, it.severity, it.condition) == (node(), Severity.WARNING, "kernel_crashed")
    assert it.title == "Node's kernel crashed"
    assert told(it) == (
        "warning; went down without a word: up again at 11:00:00 UTC on 31 Jan;"
        " the collector says: the node was booted after a crash"
    )
    (it,) = found(dumped(1.0, jobs=(LONG,)))
    assert told(it).endswith("jobs that it took along: job 7 of alice")


@pytest.mark.parametrize(("ago", "count"), [(5.999, 1), (6.0, 0)])
def test_a_dump_is_told_until_the_node_has_stayed_up_for_six_hours(ago: float, count: int) -> None:
    assert len(found(dumped(ago))) == count


@pytest.mark.parametrize("kind", [EventKind.SHUTDOWN, EventKind.STOPPED])
@pytest.mark.parametrize(("before", "count"), [(1.0, 0), (1.001, 1)])
def test_a_dump_is_an_old_one_where_the_node_said_that_it_goes(
    kind: EventKind, before: float, count: int
) -> None:
    word = event(kind, node(), NOON - (1.0 + before) * HOUR)
    assert len(found(dumped(1.0).with_events(word))) == count


def test_two_starts_of_which_one_left_a_dump_are_told_as_that_one() -> None:
    scene = dumped(2.0).with_events(event(EventKind.BOOT, node(), NOON - 1.0 * HOUR))
    (it,) = found(scene)
    assert (it.condition, it.since) == ("kernel_crashed", NOON - 2 * HOUR)


def found(scene: Scene) -> list[Finding]:
    return crashing_nodes(scene.window())


def test_it_says_when_it_was_up_again_and_which_jobs_it_took_along() -> None:
    (it,) = found(crashed(3.0, 1.0))
    assert (it.subject, it.severity, it.since) == (node(), Severity.WARNING, NOON - 3 * HOUR)
    assert told(it) == (
        "warning; went down without a word: 2 times in 24 h, up again at 09:00:00 UTC on 31 Jan,"
        " 11:00:00 UTC on 31 Jan (limit once); jobs that it took along: job 7 of alice"
    )


@pytest.mark.parametrize(("first", "count"), [(23.999, 1), (24.0, 0)])
def test_twice_within_a_day(first: float, count: int) -> None:
    assert len(found(crashed(first, 1.0))) == count
    assert found(crashed(1.0)) == []


@pytest.mark.parametrize(("last", "count"), [(5.999, 1), (6.0, 0)])
def test_it_is_over_once_the_node_has_stayed_up_for_six_hours(last: float, count: int) -> None:
    assert len(found(crashed(10.0, last))) == count


@pytest.mark.parametrize(("apart", "count"), [(2 * MINUTE - SECOND, 0), (2 * MINUTE, 1)])
def test_one_start_may_be_told_twice(apart: timedelta, count: int) -> None:
    assert len(found(crashed(3.0, 3.0 - apart / HOUR))) == count


def test_with_one_job_only_three_times_tell_and_without_any_none() -> None:
    """Whoever is told keeps jobs off it; whoever works on a machine has no job there."""
    once = (held(4.0, ended=3.1),)
    assert found(crashed(3.0, 2.0, jobs=once)) == []
    assert len(found(crashed(3.0, 2.0, 1.0, jobs=once))) == 1
    assert found(crashed(3.0, 2.0, 1.0, jobs=())) == []
    by_hand = (allocation(gpu(), "pid 4711", started_at=NOON - 9 * HOUR),)
    assert found(crashed(3.0, 2.0, 1.0, jobs=by_hand)) == []


@pytest.mark.parametrize(
    ("job", "count"),
    [
        (held(9.0, ended=3.25), 1),  # failed a quarter of an hour before the start
        (held(9.0, ended=3.2501), 0),
        (held(9.0, ended=3.1, code="0:0"), 0),  # was done
        (held(9.0, ended=3.1, code=None), 0),
        (held(9.0, ended=2.9, code="0:0"), 1),  # went on, as far as its scheduler knew
        (held(3.0), 0),  # began only after it
    ],
)
def test_what_a_job_must_have_been_to_be_taken_along(job: Allocation, count: int) -> None:
    later = replace(held(1.5), holder=Holder.parse("job 8"))
    assert len(found(crashed(3.0, 1.0, jobs=(job, later)))) == count


@pytest.mark.parametrize("kind", [EventKind.SHUTDOWN, EventKind.STOPPED])
@pytest.mark.parametrize(("before", "count"), [(1.0, 0), (1.001, 1)])
def test_who_said_that_it_goes_did_not_crash(kind: EventKind, before: float, count: int) -> None:
    word = event(kind, node(), NOON - (1.0 + before) * HOUR)
    assert len(found(crashed(3.0, 1.0).with_events(word))) == count


def test_a_word_of_the_start_before_is_none_of_this_one() -> None:
    word = event(EventKind.SHUTDOWN, node(), NOON - 1.7 * HOUR)
    assert len(found(crashed(3.0, 1.6, 1.2).with_events(word))) == 1


@pytest.mark.parametrize(
    ("fault", "severity", "ended", "count"),
    [
        ("gpu_lost", Severity.CRITICAL, None, 0),
        ("gpu_lost", Severity.CRITICAL, 4.0, 0),
        ("gpu_lost", Severity.CRITICAL, 4.001, 1),
        ("gpu_lost", Severity.INFO, None, 1),
        ("node_silent", Severity.WARNING, None, 1),
        ("node_crashes", Severity.WARNING, None, 1),
    ],
)
def test_who_boots_a_node_for_what_stands_of_it_repairs_it(
    fault: str, severity: Severity, ended: float | None, count: int
) -> None:
    end = None if ended is None else NOON - ended * HOUR
    other = replace(incident(fault, gpu() if fault == "gpu_lost" else node()), severity=severity)
    other = replace(other, since=NOON - 5 * HOUR, resolved_at=end)
    assert len(found(replace(crashed(3.0, 1.0), recent_incidents=(other,)))) == count
