"""What pages and commands say of jobs: which run, what holds them up, in which order, and as text."""

import json
import re
import time
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from accounting.cost.money import Prices
from accounting.job_ending import verdict
from accounting.jobs.bound import Bound
from accounting.jobs.losses import Ended
from accounting.jobs.measured import Host
from cli.tables.why import grid as why_grid
from dashboard.jobs import job_drawing
from dashboard.jobs.drawing import page
from dashboard.jobs.filters import Filters
from dashboard.jobs.job_query import some_of, stood
from dashboard.jobs.ranks import ordered
from dashboard.lists.job_board import Board
from dashboard.lists.job_list import COLUMNS, PLACES, grid, sorted_rows
from dashboard.lists.job_losses import Reliability, advice, reliability, sentence, size_grid
from dashboard.lists.jobs import (
    SPAN,
    Fleet,
    JobNow,
    Measured,
    asked,
    running,
    stops,
    with_incidents,
)
from dashboard.lists.one_job import KnownJob, holder_named
from dashboard.lists.one_job_now import Running, checkpoint_words, sentences
from dashboard.lists.table import text
from dashboard.pipeline.hub_queries import is_elsewhere
from gpuvigil.clock import moment as time_of
from gpuvigil.clock import to_ns
from gpuvigil.config.pricing import CostSettings, PriceSettings
from gpuvigil.hub_client import Hub
from gpuvigil.hub_client.seen import FilteredHub
from gpuvigil.hub_client.tls import Trust
from gpuvigil.lineprotocol import encode
from gpuvigil.model import Allocation, Holder, HolderKind, Impact, Incident, Severity
from gpuvigil.store.external import HubWithExternalStore, NodesHeardByStore
from gpuvigil.store.memory import MemoryStore
from gpuvigil.web import page_links
from tests.accounting.jobs.test_measured import row
from tests.dashboard.scene import NOON, allocation, gpu, incident, inventory, node
from tests.processor import allowed

NODES = [node(f"n-{number}", "prod") for number in range(1, 5)]
HOUR_AGO = NOON - timedelta(hours=3)
PRICES = Prices(settings=CostSettings(prices=(PriceSettings(per_gpu_hour=2.0),)))
HOSTILE = "<img src=x onerror='hit = 1'>"


def held(holder: str, nodes: int = 1, gpus: int = 8, first: int = 0) -> list[Allocation]:
    return [
        replace(allocation(gpu(n, one), holder), started_at=HOUR_AGO)
        for one in NODES[first : first + nodes]
        for n in range(gpus)
    ]


def fleet(*allocations: Allocation, incidents: tuple[Incident, ...] = ()) -> Fleet:
    return Fleet(
        now=NOON,
        allocations=allocations,
        inventories=[inventory(one) for one in NODES],
        incidents=incidents,
    )


def measured(allocations: list[Allocation], **values: Any) -> Measured:
    given = {
        "utilization_percent_count": 300,
        "utilization_percent_mean": 99.0,
        "utilization_percent_max": 100.0,
        "sm_activity_percent_mean": 90.0,
        "power_watts_mean": 600.0,
        **values,
    }
    return Measured(
        span=(NOON - SPAN, NOON),
        gpus={one.subject.key: row(**given) for one in allocations},
    )


LOST = replace(
    incident("gpu_lost", gpu(3, NODES[0]), Severity.CRITICAL, action="Drain the node."),
    title="GPU fell off the bus",
)
NOTE = replace(incident("gpu_ecc", NODES[0], Severity.INFO), id="note")


def one(*incidents: Incident, **values: Any) -> JobNow:
    mine = held("job 7", nodes=2)
    stands = incidents or (NOTE, LOST)
    (found,) = running(fleet(*mine, incidents=stands), measured(mine, **values), PRICES)
    return found


