"""Who holds each GPU of a node: Slurm's jobs first, then the processes that no job accounts for."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from gpuvigil.log import Log
from gpuvigil.model import Allocation, Subject

from .jobfiles import JobFiles
from .jobs import HOLDER, Gpus, Jobs
from .processes import Holders, ProcessTable

log = Log("collector")

# A process stays in the job it was started by; its number may be another's after a while.
_KNOWN_FOR = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class _Known:
    job: str | None
    user: str | None
    at: datetime


class Owners:
    """Keeps all allocations of a node's GPUs."""

    def __init__(
        self,
        node: Subject,
        proc_root: Path,
        jobs_directory: Path,
        held: Iterable[Allocation] = (),
        booted_at: datetime | None = None,
    ) -> None:
        """`held` are the allocations that were open when the collector last ran."""
        before = list(held)
        self._table = ProcessTable(proc_root)
        of_jobs = [one for one in before if one.holder.startswith(HOLDER)]
        self._jobs = Jobs(node, JobFiles(jobs_directory), of_jobs, booted_at)
        others = [one for one in before if not one.holder.startswith(HOLDER)]
        self._processes = Holders(node, self._table, others)
        self._known: dict[int, _Known] = {}
        self._disagreed: set[tuple[str, str, str]] = set()

    @property
    def held(self) -> list[Allocation]:
        """Allocations that are open now."""
        return [*self._jobs.held, *self._processes.held]

    def take(
        self, gpus: Gpus, processes: Mapping[str, Iterable[int]], now: datetime
    ) -> tuple[Allocation, ...]:
        """Allocations that began or ended since the last look.

        `processes` are the ids on each GPU that was read, by UUID. Those of the job that has the GPU
        are the job's; others are holders beside it, and one of another job is said in the log.
        """
        changed = self._jobs.take(gpus, now)
        jobs: dict[str, list[Allocation]] = {}
        for one in self._jobs.held:
            jobs.setdefault(one.subject.gpu or "", []).append(one)
        pids = {uuid: list(found) for uuid, found in processes.items()}
        present = {pid for found in pids.values() for pid in found}
        self._known = {pid: known for pid, known in self._known.items() if pid in present}
        others = {
            uuid: [pid for pid in found if not self._is_of(jobs.get(uuid, []), uuid, pid, now)]
            for uuid, found in pids.items()
        }
        return (*changed, *self._processes.take(others, now))

    def _is_of(self, jobs: list[Allocation], uuid: str, pid: int, now: datetime) -> bool:
        """Whether a process belongs to one of the jobs that have its GPU."""
        if not jobs:
            return False
        known = self._look(pid, now)
        if known.job is None:
            # No control group says so: then whose it is.
            return known.user is not None and known.user in {one.user for one in jobs}
        if HOLDER + known.job in {one.holder for one in jobs}:
            return True
        told = uuid, jobs[0].holder, known.job
        if told not in self._disagreed:
            self._disagreed.add(told)
            log.warning(
                "a process of one job is on the GPU of another",
                gpu=uuid,
                holder=jobs[0].holder,
                process=pid,
                its_job=known.job,
            )
        return False

    def _look(self, pid: int, now: datetime) -> _Known:
        known = self._known.get(pid)
        if known is None or not timedelta() <= now - known.at < _KNOWN_FOR:
            known = _Known(self._table.job(pid), self._table.user(pid), now)
            self._known[pid] = known
        return known
