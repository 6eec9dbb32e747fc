"""The pages of jobs as Streamlit runs them, `gpuvigil jobs` and `gpuvigil why`: one real hub tells all of them."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from dashboard.data import live
from dashboard.data.questions import QueryCache
from dashboard.data.snapshot import Snapshot
from dashboard.lists.job_losses import incidents_of
from gpuvigil.clock import SystemClock, to_ns
from gpuvigil.config import AnalyzerSettings, Config, StoreSettings
from gpuvigil.hub_client import Hub
from gpuvigil.hub_client.tls import Trust
from gpuvigil.lineprotocol import encode
from gpuvigil.model import Job, Severity, Subject
from gpuvigil.store.external import HubWithExternalStore, NodesHeardByStore
from gpuvigil.store.hub import HubStore
from gpuvigil.store.influxdb import InfluxStore
from tests.cli.test_commands import run
from tests.polling import wait_until
from tests.servers import HubProcess, QuickHub

from .scene import allocation, gpu, incident, inventory, node
from .test_incidents_and_pipeline_on_a_hub import open_page, said

pytestmark = pytest.mark.server

NODE = node("n-1", "prod")
BEGAN = SystemClock().now() - timedelta(hours=2)
LOST = replace(
    incident("gpu_lost", gpu(3, NODE), Severity.CRITICAL, action="Drain the node."),
    title="GPU fell off the bus",
    since=SystemClock().now() - timedelta(minutes=3),
)
OVER = Job(
    told_by=Subject(cluster="prod", node="ctl"),
    number="5",
    state="TIMEOUT",
    submitted_at=BEGAN,
    started_at=BEGAN,
    ended_at=BEGAN + timedelta(hours=1),
    seen_at=BEGAN + timedelta(hours=1),
    user="bob",
    gpus=8,
    nodes=("n-1",),
)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with QuickHub(tmp_path_factory.mktemp("hub")) as process:
        feed(process)
        snapshot = Snapshot(process.hub, SystemClock(), AnalyzerSettings(), 0.2)
        questions = QueryCache(process.hub, SystemClock())
        live.install(live.Shared(snapshot=snapshot, questions=questions, config=Config()))
        snapshot.start()
        wait_until("the incident", lambda: live.current().view().attention)
        yield process
        snapshot.stop()
        questions.close()


def feed(process: HubProcess) -> None:
    """Five minutes of a job of eight GPUs that tells its steps."""
    now, client = SystemClock().now(), process.hub()
    held = [replace(allocation(gpu(n, NODE), "job 7"), started_at=BEGAN) for n in range(8)]
    had = inventory(NODE, at=now, tick_seconds=5.0)
    told = [had.to_record(), LOST.to_record(), OVER.to_record()]
    client.write_records([*told, *(one.to_record() for one in held)])
    lines = []
    for second in range(0, 301, 5):
        for number in range(8):
            of = gpu(number, NODE)
            tags = {"cluster": "prod", "node": "n-1", "uuid": of.gpu or "", "model": "H100"}
            fields = {
                "up": 1,
                "index": number,
                "utilization_percent": 99,
                "sm_activity_percent": 40.0,
                "rank": number,
                "step": second,
                "step_seconds": 1.0,
                "step_own_seconds": 0.1,
                "checkpoint_age_seconds": 600 + second,
            }
            at = to_ns(now - timedelta(seconds=300 - second))
            lines.append(encode("gpu", tags, fields, at) or "")
    for second in (30, 60):
        for number in range(8):
            of = gpu(number, NODE)
            tags = {"cluster": "prod", "node": "n-1", "uuid": of.gpu or "", "model": "H100"}
            at = to_ns(BEGAN + timedelta(hours=1, seconds=second - 90))
            lines.append(
                encode("gpu", tags, {"up": 1, "checkpoint_age_seconds": 840 + second}, at) or ""
            )
    HubStore(client).write("\n".join(lines).encode())


def seen(page: str, *texts: str, **query: str) -> str:
    """The page once it has all of that: what the hub has not said yet comes with a renewal."""
    found = ""

    def has_all() -> bool:
        nonlocal found
        found = said(open_page(page, **query))
        return all(text in found for text in texts)

    wait_until(f"{texts} on the page {page}", has_all, 20)
    return found


def test_the_list_tells_what_holds_a_job_up_and_not_what_else_would_bound_it(
    hub: HubProcess,
) -> None:
    found = seen("jobs", "Incidents hold up 1 of 1 job, with 8 GPUs.", "job 5")
    assert "communication in the node" not in found
    assert "GPU fell off the bus" in found
    assert "timeout" in found


def test_the_jobs_page_tells_ranks_and_work_at_risk(hub: HubProcess) -> None:
    found = seen("job", "communication in the node", "What bounded it, of the time", job="7")
    assert "rank 3" in found
    assert "2.0 GPU-hours" in found
    assert "Drain the node." in found


def test_incidents_of_one_cluster_leave_out_those_of_others(hub: HubProcess) -> None:
    now = SystemClock().now()
    assert [one.id for one in incidents_of(hub.hub(), now, "prod")] == [LOST.id]
    assert incidents_of(hub.hub(), now, "pro") == []


def test_a_store_that_does_not_answer_is_said(hub: HubProcess) -> None:
    store = InfluxStore(
        StoreSettings(kind="influxdb", url="http://127.0.0.1:9", token_file=hub.service_token_file),
        SystemClock(),
    )

    def beside() -> Hub:
        return HubWithExternalStore(
            hub.url, lambda: hub.service_token, Trust(), store, NodesHeardByStore(store)
        )

    known = live.shared()
    questions = QueryCache(beside, SystemClock())
    live.install(replace(known, questions=questions))
    try:
        store_says = "is not known yet: influxdb at http://127.0.0.1:9/query does not answer"
        seen("jobs", f"What bounds each job {store_says}", f"What failures cost {store_says}")
    finally:
        live.install(known)
        questions.close()


def test_a_job_that_ended_says_how_and_one_that_is_not_known_says_so(hub: HubProcess) -> None:
    assert "it reached its time limit" in seen("job", "time limit", job="5", cluster="prod")
    seen(
        "job",
        "Nothing is known of this job: no scheduler or collector has reported it.",
        job="4711",
    )
    assert "The link names no job" in said(open_page("job"))


def test_the_terminal_tells_the_same(hub: HubProcess) -> None:
    listed = run(hub, "jobs", "-o", "json")
    assert listed.returncode == 0, listed.stderr
    first, second = json.loads(listed.stdout)
    assert (first["job"], first["bound"]) == ("job 7", None)
    assert first["incident"] == LOST.id
    assert (second["job"], second["state"]) == ("job 5", "timeout")
    why = run(hub, "why", "7")
    # Fifteen and a half minutes of eight GPUs.
    assert "Lost within a day by time limit: 1 job, 2.1 GPU-hours." in run(hub, "jobs").stdout
    assert why.returncode == 0, why.stderr
    assert why.stdout.startswith("job 7 of ann has been running on 8 GPUs of 1 node for 2 h")
    assert ", held up by GPU fell off the bus" in why.stdout
    assert "bound by" not in why.stdout