def test_a_job_is_told_with_what_bounds_it_and_what_holds_it_up() -> None:
    job = one()
    assert (job.holder, job.user, len(job.gpus), list(job.nodes)) == (
        Holder.parse("job 7"), "ann", 16, ["n-1", "n-2"],
    )  # fmt: skip
    assert (job.holds_up, job.decision) == (LOST, None)
    calm = one(NOTE)
    assert calm.holds_up is None
    assert calm.decision is not None
    assert calm.decision.bound is Bound.COMPUTE
    assert list(job.incidents) == [LOST, NOTE]
    assert job.cost == pytest.approx(16 * 3 * 2.0)
    assert (job.checkpoint_age, job.at_risk_gpu_hours) == (None, None)
    told = one(checkpoint_age_seconds_last=1800.0)
    assert told.at_risk_gpu_hours == pytest.approx(8.0)


HOT = replace(LOST, fault="gpu_hot", id="hot", title="GPU is too hot")


def paced(percent: float | None, *incidents: Incident) -> JobNow:
    """A job that goes at this pace over the five minutes until noon, beside these incidents."""
    return replace(
        with_incidents(one(NOTE), incidents),
        pace_percent=percent,
        measured_from=None if percent is None else NOON - SPAN,
    )


def test_what_only_slows_a_gpu_holds_a_job_up_where_its_pace_has_fallen() -> None:
    assert paced(60.0, HOT).holds_up == HOT
    assert paced(60.0, replace(HOT, severity=Severity.WARNING)).holds_up is None
    assert not stops(HOT)
    for calm in (paced(100.0, HOT), paced(None, HOT)):
        assert calm.holds_up is None
        assert not calm.is_held_up_by(replace(HOT, resolved_at=NOON))
        said = sentences(Running(job=calm, now=NOON, reliability=site(LOST)))
        assert said[1].startswith(
            "No incident holds it up. It has an incident: GPU is too hot (n-1), since "
        )
        on_page = json.dumps(job_drawing.head(calm, NOON))
        assert "It has an incident: " in on_page
        assert page_links.incident_page(HOT.id) in on_page
        assert "Held up by" not in on_page


@pytest.mark.parametrize(
    ("percent", "is_same"), [(94.4, False), (95.0, True), (105.0, True), (105.6, False)]
)
def test_why_says_that_the_pace_of_a_job_beside_an_incident_is_unchanged(
    percent: float, is_same: bool
) -> None:
    said = sentences(Running(job=paced(percent, NOTE), now=NOON, reliability=site()))
    unchanged = f"Its pace is unchanged: {percent:.0f} % of the hour before."
    assert (unchanged in said) is is_same
    assert (f"Its pace is {percent:.0f} % of the hour before." in said) is not is_same
    # Without an incident nobody asks.
    calm = sentences(Running(job=paced(percent), now=NOON, reliability=site()))
    assert unchanged not in calm


def test_who_goes_on_at_the_usual_pace_since_a_fault_is_not_held_up_by_it() -> None:
    """A pace compared with an hour that was all after the fault says nothing: its peers may spin."""

    def began(minutes: float) -> Incident:
        return replace(LOST, since=NOON - timedelta(minutes=minutes))

    assert paced(99.0, began(10)).holds_up is None
    assert paced(80.0, began(10)).holds_up == began(10)
    assert paced(None, began(10)).holds_up == began(10)
    assert paced(99.0, began(1)).holds_up == began(1)
    assert paced(99.0, began(50)).holds_up == began(50)
    both = paced(99.0, began(10), NOTE)
    assert "It has 2 incidents, first: " in json.dumps(job_drawing.head(both, NOON))


def test_what_stands_now_holds_a_job_up_whatever_an_older_answer_said() -> None:
    old = one(NOTE)
    found = with_incidents(old, (LOST, NOTE))
    assert (found.holds_up, found.decision, list(found.incidents)) == (LOST, None, [LOST, NOTE])
    assert with_incidents(old, (NOTE,)) == old
    assert list(with_incidents(old, ()).incidents) == []
    elsewhere = replace(LOST, subject=gpu(7, NODES[3]), members=(), impact=Impact())
    assert with_incidents(old, (elsewhere,)).holds_up is None


