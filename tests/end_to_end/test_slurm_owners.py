"""Whose a GPU is, under a real Slurm: its own word against what the node's collector tells the hub.

Slurm's numbers, the minor numbers of the device files and the driver's order are all different here.
"""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from gpuvigil.model import Allocation, Job, Record, RecordKind, Subject
from gpuvigil.schedulers.jobs import by_holder, with_job_details
from integrations.slurm.client import AskingError
from integrations.slurm.client import Slurm as Asking
from integrations.slurm.pace import Pace
from tests.collector.agent import ROOT, Agent
from tests.collector.receiver import Receiver
from tests.end_to_end.slurm import PROGRAMS, Slurm, free_port
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until

pytestmark = [pytest.mark.server, pytest.mark.site]

SCRIPT = Path(__file__).parents[2] / "packaging" / "slurm" / "gpuvigil-job"
ORDER = (5, 2, 0, 1, 7, 3, 4, 6)  # minor numbers, as gres.conf has them
TICK_SECONDS = 0.25
# Slurm's times are whole seconds, and the controller's: the node hears of them when it can.
CLOSE = timedelta(seconds=4)


def minor_of(slot: int) -> int:
    """Of the driver's GPU in this slot: its order runs against that of the device files."""
    return 7 - slot


class Site:
    def __init__(self, directory: Path, library: Path, receiver: Receiver) -> None:
        self.directory = directory
        self.receiver = receiver
        self.jobs = directory / "jobs"
        self.driver = FakeDriver(directory / "driver", library, gpus=8)
        for slot in range(8):
            self.driver.set(slot, minor=minor_of(slot))
        self.slurm = Slurm(
            directory / "slurm",
            prolog=self._script("prolog"),
            epilog=self._script("epilog"),
            gpus=ORDER,
        )
        self.agent = Agent(directory / "agent", receiver.url)
        self.agent.settings |= {"tick_seconds": TICK_SECONDS, "jobs_directory": str(self.jobs)}
        self.agent.environment = self.driver.environment()
        self.asking: subprocess.Popen[bytes] | None = None

    def ask_slurm(self) -> None:
        """`gpuvigil slurm`, as on one machine of the cluster."""
        config = self.directory / "slurm.toml"
        (self.directory / "token").write_text("secret\n")
        config.write_text(
            f'[hub]\nurl = "{self.receiver.url}"\ncollector_token_file = "token"\n'
            '[collector]\ncluster = "c"\nnode = "login"\n'
            f'[slurm]\ninterval_seconds = 5\nrequests_per_minute = 30\nspool_directory = "{self.directory}/asking"\n'
        )
        program = "import sys; from integrations.slurm.slurm_command import main; sys.exit(main(sys.argv[1:]))"
        self.asking = subprocess.Popen(
            [sys.executable, "-c", program, "--config", str(config)],
            cwd=ROOT,
            env=self.slurm.environment,
        )

    def end(self) -> None:
        self.agent.end()
        if self.asking is not None:
            self.asking.terminate()
            self.asking.wait(60)

    def told_by_slurm(self) -> dict[str, Job]:
        """The newest of each job that was shipped."""
        found: dict[str, Job] = {}
        for record in self.records(RecordKind.JOB):
            job = Job.from_record(record)
            if job.number not in found or job.seen_at >= found[job.number].seen_at:
                found[job.number] = job
        return found

    def records(self, kind: RecordKind) -> Iterator[Record]:
        for request in self.receiver.accepted:
            for line in request.content.splitlines() if request.is_records else ():
                record = Record.from_json(json.loads(line))
                if record.kind is kind:
                    yield record

    def _script(self, who: str) -> Path:
        """As an administrator writes it: one line."""
        what = {"prolog": "start", "epilog": "end"}[who]
        script = self.directory / f"{who}.sh"
        call = f"GPUVIGIL_JOBS={shlex.quote(str(self.jobs))} {SCRIPT} {what}"
        script.write_text(f"#!/bin/sh\n{call}\n")
        script.chmod(0o755)
        return script

    def allocations(self) -> dict[str, list[Allocation]]:
        """The newest state of each, by job number."""
        newest: dict[str, Allocation] = {}
        for record in self.records(RecordKind.ALLOCATION):
            one = Allocation.from_record(record)
            if one.id not in newest or one.ended_at is not None:
                newest[one.id] = one
        found: dict[str, list[Allocation]] = {}
        for one in newest.values():
            found.setdefault(one.holder.name, []).append(one)
        return found

    def uuids(self, numbers: str) -> set[str]:
        """The GPUs behind Slurm's numbers, by their device files."""
        known = {}
        for line in self.agent.metrics().splitlines():
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            if {"uuid", "index", "pci_address"} <= labels.keys():
                known[minor_of(int(labels["index"]))] = labels["uuid"]
        return {known[ORDER[number]] for number in _numbers(numbers)}


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


