"""Idle jobs of a real Slurm are ended as their policies say, once, and all others go on."""

import shutil
import subprocess
from collections.abc import Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import pytest

from alerts.actions.job_end_loop import Found
from alerts.actions.job_end_rules import EndRefusal
from alerts.actions.slurm import Slurm as Commands
from gpuvigil.config import IdleSettings
from gpuvigil.model import RecordKind, Subject
from integrations.slurm.client import Slurm as Asking
from integrations.slurm.pace import Pace
from tests.end_to_end.idle import Site
from tests.end_to_end.slurm import PROGRAMS, Slurm
from tests.polling import wait_until
from tests.servers import HubProcess

pytestmark = [pytest.mark.server, pytest.mark.site]

GPUS = 13


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    missing = [it for it in (*PROGRAMS, "salloc", "scancel") if shutil.which(it) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; scripts/install-test-servers does it")
    nothing = tmp_path / "nothing.sh"
    nothing.write_text("#!/bin/sh\n")
    nothing.chmod(0o755)
    gpus = range(GPUS)
    with Slurm(tmp_path / "slurm", prolog=nothing, epilog=nothing, gpus=gpus) as cluster:
        monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
        try:
            yield cluster
        finally:  # what goes on would outlive its daemons
            cluster.ask("scancel", "--partition=gpu")
            wait_until("no job is left", lambda: not cluster.ask("squeue", "-h"), 60.0)


def running(slurm: Slurm, *options: str) -> str:
    """A batch job that runs."""
    job = slurm.submit("sleep 900", *options)
    wait_until("the job runs", lambda: slurm.job_state(job) == "RUNNING", 60.0)
    return job


def interactive(slurm: Slurm) -> str:
    """An allocation that somebody holds for a shell."""
    said = subprocess.run(
        ["salloc", "--no-shell", "--gres=gpu:1"],
        env=slurm.environment,
        check=True,
        capture_output=True,
        text=True,
    ).stderr
    return said.split("allocation ")[-1].split()[0]


def waits(slurm: Slurm, job: str) -> bool:
    return slurm.job_state(job) == "PENDING"


def slurm_has_ended(slurm: Slurm, cancelled: str, held: str, anew: str, array: str) -> None:
    """Each as its policy says, and of the array the one task."""
    assert slurm.finish(cancelled) == "CANCELLED"
    for job in (held, anew):
        wait_until("it waits again", partial(waits, slurm, job), 60.0)
    assert "Reason=BeginTime" in slurm.ask("scontrol", "-o", "show", "job", anew)
    shown = slurm.ask("scontrol", "-o", "show", "job", held)
    assert "Reason=job_requeued_in_held_state" in shown
    assert "AdminComment=gpuvigil [gpu_idle_held idle-" in shown
    tasks = slurm.ask("squeue", "-h", "-t", "all", "-j", array, "-O", "ArrayTaskID:8,State:12")
    assert sorted(tasks.split("\n")[:-1]) == sorted(
        [f"{3:<8}{'RUNNING':<12}", f"{4:<8}{'CANCELLED':<12}"]
    )


def each_is_marked_and_told(site: Site, cancelled: str, held: str) -> None:
    """In Slurm, even where the hub forgot, and to the owner."""
    mark = Commands("", 20.0).job(held)
    assert mark is not None
    assert mark.mark.startswith("gpuvigil [")  # though the hub forgot
    titles = [
        step.body["snapshot"]["body"]["title"]
        for step in site.hub.records(RecordKind.TRANSITION)
        if step.id.partition(":")[0].endswith("-end")
    ]
    assert f"Your job {cancelled} was cancelled: its 2 GPUs computed nothing for 2 h" in {
        title.partition(" 5 min")[0] for title in titles
    }


def test_idle_jobs_end_as_their_policy_says_and_only_they(slurm: Slurm, tmp_path: Path) -> None:
    cancelled = running(slurm, "--gres=gpu:2")
    held = running(slurm, "--requeue", "--gres=gpu:1", "--job-name=x ArrayJobId=1")
    array = running(slurm, "--gres=gpu:1", "--array=3-4")  # its last task has its number
    anew = running(slurm, "--requeue", "--gres=gpu:1")
    half = running(slurm, "--gres=gpu:2")
    unwilling = running(slurm, "--gres=gpu:1")
    unheard = running(slurm, "--gres=gpu:1")
    gone = running(slurm, "--gres=gpu:1")
    unseen = running(slurm, "--gres=gpu:1")
    shell = interactive(slurm)
    end = IdleSettings(end_minutes=120.0)
    policies = (
        IdleSettings(match=(f'holder="job {held}"',), end_minutes=120.0, end_by="hold"),
        *(
            IdleSettings(match=(f'holder="job {job}"',), end_minutes=120.0, end_by="requeue")
            for job in (anew, unwilling)
        ),
        end,
    )
    with HubProcess(tmp_path / "hub") as process:
        site = Site(process.hub())
        for job, busy in ((cancelled, [False] * 2), (half, [False, True]), (unheard, [False])):
            site.hold(job, busy, (60,) if job == unheard else (60, 105))
        for job in (held, anew, array, unwilling, gone, shell):
            site.hold(job, [False])
        site.hold(unseen, [False], silent_minutes=6)
        told_by, pace = Subject(cluster="c", node="control"), Pace(60.0, 100)
        asked = Asking(told_by, pace, lambda: 0.0, 20.0).jobs(datetime.now(timezone.utc))
        site.hub.write_records([job.to_record() for job in asked])
        slurm.ask("scancel", gone)
        wait_until("it is gone", lambda: slurm.job_state(gone) == "CANCELLED", 30.0)

        ended = {f"job {job}" for job in (cancelled, held, anew, array)}
        assert {str(one.held.holder) for one in site.look(policies).endings} == ended  # a dry run
        assert slurm.job_state(cancelled) == slurm.job_state(held) == "RUNNING"
        assert site.look([IdleSettings()], dry_run=False) == Found()

        found = site.look(policies, dry_run=False)
        assert {str(one.held.holder) for one in found.endings} == ended
        assert dict(found.refused) == {
            f"job {half}": EndRefusal.COMPUTES,
            f"job {unheard}": EndRefusal.NOTICES_MISSING,
            f"job {unwilling}": EndRefusal.NO_REQUEUE,
            f"job {gone}": EndRefusal.CHANGED,
            f"job {unseen}": EndRefusal.STALE,
            f"job {shell}": EndRefusal.NO_BATCH,
        }
        slurm_has_ended(slurm, cancelled, held, anew, array)
        for job in (half, unheard, unwilling, unseen, shell):
            assert slurm.job_state(job) == "RUNNING"

        again = site.look(policies, dry_run=False)
        assert again.endings == []
        assert {job for job, why in again.refused if why is EndRefusal.ONCE} == ended
        each_is_marked_and_told(site, cancelled, held)