def test_another_jobs_gpu_holds_nobody_up_and_who_is_named_suffers() -> None:
    mine, others = held("job 7", gpus=4), held("job 8", gpus=2, first=1)
    elsewhere = replace(LOST, subject=gpu(7, NODES[0]), members=(), id="other")
    named = replace(
        LOST, subject=NODES[3], members=(), id="named", impact=Impact(holders=("job 8",))
    )
    found = running(fleet(*mine, *others, incidents=(elsewhere, named)))
    assert [(str(it.holder), it.holds_up) for it in found] == [("job 8", named), ("job 7", None)]
    assert all(it.decision is None for it in found)


def test_a_lost_leaf_holds_up_jobs_of_several_nodes_alone() -> None:
    ports = [replace(node, device="mlx5_0", port="1") for node in NODES[:3]]
    leaf = incident("switch_down", ports[0], Severity.CRITICAL)
    leaf = replace(leaf, members=tuple(it.key for it in ports))
    large, small = held("job 7", nodes=2), held("job 8", gpus=2, first=2)
    found = running(fleet(*large, *small, incidents=(leaf,)))
    assert [(str(it.holder), it.holds_up) for it in found] == [("job 7", leaf), ("job 8", None)]
    assert list(found[1].incidents) == []
    named = replace(leaf, impact=replace(leaf.impact, holders=("job 8",)))
    found = running(fleet(*small, incidents=(named,)))
    assert found[0].incidents == [named]


SILENT = replace(
    incident("node_silent", NODES[1], Severity.WARNING), title="Node stopped reporting"
)


@pytest.mark.parametrize("severity", [Severity.WARNING, Severity.CRITICAL])
@pytest.mark.parametrize("condition", ["", "unheard", "collector", "rack_either", "not_received"])
def test_of_a_job_on_a_silent_node_it_is_not_known_whether_it_is_held_up(
    condition: str, severity: Severity
) -> None:
    silent = replace(SILENT, condition=condition, severity=severity)
    assert not stops(silent)
    mine, notebook = held("job 7", nodes=2), held("pod lab/nb", first=1, gpus=1)
    found = {str(it.holder): it for it in running(fleet(*mine, *notebook, incidents=(silent,)))}
    assert [(it.holds_up, it.unheard) for it in found.values()] == [(None, silent), (None, silent)]
    on_page = drawn(*found.values())
    assert "No incident holds up any of 2 jobs." in on_page
    assert "2 jobs with 17 GPUs on silent nodes: whether they run is not known." in on_page
    assert "1 job with 16 GPUs on a silent node: whether it runs is not known." in drawn(
        found["job 7"]
    )
    head = json.dumps(job_drawing.head(found["job 7"], NOON))
    assert f"(n-2), since {time_of(silent.since)}: whether it runs there is not known." in head
    assert page_links.incident_page(silent.id) in head
    assert "Held up by" not in head
    now = Running(job=found["job 7"], now=NOON, reliability=site(LOST))
    assert any("whether it runs there is not known." in it for it in sentences(now))


@pytest.mark.parametrize(
    "condition", ["dead", "rack_power", "shut_down", "not_back", "taken_away", "was_down"]
)
def test_a_node_that_is_known_to_be_down_holds_its_jobs_up(condition: str) -> None:
    down = replace(SILENT, condition=condition)
    (found,) = running(fleet(*held("job 7", nodes=2), incidents=(down,)))
    assert (found.holds_up, found.unheard) == (down, None)
    assert "Incidents hold up 1 of 1 job, with 16 GPUs." in drawn(found)
    assert "is not known" not in drawn(found)


