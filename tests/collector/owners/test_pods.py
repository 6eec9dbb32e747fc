"""Who holds a GPU, by what a kubelet says of its pods."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.owners.jobs import Gpus
from collector.owners.kubelet import device_map
from collector.owners.kubelet.device_map import Answer, Device, DeviceHold, Unknown, device
from collector.owners.owners import Owners
from collector.owners.pods import Pods
from gpuvigil.model import Allocation, GpuIdentity, Record, Subject
from tests.collector.test_processes import BOOT, Proc

NODE = Subject(cluster="c", node="n1")
NOW = BOOT + timedelta(hours=1)
TICK = timedelta(seconds=10)
MIG = "MIG-9c4a6f5e-1b2c-5d3e-8f90-a1b2c3d4e5f6"
POD_UID = "1f0c9a1e-3b52-4d8e-9c1a-7d7b6a5c4e3f"


def gpu(minor: int) -> GpuIdentity:
    address = f"00000000:{16 - minor:02X}:00.0"
    return GpuIdentity(
        uuid=f"GPU-{minor}", index=3 - minor, pci_address=address, model="H100", minor=minor
    )


GPUS = Gpus(known={f"GPU-{minor}": gpu(minor) for minor in range(4)}, migs={MIG: "GPU-3"})


def hold(
    pod: str, *devices: str, container: str = "main", resource: str = "nvidia.com/gpu"
) -> DeviceHold:
    namespace, name = pod.split("/")
    return DeviceHold(
        namespace=namespace, pod=name, container=container, resource=resource, devices=devices
    )


def said(*holds: DeviceHold) -> Answer:
    return Answer(holds=holds)


def told(allocations: Sequence[Allocation]) -> list[tuple[str, str | None, bool]]:
    return sorted((str(a.holder), a.subject.gpu, a.ended_at is not None) for a in allocations)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("GPU-1b2c", Device(uuid="GPU-1b2c")),
        ("GPU-1b2c::3", Device(uuid="GPU-1b2c", shared=True)),
        (MIG, Device(mig=MIG)),
        (f"{MIG}::0", Device(mig=MIG, shared=True)),
        ("MIG-GPU-1b2c/7/0", Device(uuid="GPU-1b2c", mig="MIG-GPU-1b2c/7/0")),
        ("nvidia3", Device(minor=3)),
        ("nvidia3/gi1", Device(minor=3, instance="gi1")),
        ("gpu.nvidia.com/gpu-3", Device(minor=3)),
        ("gpu.nvidia.com/gpu-3-mig-19-0-1", Device(minor=3, instance="mig-19-0-1")),
        ("gpu.nvidia.com/gpu-vfio-0", None),
        ("gpu.nvidia.com/gpu-3-mig-19", None),
        ("gpu-3", None),
        ("nvidia3/vgpu2", Device(minor=3, shared=True)),
        ("nvidia3/gi1/vgpu0", Device(minor=3, instance="gi1", shared=True)),
        ("mlx5_0", None),
        ("0000:3b:00.1", None),
        ("GPU-", None),
    ],
)
def test_a_devices_name_says_which_gpu_and_whether_it_is_shared(
    name: str, meant: Device | None
) -> None:
    assert device(name) == meant


def test_a_pod_holds_its_gpus_from_the_first_answer_to_the_first_without_it() -> None:
    pods = Pods(NODE)
    began = pods.update(said(hold("ml/a-0", "GPU-0", "GPU-1")), GPUS, NOW)
    assert told(began) == [("pod ml/a-0", "GPU-0", False), ("pod ml/a-0", "GPU-1", False)]
    assert {(a.account, a.place, a.part, a.started_at) for a in began} == {
        ("ml", "main", None, NOW)
    }
    assert pods.update(said(hold("ml/a-0", "GPU-0", "GPU-1")), GPUS, NOW + TICK) == ()
    ended = pods.update(said(hold("ml/b-0", "GPU-0")), GPUS, NOW + 2 * TICK)
    assert told(ended) == [
        ("pod ml/a-0", "GPU-0", True),
        ("pod ml/b-0", "GPU-0", False),
    ]
    later = pods.update(said(hold("ml/b-0", "GPU-0")), GPUS, NOW + 8 * TICK)
    assert told(later) == [("pod ml/a-0", "GPU-1", True)]
    assert {a.ended_at for a in (*ended, *later) if a.ended_at} == {NOW + 2 * TICK}


def test_a_pod_of_the_first_answer_may_have_begun_before() -> None:
    pods = Pods(NODE)
    (first,) = pods.update(said(hold("ml/a-0", "GPU-0")), GPUS, NOW)
    both = said(hold("ml/a-0", "GPU-0"), hold("ml/b-0", "GPU-1"))
    (second,) = pods.update(both, GPUS, NOW + TICK)
    pods.update(None, GPUS, NOW + 2 * TICK)
    three = said(hold("ml/a-0", "GPU-0"), hold("ml/b-0", "GPU-1"), hold("ml/c-0", "GPU-2"))
    (third,) = pods.update(three, GPUS, NOW + 3 * TICK)
    assert [one.began_before for one in (first, second, third)] == [True, False, True]


def test_a_pod_that_only_the_hub_remembers_goes_on() -> None:
    (old,) = Pods(NODE).update(said(hold("ml/a-0", "GPU-0")), GPUS, NOW)
    pods = Pods(NODE)
    (young,) = pods.update(said(hold("ml/a-0", "GPU-0")), GPUS, NOW + TICK)
    assert pods.restore([old]) == (replace(young, ended_at=young.started_at),)
    assert pods.held == [old]
    assert pods.update(said(hold("ml/a-0", "GPU-0")), GPUS, NOW + 2 * TICK) == ()


def test_what_is_unknown_ends_nothing_and_begins_nothing() -> None:
    pods = Pods(NODE)
    pods.update(said(hold("ml/a-0", "GPU-0")), GPUS, NOW)
    assert pods.update(None, GPUS, NOW + TICK) == ()
    assert told(pods.held) == [("pod ml/a-0", "GPU-0", False)]
    # A kubelet that begins again knows of no pod for a moment.
    assert pods.update(said(), GPUS, NOW + 2 * TICK) == ()
    assert pods.update(said(hold("ml/a-0", "GPU-0")), GPUS, NOW + 7 * TICK) == ()
    assert pods.update(said(), GPUS, NOW + 8 * TICK) == ()
    assert pods.update(said(), GPUS, NOW + 13 * TICK) == ()
    (ended,) = pods.update(said(), GPUS, NOW + 14 * TICK)
    assert (ended.pod, ended.ended_at) == ("ml/a-0", NOW + 8 * TICK)


def test_slices_and_replicas_are_parts_of_their_gpu() -> None:
    answer = said(
        hold("ml/a", MIG, resource="nvidia.com/mig-1g.10gb"),
        hold("ml/b", "GPU-0::1", resource="nvidia.com/gpu.shared"),
        hold("ml/c", "GPU-0::2", container="one"),
        hold("ml/c", "GPU-0::3", container="two"),
        hold("ml/d", "nvidia2/gi1"),
    )
    began = Pods(NODE).update(answer, GPUS, NOW)
    assert sorted((a.pod, a.subject.gpu, a.part, a.place) for a in began) == [
        ("ml/a", "GPU-3", MIG, "main"),
        ("ml/b", "GPU-0", "shared", "main"),
        ("ml/c", "GPU-0", "shared", "one,two"),
        ("ml/d", "GPU-2", "gi1", "main"),
    ]


def test_a_mig_device_that_is_not_known_yet_ends_nothing_of_its_pod(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = Pods(NODE)
    before.update(said(hold("ml/a", MIG)), GPUS, NOW)
    again, young = Pods(NODE, before.held), Gpus(known=GPUS.known)
    # What it was given from, it still has; a device that was never seen waits.
    assert again.update(said(hold("ml/a", MIG)), young, NOW + TICK) == ()
    assert again.update(said(hold("ml/a", "MIG-other")), young, NOW + TICK) == ()
    assert "not known here" not in caplog.text
    again.update(said(hold("ml/a", "MIG-other")), young, NOW + timedelta(minutes=4))
    assert caplog.text.count("a pod holds a device that is not known here") == 1
    assert told(again.update(said(hold("ml/a", "MIG-other")), Gpus(known=GPUS.known, migs={"MIG-other": "GPU-1"}), NOW + TICK)) == [
        ("pod ml/a", "GPU-1", False),
    ]  # fmt: skip


def test_a_pod_that_did_not_outlive_a_boot_ended_with_it() -> None:
    before = Pods(NODE)
    before.update(said(hold("ml/a", "GPU-0")), GPUS, NOW)
    booted = NOW + TICK
    after = Pods(NODE, before.held, booted_at=booted)
    assert after.update(said(), GPUS, NOW + 10 * TICK) == ()
    (ended,) = after.update(said(), GPUS, NOW + 16 * TICK)
    assert ended.ended_at == booted


def test_a_gpu_is_the_pods_that_have_it_by_a_claim() -> None:
    pods = Pods(NODE)
    whole, part = "gpu.nvidia.com/gpu-2", "gpu.nvidia.com/gpu-3-mig-19-0-1"
    both = said(*(hold(pod, whole, resource="claim shared") for pod in ("ml/a", "ml/b")))
    began = pods.update(both, GPUS, NOW)
    assert told(began) == [("pod ml/a", "GPU-2", False), ("pod ml/b", "GPU-2", False)]
    (sliced,) = pods.update(
        said(*both.holds, hold("ml/c", part, resource="claim slice")), GPUS, NOW + TICK
    )
    assert (sliced.subject.gpu, sliced.part, sliced.account) == ("GPU-3", "mig-19-0-1", "ml")


def test_claims_and_withheld_gpus_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    pods = Pods(NODE)
    answer = Answer(holds=(), allocatable=("GPU-0", "GPU-1::0", MIG), claimed=("ml/dra",))
    for _ in range(3):
        pods.update(answer, GPUS, NOW)
    said_ = caplog.text
    assert said_.count("by a claim (DRA)") == 1
    assert said_.count("does not offer a GPU of this node") == 1
    assert "gpu=GPU-2" in said_


SOME = st.lists(
    st.tuples(st.sampled_from(["ml/a", "ml/b", "web/c"]), st.sampled_from(["GPU-0", "GPU-1::1", MIG])),
    max_size=4,
)  # fmt: skip


@given(st.lists(st.none() | SOME, max_size=8))
def test_what_is_held_is_what_the_last_answer_said(
    answers: list[list[tuple[str, str]] | None],
) -> None:
    pods, last, records = Pods(NODE), set[tuple[str, str]](), dict[str, Record]()
    for number, answer in enumerate(answers):
        if answer is not None:
            last = {(p, {"GPU-1::1": "GPU-1", MIG: "GPU-3"}.get(d, d)) for p, d in answer}
        holds = None if answer is None else said(*(hold(p, d) for p, d in answer))
        at = NOW + number * timedelta(minutes=2)
        changes = [it for at in (at, at + 6 * TICK) for it in pods.update(holds, GPUS, at)]
        for one in changes:
            record = one.to_record()
            if record.id not in records or records[record.id].version < record.version:
                records[record.id] = record
        assert {(a.pod, a.subject.gpu) for a in pods.held} == last
    kept = [Allocation.from_record(record) for record in records.values()]
    assert {(a.pod, a.subject.gpu) for a in kept if a.ended_at is None} == last
    assert all(a.id == record.id for a, record in zip(kept, records.values(), strict=True))


@given(
    st.lists(st.builds(hold, st.just("ml/a"), st.text(max_size=5), container=st.text(max_size=5))),
    st.none() | st.lists(st.text(max_size=5)).map(tuple),
)
@settings(max_examples=30, deadline=None)
def test_the_childs_lines_are_read_as_they_were_written(
    holds: list[DeviceHold], offered: tuple[str, ...] | None
) -> None:
    answer = Answer(holds=tuple(holds), allocatable=offered, claimed=("x/y",))
    assert device_map.parse(device_map.line(answer)) == answer
    assert device_map.parse(device_map.line(Unknown("why"))) == Unknown("why")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"holds": 3, "allocatable": null}', "7"])
def test_what_the_child_does_not_say_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        device_map.parse(text)


class Node:
    """A node's procfs and its owners; one pod has GPU-0."""

    def __init__(self, directory: Path) -> None:
        self.proc = Proc(directory / "proc")
        self.owners = Owners(NODE, self.proc.root, directory / "jobs")
        self.answer: Answer | None = said(hold("ml/a", "GPU-0"))

    def take(
        self, processes: dict[str, list[int]], now: datetime = NOW
    ) -> list[tuple[str, str | None, bool]]:
        return told(self.owners.update(GPUS, processes, now, self.answer))

    def process(self, pid: int, cgroup: str) -> None:
        self.proc.process(pid, 5)
        (self.proc.root / str(pid) / "cgroup").write_text(f"0::{cgroup}\n")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_pods_processes_are_the_pods(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.process(7, f"/kubepods/pod{POD_UID}/{'a' * 64}")
    assert node.take({"GPU-0": [7]}) == [("pod ml/a", "GPU-0", False)]
    assert "another's" not in caplog.text


@pytest.mark.parametrize(
    ("cgroup", "belongs_to"),
    [
        (f"/system.slice/docker-{'b' * 64}.scope", "docker bbbbbbbbbbbb"),
        ("/system.slice/slurmstepd.scope/job_17/step_0", "job 17"),
    ],
)
def test_sources_that_disagree_are_said_once_and_both_hold(
    node: Node, caplog: pytest.LogCaptureFixture, cgroup: str, belongs_to: str
) -> None:
    node.process(7, cgroup)
    held = [("pid 7", "GPU-0", False), ("pod ml/a", "GPU-0", False)]
    assert node.take({"GPU-0": [7]}) == held
    node.take({"GPU-0": [7]}, NOW + TICK)
    said_ = caplog.text
    assert said_.count("a process is on a GPU that is another's") == 1
    assert belongs_to in said_


def test_a_pods_process_waits_for_the_kubelets_next_word(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.process(7, f"/kubepods/pod{POD_UID}/{'a' * 64}")
    node.process(8, f"/system.slice/docker-{'b' * 64}.scope")
    begun = node.take({"GPU-1": [7], "GPU-2": [8]})
    assert begun == [("pid 8", "GPU-2", False), ("pod ml/a", "GPU-0", False)]
    node.answer = said(hold("ml/a", "GPU-0"), hold("ml/b", "GPU-1"))
    assert node.take({"GPU-1": [7]}, NOW + TICK)[-1] == ("pod ml/b", "GPU-1", False)
    assert "another's" not in caplog.text
    # One that the kubelet gave to no pod for a minute holds it by itself, and that is said.
    node.answer = said()
    assert node.take({"GPU-1": [7]}, NOW + 2 * TICK) == []
    assert node.take({"GPU-1": [7]}, NOW + 8 * TICK)[-1] == ("pod ml/b", "GPU-1", True)
    assert node.take({"GPU-1": [7]}, NOW + 15 * TICK) == [("pid 7", "GPU-1", False)]
    assert caplog.text.count('holder="no pod, says the kubelet"') == 1


def test_pods_and_processes_are_held_on_over_a_restart(node: Node, tmp_path: Path) -> None:
    node.process(8, f"/system.slice/docker-{'b' * 64}.scope")
    node.take({"GPU-1": [8]})
    places = {str(a.holder): a.place for a in node.owners.held}
    assert places == {"pod ml/a": "main", "pid 8": "docker bbbbbbbbbbbb"}
    again = Owners(NODE, node.proc.root, tmp_path / "jobs", node.owners.held)
    assert again.update(GPUS, {"GPU-1": [8]}, NOW + TICK, node.answer) == ()
    assert told(again.held) == [("pid 8", "GPU-1", False), ("pod ml/a", "GPU-0", False)]


def test_root_in_somebodys_session_is_somebody(node: Node) -> None:
    node.proc.process(9, 5, uid=0)
    (node.proc.root / "9" / "cgroup").write_text(
        "0::/user.slice/user-4000000.slice/session-3.scope\n"
    )
    node.take({"GPU-2": [9]})
    (one,) = [a for a in node.owners.held if str(a.holder) == "pid 9"]
    assert one.user == "uid 4000000"
    assert one.place is not None
    assert one.place.startswith("session, as ")


def test_older_and_newer_versions_read_each_others_allocations() -> None:
    (one,) = Pods(NODE).update(said(hold("ml/a", "GPU-0")), GPUS, NOW)
    assert Allocation.from_record(one.to_record()) == one
    record = one.to_record()
    assert set(record.body) >= {"holder", "pod", "place", "account"}
    assert "part" not in record.body  # it is all of the GPU
    assert datetime(2026, 1, 31, tzinfo=timezone.utc) < record.at
