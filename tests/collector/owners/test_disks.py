"""What jobs read from and write to a node's own disks, from control groups as the kernel shows them."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.owners.disks import JobDisks

JOB, NEXT = "/system.slice/slurmstepd.scope/job_7", "/system.slice/slurmstepd.scope/job_8"
POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1f0c9a1e_3b52_4d8e_9c1a_7d7b6a5c4e3f.slice"


def moved(read: int, written: int, device: str = "259:0") -> str:
    return f"{device} rbytes={read} wbytes={written} rios=4 wios=5 dbytes=0 dios=0\n"


class Machine:
    """A /proc and a /sys, and the seconds between looks."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.sys, self.now = folder / "proc", folder / "sys", 0.0
        (self.sys / "dev/block/259:0/device").mkdir(parents=True)
        (self.sys / "dev/block/253:0").mkdir(parents=True)  # a mapped device
        self.disks = JobDisks(self.proc, self.sys, lambda: self.now)

    def process(self, pid: int, group: str) -> None:
        (self.proc / str(pid)).mkdir(parents=True, exist_ok=True)
        (self.proc / str(pid) / "cgroup").write_text(f"0::{group}\n")

    def counts(self, group: str, text: str) -> None:
        folder = Path(f"{self.sys}/fs/cgroup{group}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "io.stat").write_text(text)

    def look(
        self, processes: Mapping[str, list[int]], after: float = 10.0
    ) -> dict[str, tuple[int, int]]:
        self.now += after
        told = self.disks.read(processes)
        return {
            gpu: (one["job_disk_read_bytes"], one["job_disk_write_bytes"])
            for gpu, one in told.items()
        }


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("group", "below"), [(JOB, "/step_0/user/task_0"), (POD, "/cri-containerd-abc.scope")]
)
def test_all_of_a_job_counts_for_each_of_its_gpus_from_the_first_look_on(
    machine: Machine, group: str, below: str
) -> None:
    machine.process(11, group + below)
    machine.process(12, group + below.replace("0", "1"))
    machine.counts(group, moved(1_000, 5_000))
    machine.counts(group + below, moved(1, 1))
    on = {"GPU-0": [11], "GPU-1": [12], "GPU-2": []}
    assert machine.look(on) == {"GPU-0": (0, 0), "GPU-1": (0, 0)}
    machine.counts(group, moved(1_200, 9_000))
    assert machine.look(on) == {"GPU-0": (200, 4_000), "GPU-1": (200, 4_000)}


def test_disks_that_are_hardware_count_and_what_is_made_of_them_does_not(machine: Machine) -> None:
    machine.process(11, JOB)
    machine.counts(JOB, "")
    assert machine.look({"GPU-0": [11]}) == {"GPU-0": (0, 0)}
    machine.counts(JOB, moved(7, 70) + moved(7, 70, "253:0") + "7:0 \n8:0 cost.vrate=100.00\n")
    assert machine.look({"GPU-0": [11]}) == {"GPU-0": (7, 70)}


def test_the_next_job_of_a_gpu_goes_on_from_there(machine: Machine) -> None:
    machine.process(11, JOB)
    machine.counts(JOB, moved(0, 0))
    machine.look({"GPU-0": [11]})
    machine.counts(JOB, moved(0, 90))
    machine.look({"GPU-0": [11]})
    assert machine.look({"GPU-0": []}) == {}
    machine.process(12, NEXT)
    machine.counts(NEXT, moved(5_000, 5_000))
    assert machine.look({"GPU-0": [12]}) == {"GPU-0": (0, 90)}
    machine.counts(NEXT, moved(5_001, 5_002))
    assert machine.look({"GPU-0": [12]}) == {"GPU-0": (1, 92)}


@pytest.mark.parametrize(
    "group",
    [
        "/user.slice/user-1000.slice/session-3.scope",
        f"/..{POD}",  # seen from a control group namespace of its own
        "/",
    ],
)
def test_of_a_process_in_no_job_nothing_is_said(machine: Machine, group: str) -> None:
    machine.process(11, group)
    machine.counts(group, moved(1, 1))
    assert machine.look({"GPU-0": [11], "GPU-1": [12]}) == {}


def test_a_gpu_of_two_jobs_is_nobody_s_and_a_job_that_nobody_counts_is_not_measured(
    machine: Machine,
) -> None:
    machine.process(11, JOB)
    machine.process(12, NEXT)
    machine.process(13, "/system.slice/nvidia-persistenced.service")
    machine.counts(JOB, moved(1, 1))
    on = {"GPU-0": [11, 12], "GPU-1": [12], "GPU-2": [11, 13]}
    assert machine.look(on) == {"GPU-2": (0, 0)}


def test_it_is_looked_at_every_ten_seconds(machine: Machine) -> None:
    machine.process(11, JOB)
    machine.counts(JOB, moved(0, 0))
    machine.look({"GPU-0": [11]})
    machine.counts(JOB, moved(2, 2))
    assert machine.look({"GPU-0": [11]}, 9.9) == {"GPU-0": (0, 0)}
    assert machine.look({"GPU-0": [11]}, 0.2) == {"GPU-0": (2, 2)}


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_file_is_read_or_left_out(
    tmp_path_factory: pytest.TempPathFactory, group: str, counts: str
) -> None:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.process(11, group.replace("\0", ""))
    machine.process(12, JOB)
    machine.counts(JOB, counts)
    assert all(
        read >= 0 and written >= 0
        for read, written in machine.look({"GPU-0": [11], "GPU-1": [12]}).values()
    )
