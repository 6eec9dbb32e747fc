"""A moment of the past, on a real hub: what was is told, and nothing that came after it."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.data import live
from dashboard.data.past import LEAST_AGE, PastSnapshot, query_cache_of, requested_moment
from dashboard.data.past_hub import Moment, PastHub
from dashboard.data.questions import QueryCache
from dashboard.data.snapshot import Snapshot
from dashboard.data.views import FleetView
from dashboard.model.cluster import DisplayState
from gpuvigil.clock import SystemClock, to_ns
from gpuvigil.config import AnalyzerSettings, Config
from gpuvigil.errors import HubRefused, StoreError
from gpuvigil.hub_client import Hub
from gpuvigil.lineprotocol import encode
from gpuvigil.model import (
    Acknowledgement,
    Attribute,
    Incident,
    Job,
    Record,
    RecordKind,
    Retirement,
    Setup,
    Severity,
    Silence,
    Subject,
    Transition,
)
from gpuvigil.store.external import store_of
from gpuvigil.store.hub import HubStore
from gpuvigil.web import page_links
from tests.hub.in_process import HubThread
from tests.servers import ROOT, HubProcess

from .scene import allocation, gpu, incident, inventory, notice
from .scene import node as node_of
from .test_overview_page import html

pytestmark = pytest.mark.server

NOW = SystemClock().now().replace(microsecond=0)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
A, B, NEW = (node_of(name, "prod") for name in ("a", "b", "new"))
GPUS = 4
# The story, as times before now: an incident is opened, taken and over; a job goes; a node comes.
OPENED, TAKEN, OVER = NOW - 4 * HOUR, NOW - 150 * MINUTE, NOW - HOUR
JOB_ENDED, NODE_CAME = NOW - 2 * HOUR, NOW - 30 * MINUTE
THEN = NOW - 3 * HOUR
LOST = incident("gpu_lost", gpu(1, A), Severity.CRITICAL, since=OPENED)


def line(of: Subject, index: int, at: datetime, **values: float | None) -> str:
    tags = {
        "cluster": of.cluster,
        "node": of.node,
        "uuid": gpu(index, of).gpu or "",
        "model": "H100",
    }
    usual = {"up": 1, "index": index, "utilization_percent": 80, "compute_processes": 1}
    return encode("gpu", tags, {**usual, "power_watts": 400.0, **values}, to_ns(at)) or ""


def heartbeat(of: Subject, at: datetime) -> str:
    return encode("node", {"cluster": of.cluster, "node": of.node}, {"load1": 1.0}, to_ns(at)) or ""


def lines() -> Iterator[str]:
    """Ten seconds of three hours ago, in which a GPU of `a` falls off; and what is now."""
    for second in range(-10, 1):
        at = THEN + timedelta(seconds=second)
        yield from (heartbeat(one, at) for one in (A, B))
        yield from (line(B, index, at) for index in range(GPUS))
        yield from (line(A, index, at) for index in range(GPUS) if index != 1)
        gone = {
            "up": 0,
            "utilization_percent": None,
            "compute_processes": None,
            "power_watts": None,
        }
        yield line(A, 1, at, **({"unmeasured_reason": 3, **gone} if second > -5 else {}))
    yield from (
        line(of, index, NOW, utilization_percent=0) for of in (A, B) for index in range(GPUS)
    )


def step(number: int, before: str, after: str, at: datetime, **values: object) -> Transition:
    then = replace(LOST, state=after, version=number, updated_at=at, **values)  # type: ignore[arg-type]
    return Transition(
        incident=LOST.id,
        number=number,
        from_state=before,
        to_state=after,
        signal="changed",
        at=at,
        reason="",
        subject=LOST.subject,
        snapshot=then.to_record().to_json(),
    )


STEPS = (
    step(1, "suspect", "open", OPENED, severity=Severity.WARNING),
    step(2, "open", "acknowledged", TAKEN, acknowledged_by="ann"),
    step(3, "acknowledged", "resolved", OVER, resolved_at=OVER, acknowledged_by="ann"),
)


def job() -> Job:
    return Job(
        told_by=Subject(cluster="prod", node="slurm"),
        number="17",
        state="COMPLETED",
        submitted_at=NOW - 6 * HOUR,
        started_at=NOW - 5 * HOUR,
        ended_at=JOB_ENDED,
        seen_at=JOB_ENDED,
        nodes=("b",),
        exit_code="0:0",
    )


def records() -> Iterator[Record]:
    yield from (one.to_record() for one in STEPS)
    yield Incident.from_record(Record.from_json(STEPS[-1].snapshot)).to_record()
    held = replace(allocation(gpu(0, B), "job 17", "ann"), started_at=NOW - 5 * HOUR)
    yield replace(held, ended_at=JOB_ENDED, exit_code="0:0").to_record()
    yield replace(allocation(gpu(0, B), "job 18", "bob"), started_at=JOB_ENDED).to_record()
    yield job().to_record()
    for of, since in ((A, NOW - 9 * HOUR), (B, NOW - 9 * HOUR), (NEW, NODE_CAME)):
        told = inventory(of, GPUS, at=NOW, driver="600.1", kernel="6.12")
        yield told.to_record()
        yield Setup(node=of, at=since, values={Attribute.DRIVER: "580.2"}).to_record()
    yield Setup(node=A, at=NOW - HOUR, values={Attribute.DRIVER: "600.1"}).to_record()
    yield Retirement(node=B, by="ann", note="", at=NOW - MINUTE).to_record()
    yield notice(LOST, OPENED)
    yield notice(LOST, OVER, kind="resolved", number=3)
    yield Acknowledgement(
        id="ack", incident=LOST.id, subject=LOST.subject, by="ann", note="mine", at=TAKEN
    ).to_record()
    silence = Silence(
        id="s1",
        matchers=('node="a"',),
        by="ann",
        reason="fan",
        at=OPENED,
        starts_at=OPENED,
        ends_at=NOW + HOUR,
    )
    yield silence.ended(OVER).to_record()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubThread(tmp_path_factory.mktemp("hub")) as process:
        client = process.hub()
        HubStore(client).write("\n".join(lines()).encode())
        client.write_records(records())
        yield process


def at_moment(hub: HubProcess, at: datetime) -> Hub:
    return PastHub(hub.hub(), Moment(at))


def view_at(hub: HubProcess, at: datetime) -> FleetView:
    questions = query_cache_of(QueryCache(hub.hub, SystemClock()), at)
    found = PastSnapshot(questions, Config(), at).view()
    questions.close()
    return found


def test_the_map_is_of_then_and_a_gpu_that_fell_off_has_no_numbers_from_before(
    hub: HubProcess,
) -> None:
    view = view_at(hub, THEN)
    (cluster,) = view.clusters
    assert view.now == THEN
    assert view.rows_at == THEN
    assert cluster.strip.gpus == 2 * GPUS  # none of the node that came later
    assert cluster.strip.looks[DisplayState.FAILED] == 1
    assert cluster.strip.power_watts == 400.0 * (2 * GPUS - 1)
    fell = cluster.find("a", gpu(1, A).gpu or "")
    assert fell is not None
    assert fell.utilization_percent is None
    assert "services" not in " ".join(view.warnings)
    assert not view.warnings  # whether the analyzer ran then nobody knows


@pytest.mark.parametrize(
    ("at", "state", "severity", "taken"),
    [
        (OPENED - timedelta(seconds=1), "", None, ""),
        (OPENED, "open", Severity.WARNING, ""),
        (TAKEN - timedelta(seconds=1), "open", Severity.WARNING, ""),
        (TAKEN, "acknowledged", Severity.CRITICAL, "ann"),
        (OVER - timedelta(seconds=1), "acknowledged", Severity.CRITICAL, "ann"),
        (OVER, "", None, ""),
    ],
)
def test_an_incident_is_as_its_last_step_left_it(
    hub: HubProcess, at: datetime, state: str, severity: Severity | None, taken: str
) -> None:
    found = [one.incident for one in view_at(hub, at).attention]
    told = [(one.state, one.severity, one.acknowledged_by) for one in found]
    assert told == ([(state, severity, taken)] if state else [])
    one = at_moment(hub, at).record(RecordKind.INCIDENT, LOST.id)
    assert (one is None) == (at < OPENED)


def test_what_was_told_of_it_later_is_not_told_before(hub: HubProcess) -> None:
    then, later = at_moment(hub, THEN), at_moment(hub, NOW)
    for kind, early, late in (
        (RecordKind.NOTICE, 1, 2),
        (RecordKind.TRANSITION, 1, 3),
        (RecordKind.ACKNOWLEDGEMENT, 0, 1),
    ):
        assert len(then.records(kind, parent=LOST.id)) == early
        assert len(later.records(kind, parent=LOST.id)) == late


@pytest.mark.parametrize(
    ("at", "holder", "ended"),
    [(JOB_ENDED - timedelta(seconds=1), "job 17", 0), (JOB_ENDED, "job 18", 1)],
)
def test_who_held_a_gpu_then(hub: HubProcess, at: datetime, holder: str, ended: int) -> None:
    past = at_moment(hub, at)
    (held,) = past.records(RecordKind.ALLOCATION, states=["held"])
    assert held.body["holder"] == holder
    assert len(past.records(RecordKind.ALLOCATION, states=["ended"])) == ended
    assert len(past.records(RecordKind.ALLOCATION)) == 1 + ended


@pytest.mark.parametrize(
    ("at", "state"),
    [
        (NOW - 6 * HOUR - timedelta(seconds=1), None),
        (NOW - 5 * HOUR - timedelta(seconds=1), "PENDING"),
        (NOW - 5 * HOUR, "RUNNING"),
        (JOB_ENDED - timedelta(seconds=1), "RUNNING"),
        (JOB_ENDED, "COMPLETED"),
    ],
)
def test_a_job_waited_ran_and_was_over(hub: HubProcess, at: datetime, state: str | None) -> None:
    past = at_moment(hub, at)
    found = [Job.from_record(one) for one in past.records(RecordKind.JOB)]
    assert [one.state for one in found] == ([state] if state else [])
    if state:
        assert [
            one.state for one in map(Job.from_record, past.records(RecordKind.JOB, states=[state]))
        ] == [state]
        assert (found[0].ended_at is None) == (state != "COMPLETED")
        assert bool(found[0].nodes) == (state != "PENDING")


def test_nodes_have_the_driver_of_then_and_those_that_came_later_are_not_there(
    hub: HubProcess,
) -> None:
    told = {one.subject: one.body for one in at_moment(hub, THEN).records(RecordKind.INVENTORY)}
    assert set(told) == {A.key, B.key}
    assert told[A.key]["driver"] == "580.2"
    later = at_moment(hub, NODE_CAME)
    assert {one.subject for one in later.records(RecordKind.INVENTORY)} == {A.key, B.key, NEW.key}
    assert later.inventory(NEW) is not None
    assert at_moment(hub, NODE_CAME - timedelta(seconds=1)).inventory(NEW) is None


def test_a_silence_that_was_ended_early_held_until_then(hub: HubProcess) -> None:
    (then,) = at_moment(hub, THEN).records(RecordKind.SILENCE)
    assert Silence.from_record(then).holds(THEN)


def test_nothing_is_written_or_measured_in_the_past(hub: HubProcess) -> None:
    past = at_moment(hub, THEN)
    with pytest.raises(HubRefused, match="the past"):
        past.write_records([LOST.to_record()])
    with pytest.raises(StoreError):
        store_of(past).write(b"")
    with pytest.raises(StoreError):
        store_of(past).forget(NOW)
    assert past.changes(-1, [RecordKind.EVENT]).records == ()


def test_the_last_line_of_who_was_silent_for_some_seconds_is_found_too(hub: HubProcess) -> None:
    store = store_of(at_moment(hub, THEN + timedelta(seconds=20)))
    found = store.latest("gpu", ["up", "index"], THEN - timedelta(seconds=10))
    assert found.num_rows == 2 * GPUS
    assert all(THEN - timedelta(seconds=5) < at <= THEN for at in found["at"].to_pylist())
    assert store.latest("gpu", ["up"], THEN + timedelta(seconds=1)).num_rows == 0


def test_of_a_moment_without_numbers_that_is_said_and_no_node_is_called_silent(
    hub: HubProcess,
) -> None:
    (said,) = view_at(hub, NOW - 20 * HOUR).warnings
    assert said.startswith(
        "No measurements of this time: none were recorded, or they are older than 14 days."
    )


KEPT = timedelta(days=10)


@pytest.mark.parametrize(
    ("text", "age", "wrong"),
    [
        ("", None, ""),
        ("yesterday", None, "cannot be read"),
        (page_links.stamp(NOW + timedelta(seconds=1)), None, "in the future"),
        (page_links.stamp(NOW - LEAST_AGE + timedelta(seconds=1)), None, ""),
        (page_links.stamp(NOW - LEAST_AGE), LEAST_AGE, ""),
        (page_links.stamp(NOW - KEPT), KEPT, ""),
        (
            page_links.stamp(NOW - KEPT - timedelta(seconds=1)),
            None,
            "older than what is kept, 10 days",
        ),
    ],
    # Every worker must find the same names, whenever it is started.
    ids=["now", "no time", "future", "too young", "youngest", "oldest", "too old"],
)
def test_which_moment_an_address_asks_for(text: str, age: timedelta | None, wrong: str) -> None:
    found = requested_moment(text, NOW, KEPT)
    assert found.at == (None if age is None else NOW - age)
    assert wrong in found.wrong if wrong else not found.wrong


@pytest.fixture(scope="module")
def pages(hub: HubProcess) -> Iterator[None]:
    snapshot = Snapshot(hub.hub, SystemClock(), AnalyzerSettings(), 0.5)
    questions = QueryCache(hub.hub, SystemClock())
    live.install(live.Shared(snapshot=snapshot, questions=questions, config=Config()))
    snapshot.start()
    yield
    snapshot.stop()
    questions.close()


def opened(script: str, at: datetime | None, **query: str) -> AppTest:
    """A page below the frame, as `app.py` has it."""
    source = f"""
