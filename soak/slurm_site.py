"""Two nodes under a real Slurm with a collector each, and what Slurm itself says of every job while it runs."""

import json
import random
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from gpuvigil.model import Allocation, Record, RecordKind
from tests.collector.agent import Agent
from tests.collector.receiver import Receiver
from tests.end_to_end.slurm import Slurm
from tests.nvml_fake import FakeDriver

SCRIPT = Path(__file__).parents[1] / "packaging" / "slurm" / "gpuvigil-job"
ORDER = (5, 2, 0, 1, 7, 3, 4, 6)  # minor numbers, as gres.conf has them
NODES = ("n1", "n2")
TICK_SECONDS = 1.0


@dataclass(slots=True)
class Truth:
    """Slurm's own word of a job: Slurm's numbers by node, while it ran, and from when to when."""

    numbers: dict[str, tuple[int, ...]] = field(default_factory=dict)
    started_at: datetime | None = None
    ended_at: datetime | None = None
    state: str = ""


class Site:
    """A context manager; `jobs` fills as `look` is called."""

    def __init__(self, directory: Path, library: Path) -> None:
        self.directory = directory
        self.truth: dict[str, Truth] = {}
        self.crashed_at: datetime | None = None
        self.receiver = Receiver()
        self.drivers: dict[str, FakeDriver] = {}
        self.agents: dict[str, Agent] = {}
        for number, node in enumerate(NODES):
            driver = FakeDriver(directory / f"driver-{node}", library, gpus=8, node=number)
            for slot in range(8):
                driver.set(slot, minor=7 - slot)
            self.drivers[node] = driver
        self.slurm = Slurm(
            directory / "slurm",
            prolog=self._script("prolog", "start"),
            epilog=self._script("epilog", "end"),
            gpus=ORDER,
            nodes=NODES,
            settings={"MinJobAge": 3600, "SlurmdTimeout": 20},
        )
        self._stack = ExitStack()

    def __enter__(self) -> "Site":
        self._stack.enter_context(self.receiver)
        for node in NODES:
            self.boot(node)
        self._stack.enter_context(self.slurm)
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self.agents.values():
            agent.end()
        self._stack.close()

    def _script(self, who: str, what: str) -> Path:
        script = self.directory / f"{who}.sh"
        jobs = shlex.quote(f"{self.directory}/jobs-")
        script.write_text(f'#!/bin/sh\nGPUVIGIL_JOBS={jobs}"$SLURMD_NODENAME" {SCRIPT} {what}\n')
        script.chmod(0o755)
        return script

    def boot(self, node: str) -> datetime:
        """A node whose /run is empty and whose kernel was started just now; its collector starts with it."""
        at = datetime.now(timezone.utc).replace(microsecond=0)
        shutil.rmtree(self.directory / f"jobs-{node}", ignore_errors=True)
        proc = self.directory / f"proc-{node}"
        (proc / "sys/kernel/random").mkdir(parents=True, exist_ok=True)
        (proc / "stat").write_text(f"cpu 1 2 3\nbtime {int(at.timestamp())}\n")
        (proc / "sys/kernel/random/boot_id").write_text(f"{node}-{at.timestamp()}\n")
        agent = self.agents.get(node)
        if agent is None:
            agent = self.agents[node] = Agent(self.directory / f"agent-{node}", self.receiver.url)
            agent.settings |= {
                "node": node,
                "tick_seconds": TICK_SECONDS,
                "driver_timeout_seconds": 30.0,
                "jobs_directory": str(self.directory / f"jobs-{node}"),
                "proc_root": str(proc),
            }
            agent.environment = self.drivers[node].environment()
        agent.start()
        return at

    def crash(self, node: str) -> set[str]:
        """Everything of a node ends at once, its jobs too; which these were."""
        lost = set(self.slurm.ask("squeue", "-h", "-t", "R", "-w", node, "-o", "%A").split())
        self.crashed_at = datetime.now(timezone.utc)
        self.agents[node].kill()
        daemon = self.slurm.daemon(node)
        daemon.kill()
        daemon.wait()
        config = f"SLURM_CONF={self.slurm.environment['SLURM_CONF']}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            said = _bytes(folder / "cmdline").decode(errors="replace")
            found = re.match(r"slurmstepd: \[(\d+)\.", said)
            if found and found[1] in lost and config in _bytes(folder / "environ"):
                _end_group(int(folder.name))
        return lost

    def look(self) -> bool:
        """Hear Slurm's own word once; whether every job is over."""
        said = self.slurm.ask("squeue", "--all", "--states=all", "--json")
        if not said:
            return False
        going_on = False
        for one in json.loads(said)["jobs"]:
            truth = self.truth.setdefault(str(one["job_id"]), Truth())
            truth.state = one["job_state"]
            going_on |= truth.state in {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING"}
            names = _expanded(one["nodes"])
            if one["gres_detail"] and len(names) == len(one["gres_detail"]):
                for name, detail in zip(names, one["gres_detail"], strict=True):
                    index = re.search(r"IDX:([\d,-]+)", detail)
                    if index:
                        truth.numbers[name] = _numbers(index[1])
            if truth.state != "PENDING":
                truth.started_at = datetime.fromtimestamp(one["start_time"], timezone.utc)
                truth.ended_at = datetime.fromtimestamp(one["end_time"], timezone.utc)
        return not going_on

    def told(self) -> Mapping[str, list[Allocation]]:
        """The newest state of each allocation that the collectors told, by job."""
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
            found.setdefault(one.holder.name, []).append(one)
        return found

    def uuids(self, node: str) -> dict[int, str]:
        """The GPU behind each of Slurm's numbers, by its device file."""
        known: dict[int, str] = {}
        for line in self.agents[node].metrics().splitlines():
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            if {"uuid", "index", "pci_address"} <= labels.keys():
                known[7 - int(labels["index"])] = labels["uuid"]
        return {number: known[minor] for number, minor in enumerate(ORDER) if minor in known}


def wants(count: int, chance: random.Random) -> list[tuple[str, list[str]]]:
    """About `count` jobs: every way to ask, arrays, two nodes, failures, crashes, and some shorter than a tick."""
    found: list[tuple[str, list[str]]] = []
    jobs = 0
    while jobs < count:
        seconds = chance.choice([0, 0, 1, 2, 3, 5])
        ends = chance.choice(["", "", "", "; exit 3", "; kill -9 $$", "; kill -11 $$"])
        work = (f"sleep {seconds}" if seconds else "true") + ends
        gpus = chance.randint(1, 4)
        how = chance.choice(
            [
                [f"--gres=gpu:{gpus}"],
                [f"--gpus={gpus}"],
                [f"--gpus-per-node={gpus}"],
                ["--gpus-per-task=1", f"--ntasks={gpus}"],
                ["--gres=gpu:1", f"--array=1-{gpus}"],
                ["-N", "2", f"--gres=gpu:{gpus}"],
            ]
        )
        if "-N" in how:
            work = f"sleep 4{ends}"  # the second node's numbers are Slurm's to tell, while it runs
        jobs += gpus if "--array" in how[-1] else 1
        found.append((work, how))
    return found


def _expanded(text: str) -> list[str]:
    return list(NODES) if text == "n[1-2]" else [name for name in text.split(",") if name]


def _numbers(text: str) -> tuple[int, ...]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _end_group(stepd: int) -> None:
    """A job's own processes, then the one that watches them, which would tell Slurm of their end."""
    children = _bytes(Path(f"/proc/{stepd}/task/{stepd}/children")).split()
    for pid in (stepd, *map(int, children)):
        subprocess.run(["kill", "-9", str(pid)], check=False, capture_output=True)
