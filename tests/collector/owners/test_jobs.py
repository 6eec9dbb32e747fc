"""Who holds a GPU, from files as Slurm's prolog and epilog leave them: the real script writes them."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.owners.jobfiles import JobFiles, parse
from collector.owners.jobs import Gpus, Jobs
from collector.owners.owners import Owners
from gpuvigil.model import Allocation, GpuIdentity, Record, Subject

NODE = Subject(cluster="c", node="n1")
SCRIPT = Path(__file__).parents[3] / "packaging" / "slurm" / "gpuvigil-job"
LONG_AGO = datetime(2020, 1, 1, tzinfo=timezone.utc)


def gpu(minor: int, index: int) -> GpuIdentity:
    """The GPU `GPU-<minor>`; its index and its PCI address run against its minor number."""
    address = f"00000000:{index + 16:02X}:00.0"
    return GpuIdentity(
        uuid=f"GPU-{minor}", index=index, pci_address=address, model="H100", minor=minor
    )


GPUS = Gpus(known={f"GPU-{minor}": gpu(minor, 3 - minor) for minor in range(4)})


class Site:
    """A node's Slurm: its gres.conf, and the script that it calls."""

    def __init__(self, directory: Path, order: Sequence[int] = (2, 0, 3, 1)) -> None:
        self.jobs = directory / "jobs"
        self.conf = directory / "slurm.conf"
        lines = [f"NodeName=n1 Name=gpu File=/dev/nvidia{minor}" for minor in order]
        (directory / "gres.conf").write_text("\n".join(lines))

    def call(self, what: str, job: int, numbers: str, **more: str) -> None:
        environment = {
            "GPUVIGIL_JOBS": str(self.jobs),
            "SLURM_JOB_ID": str(job),
            "SLURM_JOB_GPUS": numbers,
            "SLURM_JOB_USER": "ann",
            "SLURM_JOB_PARTITION": "gpu",
            "SLURM_CONF": str(self.conf),
            "SLURMD_NODENAME": "n1",
            **more,
        }
        subprocess.run([SCRIPT, what], env=environment, check=True, timeout=60)

    def begin(self, job: int, numbers: str, **more: str) -> None:
        self.call("start", job, numbers, **more)

    def end(self, job: int, code: str = "0:0") -> None:
        self.call("end", job, "", SLURM_JOB_EXIT_CODE2=code)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def jobs(site: Site) -> Jobs:
    return Jobs(NODE, JobFiles(site.jobs))


def now() -> datetime:
    return datetime.now(tz=timezone.utc) + timedelta(seconds=2)


def told(allocations: Sequence[Allocation]) -> list[tuple[str, str | None, bool]]:
    return sorted((str(a.holder), a.subject.gpu, a.ended_at is not None) for a in allocations)


def test_slurms_numbers_become_gpus_by_their_device_files(site: Site, jobs: Jobs) -> None:
    site.begin(7, "0,2", SLURM_JOB_ACCOUNT="physics", SLURM_JOB_NAME="train a model")
    (first, second) = jobs.update(GPUS, now())
    assert {first.subject.gpu, second.subject.gpu} == {"GPU-2", "GPU-3"}
    assert (str(first.holder), first.user, first.partition) == ("job 7", "ann", "gpu")
    assert (first.account, first.command) == ("physics", "train a model")
    assert abs(now() - first.started_at) < timedelta(seconds=60)
    assert jobs.update(GPUS, now()) == ()
    site.end(7, "3:0")
    ended = jobs.update(GPUS, now())
    assert told(ended) == [("job 7", "GPU-2", True), ("job 7", "GPU-3", True)]
    assert ended[0].exit_code == "3:0"
    assert jobs.held == []
    assert jobs.update(GPUS, now()) == ()


def test_without_a_gres_conf_numbers_go_by_pci_address(site: Site, jobs: Jobs) -> None:
    site.conf.with_name("gres.conf").unlink()
    site.begin(7, "0-1")
    assert told(jobs.update(GPUS, now())) == [("job 7", "GPU-2", False), ("job 7", "GPU-3", False)]


def test_a_job_that_was_over_before_anybody_looked_is_told(site: Site, jobs: Jobs) -> None:
    site.begin(7, "1")
    site.end(7)
    (only,) = jobs.update(GPUS, now())
    assert (only.subject.gpu, str(only.holder)) == ("GPU-0", "job 7")
    assert only.ended_at is not None
    assert only.ended_at >= only.started_at


def test_a_job_without_gpus_holds_nothing(site: Site, jobs: Jobs) -> None:
    site.begin(7, "")
    site.end(7)
    assert jobs.update(GPUS, now()) == ()


