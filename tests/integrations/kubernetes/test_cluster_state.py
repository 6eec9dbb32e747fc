"""Whose a pod is, what waits and which nodes take no pods, from recorded watch streams."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from gpuvigil.clock import ManualClock
from gpuvigil.config import KubernetesSettings
from gpuvigil.model import Allocation, Holder, Job, RecordKind, ScheduledNode, Scheduler, Subject
from gpuvigil.schedulers.kubernetes_api import ApiServer, Unauthorized
from integrations.kubernetes import objects
from integrations.kubernetes.cluster_state import AllocationBook, JobBook, Labels, NodeBook, Owned
from integrations.kubernetes.objects import Pod
from integrations.kubernetes.service import Watcher
from integrations.kubernetes.workloads import Workload, Workloads
from tests.integrations.kubernetes.apiserver import RECORDED, FakeApiServer, History, recorded

PODS, NODES = recorded("pods"), recorded("nodes")
OWNERS: dict[str, Any] = json.loads((RECORDED / "owners.json").read_text())
TOLD_BY = Subject(cluster="c", node="kubernetes")
LABELS = Labels(
    user="example.org/submitted-by", account="team", partition="kueue.x-k8s.io/queue-name"
)
NOW = datetime(2026, 3, 2, 9, 30, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)


@pytest.fixture(scope="module")
def server() -> Iterator[FakeApiServer]:
    fake = FakeApiServer()
    fake.objects = OWNERS
    yield fake
    fake.close()


@pytest.fixture
def workloads(server: FakeApiServer) -> Workloads:
    server.forbidden, server.broken, server.asked, server.token = set(), set(), [], None
    return Workloads(ApiServer(server.url, None, None))


def pods_after(count: int) -> list[Pod]:
    state = History(PODS).state(count).values()
    return [found for told in state if (found := objects.pod(told))]


def owned_after(count: int, workloads: Workloads) -> list[Owned]:
    return [Owned(pod, workloads.of(pod)) for pod in pods_after(count)]


def by_number(jobs: tuple[Job, ...]) -> dict[str, Job]:
    return {job.number: job for job in jobs}


def test_an_owner_of_an_unexpected_form_is_the_job_itself(
    server: FakeApiServer, workloads: Workloads
) -> None:
    owned = owned_after(11, workloads)
    server.objects = {
        path: {"metadata": {"creationTimestamp": "noon", "ownerReferences": [{}]}}
        for path in OWNERS
    }
    try:
        odd = owned_after(11, Workloads(ApiServer(server.url, None, None)))
    finally:
        server.objects = OWNERS
    assert len(odd) == len(owned)
    assert {one.workload.created_at for one in odd if one.pod.owner} == {None}


def test_a_job_is_what_people_know_and_not_what_stands_between(workloads: Workloads) -> None:
    numbers = {one.pod.full_name: one.workload.number for one in owned_after(13, workloads)}
    assert numbers == {
        "train/llama-worker-0": "PyTorchJob/train/llama",
        "train/llama-worker-1": "PyTorchJob/train/llama",
        "web/api-6d4f9-abcde": "Deployment/web/api",
        "ray/tune-worker-a": "RayJob/ray/tune",
        "lab/sweep-28391-x2v9q": "Job/lab/sweep-28391",
        "train/gang-0": "Pod/train/gang-0",
        "spot/probe": "Pod/spot/probe",
    }


def test_each_owner_is_asked_for_once_and_by_its_name(
    workloads: Workloads, server: FakeApiServer
) -> None:
    for _ in range(3):
        owned_after(len(PODS), workloads)
        owned_after(6, workloads)
    assert len(server.asked) == len(set(server.asked))
    assert set(server.asked) <= OWNERS.keys()


def test_an_owner_that_may_not_be_seen_is_the_job_itself(
    workloads: Workloads, server: FakeApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.forbidden = {path for path in OWNERS if "replicasets" in path}
    for _ in range(2):
        found = {one.workload.number for one in owned_after(5, workloads)}
    assert "ReplicaSet/web/api-6d4f9" in found
    assert caplog.text.count("may not see what owns a pod") == 1


def test_a_refusal_is_believed_for_a_while_and_a_stranger_is_told_nothing(
    server: FakeApiServer, workloads: Workloads
) -> None:
    clock = [0.0]
    workloads = Workloads(ApiServer(server.url, None, None), lambda: clock[0])

    def numbers() -> set[str]:
        workloads.begin()
        return {one.workload.number for one in owned_after(5, workloads)}

    server.token = "renewed"
    with pytest.raises(Unauthorized, match="401"):
        numbers()
    server.token = None
    server.forbidden = {path for path in OWNERS if "replicasets" in path}
    assert "ReplicaSet/web/api-6d4f9" in numbers()
    server.forbidden = set()
    assert "ReplicaSet/web/api-6d4f9" in numbers()
    clock[0] = 601.0
    assert "Deployment/web/api" in numbers()


def test_an_owner_that_cannot_be_read_blinds_its_own_namespace_alone(
    server: FakeApiServer, workloads: Workloads, caplog: pytest.LogCaptureFixture
) -> None:
    server.broken = {path for path in OWNERS if "replicasets" in path}
    history = History(PODS, 5)
    server.paths = {"/api/v1/pods": history, "/api/v1/nodes": History(NODES, 4)}
    clock = ManualClock(NOW)
    watcher = Watcher("c", KubernetesSettings(), ApiServer(server.url, None, None), clock)
    before = Job(
        told_by=TOLD_BY, number="Deployment/web/api", state="RUNNING", submitted_at=NOW, seen_at=NOW
    )
    gone = ScheduledNode(name="gone", states=("DRAIN",), reason="dust")
    said = Scheduler(told_by=TOLD_BY, at=NOW, nodes=(gone,))
    elsewhere = replace(said, told_by=replace(TOLD_BY, node="another"), nodes=(), left=(gone,))
    watcher.resume([before], [said, elsewhere])
    stop = threading.Event()
    stop.set()  # one event at most
    for mirror in (watcher.pods, watcher.nodes):
        mirror.once(stop)
    told = [record for _ in range(2) for record in watcher.pending_records()]
    jobs = [Job.from_record(it).number for it in told if it.kind is RecordKind.JOB]
    assert "PyTorchJob/train/llama" in jobs
    assert not [number for number in jobs if "/web/" in number]
    (scheduler,) = [Scheduler.from_record(it) for it in told if it.kind is RecordKind.SCHEDULER]
    assert scheduler.why == ""
    assert [(one.name, one.until) for one in scheduler.left] == [("gone", NOW)]
    assert caplog.text.count("workloads are not known yet") == 1
    # A clock that is set back does not make the scheduler silent.
    clock.step(-7200.0)
    clock.advance(59.0)
    assert not [it for it in watcher.pending_records() if it.kind is RecordKind.SCHEDULER]
    clock.advance(1.0)
    assert [it for it in watcher.pending_records() if it.kind is RecordKind.SCHEDULER]
    server.paths = {}


def test_no_job_ends_where_the_workload_of_a_pod_is_unknown(workloads: Workloads) -> None:
    book = JobBook(TOLD_BY, LABELS)
    book.update(owned_after(11, workloads), NOW)
    everywhere = {one.pod.namespace for one in owned_after(18, workloads)} | {"lab", "train"}
    for minutes in (1, 5):
        told = book.update(owned_after(18, workloads), NOW + minutes * MINUTE, everywhere)
        assert not [job for job in told if job.ended_at]
        assert book.update([], NOW + minutes * MINUTE, everywhere) == ()
    ended = by_number(book.update(owned_after(18, workloads), NOW + 6 * MINUTE))
    assert ended["PyTorchJob/train/llama"].state == "COMPLETED"


def test_what_waits_says_why(workloads: Workloads) -> None:
    book = JobBook(TOLD_BY, LABELS)
    first = by_number(book.update(owned_after(2, workloads), NOW))
    llama = first["PyTorchJob/train/llama"]
    assert (llama.state, llama.gpus, llama.nodes) == ("PENDING", 16, ())
    assert llama.reason is not None
    assert llama.reason.startswith("Unschedulable: 0/3 nodes are available: 2 Insufficient nvidia")
    assert (llama.user, llama.account, llama.partition) == ("ann", "nlp", "research")
    then = by_number(book.update(owned_after(7, workloads), NOW + MINUTE))
    assert then["PyTorchJob/train/llama"].state == "RUNNING"
    assert (then["PyTorchJob/train/llama"].reason or "").startswith("1 of its 2 pods wait: Unsch")
    assert (then["Job/lab/sweep-28391"].reason or "").startswith("ImagePullBackOff: Back-off")
    assert then["Deployment/web/api"].account == "web"
    assert then["RayJob/ray/tune"].gpus == 2
    gated = by_number(book.update(owned_after(11, workloads), NOW + 2 * MINUTE))["Pod/train/gang-0"]
    assert (gated.state, gated.partition) == ("PENDING", "research")
    assert (gated.reason or "").startswith("SchedulingGated")
    # What has not changed is not told again.
    assert book.update(owned_after(11, workloads), NOW + 3 * MINUTE) == ()


def test_how_a_job_ended_is_told_from_its_pods(workloads: Workloads) -> None:
    book = JobBook(TOLD_BY, LABELS)
    book.update(owned_after(11, workloads), NOW)
    ended = by_number(book.update(owned_after(18, workloads), NOW + MINUTE))
    assert {n: (j.state, j.exit_code) for n, j in ended.items() if j.ended_at} == {
        "PyTorchJob/train/llama": ("COMPLETED", "0:0"),
        "Job/lab/sweep-28391": ("OUT_OF_MEMORY", "0:9"),
        "Pod/spot/probe": ("PREEMPTED", "0:15"),
    }
    assert (ended["Pod/spot/probe"].reason or "").startswith("PreemptionByScheduler: default-sch")
    assert ended["PyTorchJob/train/llama"].ended_at == NOW.replace(minute=8)
    assert ended["PyTorchJob/train/llama"].nodes == ("gpu-a", "gpu-b")


def test_a_rollout_ends_nothing_and_deleted_pods_do(workloads: Workloads) -> None:
    book = JobBook(TOLD_BY, LABELS)
    book.update(owned_after(18, workloads), NOW)
    between = book.update(owned_after(20, workloads), NOW + timedelta(seconds=5))
    assert by_number(between) == {}
    later = by_number(book.update(owned_after(len(PODS), workloads), NOW + 2 * MINUTE))
    assert later["Deployment/web/api"].state == "RUNNING"
    assert later["Deployment/web/api"].nodes == ("gpu-a",)
    tune = later["RayJob/ray/tune"]
    assert (tune.state, tune.reason, tune.ended_at) == ("UNKNOWN", "its pods were deleted", NOW)


def test_a_watcher_that_starts_anew_goes_on_with_the_jobs_that_it_had(
    workloads: Workloads,
) -> None:
    records = [
        job.to_record() for job in JobBook(TOLD_BY, LABELS).update(owned_after(18, workloads), NOW)
    ]
    before = [Job.from_record(record) for record in records]
    again = JobBook(TOLD_BY, LABELS, [job for job in before if job.ended_at is None])
    again.update(owned_after(len(PODS), workloads), NOW + MINUTE)
    later = by_number(again.update(owned_after(len(PODS), workloads), NOW + 3 * MINUTE))
    assert later["RayJob/ray/tune"].state == "UNKNOWN"
    assert later["RayJob/ray/tune"].to_record().id in {record.id for record in records}


def test_a_node_that_an_autoscaler_takes_away_is_leaving() -> None:
    gpus = {"nvidia.com/gpu": "8"}
    told = {
        "metadata": {"name": "n"},
        "spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]},
        "status": {
            "capacity": gpus,
            "allocatable": gpus,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    found = objects.node(told)
    assert found is not None
    assert (found.states, found.reason) == (("LEAVING",), "karpenter.sh/disrupted")
    other = objects.node({**told, "spec": {"taints": [{"key": "team", "effect": "NoSchedule"}]}})
    assert other is not None
    assert other.states == ()


@pytest.mark.parametrize(
    ("status", "states"),
    [("Unknown", ("UNKNOWN", "NOT_RESPONDING")), ("False", ("NOT_READY",)), (None, ("UNKNOWN",))],
)
def test_a_node_that_stopped_answering_is_told_from_one_that_is_not_ready_or_new(
    status: str | None, states: tuple[str, ...]
) -> None:
    said = [] if status is None else [{"type": "Ready", "status": status}]
    gpus = {"nvidia.com/gpu": "8"}
    found = objects.node(
        {
            "metadata": {"name": "n"},
            "status": {"capacity": gpus, "allocatable": gpus, "conditions": said},
        }
    )
    assert found is not None
    assert found.states == states


def test_nodes_that_take_no_pods_are_named_with_their_reason(workloads: Workloads) -> None:
    book = NodeBook()

    def told(count: int, at: datetime) -> dict[str, ScheduledNode]:
        state = History(NODES).state(count).values()
        nodes = [found for one in state if (found := objects.node(one))]
        return {node.name: node for node in book.update(nodes, pods_after(11), at)}

    assert told(4, NOW) == {}
    some = told(6, NOW)
    assert (some["gpu-a"].states, some["gpu-a"].reason) == ((), "1 of its 8 GPUs are not offered")
    assert (some["gpu-b"].states, some["gpu-b"].gpus_used) == (("CORDONED",), 12)
    last = told(len(NODES), NOW)
    assert last["gpu-b"].states == ("UNKNOWN", "NOT_RESPONDING", "CORDONED")
    assert last["gpu-b"].reason == "Kubelet stopped posting node status."
    assert last["gpu-c"].states == ("DELETED",)
    assert "cpu-1" not in last
    assert "gpu-c" not in told(len(NODES), NOW + timedelta(hours=2))
    said = Scheduler(told_by=TOLD_BY, at=NOW, nodes=tuple(last.values()))
    assert Scheduler.from_record(said.to_record()) == said


def held(pod: str, gpu: str = "GPU-0", at: datetime = NOW) -> Allocation:
    return Allocation(
        subject=Subject(cluster="c", node="gpu-a", gpu=gpu),
        holder=Holder.parse(f"pod {pod}"),
        user=None,
        command=None,
        started_at=at,
        account=pod.partition("/")[0],
        pod=pod,
        place="main",
    )


def test_what_a_node_told_is_given_to_the_pods_job_once(workloads: Workloads) -> None:
    book = AllocationBook("c", LABELS)
    one = held("train/llama-worker-0")
    book.add(one)
    assert book.update([], NOW) == ()  # nobody knows that pod yet
    (given,) = book.update(owned_after(3, workloads), NOW)
    assert str(given.holder) == "job PyTorchJob/train/llama"
    assert (given.user, given.account, given.partition) == ("ann", "nlp", "research")
    assert (given.id, given.pod, given.place) == (one.id, one.pod, "main")
    assert given.to_record().version > one.to_record().version
    assert book.update(owned_after(3, workloads), NOW) == ()


def test_an_end_is_the_jobs_too_also_when_the_pod_is_gone(workloads: Workloads) -> None:
    one = held("ray/tune-worker-a")
    first = AllocationBook("c", LABELS)
    first.add(one)
    (given,) = first.update(owned_after(6, workloads), NOW)
    ended = replace(one, ended_at=NOW + MINUTE)
    versions = [one, given, ended]
    # Another watcher reads the one that was given before, and never saw the pod.
    for book in (first, AllocationBook("c", LABELS)):
        book.add(given)
        book.add(ended)
        (last,) = book.update(owned_after(len(PODS), workloads), NOW + MINUTE)
        assert (str(last.holder), last.ended_at) == ("job RayJob/ray/tune", NOW + MINUTE)
    versions.append(last)
    numbers = [it.to_record().version for it in versions]
    assert numbers == sorted(set(numbers))


def test_an_end_that_its_node_told_while_nobody_watched_is_the_jobs_too(
    workloads: Workloads,
) -> None:
    jobs = by_number(JobBook(TOLD_BY, LABELS).update(owned_after(11, workloads), NOW))
    job = jobs["PyTorchJob/train/llama"]
    assert job.pods == ("train/llama-worker-0", "train/llama-worker-1")
    assert Job.from_record(job.to_record()) == job
    one = held("train/llama-worker-0", at=job.submitted_at + MINUTE)
    ended = replace(one, ended_at=NOW + 90 * MINUTE)
    for began, holder in ((one.started_at, f"job {job.number}"), (NOW - 900 * MINUTE, None)):
        book = AllocationBook("c", LABELS, [job])
        book.add(replace(ended, started_at=began))
        told = book.update([], NOW + 100 * MINUTE)  # its pod was deleted meanwhile
        assert [str(it.holder) for it in told] == ([holder] if holder else [])
        if told:
            assert (told[0].user, told[0].account) == (job.user, job.account)
            assert told[0].ended_at == ended.ended_at


def test_a_finished_pod_that_its_kubelet_still_names_holds_nothing(workloads: Workloads) -> None:
    at = datetime(2026, 3, 2, 9, 5, tzinfo=timezone.utc)
    one = held("train/llama-worker-0", at=at)
    book = AllocationBook("c", LABELS)
    book.add(one)
    (given,) = book.update(owned_after(11, workloads), NOW)
    assert given.ended_at is None
    (over,) = book.update(owned_after(18, workloads), NOW + MINUTE)
    assert (str(over.holder), over.exit_code) == ("job PyTorchJob/train/llama", "0:0")
    assert over.ended_at is not None
    assert at < over.ended_at <= NOW.replace(minute=8)
    # What its node tells later of the end is older news.
    late = replace(one, ended_at=NOW + 5 * MINUTE).to_record()
    assert over.to_record().version > late.version
    assert book.update(owned_after(18, workloads), NOW + 2 * MINUTE) == ()
    # Another watcher, which reads that it is held, ends it too; of a pod that is gone nobody knows.
    for count, found in ((18, (over,)), (0, ())):
        again = AllocationBook("c", LABELS)
        again.add(given)
        assert again.update(owned_after(count, workloads), NOW + MINUTE) == found


def test_a_pod_of_which_a_container_still_runs_has_not_ended() -> None:
    told = History(PODS).state(18)
    (pod,) = [it for it in told.values() if it["metadata"]["name"] == "probe"]
    before = objects.pod(pod)
    assert before is not None
    assert before.ended_at is not None
    status = {**pod["status"]}
    status["containerStatuses"] = [
        *status["containerStatuses"],
        {"state": {"running": {"startedAt": "2026-03-02T09:00:00Z"}}},
    ]
    after = objects.pod({**pod, "status": status})
    assert after is not None
    assert (after.state, after.ended_at) == (before.state, None)


def test_a_later_pod_of_the_same_name_is_another(workloads: Workloads) -> None:
    book = AllocationBook("c", LABELS)
    book.add(held("web/api-6d4f9-fghij", at=datetime(2026, 3, 2, 9, 0, tzinfo=timezone.utc)))
    assert book.update(owned_after(len(PODS), workloads), NOW) == ()


def test_other_clusters_and_processes_are_left_alone(workloads: Workloads) -> None:
    book = AllocationBook("other", LABELS)
    book.add(held("train/llama-worker-0"))
    assert book.update(owned_after(3, workloads), NOW) == ()


def test_a_workload_is_named_like_a_job() -> None:
    assert Workload(kind="Pod", namespace="a", name="b").number == "Pod/a/b"