def test_a_server_of_which_nothing_was_measured_does_not_wait_for_its_users() -> None:
    mine = [replace(it, command="jupyter-lab") for it in held("job 7", gpus=1)]
    (idle,) = running(fleet(*mine), measured(mine, utilization_percent_mean=0.0))
    (unknown,) = running(fleet(*mine, incidents=(replace(SILENT, subject=NODES[0]),)), measured([]))
    assert idle.decision is not None
    assert unknown.decision is not None
    assert (idle.decision.bound, unknown.decision.bound) == (Bound.ON_CALL, Bound.UNKNOWN)


def test_of_one_job_only_its_nodes_rows_are_read_and_the_span_is_that_of_all() -> None:
    store = MemoryStore()
    for place, of in enumerate(NODES[:2]):
        tags = {"cluster": "prod", "node": of.node}
        at = to_ns(NOON - timedelta(seconds=200 - 100 * place))
        uuid = gpu(0, of).gpu or ""
        port = {"device": "mlx5_0", "port": "1", "kind": "roce", "role": "fabric"}
        lines = [
            encode("gpu", {**tags, "uuid": uuid, "model": "H100"}, {"up": 1}, at) or "",
            encode("port", {**tags, **port}, {"up": 1}, at) or "",
            encode("node", tags, {"cpu_milliseconds": 1}, at) or "",
        ]
        store.write("\n".join(lines).encode())
    hub = HubWithExternalStore(
        "http://127.0.0.1:9", lambda: "token", Trust(), store, NodesHeardByStore(store)
    )
    mine, everybody = asked(hub, NOON, ["n-2", "n-9"]), asked(hub, NOON)
    assert set(everybody.gpus) == set(everybody.before) == {gpu(0, of).key for of in NODES[:2]}
    assert set(mine.gpus) == set(mine.before) == {gpu(0, NODES[1]).key}
    assert mine.span == everybody.span == (NOON - timedelta(seconds=200), NOON)
    assert set(everybody.hosts) == {("prod", "n-1"), ("prod", "n-2")}
    assert set(mine.hosts) == {("prod", "n-2")}


def test_that_numbers_are_elsewhere_is_seen_by_whoever_looks() -> None:
    store = MemoryStore()
    beside = HubWithExternalStore(
        "http://127.0.0.1:9", lambda: "token", Trust(), store, NodesHeardByStore(store)
    )
    plain = Hub("http://127.0.0.1:9", lambda: "token")
    for hub, elsewhere in ((beside, True), (plain, False)):
        assert is_elsewhere(hub) is elsewhere
        assert is_elsewhere(FilteredHub(hub, tuple, tuple)) is elsewhere


def test_who_shares_a_gpu_and_who_just_began_cannot_be_told() -> None:
    both = [*held("job 7"), *held("job 8")]
    found = running(fleet(*both), measured(both))
    assert {it.decision.bound for it in found if it.decision} == {Bound.UNKNOWN}
    young = [replace(it, started_at=NOON - SPAN + timedelta(seconds=1)) for it in held("job 7")]
    (job,) = running(fleet(*young), measured(young))
    assert job.decision is not None
    assert job.decision.bound.value == "too early"
    assert job.decision.text == "it began 4 min ago; an answer needs 5 min"
    assert not running(fleet(*held("pid 7")))


@pytest.mark.parametrize(
    ("beside", "bound"),
    [(None, Bound.CHECKPOINT), ("pid 9", Bound.CHECKPOINT), ("job 8", Bound.UNKNOWN)],
)
def test_what_a_node_writes_is_a_job_s_only_if_no_other_job_has_gpus_of_it(
    beside: str | None, bound: Bound
) -> None:
    mine = held("job 7", gpus=4)
    other = [replace(allocation(gpu(7, NODES[0]), beside), started_at=HOUR_AGO)] if beside else []
    numbers = replace(
        measured([*mine, *other], utilization_percent_mean=50.0),
        hosts={(NODES[0].cluster, NODES[0].node): Host(written_bytes_per_second=4e8)},
    )
    (job,) = (it for it in running(fleet(*mine, *other), numbers) if str(it.holder) == "job 7")
    assert job.decision is not None
    assert job.decision.bound is bound