@pytest.fixture(scope="module")
def site(
    tmp_path_factory: pytest.TempPathFactory, library: Path, needs: Callable[[str, str], str]
) -> Iterator[Site]:
    for program in PROGRAMS:
        needs(program, "scripts/install-test-servers")
    with Receiver() as receiver:
        site = Site(tmp_path_factory.mktemp("site"), library, receiver)
        site.agent.start()
        try:
            with site.slurm:
                site.ask_slurm()
                yield site
        finally:
            site.end()


WANTS = [
    ("sleep 2", "--gres=gpu:3"),
    ("sleep 1; exit 3", "--gpus=2"),
    ("sleep 60", "--gpus-per-node=1"),
    ("true", "--gpus-per-task=1", "--ntasks=2"),
    ("true", "--gres=gpu:1", "--array=1-4"),
    ("sleep 1", "--gpus=7"),
    ("true", "-c", "1"),  # no GPU at all
    ("kill -9 $$", "--gres=gpu:1"),
]
FAILS, CANCELLED, KILLED = 1, 2, 7


def played(site: Site) -> tuple[list[str], dict[str, str]]:
    """The numbers of the jobs that were queued, all over by now, and Slurm's GPU numbers of those that were
    seen to run: it forgets them as soon as a job is over."""
    queued = [site.slurm.submit(command, "-t", "5", *options) for command, *options in WANTS]
    cancelled = queued[CANCELLED]
    wait_until(
        "the job that is cancelled", lambda: site.slurm.job_state(cancelled) == "RUNNING", 90
    )
    held: dict[str, str] = {}

    def look() -> bool:
        shown = site.slurm.ask("scontrol", "-o", "show", "job", "-d")
        for line in shown.splitlines():
            job, index = re.search(r"JobId=(\d+)", line), re.search(r"IDX:([\d,-]+)", line)
            if job and index:
                held[job[1]] = index[1]
        return "PENDING" not in shown and shown.count("RUNNING") <= 1

    wait_until("all but one job", look, 120)
    site.slurm.ask("scancel", cancelled)
    wait_until(
        "the last job",
        lambda: look() and "RUNNING" not in site.slurm.ask("squeue", "-h", "-o", "%T"),
        60,
    )
    return queued, held


def test_every_job_has_the_gpus_that_slurm_gave_it_for_as_long_as_slurm_did(site: Site) -> None:
    """Arrays, every way to ask for GPUs, failures, a cancellation, jobs shorter than a tick."""
    queued, held = played(site)
    shown = {
        found[1]: line
        for line in site.slurm.ask("scontrol", "-o", "show", "job").splitlines()
        if (found := re.search(r"JobId=(\d+)", line))
    }
    with_gpus = {job for job, line in shown.items() if "gpu" in line.partition("TresPer")[2]}
    assert len(with_gpus) == 10

    def all_told() -> bool:
        found = site.allocations()
        return with_gpus <= found.keys() and all(
            a.ended_at for job in with_gpus for a in found[job]
        )

    wait_until("the allocations", all_told, 60)
    told = site.allocations()
    assert set(told) == with_gpus
    counts = sorted(len(of_job) for of_job in told.values())
    assert counts == [1, 1, 1, 1, 1, 1, 2, 2, 3, 7]
    assert held
    for job, numbers in held.items():
        assert {a.subject.gpu for a in told[job]} == site.uuids(numbers)
    for job in with_gpus:
        began, ended = (_time(shown[job], key) for key in ("StartTime", "EndTime"))
        for one in told[job]:
            assert abs(one.started_at - began) <= CLOSE
            assert one.ended_at is not None
            assert abs(one.ended_at - ended) <= CLOSE
    codes = {job: told[job][0].exit_code for job in with_gpus}
    assert codes[queued[FAILS]] == "3:0"
    assert codes[queued[KILLED]] in {"0:9", "137:0"}
    assert never_two_at_once(told)


