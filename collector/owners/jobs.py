"""Holders of GPUs that are Slurm's jobs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from gpuvigil.log import Log
from gpuvigil.model import Allocation, GpuIdentity, Holder, Subject, job_holder

from . import gres
from .gres import Gres
from .jobfiles import JobFile, JobFiles

log = Log("collector")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """The node's GPUs by UUID; `missing` are lost: another GPU may have their numbers by now."""

    known: Mapping[str, GpuIdentity]
    missing: Iterable[str] = ()
    migs: Mapping[str, str] = field(default_factory=dict)  # UUIDs of MIG devices, and their GPUs'

    def numbered(self, order: Gres) -> Mapping[int, str]:
        """Return UUIDs by Slurm's numbers: by device file, or in the order of PCI addresses."""
        lost = set(self.missing)
        # Of two GPUs that had one minor number, the one that is present has it now.
        here = sorted(self.known.values(), key=lambda gpu: gpu.uuid in lost, reverse=True)
        if order.minors is None:
            found = sorted(g.pci_address for g in here if g.pci_address and g.uuid not in lost)
            places = {gpu.pci_address: gpu.uuid for gpu in here}
            return {number: places[address] for number, address in enumerate(found)}
        devices = {gpu.minor: gpu.uuid for gpu in here if gpu.minor is not None}
        return {
            number: devices[minor]
            for number, minor in enumerate(order.minors)
            if minor is not None and minor in devices
        }


class Jobs:
    """Keeps the allocations of a node's GPUs that its job files tell."""

    def __init__(
        self,
        node: Subject,
        files: JobFiles,
        held: Iterable[Allocation] = (),
        booted_at: datetime | None = None,
    ) -> None:
        """Set up; `held` are the allocations that were open when the collector last ran.

        `booted_at` is when the node was booted: no job outlives that, and neither does its file.
        """
        self._node = node
        self._files = files
        self._held = {allocation.id: allocation for allocation in held}
        self._booted_at = booted_at
        # For each job file: UUIDs by Slurm's number; and the files whose job's end was reported.
        self._found: dict[_Key, dict[int, str]] = {}
        self._over: set[_Key] = set()
        self._warned: set[_Key] = set()

    @property
    def held(self) -> list[Allocation]:
        """Allocations that are open now."""
        return list(self._held.values())

    def restore(self, held: Iterable[Allocation]) -> None:
        """Take over the hub's open allocations; a job without a file now ends at the next look."""
        self._held = {**{one.id: one for one in held}, **self._held}

    def update(self, gpus: Gpus, now: datetime) -> tuple[Allocation, ...]:
        """Return the allocations that began or ended since the last look.

        A job's GPUs are determined once: when numbers move later, above all when a GPU is lost, a
        running job keeps its GPUs.
        """
        jobs = {_key(job): job for job in self._files.jobs()}
        changed: list[Allocation] = []
        for key, job in jobs.items():
            if key not in self._over:
                changed += self._see(key, job, gpus)
        self._over &= jobs.keys()
        self._warned &= jobs.keys()
        self._found = {key: found for key, found in self._found.items() if key in jobs}
        without = [a for a in self._held.values() if (a.holder, a.started_at) not in jobs]
        return (*changed, *(self._end(one, self._gone_at(one, now)) for one in without))

    def _see(self, key: "_Key", job: JobFile, gpus: Gpus) -> list[Allocation]:
        uuids = self._uuids(key, job, gpus)
        changed = []
        for uuid in uuids:
            one = self._allocation(job, uuid)
            if job.ended_at is not None:
                self._held.pop(one.id, None)
                changed.append(replace(one, ended_at=job.ended_at, exit_code=job.exit_code))
            elif one.id not in self._held:
                self._held[one.id] = one
                changed.append(one)
        # A number without a GPU by the job's end will never get one.
        if job.ended_at is not None and gpus.known:
            self._over.add(key)
        return changed

    def _uuids(self, key: "_Key", job: JobFile, gpus: Gpus) -> list[str]:
        """Return the job's GPUs that are known by now."""
        held = [a.subject.gpu for a in self._held.values() if (a.holder, a.started_at) == key]
        if key not in self._found and len(held) == len(job.gpus):
            return [uuid for uuid in held if uuid]  # from before this collector started
        found = self._found.setdefault(key, {})
        if len(found) < len(job.gpus):
            numbered = gpus.numbered(gres.read(job.conf or "", job.node or self._node.node))
            found |= {n: numbered[n] for n in job.gpus if n in numbered and n not in found}
            if gpus.known and len(found) < len(job.gpus) and key not in self._warned:
                self._warned.add(key)
                missing = ",".join(str(n) for n in job.gpus if n not in found)
                log.warning(
                    "a job holds GPUs that are not known here", job=job.job, numbers=missing
                )
        return list(found.values())

    def _allocation(self, job: JobFile, uuid: str) -> Allocation:
        return Allocation(
            subject=replace(self._node, gpu=uuid),
            holder=job_holder(job.job),
            user=job.user,
            command=job.name,
            started_at=job.started_at,
            partition=job.partition,
            account=job.account,
            array=job.array,
        )

    def _end(self, one: Allocation, at: datetime) -> Allocation:
        del self._held[one.id]
        return replace(one, ended_at=at)

    def _gone_at(self, one: Allocation, now: datetime) -> datetime:
        """Return when a job ended whose file went without an end: at the boot, or now."""
        booted = self._booted_at
        return booted if booted is not None and one.started_at < booted < now else now


_Key = tuple[Holder, datetime]  # holder and start: a job that is requeued keeps its number


def _key(job: JobFile) -> _Key:
    return job_holder(job.job), job.started_at
