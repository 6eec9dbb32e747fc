"""What a whole agent tells of the disks that the jobs on its GPUs use."""

from pathlib import Path

import pytest

from tests.collector.agent import Agent
from tests.collector.receiver import Receiver
from tests.collector.rows import UUIDS, gpu_field
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until

pytestmark = pytest.mark.server
GROUP = "/system.slice/slurmstepd.scope/job_7"


def test_a_job_that_its_control_group_counts_has_its_bytes_beside_its_gpu(
    agent: Agent, driver: FakeDriver, receiver: Receiver, tmp_path: Path
) -> None:
    proc, sysfs = tmp_path / "proc", tmp_path / "sys"
    (proc / "4711").mkdir(parents=True)
    (proc / "4711" / "cgroup").write_text(f"0::{GROUP}/step_0/user/task_0\n")
    for name in ("stat", "meminfo", "loadavg", "sys"):
        (proc / name).symlink_to(f"/proc/{name}")
    group = Path(f"{sysfs}/fs/cgroup{GROUP}")
    group.mkdir(parents=True)
    (group / "io.stat").write_text("259:0 rbytes=1 wbytes=2 rios=1 wios=1 dbytes=0 dios=0\n")
    driver.set_processes(1, {4711: 10**9})
    agent.environment = driver.environment()
    agent.settings |= {"proc_root": str(proc), "sysfs_root": str(sysfs)}
    agent.start()
    wait_until("its bytes", lambda: gpu_field(receiver, UUIDS[1], "job_disk_write_bytes") == 0)
    assert gpu_field(receiver, UUIDS[1], "job_disk_read_bytes") == 0
    assert gpu_field(receiver, UUIDS[2], "job_disk_write_bytes") is None