@pytest.mark.parametrize(("seconds", "early"), [(149.0, True), (150.0, False)])
def test_who_was_not_watched_for_half_of_the_span_is_too_young_for_an_answer(
    seconds: float, early: bool
) -> None:
    """What is missing later is samples."""
    mine = held("job 7")
    since = NOON - timedelta(seconds=seconds)
    numbers = measured(mine, utilization_percent_count=10, first_at=since)
    (job,) = running(fleet(*mine), numbers)
    assert job.decision is not None
    said = Bound.EARLY if early else Bound.UNKNOWN
    assert (job.decision.bound, job.decision.confidence) == (said, 0.0)
    assert job.decision.text == (
        f"watched for 2 min, since {time_of(since)}; an answer needs 2 min"
        if early
        else "only 3 % of its GPUs' samples are there"
    )


def test_a_server_waits_for_who_uses_it_also_where_nobody_does() -> None:
    served = [replace(it, command="vllm serve llama") for it in held("job 7")]
    some = {"utilization_percent_mean": 40.0, "sm_activity_percent_mean": 30.0}
    (job,) = running(fleet(*served), measured(served, **some))
    assert job.decision is not None
    assert job.decision.text == "a server or notebook waits for its users"
    (job,) = running(fleet(*served), measured(served, utilization_percent_max=0.0))
    assert job.decision is not None
    assert (job.decision.bound, job.decision.advice) == (Bound.ON_CALL, "")
    assert job.decision.bound.value == "not judged"
    (job,) = running(fleet(*served), measured(served, utilization_percent_count=10))
    assert job.decision is not None
    assert job.decision.bound is Bound.ON_CALL, "what is missing of it says no more of it"
    (job,) = running(fleet(*held("job 7")), measured(served, utilization_percent_max=0.0))
    assert job.decision is not None
    assert job.decision.bound is Bound.NOTHING


def over(**values: Any) -> Ended:
    given = {"cluster": "prod", "holder": Holder.parse("job 5"), "ended_at": NOON, **values}
    return Ended(**given)


def test_the_table_has_every_column_for_each_and_sorts_what_is_known_first() -> None:
    ended = over(state="NODE_FAIL", gpus=4, started_at=HOUR_AGO)
    shown = grid([one(NOTE)], [ended], NOON, PRICES)
    assert {len(it) for it in shown.rows} == {len(COLUMNS)}
    first, second = shown.rows
    ((*held_up,),) = grid([one()], [], NOON, PRICES).rows
    assert [held_up[PLACES[it]] for it in ("held_up_by", "bound")] == ["GPU fell off the bus", None]
    assert first[PLACES["held_up_by"]] is None
    assert second[PLACES["state"]] == "node fail"
    assert second[PLACES["ran_for_seconds"]] == timedelta(hours=3)
    assert "compute" in text(shown, 200)
    by_gpus = sorted_rows(shown, "gpus", down=False)
    assert [it[0] for it in by_gpus] == ["job 5", "job 7"]
    assert [it[0] for it in sorted_rows(shown, "bound", down=True)] == ["job 7", "job 5"]
    assert [it[0] for it in sorted_rows(shown, "", down=True, text="COMPUTE ann")] == ["job 7"]
    assert not sorted_rows(shown, "nothing like that", down=True, text="nobody")
    free = grid([one()], [], NOON)
    assert [it.key for it in free.columns] == [it.key for it in COLUMNS if it.key != "cost"]


@pytest.mark.parametrize(("prices", "columns"), [(PRICES, 15), (Prices(), 14)])
def test_into_a_pipe_go_who_how_what_holds_it_up_and_where(prices: Prices, columns: int) -> None:
    found = grid([one()], [], NOON, prices)
    keys = [column.key for column in found.columns]
    assert found.piped == columns
    assert keys[columns - 4 : columns] == ["held_up_by", "incident", "cluster", "nodes"]
    said = text(found, None)
    assert said.splitlines()[0].split()[-2:] == ["CLUSTER", "NODES"]
    assert "-o csv and -o json also have incidents, said, missing," in said