import streamlit as st
from dashboard.layout.frame import PAGES, frame
from runpy import run_path
page = next(one for one in PAGES if one.script == "pages/{script}.py")
frame(page)
run_path({str(ROOT / "dashboard" / "pages" / script)!r} + ".py")
"""
    test = AppTest.from_string(source, default_timeout=30)
    asked = {**query, **({} if at is None else {"at": page_links.stamp(at)})}
    for name, value in asked.items():
        test.query_params[name] = value
    test.run()
    assert not test.exception
    return test


ADDRESSES = [
    ("overview", {}),
    ("incidents", {}),
    ("incidents", {"incident": LOST.id}),
    ("jobs", {}),
    ("job", {"job": "17"}),
    ("people", {}),
    ("network", {}),
    ("hardware", {}),
    ("out_of_service", {}),
    ("handover", {}),
    ("efficiency", {}),
    ("reports", {}),
    ("silences", {}),
    ("pipeline", {}),
    ("node", {"cluster": "prod", "node": "a"}),
    ("gpu", {"cluster": "prod", "node": "a", "gpu": gpu(1, A).gpu or ""}),
]


@pytest.mark.parametrize(("script", "query"), ADDRESSES)
def test_every_page_says_that_it_shows_the_past_and_lets_nobody_change_it(
    pages: None, script: str, query: dict[str, str]
) -> None:
    test = opened(script, THEN, **query)
    assert f"The past: {THEN.day} {THEN:%b %H:%M}" in html(test)
    assert "Back to now" in html(test)
    assert "Live:" not in html(test)
    assert [one.label for one in test.button if one.label != "Later"] == []
    assert not test.text_input


def test_the_page_of_now_says_nothing_of_the_past(pages: None) -> None:
    assert "gv-past" not in html(opened("overview", None))
    assert "in the future" in html(opened("overview", NOW + HOUR))
