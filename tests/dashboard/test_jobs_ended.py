"""Jobs that ended: of each cluster as many as are read, each run of one name for itself."""

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from accounting.job_ending import Clue, EndCause, Verdict
from accounting.jobs.losses import losses, runs
from dashboard.jobs import job_drawing
from dashboard.jobs.job_query import Ending
from dashboard.lists.job_board import failures
from dashboard.lists.job_list import ended, missing
from dashboard.lists.job_losses import nodes_of
from dashboard.lists.jobs import Fleet
from dashboard.lists.one_job import KnownJob
from gpuvigil.clock import to_text
from gpuvigil.hub_client import Hub
from gpuvigil.model import Allocation, Job, Record, RecordKind, Severity, Subject
from gpuvigil.web.page_links import node_page
from tests.dashboard.scene import NOON, allocation, gpu, incident, inventory, node

DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
NODES = [node(f"n-{number}", "prod") for number in range(1, 4)]
LAB = node("m-1", "lab")


class ShelfHub(Hub):
    """Records in the order in which they were told."""

    def __init__(self, *records: Record) -> None:
        super().__init__("http://127.0.0.1:1", str)
        self.shelf = records

    def records(self, kind: RecordKind, **asked: Any) -> tuple[Record, ...]:
        below, states = asked.get("subject") or "", asked.get("states")
        fitting = [
            one
            for one in self.shelf
            if one.kind is kind
            and (not below or one.subject.startswith(f"{below}/"))
            and (not states or _state(one) in states)
        ]
        return tuple(fitting[-asked.get("limit", 10_000) :])

    def status(self) -> dict[str, Any]:
        return {"store": {"oldest_at": to_text(NOON - 30 * DAY)}}


def _state(one: Record) -> str:
    over = "ended" if one.body.get("ended_at") else "open"
    return over if one.kind is RecordKind.ALLOCATION else one.body["state"]


def job(number: int, ended_at: datetime | None, cluster: str = "prod", **values: Any) -> Job:
    """It ran for an hour on eight GPUs of no known node."""
    began = (ended_at or NOON) - timedelta(hours=1)
    given = {"state": "COMPLETED", "user": "ann", "name": "train", "gpus": 8, **values}
    return Job(
        told_by=Subject(cluster=cluster, node="ctl"),
        number=str(number),
        ended_at=ended_at,
        seen_at=ended_at or NOON,
        **{"submitted_at": began, "started_at": began, **given},
    )


def held(begin: datetime, end: datetime | None, where: Subject, holder: str) -> Allocation:
    return replace(allocation(gpu(0, where), holder), started_at=begin, ended_at=end)


def fleet(*open_: Allocation) -> Fleet:
    return Fleet(
        now=NOON,
        allocations=open_,
        inventories=[inventory(one) for one in (*NODES, LAB)],
        incidents=(),
    )


@pytest.mark.medium
def test_failures_of_a_month_are_all_counted_however_many_jobs_end_elsewhere() -> None:
    lab = [job(n, NOON - n * MINUTE, "lab") for n in range(1200, 0, -1)]
    prod = [job(n, NOON - DAY - n * MINUTE, state="NODE_FAIL") for n in range(900, 0, -1)]
    found = failures(ShelfHub(*(one.to_record() for one in (*prod, *lab))), fleet())
    causes = {one.cluster: list(one.causes) for one in found}
    (cause,) = causes["prod"]
    assert (cause.why, cause.jobs, cause.gpu_hours) == (EndCause.NODE, 900, 7200.0)
    assert not causes["lab"]


def test_where_more_have_ended_than_are_read_it_is_said_since_when_they_are_all() -> None:
    told = [job(n, NOON - n * MINUTE) for n in range(700, 0, -1)]
    hub = ShelfHub(*(one.to_record() for one in told))
    found = ended(hub, ["prod", "lab"], NOON - DAY, (), most=600)
    first = found.whole_from["prod"]
    assert list(found.whole_from) == ["prod"]
    assert all(one.ended_at >= first for one in found.jobs)
    assert 500 < len(found.jobs) <= 600
    assert f"prod before {first:%Y-%m-%d %H:%M} UTC" in missing(found.whole_from)
    whole = ended(hub, ["prod"], NOON - DAY, (), most=701)
    assert (len(whole.jobs), missing(whole.whole_from)) == (700, "")


def test_a_job_that_failed_and_ran_again_lost_what_it_lost() -> None:
    failed = job(5, NOON - DAY, state="NODE_FAIL")
    again = job(5, NOON - DAY / 2)
    hub = ShelfHub(*(one.to_record() for one in (failed, again)))
    found = ended(hub, ["prod"], NOON - 2 * DAY, ())
    assert [one.state for one in found.jobs] == ["COMPLETED", "NODE_FAIL"]
    (loss,) = losses(found.jobs, ())
    assert (loss.why, loss.gpu_hours) == (EndCause.NODE, 8.0)
    told = {found.jobs[1].key: NOON - DAY - 30 * MINUTE}
    assert losses(found.jobs, (), told)[0].gpu_hours == 4.0


