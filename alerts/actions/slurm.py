"""Reads and changes the state of nodes and jobs with Slurm's own commands."""

import os
import re
import subprocess
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

from gpuvigil.clock import EPOCH
from gpuvigil.model import Act
from gpuvigil.schedulers import slurm_nodes

from .drain_rules import ActionError, Machine, Step
from .job_end_rules import Ending, How, Running

# Columns of `squeue -O` and their widths; none of them is text that users choose (a job's name
# could look like any).
_COLUMNS = {
    "JobID": 16,
    "ArrayJobID": 16,
    "ArrayTaskID": 64,
    "HetJobID": 16,
    "UserName": 64,
    "State": 20,
    "BatchFlag": 8,
    "Requeue": 8,
    "StartTime": 24,
    "TimeUsed": 24,
    "admin_comment": 256,
}
_LENGTH = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)")
_NONE = frozenset({"", "0", "N/A", "(null)"})
_NO_SUCH_JOB = "invalid job id"


class SlurmError(ActionError):
    """Slurm did not answer, or refused: says which command, and why."""


class Slurm:
    """The cluster of this machine's slurm.conf."""

    name = "Slurm"

    def __init__(self, directory: str, timeout_seconds: float) -> None:
        self._directory = directory
        self._timeout_seconds = timeout_seconds

    def machines(self, node: str = "") -> Mapping[str, Machine]:
        """Return all nodes by name, or one; SlurmError when Slurm does not answer.

        A missing answer never gives an empty result.
        """
        text = self._run("scontrol", "-o", "show", "node", *([node] if node else []))
        found = slurm_nodes.nodes(text)
        if not found:
            raise SlurmError("scontrol named no node")
        return {
            name: Machine(name=name, states=one.states, reason=one.reason, gpus=one.gpus)
            for name, one in found.items()
        }

    def do(self, step: Step) -> None:
        """Drain or resume a node; SlurmError when it was refused."""
        changes = (
            ("state=drain", f"reason={step.reason}")
            if step.what is Act.DRAIN
            else ("state=resume",)
        )
        self._run("scontrol", "update", f"nodename={step.node}", *changes)

    def undo(self, step: Step) -> str:
        """Return the command that undoes a step."""
        verb = "resume" if step.what is Act.DRAIN else "drain reason=..."
        return f"scontrol update nodename={step.node} state={verb}"

    def job(self, number: str) -> Running | None:
        """Return a job as it is now; None when Slurm does not know it any more."""
        wanted = ",".join(f"{name}:{width}" for name, width in _COLUMNS.items())
        asked_at = datetime.now(timezone.utc)  # by the clock that squeue uses
        try:
            text = self._run(
                "squeue", "--noheader", "--states=all", f"--jobs={number}", "-O", wanted
            )
        except SlurmError as error:
            if _NO_SUCH_JOB in str(error).lower():
                return None
            raise
        # For the number of an array, squeue lists all tasks.
        found = [said for line in text.split("\n") if (said := _columns(line))["JobID"] == number]
        return _running(found[0], asked_at) if len(found) == 1 else None

    def end(self, ending: Ending, target: str, mark: str) -> None:
        """Mark the job, then end it; SlurmError when refused. A marked job is not ended again."""
        self._run("scontrol", "update", f"jobid={target}", f"admincomment={mark}")
        if ending.how is How.CANCEL:
            self._run("scancel", target)
        else:
            verb = "requeue" if ending.how is How.REQUEUE else "requeuehold"
            self._run("scontrol", verb, target)

    def _run(self, command: str, *words: str) -> str:
        program = os.path.join(self._directory, command)
        try:
            done = subprocess.run(
                [program, *words],
                env={**os.environ, **slurm_nodes.ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SlurmError(
                f"{command} did not answer within {self._timeout_seconds:g} s"
            ) from None
        except OSError as error:
            raise SlurmError(
                f"{program} cannot be run: {error.strerror}; set slurm.directory"
            ) from None
        said = done.stderr.decode(errors="replace").strip()
        reads = command == "squeue" or "show" in words
        if done.returncode != 0 or (said and not reads):
            raise SlurmError(
                f"{command} {words[0]} ended with {done.returncode}: {_last_line(said)}"
            )
        return done.stdout.decode(errors="replace")


def _last_line(errors: str) -> str:
    """Return the last line of a command's errors, which is the reason; before it are attempts."""
    lines = errors.splitlines() or ["nothing was said"]
    return f"{lines[-1][-300:]}; does 'scontrol ping' answer here?"


def _columns(line: str) -> dict[str, str]:
    said, place = {}, 0
    for name, width in _COLUMNS.items():
        said[name] = line[place : place + width].strip()
        place += width
    return said


def _running(columns: Mapping[str, str], asked_at: datetime) -> Running:
    task, start, mark = columns["ArrayTaskID"], columns["StartTime"], columns["admin_comment"]
    started_at = EPOCH + timedelta(seconds=int(start)) if start.isdigit() else None
    ran = _length(columns["TimeUsed"])
    return Running(
        # The number of an array's last task alone would mean the whole array.
        target=f"{columns['ArrayJobID']}_{task}" if task not in _NONE - {"0"} else columns["JobID"],
        user=columns["UserName"],
        state=columns["State"],
        started_at=started_at,
        batch=columns["BatchFlag"] == "1",
        requeues=columns["Requeue"] == "1",
        heterogeneous=columns["HetJobID"] not in _NONE,
        mark="" if mark in _NONE else mark,
        suspended=None if started_at is None or ran is None else asked_at - started_at - ran,
    )


def _length(text: str) -> timedelta | None:
    """Parse a duration of Slurm: `2-03:04:05`, `3:04:05` or `4:05`; None for anything else."""
    found = _LENGTH.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
