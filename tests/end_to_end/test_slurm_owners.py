"""Whose a GPU is, under a real Slurm: its own word against what the node's collector tells the hub.

Slurm's numbers, the minor numbers of the device files and the driver's order are all different here.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from gpuvigil.model import Allocation, Record, RecordKind
from tests.collector.agent import Agent
from tests.collector.receiver import Receiver
from tests.end_to_end.slurm import PROGRAMS, Slurm
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until

pytestmark = pytest.mark.server

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
        for request in self.receiver.accepted:
            for line in request.content.splitlines() if request.is_records else ():
                record = Record.from_json(json.loads(line))
                if record.kind is RecordKind.ALLOCATION:
                    one = Allocation.from_record(record)
                    if one.id not in newest or one.ended_at is not None:
                        newest[one.id] = one
        found: dict[str, list[Allocation]] = {}
        for one in newest.values():
            found.setdefault(one.holder.removeprefix("job "), []).append(one)
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
                yield site
        finally:
            site.agent.end()


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
