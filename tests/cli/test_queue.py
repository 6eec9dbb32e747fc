"""What `gpuvigil queue` shows of a small fleet."""

from dataclasses import replace
from datetime import timedelta

import pytest

from accounting.cost.money import Prices
from accounting.queueing import Wait
from cli.tables import queue
from dashboard.data.job_queue import queue_of, sentence
from dashboard.lists.fleet_now import FleetNow, moment_of
from dashboard.lists.table import Grid, text
from dashboard.model.newest_rows import gpu_table
from gpuvigil.config import AnalyzerSettings, CostSettings, PriceSettings
from gpuvigil.model import Job, ScheduledNode, Scheduler, Subject
from gpuvigil.schedulers.jobs import JobHistory
from tests.dashboard.scene import NOON, busy_fleet, gpu, node, row

HOUR = timedelta(hours=1)
CONTROLLER = Subject(cluster="prod", node="ctl")
SPAN = (NOON - 24 * HOUR, NOON)


def job(number: int, state: str = "PENDING", **more: object) -> Job:
    told: dict[str, object] = {"submitted_at": NOON - 2 * HOUR, "gpus": 8, **more}
    return Job(told_by=CONTROLLER, number=str(number), state=state, seen_at=NOON, **told)  # type: ignore[arg-type]


@pytest.fixture
def moment() -> FleetNow:
    """Two nodes with a free GPU each."""
    nodes = [node("n-1", "prod"), node("n-2", "prod")]
    free = [row(gpu(0, one), utilization_percent=0, compute_processes=0) for one in nodes]
    return moment_of(replace(busy_fleet(nodes, 1), gpus=gpu_table(free)), AnalyzerSettings())


def shown(moment: FleetNow, jobs: list[Job], said: Scheduler, prices: Prices = Prices()) -> Grid:  # noqa: B008
    return queue.grid(moment, jobs, [said], SPAN, prices)


def test_accounts_are_listed_with_what_they_wait_for_and_how_long_they_waited(
    moment: FleetNow,
) -> None:
    began = {"started_at": NOON - HOUR, "account": "physics"}
    jobs = [
        job(1, account="physics", reason="AssocGrpGRES"),
        job(2, account="chemistry", reason="Resources", gpus=1, array="2_[1-3]"),
        job(3, "RUNNING", **began),
        job(4, "PREEMPTED", ended_at=NOON - HOUR / 2, **began),
        job(5, "COMPLETED", account="old", started_at=NOON - 90 * HOUR, ended_at=NOON - 80 * HOUR),
    ]
    grid = shown(moment, jobs, Scheduler(told_by=CONTROLLER, at=NOON, nodes=()))
    keys = [column.key for column in grid.columns]
    first, second = (dict(zip(keys, row, strict=True)) for row in grid.rows)
    assert (first["account"], first["waiting_gpus"], first["why"]) == ("physics", 8, "quota")
    assert (first["longest_wait_seconds"], first["median_wait_seconds"]) == (2 * HOUR, HOUR)
    assert (first["started_jobs"], first["preempted_gpu_hours"]) == (2, 4.0)
    assert (second["account"], second["waiting_jobs"], second["waiting_gpus"]) == (
        "chemistry",
        3,
        3,
    )
    assert "4 jobs wait for 11 GPUs" in text(grid, 80)


def test_free_gpus_of_a_drained_node_are_kept_by_the_fault(moment: FleetNow) -> None:
    drained = tuple(ScheduledNode(name=name, states=("DRAIN",)) for name in ("n-1", "n-2"))
    said = Scheduler(told_by=CONTROLLER, at=NOON, nodes=drained)
    (cluster,) = moment.clusters
    found = queue_of(cluster, [job(1, reason="Resources", gpus=1)], [said])
    assert found is not None
    assert found.kept == {Wait.FAULTY: 1}
    assert "queued but free: 1 faulty nodes" in sentence(found)
    assert "are free" not in sentence(found)  # its node is out of service


def test_a_scheduler_that_does_not_answer_is_said_and_without_one_nothing_is_claimed(
    moment: FleetNow,
) -> None:
    silent = Scheduler(told_by=CONTROLLER, at=NOON, why="slurmctld does not answer")
    head = " ".join(shown(moment, [job(1)], silent).head)
    assert "does not answer; this is its last known state" in head
    none = queue.grid(moment, [job(1)], [], SPAN, Prices())
    assert not none.rows
    assert "No scheduler is read" in none.head[0]
    assert "No job waits" not in text(none, 80)


