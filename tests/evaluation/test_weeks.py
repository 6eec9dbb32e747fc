"""The report of invented days is what was true; and what is true of them is said right."""

from random import Random

import pytest

from evaluation.weeks.comparing import CLOSE, Row, lines, played
from evaluation.weeks.plan import IDLE_AFTER, TICK, Week, Work, invented, samples, truth
from gpuvigil.schedulers.out_of_service import LostTo

HOUR = 3600.0


def week(*jobs: Work, drains: tuple[tuple[int, LostTo, tuple[float, float]], ...] = ()) -> Week:
    return Week(
        seed=1,
        nodes=1,
        seconds=4 * HOUR,
        jobs=list(jobs),
        drains=list(drains),
        names=["n"],
    )


def job(**values: object) -> Work:
    usual: dict[str, object] = {
        "number": 7, "team": "a", "user": "u", "node": 0, "gpus": (0, 1), "start": 0.0,
        "end": 4 * HOUR, "sort": "steady", "load": 90.0, "sm": 60.0, "still": (0, 1),
    }  # fmt: skip
    return Work(**{**usual, **values})  # type: ignore[arg-type]


@pytest.mark.parametrize(("more", "idle"), [(-TICK, 0.0), (0.0, 2 * IDLE_AFTER / HOUR)])
def test_a_pause_is_idle_from_half_an_hour_on(more: float, idle: float) -> None:
    found = truth(week(job(pauses=[(100.0, 100.0 + IDLE_AFTER + more)])))
    assert found.idle["a"] == pytest.approx(idle)
    # What nobody saw of it does not count.
    early = truth(week(job(start=-HOUR, pauses=[(-900.0, -900.0 + IDLE_AFTER)])))
    assert early.idle["a"] == 0.0


def test_a_lost_gpu_stops_its_job_and_a_drained_node_is_lost_where_nobody_holds_it() -> None:
    stops = job(stopped=[(1, (HOUR, 2 * HOUR))])
    found = truth(week(stops, drains=((0, LostTo.REPAIR, (3 * HOUR, 5 * HOUR)),)))
    assert found.broken["a"] == 1.0
    assert found.lost == {"fault": 1.0, "repair": 6.0}
    assert found.idle["a"] == 0.0
    seen = {(gpu): used for _, gpu, used, _ in samples(week(stops), 0, 400, 401)}
    assert (seen[0], seen[1], seen[2]) == (0.0, -1.0, 0.0)


def test_a_job_that_fills_little_wastes_what_it_leaves() -> None:
    found = truth(week(job(sort="poorly", sm=25.0, start=HOUR)))
    assert found.little["a"] == found.wasted["job 7"] == pytest.approx(0.75 * 2 * 3)


def test_a_seed_is_one_cluster_and_another_one_another() -> None:
    one, again, other = invented(5), invented(5), invented(6)
    assert one == again
    assert one.names != other.names
    held = [(it.node, gpu, it.start, it.end) for it in one.jobs for gpu in it.gpus]
    for node, gpu, start, end in Random(1).sample(held, 40):
        others = [it for it in held if it[:2] == (node, gpu) and it[2:] != (start, end)]
        assert not any(start < until and begin < end for _, _, begin, until in others)


def test_numbers_that_are_off_are_marked_and_small_ones_are_not() -> None:
    rows = [Row("idle a", 10.0, 10.0 * (1 + CLOSE) + 0.1), Row("idle b", 0.2, 0.4)]
    found = {"seed": 1, "jobs": 2, "rows": rows, "worst": (9, 10), "seconds": 3}
    said = list(lines(found))
    assert "9 of the 10 worst are right" in said[0]
    assert [line.endswith("OFF") for line in said[1:]] == [True, False]


@pytest.mark.server
def test_a_few_hours_of_a_small_cluster_are_told_as_they_were() -> None:
    found = played(21, nodes=1, hours=3.0)
    off = [row for row in found["rows"] if row.what[:3] != "out" and row.counts]
    assert off
    assert [row for row in off if abs(row.off) > CLOSE] == []
    hits, of_them = found["worst"]
    assert of_them - hits <= 1


@pytest.mark.site
@pytest.mark.timeout(900)
def test_hours_of_a_cluster_are_told_as_they_were() -> None:
    found = played(1, nodes=4, hours=10.0)
    sure = [row for row in found["rows"] if row.counts and row.what[:4] in {"idle", "brok"}]
    assert len(sure) >= 4
    assert [row for row in sure if abs(row.off) > CLOSE] == []
    hits, of_them = found["worst"]
    assert of_them == 10
    assert hits >= 9