def test_slurm_itself_tells_the_rest_in_json_and_in_columns(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the prolog of this version does not tell, what ends a job, and nothing known when it does not answer."""
    running = site.slurm.submit("sleep 90", "-t", "5", "--gres=gpu:2", "-J", "a b\nJobState=FAILED")
    failed = site.slurm.submit("exit 3", "-t", "5", "--gpus=1")
    wait_until("its end", lambda: site.slurm.job_state(failed) == "FAILED", 90)

    def both() -> bool:
        told = site.told_by_slurm()
        states = [told[it].state if it in told else "" for it in (running, failed)]
        return states == ["RUNNING", "FAILED"]

    wait_until("what Slurm says", both, 90)
    told = site.told_by_slurm()
    assert (told[failed].exit_code, told[failed].reason) == ("3:0", "NonZeroExitCode")
    assert told[running].name == "a b?JobState=FAILED"
    wait_until("the prolog's word", lambda: running in site.allocations(), 60)
    held = site.allocations()[running]
    assert {one.command for one in held} == {None}
    jobs = by_holder(told.values())
    assert {with_job_details(one, jobs).command for one in held} == {told[running].name}
    assert {one.subject.gpu for one in held} == site.uuids(
        ",".join(map(str, told[running].numbers["n1"]))
    )

    monkeypatch.setenv("SLURM_CONF", site.slurm.environment["SLURM_CONF"])
    at, teller = datetime.now(timezone.utc), Subject(cluster="c", node="login")
    asked = Asking(teller, Pace(5.0, 100), lambda: 0.0, 90.0)
    by_json = {job.number: job for job in asked.jobs(at)}
    assert [(node.name, node.gpus) for node in asked.nodes()] == [("n1", 8)]
    # An older squeue, which knows no JSON.
    old = tmp_path / "squeue"
    old.write_text(
        "#!/bin/sh\ncase $* in *--json*) echo \"squeue: unrecognized option '--json'\" >&2; exit 1;; esac\n"
        'exec /usr/bin/env squeue "$@"\n'
    )
    old.chmod(0o755)
    by_columns = Asking(teller, Pace(5.0, 100), lambda: 0.0, 90.0, str(tmp_path)).jobs(at)
    assert {job.number for job in by_columns} == by_json.keys()
    for job in by_columns:
        known = by_json[job.number]
        assert job == replace(known, name=None, numbers={}), job.number
    # A controller that is not there.
    gone = tmp_path / "slurm.conf"
    text = Path(site.slurm.environment["SLURM_CONF"]).read_text()
    gone.write_text(
        re.sub(r"SlurmctldPort=\d+", f"SlurmctldPort={free_port()}\nMessageTimeout=2", text)
    )
    monkeypatch.setenv("SLURM_CONF", str(gone))
    with pytest.raises(AskingError):
        Asking(teller, Pace(5.0, 100), lambda: 0.0, 30.0).jobs(at)
    site.slurm.ask("scancel", running)


def never_two_at_once(told: dict[str, list[Allocation]]) -> bool:
    """No GPU was two jobs' at one moment."""
    spans: dict[str, list[tuple[datetime, datetime]]] = {}
    for of_job in told.values():
        for one in of_job:
            assert one.ended_at is not None
            spans.setdefault(one.subject.gpu or "", []).append((one.started_at, one.ended_at))
    return all(
        earlier[1] <= later[0]
        for them in spans.values()
        for earlier, later in zip(sorted(them), sorted(them)[1:], strict=False)
    )


def _time(line: str, key: str) -> datetime:
    found = re.search(rf" {key}=(\S+)", line)
    assert found is not None
    return datetime.fromisoformat(found[1]).astimezone(timezone.utc)
