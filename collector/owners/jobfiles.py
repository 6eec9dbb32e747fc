"""The small files that Slurm's prolog and epilog leave, one for each job with GPUs on this node.

`packaging/slurm/gpuvigil-job` writes `JOB-START` when a job begins, and replaces it by
`JOB-START.ended`. Neither ever changes, so each is read once. They lie outside the collector's own
directories, so that a job is known even if it began or ended while no collector ran.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from gpuvigil.clock import EPOCH

from ..sensors import files

_NAME = re.compile(r"\d+-\d+(\.ended)?")
_ENDED = ".ended"
_NUMBERS = re.compile(r"(\d+)(?:-(\d+))?")
_MOST_GPUS = 64  # of one node, in one job


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """The content of a job file. `gpus` are Slurm's numbers; None is what Slurm did not tell."""

    job: str
    gpus: tuple[int, ...]
    started_at: datetime
    ended_at: datetime | None = None
    exit_code: str | None = None  # as Slurm writes it: `3:0` is exit(3), `0:9` is SIGKILL
    user: str | None = None
    node: str | None = None
    conf: str | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    array: str | None = None  # `17_3`: the third task of the array job 17
    name: str | None = None


class JobFiles:
    """The job files of one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[str, JobFile | None] = {}

    def jobs(self) -> list[JobFile]:
        """Return running jobs and those that ended in the last hours; none without a directory."""
        names = set(filter(_NAME.fullmatch, files.names(str(self._directory))))
        # A job that ends has both of its files for a moment.
        names -= {name.removesuffix(_ENDED) for name in names if name.endswith(_ENDED)}
        self._read = {
            name: self._read[name] if name in self._read else self._job(name) for name in names
        }
        return [self._read[name] for name in sorted(names) if self._read[name]]  # type: ignore[misc]

    def _job(self, name: str) -> JobFile | None:
        return parse(files.read(str(self._directory / name)) or "")


def parse(text: str) -> JobFile | None:
    """Parse a job file; None where it does not say who has held which GPU since when.

    When a key is repeated, the first line counts: keys that a user may choose stand below.
    """
    said: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition("=")
        said.setdefault(key, value.strip())
    gpus, started = numbers(said.get("gpus", "")), _time(said.get("started"))
    if not said.get("job") or not gpus or started is None:
        return None
    array = [said.get("array_job"), said.get("array_task")]
    return JobFile(
        job=said["job"],
        gpus=gpus,
        started_at=started,
        ended_at=_time(said.get("ended")),
        array="_".join(filter(None, array)) if all(array) else None,
        **{key: said.get(key) or None for key in _TEXTS},
    )


_TEXTS = ("exit_code", "user", "node", "conf", "partition", "account", "qos", "name")


def numbers(text: str) -> tuple[int, ...]:
    """Parse `0,2-3` into 0, 2, 3, the forms of SLURM_JOB_GPUS and of `IDX:`; at most 64.

    Empty for anything else.
    """
    found: list[int] = []
    for part in text.split(","):
        span = _NUMBERS.fullmatch(part.strip())
        if span is None:
            return ()
        first = int(span[1])
        found += range(first, min(int(span[2] or first), first + _MOST_GPUS) + 1)
    return tuple(dict.fromkeys(found[:_MOST_GPUS]))


def _time(text: str | None) -> datetime | None:
    return (
        EPOCH + timedelta(seconds=int(text)) if text and text.isdigit() and len(text) < 12 else None
    )