def test_each_of_the_five_keeps_its_own_free_gpus() -> None:
    nodes = [node("n-1", "prod"), node("n-2", "prod")]  # of two GPUs each is one free
    numbers = [
        row(gpu(number, one), utilization_percent=90 * number, compute_processes=number)
        for one in nodes
        for number in range(2)
    ]
    fleet = replace(busy_fleet(nodes, 2), gpus=gpu_table(numbers))
    (cluster,) = moment_of(fleet, AnalyzerSettings()).clusters

    def kept(*jobs: Job, **states: str) -> str:
        nodes = tuple(
            ScheduledNode(name=name.replace("_", "-"), states=(state,))
            for name, state in states.items()
        )
        found = queue_of(cluster, jobs, [Scheduler(told_by=CONTROLLER, at=NOON, nodes=nodes)])
        assert found is not None
        return sentence(found).partition("queued but free: ")[2]

    room = "Resources"
    assert kept(job(1, reason=room, gpus=1)) == "1 backfill"
    assert kept(job(1, reason=room, gpus=2)) == "2 fragmentation"
    assert kept(job(1, reason="QOSMaxGRESPerUser", gpus=2)) == "2 quota"
    assert kept(job(1, reason=room, gpus=4), n_1="RESERVED", n_2="MAINT") == "2 reservation"
    both = kept(job(1, reason=room, gpus=4), n_1="RESERVED", n_2="DRAIN")
    assert both == "1 reservation, 1 faulty nodes"
    mixed = [job(1, reason=room, gpus=1), job(2, reason="AssocGrpGRES", gpus=1)]
    assert kept(*mixed) == "1 backfill, 1 quota"


def test_hours_that_were_preempted_or_went_with_a_node_are_said_spots_with_money(
    moment: FleetNow,
) -> None:
    spot = PriceSettings(cluster="prod", owner="cloud's spot", per_gpu_hour=2.0)
    span = {"started_at": NOON - 3 * HOUR, "ended_at": NOON - HOUR, "account": "physics"}
    jobs = [job(9, "NODE_FAIL", nodes=("n-1",), **span), job(10, "PREEMPTED", gpus=3, **span)]
    said = Scheduler(told_by=CONTROLLER, at=NOON, nodes=())
    keys = [column.key for column in queue.COLUMNS]

    def told(*prices: PriceSettings, by: str = "") -> tuple[str, float, float, float | None]:
        cost = CostSettings(prices=prices, spot=(by,) if by else ())
        grid = shown(moment, jobs, said, Prices(settings=cost))
        (row,) = (dict(zip(keys, it, strict=True)) for it in grid.rows)
        hours = [row[f"{it}_gpu_hours"] for it in ("preempted", "node_lost", "spot_lost")]
        return grid.head[-1].strip(), *hours  # type: ignore[return-value]

    begin = "In this time 6.0 GPU-hours of jobs were preempted, 16.0 went with a node"
    assert told(spot) == (f"{begin}, 16.0 of them of cloud's spot = 32.00 EUR.", 6.0, 16.0, 16.0)
    assert told() == (f"{begin}.", 6.0, 16.0, None)  # nothing says what is a spot's
    own = PriceSettings(cluster="prod", model="H100", per_gpu_hour=1.0)  # what these nodes are
    assert told(spot, own) == (f"{begin}.", 6.0, 16.0, 0.0)
    named = f"{begin}, 16.0 of them of"
    assert told(by='node=~"n-.*"') == (f"{named} spot nodes.", 6.0, 16.0, 16.0)
    assert told(own, by='account="physics"') == (f"{named} own = 16.00 EUR.", 6.0, 16.0, 16.0)
    assert told(by='partition="spot"') == (f"{begin}.", 6.0, 16.0, 0.0)


def test_of_more_jobs_than_are_read_it_is_said_which_are_missing() -> None:
    told = {"prod": JobHistory(jobs={}, whole_from=NOON), "lab": JobHistory(jobs={})}
    (said,) = queue.missing(told)
    assert said.startswith("prod: the newest 100,000 jobs that ended are read")
    assert "before 2026-01-31 12:00 UTC are missing" in said