SPAN_OF_INCIDENTS = (NOON - timedelta(days=10), NOON + timedelta(days=20))


def site(*incidents: Incident) -> Reliability:
    return reliability("prod", 64, SPAN_OF_INCIDENTS, incidents)


def test_failures_of_a_site_say_how_often_to_write_checkpoints() -> None:
    found = site(LOST)
    assert sentence(found).startswith("prod: 1 failure of nodes in 1,920 node-days: 0.5 in 1,000")
    assert [it.nodes for it in found.sizes] == [1, 4, 16, 64]
    assert "On 64 nodes a failure ends a job every 30 d" in advice(found, 64)
    assert advice(site(), 64) == ""
    young = reliability("prod", 1, (NOON - SPAN, NOON), [LOST])
    assert "too few" in sentence(young)
    assert not size_grid(young).rows
    assert len(size_grid(found).rows) == 4


def drawn(*jobs: JobNow, asked: Filters | None = None, ended: tuple[Ended, ...] = ()) -> str:
    board = Board(now=NOON, running=jobs, over=ended, reliability=[site(LOST)])
    return json.dumps(page(board, asked or Filters(), PRICES), ensure_ascii=False)


def test_the_page_links_jobs_and_incidents_and_keeps_strangers_text_text() -> None:
    said = drawn(one(), replace(one(), holder=Holder.parse(f"job {HOSTILE}"), incidents=()))
    assert "Incidents hold up 1 of 2 jobs, with 16 GPUs." in said
    assert '"Incidents"' in said
    assert page_links.job_page("prod", Holder.parse("job 7")) in said
    assert page_links.incident_page(LOST.id) in said
    assert f'"job {HOSTILE}"' in said
    assert "job=%3Cimg" in said
    assert '"aria-sort": "descending"' in drawn(one(), asked=Filters(sort="gpus"))
    # On a phone each scrolls by itself: none may widen the page.
    assert said.count('["table"') == said.count('"class": "wide"')
    assert "No matching job." in drawn(one(), asked=Filters(q="nobody"))
    assert "1 of 1" in drawn(one(), asked=Filters(q="ann"))
    # On a phone what holds a job up or bounds it is on the screen, beside whose it is.
    heads = re.findall(r'"href": "/jobs\?sort=(\w+)', drawn(one(NOTE), one()))
    assert heads[:5] == ["job", "held_up_by", "bound", "user", "gpus"]
    assert "No job is running." in drawn()
    quiet = replace(one(), incidents=())
    assert "No incident holds up the one running job." in drawn(quiet)
    other = replace(quiet, holder=Holder.parse("job 8"))
    assert "No incident holds up any of 2 jobs." in drawn(quiet, other)
    assert '"node fail"' in drawn(ended=(over(state="NODE_FAIL"),))


def test_a_click_sorts_down_and_another_up() -> None:
    down = Filters.of({"q": "x", "other": "y"}).by("gpus")
    assert down.href == "/jobs?sort=gpus&q=x"
    assert down.by("gpus").href == "/jobs?sort=gpus&order=up&q=x"
    assert down.by("gpus").by("gpus") == down
    assert Filters().href == "/jobs"


