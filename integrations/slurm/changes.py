"""What has changed since Slurm was last asked; only that is told."""

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from gpuvigil.log import Log
from gpuvigil.model import ENDED_STATES, UNREADABLE, Job, Record, Subject, readable

log = Log("slurm")

_FORGOTTEN = "Slurm forgot it before its end was seen"
_Key = tuple[str, datetime]


class Jobs:
    """Keeps the jobs that were told; those that go on are remembered in a file over a restart."""

    def __init__(self, told_by: Subject, file: Path) -> None:
        self._file = file
        self._reported = {
            _key(job): job
            for job in readable(kept(file), Job.from_record)
            if job.told_by == told_by
        }
        self._is_remembered, self._why = True, ""

    def update(self, jobs: Iterable[Job], at: datetime) -> tuple[Job, ...]:
        """Those that are new or other than they were told, and those that Slurm knows no more.

        When they are told, `remember` them: who ends in between tells them again.
        """
        found = {_key(job): job for job in jobs}
        changed = [job for key, job in found.items() if not _same(self._reported.get(key), job)]
        gone = [
            _forgotten(job, at)
            for key, job in self._reported.items()
            if key not in found and job.state not in ENDED_STATES
        ]
        self._reported = found
        self._is_remembered = self._is_remembered and not changed and not gone
        return (*changed, *gone)

    def remember(self) -> None:
        """Keep over a restart what was taken; where the disk takes nothing, try again next time."""
        if self._is_remembered:
            return
        try:
            self._write()
        except OSError as error:
            if self._why != str(error):
                self._why = str(error)
                log.warning("told jobs are not remembered over a restart", why=self._why)
        else:
            self._is_remembered, self._why = True, ""

    def _write(self) -> None:
        told = self._reported.values()
        keep(self._file, [job.to_record() for job in told if job.state not in ENDED_STATES])


def _forgotten(job: Job, at: datetime) -> Job:
    """It lived when it was last seen; what became of it nobody knows."""
    return replace(job, state="UNKNOWN", reason=_FORGOTTEN, ended_at=job.seen_at, seen_at=at)


def _same(reported: Job | None, job: Job) -> bool:
    return reported is not None and replace(reported, seen_at=job.seen_at) == job


def _key(job: Job) -> _Key:
    return job.number, job.submitted_at


def keep(file: Path, records: Iterable[Record]) -> None:
    """Over a restart, instead of what the file has; OSError where the disk takes nothing."""
    beside = file.with_suffix(".new")
    beside.write_text(
        "".join(f"{json.dumps(one.to_json())}\n" for one in records), encoding="utf-8"
    )
    beside.replace(file)


def kept(file: Path) -> tuple[Record, ...]:
    """What `keep` wrote; none of it where the file is not there, or is no longer whole."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        return tuple(Record.from_json(json.loads(line)) for line in lines)
    except (OSError, *UNREADABLE):
        return ()