def test_a_pod_that_runs_again_has_lost_its_first_run() -> None:
    died = NOON - timedelta(hours=6)
    first = held(NOON - DAY, died, NODES[0], "pod team/llama-0")
    second = held(died + MINUTE, None, NODES[1], "pod team/llama-0")
    lost = incident("gpu_lost", gpu(0, NODES[0]), Severity.CRITICAL, since=died - MINUTE)
    hub = ShelfHub(first.to_record(), second.to_record())
    found = ended(hub, ["prod"], NOON - 2 * DAY, [second])
    (loss,) = losses(found.jobs, [lost])
    assert (loss.why, loss.gpu_hours) == (EndCause.HARDWARE, 18.0)
    # One that lets go of its GPUs one by one has not ended.
    other = held(NOON - DAY, None, NODES[1], "pod team/llama-0")
    assert not ended(hub, ["prod"], NOON - 2 * DAY, [other]).jobs


def test_allocations_that_are_not_read_are_missing_where_no_scheduler_told_of_their_jobs() -> None:
    told = [job(n, NOON - n * MINUTE) for n in range(50, 0, -1)]
    of_nodes = [
        held(NOON - (n + 60) * MINUTE, NOON - n * MINUTE, NODES[0], f"job {n}").to_record()
        for n in range(50, 0, -1)
    ]
    alone = ended(ShelfHub(*of_nodes), ["prod"], NOON - DAY, (), most=40)
    # Of the 40 that were read the first tenth may have come out of turn.
    assert alone.whole_from == {"prod": NOON - 36 * MINUTE}
    assert len(alone.jobs) == 36
    assert not ended(ShelfHub(*of_nodes), ["prod"], NOON - DAY, (), most=51).whole_from
    both = ShelfHub(*(one.to_record() for one in told), *of_nodes)
    assert len(ended(both, ["prod"], NOON - DAY, (), most=51).jobs) == 50


def test_nodes_without_gpus_run_no_jobs_and_do_not_count() -> None:
    without = replace(inventory(LAB), gpus=())
    assert nodes_of([inventory(NODES[0]), inventory(NODES[1]), without]) == {"prod": 2}


def test_runs_of_one_name_are_apart_and_nodes_of_one_run_are_not() -> None:
    def run(begin: int, end: int | None, where: int = 0, **values: Any) -> Allocation:
        at = NOON + begin * MINUTE
        over = None if end is None else NOON + end * MINUTE
        return replace(held(at, over, NODES[where], "pod a/b"), **values)

    three = [run(0, 60), run(61, 90, 1), run(91, 200, 2)]
    assert [len(them) for them in runs(three)] == [1, 1, 1]
    assert [len(them) for them in runs([run(0, 60), run(10, 60, 1)])] == [2]
    assert [len(them) for them in runs([run(0, 60), run(11, 60, 1)])] == [1, 1]
    assert [len(them) for them in runs([run(0, 60), run(11, 60, 1, began_before=True)])] == [2]
    # An end that its node told late: the next run began meanwhile.
    assert [len(them) for them in runs([run(0, 99), run(0, 60, 1), run(60, 99, 2)])] == [2, 1]
    assert not list(runs([]))


def test_the_page_of_a_job_that_ended_leads_to_its_nodes() -> None:
    ends = [NOON - 2 * MINUTE, NOON - MINUTE]
    held_by = tuple(held(NOON - DAY, end, NODES[n], "job 7") for n, end in enumerate(ends))
    told = KnownJob(holder=held_by[0].holder, cluster="prod", job=None, allocations=held_by)
    clue = Clue(at=NOON, where=gpu(0, NODES[1]).key, what="Xid 79", speaks_for=EndCause.HARDWARE)
    found = Verdict(why=EndCause.HARDWARE, text="a GPU was lost", clues=(clue,))
    drawn = json.dumps(job_drawing.ended(Ending(known=told, found=found)))
    for name in ("n-1", "n-2"):
        assert json.dumps(["a", {"href": node_page("prod", name)}, name]) in drawn
    assert "n-3" not in drawn
    assert '"Exit code"' not in drawn, "nobody told it"


def test_of_a_large_job_that_ended_the_first_nodes_are_named_and_the_rest_is_counted() -> None:
    held_by = tuple(
        held(NOON - DAY, NOON, node(f"m-{n:02d}", "prod"), "job 7")
        for n in range(job_drawing.MOST_NODES + 1)
    )
    told = KnownJob(holder=held_by[0].holder, cluster="prod", job=None, allocations=held_by)
    found = Verdict(why=EndCause.NODE, text="its node died")
    assert '" and 1 more"' in json.dumps(job_drawing.ended(Ending(known=told, found=found)))