def test_a_gpu_that_is_lost_stays_its_jobs_and_a_number_is_not_taken_for_another(
    site: Site, jobs: Jobs
) -> None:
    site.begin(7, "0,1")
    jobs.update(GPUS, now())
    # After the next boot another GPU has the minor number of the lost one.
    left = {**GPUS.known, "GPU-3": replace(GPUS.known["GPU-3"], minor=2)}
    after = Gpus(known=left, missing=["GPU-2"])
    assert jobs.update(after, now()) == ()
    site.begin(8, "0")
    assert told(jobs.update(after, now())) == [("job 8", "GPU-3", False)]


def test_gpus_that_are_found_later_are_given_to_the_job_then(site: Site, jobs: Jobs) -> None:
    site.begin(7, "0,1")
    assert jobs.update(Gpus(known={}), now()) == ()
    assert len(jobs.update(GPUS, now())) == 2


def test_a_collector_that_starts_again_goes_on_and_a_reboot_ends_what_was_held(
    site: Site, jobs: Jobs
) -> None:
    site.begin(7, "0,1")
    before = jobs.update(GPUS, now())
    again = Jobs(NODE, JobFiles(site.jobs), before)
    assert again.update(GPUS, now()) == ()
    for file in site.jobs.iterdir():
        file.unlink()
    booted = before[0].started_at + timedelta(seconds=1)
    rebooted = Jobs(NODE, JobFiles(site.jobs), before, booted)
    assert {one.ended_at for one in rebooted.update(GPUS, now())} == {booted}


def test_a_job_that_is_requeued_is_another_allocation(site: Site, jobs: Jobs) -> None:
    site.begin(7, "0")
    first = jobs.update(GPUS, now())
    # Another second: files are named by it.
    (running,) = site.jobs.iterdir()
    earlier = running.read_text().replace(
        f"started={int(first[0].started_at.timestamp())}", "started=1000"
    )
    running.unlink()
    (site.jobs / "7-1000.ended").write_text("ended=2000\n" + earlier)
    site.begin(7, "0")
    changed = jobs.update(GPUS, now())
    assert ("job 7", "GPU-2", True) in told(changed)
    assert [one.started_at.timestamp() > 1000 for one in jobs.held] == [True]


@pytest.mark.medium
@pytest.mark.parametrize(
    "name", ["a\nuser=root\ngpus=0-3", "x" * 5000, "\x1b[31m", "`touch x` $(id)"]
)
def test_a_users_name_for_a_job_says_nothing_about_anything_else(site: Site, name: str) -> None:
    site.begin(7, "1", SLURM_JOB_NAME=name)
    (job,) = JobFiles(site.jobs).jobs()
    assert (job.user, job.gpus) == ("ann", (1,))
    assert len(job.name or "") <= 200
    assert (job.name or "").isprintable()


@given(st.text(max_size=200))
def test_no_job_file_is_too_strange(text: str) -> None:
    parse(text)
    parse("job=1\nstarted=5\ngpus=0\n" + text)


def test_a_processs_gpu_is_its_jobs(site: Site, tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    me = f"Uid:\t{os.getuid()}\t{os.getuid()}\t{os.getuid()}\t{os.getuid()}\n"
    groups = {
        11: "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n",
        12: "4:devices:/slurm/uid_0/job_8/step_batch\n0::/\n",
        13: "0::/user.slice\n",
    }
    for pid, group in groups.items():
        (proc / str(pid)).mkdir(parents=True)
        (proc / str(pid) / "status").write_text(me)
        (proc / str(pid) / "cgroup").write_text(group)
    site.begin(7, "0")
    owners = Owners(NODE, proc, site.jobs)
    changed = owners.update(GPUS, {"GPU-2": [11, 12, 13], "GPU-0": [11]}, now())
    assert told(changed) == [
        ("job 7", "GPU-2", False),
        ("pid 11", "GPU-0", False),
        ("pid 12", "GPU-2", False),
        ("pid 13", "GPU-2", False),
    ]
    site.end(7)
    assert ("job 7", "GPU-2", True) in told(owners.update(GPUS, {}, now()))


def test_an_allocation_of_a_job_survives_the_wire(site: Site, jobs: Jobs) -> None:
    site.begin(7, "0", SLURM_ARRAY_JOB_ID="5", SLURM_ARRAY_TASK_ID="2")
    (one,) = jobs.update(GPUS, now())
    assert one.array == "5_2"
    assert Allocation.from_record(Record.from_json(one.to_record().to_json())) == one
