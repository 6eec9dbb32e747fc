"""Who holds each GPU of a node: Slurm's jobs, Kubernetes' pods, and processes outside of both."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from gpuvigil.log import Log
from gpuvigil.model import Allocation, HolderKind, Subject, job_holder, pod_holder

from .cgroups import Place
from .jobfiles import JobFiles
from .jobs import Gpus, Jobs
from .kubelet.device_map import Answer
from .pods import Pods
from .processes import Holders, ProcessTable

log = Log("collector")

# A process stays in the job that started it; its pid may be another process's after a while.
_KNOWN_FOR = timedelta(seconds=10)
# A pod's process may be seen before the kubelet is asked again.
_PODS_WAIT = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class _Known:
    place: Place
    user: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class _ByKind:
    jobs: list[Allocation]
    pods: list[Allocation]
    processes: list[Allocation]


def _by_kind(held: Iterable[Allocation]) -> _ByKind:
    """Sort allocations by kind.

    The hub may have given a pod's GPU to the job that the pod belongs to: here it is the pod's.
    """
    found = _ByKind([], [], [])
    for one in held:
        if one.pod is not None:
            found.pods.append(replace(one, holder=pod_holder(one.pod)))
        elif one.holder.kind is HolderKind.JOB:
            found.jobs.append(one)
        elif one.holder.kind is HolderKind.PROCESS and one.holder.name.isdigit():
            found.processes.append(one)
    return found


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
        """Set up; `held` are the allocations that were open when the collector last ran."""
        before = _by_kind(held)
        self._table = ProcessTable(proc_root)
        self._jobs = Jobs(node, JobFiles(jobs_directory), before.jobs, booted_at)
        self._pods = Pods(node, before.pods, booted_at)
        self._processes = Holders(node, self._table, before.processes)
        self._known: dict[int, _Known] = {}
        self._early: dict[
            tuple[str, int], datetime
        ] = {}  # since when a pod's process has been on a GPU without a pod
        self._disagreed: set[tuple[str, str, str]] = set()

    @property
    def held(self) -> list[Allocation]:
        """Allocations that are open now."""
        return [*self._jobs.held, *self._pods.held, *self._processes.held]

    def restore(self, held: Iterable[Allocation]) -> tuple[Allocation, ...]:
        """Take over the hub's open allocations, which this node forgot; return those this ends."""
        by_kind = _by_kind(held)
        self._jobs.restore(by_kind.jobs)
        return (*self._pods.restore(by_kind.pods), *self._processes.restore(by_kind.processes))

    def update(
        self,
        gpus: Gpus,
        processes: Mapping[str, Iterable[int]],
        now: datetime,
        kubelet: Answer | None = None,
    ) -> tuple[Allocation, ...]:
        """Return the allocations that began or ended since the last look.

        `processes` are the pids on each GPU that was read, by UUID. Those of the job or pod that
        has the GPU belong to it; others are holders beside it. A process of another job, or of a
        pod that was not given the GPU, is logged. `kubelet` is None while nothing is known of it.
        """
        changed = (*self._jobs.update(gpus, now), *self._pods.update(kubelet, gpus, now))
        jobs: dict[str, list[Allocation]] = {}
        for one in (*self._jobs.held, *self._pods.held):
            jobs.setdefault(one.subject.gpu or "", []).append(one)
        pids = {uuid: list(found) for uuid, found in processes.items()}
        present = {pid for found in pids.values() for pid in found}
        self._known = {pid: known for pid, known in self._known.items() if pid in present}
        self._early = {key: at for key, at in self._early.items() if key[1] in present}
        asked = kubelet is not None
        others = {
            uuid: [
                pid for pid in found if not self._is_of(jobs.get(uuid, []), uuid, pid, now, asked)
            ]
            for uuid, found in pids.items()
        }
        return (*changed, *self._processes.update(others, now))

    def _is_of(
        self, jobs: list[Allocation], uuid: str, pid: int, now: datetime, asked: bool
    ) -> bool:
        """Return whether a process belongs to a job or pod that has its GPU, or soon will."""
        if not jobs and not asked:
            return False
        known = self._identify(pid, now)
        place = known.place
        if not jobs:
            return place.pod_uid is not None and self._is_early(uuid, pid, place, now)
        self._early.pop((uuid, pid), None)
        if place.job is not None:
            if job_holder(place.job) in {one.holder for one in jobs}:
                return True
            self._disagree(uuid, str(jobs[0].holder), pid, str(job_holder(place.job)))
            return False
        of_pods = [one for one in jobs if one.pod is not None]
        if place.pod_uid is not None:
            # The kubelet gives no pod uids. It gave the GPU to pods, and this process is in a pod.
            if not of_pods:
                self._disagree(uuid, str(jobs[0].holder), pid, str(pod_holder(place.pod_uid)))
            return bool(of_pods)
        if of_pods and place.name is not None:
            self._disagree(uuid, str(of_pods[0].holder), pid, place.name)
        # No control group tells: the process's user decides.
        return known.user is not None and known.user in {one.user for one in jobs}

    def _is_early(self, uuid: str, pid: int, place: Place, now: datetime) -> bool:
        """Return whether the kubelet may not have been asked since a pod's process came to a GPU."""
        if now - self._early.setdefault((uuid, pid), now) < _PODS_WAIT:
            return True
        self._disagree(uuid, "no pod, says the kubelet", pid, str(pod_holder(place.pod_uid or "")))
        return False

    def _disagree(self, uuid: str, holder: str, pid: int, place: str) -> None:
        """Log that two sources differ about a GPU; once for each pair."""
        told = uuid, holder, place
        if told not in self._disagreed:
            self._disagreed.add(told)
            log.warning(
                "a process is on a GPU that is another's",
                gpu=uuid,
                holder=holder,
                process=pid,
                belongs_to=place,
            )

    def _identify(self, pid: int, now: datetime) -> _Known:
        known = self._known.get(pid)
        if known is None or not timedelta() <= now - known.at < _KNOWN_FOR:
            known = _Known(self._table.place(pid), self._table.user(pid), now)
            self._known[pid] = known
        return known
