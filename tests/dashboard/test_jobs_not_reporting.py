"""A job on a node that is silent is not called fine, whether an incident stands yet or not."""

import json
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from accounting.jobs.bound import Bound
from dashboard.jobs import job_drawing
from dashboard.lists.jobs import JobNow, running
from dashboard.lists.not_reporting import with_silence
from dashboard.lists.one_job_now import Running, sentences
from gpuvigil.clock import moment as time_of
from tests.dashboard.scene import NOON, busy_fleet
from tests.dashboard.test_jobs import LOST, NODES, drawn, fleet, held, measured, site
from tests.dashboard.test_views import view_of

LAST = NOON - timedelta(seconds=40)


def told(*silent: str, heard_at: datetime = LAST, nodes: int = 4) -> JobNow:
    """A busy job of four nodes, some of which were last heard then."""
    facts = busy_fleet(NODES)
    facts = replace(
        facts, last_seen={**facts.last_seen, **{("prod", name): heard_at for name in silent}}
    )
    mine = held("job 7", nodes=nodes)
    (job,) = with_silence(running(fleet(*mine), measured(mine)), view_of(facts).clusters)
    return job


def head(job: JobNow) -> str:
    return json.dumps(job_drawing.head(job, NOON))


def test_a_job_says_how_many_of_its_nodes_do_not_report_and_is_not_green() -> None:
    said = head(told("n-2", "n-3"))
    assert (
        f"2 of its 4 nodes have not reported since {time_of(LAST)}:"
        " whether it runs there is not known." in said
    )
    assert "No incident holds it up" not in said
    assert "story-head good" not in said
    assert "1 of its 4 nodes has not reported since" in head(told("n-2"))
    assert "Its node n-1 has not reported since" in head(told("n-1", nodes=1))


def test_the_list_counts_it_and_is_not_green() -> None:
    listed = drawn(told("n-2"))
    assert "1 job with 32 GPUs on a silent node: whether it runs is not known." in listed
    assert "story-head good" not in listed
    assert "story-head good" in drawn(told())


def test_what_bounds_it_is_not_known_once_none_of_its_nodes_reports() -> None:
    part, whole = told("n-2"), told("n-1", "n-2", "n-3", "n-4")
    assert part.decision is not None
    assert part.decision.bound is Bound.COMPUTE
    assert whole.decision is not None
    assert whole.decision.bound is Bound.UNKNOWN
    assert whole.decision.text == f"4 of its 4 nodes have not reported since {time_of(LAST)}"


@pytest.mark.parametrize(("seconds", "silent"), [(30, False), (31, True)])
def test_a_node_is_silent_for_a_job_when_it_is_for_every_page(seconds: int, silent: bool) -> None:
    job = told("n-2", heard_at=NOON - timedelta(seconds=seconds))
    assert bool(job.not_reporting) is silent
    assert ("No incident holds it up." in head(job)) is not silent


def words(job: JobNow) -> str:
    return " ".join(sentences(Running(job=job, now=NOON, reliability=site())))


def test_why_says_since_when_its_nodes_do_not_report_before_that_is_an_incident() -> None:
    since = f"since {time_of(LAST)}: whether it runs there is not known."
    part, whole = words(told("n-2")), words(told("n-1", nodes=1))
    assert f"1 of its 4 nodes has not reported {since}" in part
    assert "bound by compute" in part
    assert f"8 GPUs of 1 node for 3 h. Its node n-1 has not reported {since}" in whole
    assert "What bounds it" not in whole
    assert "No incident holds it up" not in part + whole
    assert "No incident holds it up." in words(told())


def test_why_of_a_node_that_was_never_heard_tells_no_time() -> None:
    never = replace(told("n-2"), not_reporting={"n-2": None})
    assert "1 of its 4 nodes is not reporting: whether it runs there" in words(never)


def test_an_incident_that_holds_it_up_comes_first() -> None:
    up = replace(told("n-2"), incidents=(LOST,))
    assert "Held up by " in head(up)
    assert "have not reported" not in head(up)