def test_the_jobs_own_page_says_why_ranks_and_what_to_do() -> None:
    job = one(step_seconds_mean=2.0, step_own_seconds_mean=1.9, checkpoint_age_seconds_last=1800.0)
    inventories = {it.subject: it for it in (inventory(one_node) for one_node in NODES)}
    parts = [
        job_drawing.head(job, NOON),
        job_drawing.tiles(job, site(LOST), PRICES, NOON),
        job_drawing.ranks(job, inventories, NOON),
        job_drawing.to_do(job),
        job_drawing.checkpoints(job, site(), [NOON - SPAN, NOON], NOON),
        job_drawing.incidents(job.incidents, [LOST.id], NOON),
    ]
    said = json.dumps(parts, ensure_ascii=False)
    assert '"Held up by "' in said
    assert '"8.0 GPU-hours"' in said
    assert '"Mean time to failure"' in said
    assert '"Last step"' in said, "a job that is held up makes none now"
    assert '["dd", {"class": "beside"}, "too little measured to compare it"]' in said
    none = json.dumps(job_drawing.tiles(one(NOTE), site(), PRICES, NOON), ensure_ascii=False)
    assert '"–"], ["dd", {"class": "beside"}, "no failure is known"]' in none
    young = reliability("prod", 1, (NOON - SPAN, NOON), [LOST])
    assert "not watched long enough" in json.dumps(
        job_drawing.tiles(one(NOTE), young, PRICES, NOON)
    )
    assert '"Step"' in json.dumps(
        job_drawing.tiles(one(NOTE, step_seconds_mean=2.0), site(), PRICES, NOON)
    )
    of_team = json.dumps(job_drawing.head(replace(job, account="vision"), NOON))
    assert f'"href": "{page_links.team_page("vision")}"' in of_team
    assert '"team vision"' in of_team
    assert '"GPU 3"' in said
    assert '"holds it up"' in said
    assert "Do now: " in said
    assert '"title": "a step\'s time until the rank first waits for the others"' in said
    assert "Own compute: a step's time until the rank first waits for the others." in said
    assert "Data wait" not in said  # nothing of it was measured
    assert "No failure of a node was seen in 1,920 node-days." in said
    unknown = replace(job, checkpoint_age=None, began_before=True)
    assert '"all its work"' in json.dumps(job_drawing.tiles(unknown, None, PRICES, NOON))
    assert "up to" not in checkpoint_words(unknown, NOON)
    assert "up to 48.0 GPU-hours" in checkpoint_words(replace(unknown, began_before=False), NOON)
    blank = replace(job, ranks=(), decision=None, activity=None, incidents=())
    assert job_drawing.ranks(blank, {}, NOON) is None
    assert job_drawing.to_do(blank) is None
    assert "No incident holds it up." in json.dumps(job_drawing.head(blank, NOON))


def test_gpus_that_stand_apart_come_first() -> None:
    ranks = list(one().ranks)
    ranks[5] = replace(ranks[5], watts=570.1)
    assert ordered(ranks).apart == 0
    ranks[5] = replace(ranks[5], watts=569.9)
    found = ordered(ranks)
    assert (found.apart, found.lines[0].rank) == (1, ranks[5])
    assert found.lines[0].apart == {"power"}
    assert ordered(ranks, {ranks[9].key}).lines[0].rank is ranks[9]
    assert ordered([]).lines == []


def test_of_a_large_job_nodes_are_read_that_lie_apart() -> None:
    names = [f"n{n}" for n in range(100)]
    found = some_of(names, ["n99", "elsewhere"])
    assert found[0] == "n99"
    assert len(set(found)) == 8
    assert some_of(names[:3], []) == names[:3]


def test_what_stands_is_listed_however_long_ago_it_began() -> None:
    long_ago = replace(LOST, id="long ago", since=NOON - timedelta(days=31))
    over = replace(NOTE, version=2, resolved_at=NOON)
    assert stood([over, LOST], [long_ago, NOTE]) == [over, LOST, long_ago]
    assert stood([], [long_ago]) == [long_ago]


def test_why_begins_with_what_bounds_a_job_and_names_what_holds_it_up() -> None:
    mine = held("job 7", nodes=2)
    told = KnownJob(holder=Holder.parse("job 7"), cluster="prod", job=None, allocations=tuple(mine))
    now = Running(job=one(), now=NOON, reliability=site(LOST))
    said = text(why_grid(told, verdict(told.ending, ()), [LOST], {}, now), 120)
    assert said.startswith(
        "job 7 of ann has been running on 16 GPUs of 2 nodes for 3 h, held up by GPU fell off the bus (n-1), since"
    )
    assert "bound by" not in said.split("AT ")[0]
    assert "it is running" not in said
    assert "it is held up" in said
    assert "faster kernels" not in said
    calm = sentences(replace(now, job=one(NOTE, step_seconds_mean=2.0)))
    assert calm[0].startswith(
        "job 7 of ann has been running on 16 GPUs of 2 nodes for 3 h, bound by compute (confidence 0.70):"
    )
    assert calm[1].startswith("No incident holds it up. It has an incident: gpu_ecc (n-1), since ")
    assert "faster kernels" in " ".join(calm)
    assert "A step takes 2.00 s, reported by 16 ranks." in calm
    for words in sentences(replace(now, job=replace(one(NOTE), decision=None))):
        assert words


@pytest.mark.parametrize(
    ("severity", "since", "is_slowed"),
    [
        (Severity.WARNING, HOUR_AGO, True),
        (Severity.INFO, HOUR_AGO, False),
        (Severity.WARNING, HOUR_AGO - timedelta(seconds=1), False),  # of a job before it
    ],
)
def test_of_a_job_that_a_slow_gpu_slows_down_that_is_said_and_not_that_all_is_well(
    severity: Severity, since: datetime, is_slowed: bool
) -> None:
    slow = incident("gpu_slow", gpu(3, NODES[0]), severity)
    job = one(replace(slow, since=since, action="Run a benchmark on it."))
    now = Running(job=job, now=NOON, reliability=site())
    told = KnownJob(
        holder=job.holder, cluster="prod", job=None, allocations=tuple(held("job 7", 2))
    )
    row = text(why_grid(told, verdict(told.ending, ()), [slow], {}, now), 120)
    assert ("it is slowed down" in row) is is_slowed
    assert ("it is running, bound by compute" in row) is not is_slowed
    said = " ".join(sentences(now))
    assert ("It is slowed down: gpu_slow (n-1" in said) is is_slowed
    assert ("No incident holds it up. It has an incident: " in said) is not is_slowed
    # Faster kernels would not help.
    assert ("faster kernels" in said) is not is_slowed
    head = json.dumps(job_drawing.head(job, NOON))
    assert ("Slowed down: " in head) is is_slowed
    assert ("No incident holds it up" in head) is not is_slowed
    assert ("Operator: " in json.dumps(job_drawing.to_do(job))) is is_slowed


def test_the_steps_of_a_job_that_is_held_up_were_its_last() -> None:
    job = one(LOST, step_seconds_mean=2.0)
    now = Running(job=job, now=NOON, reliability=site(LOST))
    assert "Its last steps took 2.00 s, reported by 16 ranks." in sentences(now)
    assert '"Last step"' in json.dumps(job_drawing.tiles(job, None, PRICES, NOON))


def test_a_job_is_named_by_its_number_or_as_records_have_it() -> None:
    assert holder_named(" 7 ") == holder_named("job 7") == Holder(HolderKind.JOB, "7")
    assert holder_named("pod a/b") == Holder(HolderKind.POD, "a/b")
    assert page_links.job_page("c", Holder.parse("pod a/b")) == "/job?cluster=c&job=pod+a%2Fb"
    assert page_links.job_page("c", Holder.parse("pid 7")) == ""


@pytest.mark.medium
def test_ten_thousand_gpus_are_told_in_a_fraction_of_a_second() -> None:
    nodes = [node(f"n-{number}", "prod") for number in range(1250)]
    mine = [
        replace(allocation(gpu(n, it), f"job {place // 8}"), started_at=HOUR_AGO)
        for place, it in enumerate(nodes)
        for n in range(8)
    ]
    whole, told = fleet(*mine, incidents=(LOST,) * 50), measured(mine)
    began = time.process_time()
    found = running(whole, told, PRICES)
    said = page(Board(now=NOON, running=found, over=(), reliability=()), Filters(), PRICES)
    assert time.process_time() - began < allowed(1.5)
    assert len(found) == 157
    assert len(json.dumps(said)) < 300_000
