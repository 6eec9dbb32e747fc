"""Holders of GPUs that are processes computing on them: user, command and start from procfs.

The kernel reads a command line from the process's memory and waits for the lock on it, which a
process that is stuck in the driver may hold for ever; a user's name may come from a directory
service that is away. Both are read with a time limit. Status and start need no such lock.
"""

import os
import pwd
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from gpuvigil.clock import EPOCH
from gpuvigil.model import Allocation, Holder, Subject, process_holder

from ..processes.abandonable_thread import AbandonableThread
from ..sensors import files
from . import cgroups
from .cgroups import Place

# People know these by the program in the words that follow.
_INTERPRETERS = ("python", "bash", "sh", "perl", "java", "node", "julia", "Rscript")
_LONGEST_COMMAND = 120
_PATIENCE_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process; what cannot be read of it is None, which is all in another PID namespace."""

    pid: int
    user: str | None = None
    command: str | None = None
    started_at: datetime | None = None
    place: str | None = None


class ProcessTable:
    """Looks up processes in one procfs."""

    def __init__(self, proc_root: Path) -> None:
        self._proc = proc_root
        self._users: dict[int, str] = {}
        self._commands = AbandonableThread(_PATIENCE_SECONDS)
        self._names = AbandonableThread(_PATIENCE_SECONDS)
        self._ticks_per_second = os.sysconf("SC_CLK_TCK")

    def find(self, pid: int) -> Process:
        """Return what is known of a process now."""
        folder = f"{self._proc}/{pid}"
        place, user = self.place(pid), self._user(folder)
        # Root in a user's session, or an id in their rootless container, counts as that user.
        owner = None if place.uid is None or user is None else self._named(place.uid)
        disagree = f"{place.name or 'session'}, as {user}" if owner not in {None, user} else None
        return Process(
            pid=pid,
            user=user if owner is None else owner,
            command=self._commands.call(lambda: _command(folder), None) or _kernel_name(folder),
            started_at=self.started_at(pid),
            place=disagree or place.name,
        )

    def start_ticks(self, pid: int) -> int | None:
        """Return when a process started, in clock ticks since boot; None when it is gone.

        proc(5): field 22 of stat. The name in field 2 may hold spaces and brackets; what follows
        the last bracket does not.
        """
        words = _text(f"{self._proc}/{pid}/stat").rpartition(")")[2].split(maxsplit=20)
        return int(words[19]) if len(words) > 19 and words[19].isdigit() else None

    def ran_seconds(self, pid: int) -> float:
        """Return how long a process has run, in seconds; 0 when it is gone."""
        ticks = self.start_ticks(pid)
        up = time.clock_gettime(time.CLOCK_BOOTTIME)
        return 0.0 if ticks is None else up - ticks / self._ticks_per_second

    def user(self, pid: int) -> str | None:
        """Return the user of a process; None when it cannot be seen from here."""
        return self._user(f"{self._proc}/{pid}")

    def place(self, pid: int) -> Place:
        """Return what a process runs in, by its control groups."""
        return cgroups.parse(_text(f"{self._proc}/{pid}/cgroup"))

    def _user(self, folder: str) -> str | None:
        words = [line.split() for line in _text(f"{folder}/status").splitlines()]
        uid = next((w[1] for w in words if len(w) > 1 and w[0] == "Uid:"), "")
        return self._named(int(uid)) if uid.isdigit() else None

    def _named(self, number: int) -> str:
        if number not in self._users:
            name = self._names.call(lambda: _user_name(number), None)
            if name is None:
                return f"uid {number}"
            self._users[number] = name
        return self._users[number]

    def started_at(self, pid: int) -> datetime | None:
        """Return when a process started; None when unknown. `btime` of /proc/stat is the boot."""
        started = self.start_ticks(pid)
        words = _text(f"{self._proc}/stat").splitlines()
        boot = [line.split()[1] for line in words if _btime(line)]
        if started is None or not boot:
            return None
        ticks = timedelta(seconds=started / self._ticks_per_second)
        return (EPOCH + timedelta(seconds=int(boot[0])) + ticks).astimezone(timezone.utc)


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid {number}"


def _btime(line: str) -> bool:
    words = line.split()
    return len(words) == 2 and words[0] == "btime" and words[1].isdigit()


def _command(folder: str) -> str | None:
    """Return the program's name, for an interpreter with its script; options may hold secrets."""
    words = [word for word in _text(f"{folder}/cmdline").split("\0") if word]
    if not words:
        return None
    name = Path(words[0]).name
    if name.startswith(_INTERPRETERS):
        script = next((word for word in words[1:] if not word.startswith("-")), None)
        module = words[1:2] == ["-m"]
        # What follows an option other than -m may be its value, or a program given as text.
        if script is not None and (module or script == words[1]):
            name += " -m " + script if module else " " + Path(script).name
    return name[:_LONGEST_COMMAND]


def _kernel_name(folder: str) -> str | None:
    """Return the kernel's name of the process, at most 15 characters of its program's name."""
    return _text(f"{folder}/comm").strip() or None


def _text(file: str) -> str:
    return files.read(file) or ""


# How long a process that is on a GPU in every tick is taken for the same without another look: the
# kernel goes through all other pids before it reuses one.
_SAME_FOR = timedelta(seconds=10)


class Holders:
    """Keeps the allocations of a node's GPUs to the processes on them.

    An allocation begins when its process is first seen on that GPU, however long the process had
    run before.
    """

    def __init__(self, node: Subject, table: ProcessTable, held: Iterable[Allocation] = ()) -> None:
        """Set up; `held` are the allocations that were open when the collector last ran."""
        self._node = node
        self._table = table
        self._held = {(a.subject.gpu or "", a.holder): a for a in held}
        # By GPU and holder: its process's start in ticks, and when it was last found to be the same.
        self._started: dict[tuple[str, Holder], tuple[int, datetime]] = {}
        self._read: frozenset[str] = frozenset()  # the GPUs of the last look

    @property
    def held(self) -> list[Allocation]:
        """Allocations that are open now."""
        return list(self._held.values())

    def restore(self, held: Iterable[Allocation]) -> tuple[Allocation, ...]:
        """Take over the hub's open allocations, which this node forgot; return those this ends.

        An allocation that was taken for a new one meanwhile goes on as the older one; the newer one
        ends where it began.
        """
        known: dict[tuple[str, Holder], list[Allocation]] = {}
        for one in (*held, *self._held.values()):
            known.setdefault((one.subject.gpu or "", one.holder), []).append(one)
        ended: list[Allocation] = []
        for key, them in known.items():
            mine = self._held.get(key)
            now = self._table.started_at(_pid(key[1])) if mine is not None else None
            self._held[key], over = continuing_allocation(
                {one.id: one for one in them}.values(), now
            )
            ended += over
        return tuple(ended)

    def update(
        self, processes: Mapping[str, Iterable[int]], now: datetime
    ) -> tuple[Allocation, ...]:
        """Return the allocations that began or ended since the last look.

        `processes` are the pids on each GPU, by UUID; a GPU that is not among them was not read,
        and its holder keeps it while its process lives.
        """
        unread = [key for key in self._held if key[0] not in processes and self._has_died(key)]
        changed = [self._end(key, now) for key in unread]
        for uuid, pids in processes.items():
            present = {process_holder(pid): pid for pid in pids}
            for key in [key for key in self._held if key[0] == uuid and key[1] not in present]:
                changed.append(self._end(key, now))
            for holder, pid in present.items():
                changed += self._see(uuid, holder, pid, now)
        self._read = frozenset(processes)
        return tuple(changed)

    def _end(self, key: tuple[str, Holder], at: datetime) -> Allocation:
        self._started.pop(key, None)
        return replace(self._held.pop(key), ended_at=at)

    def _has_died(self, key: tuple[str, Holder]) -> bool:
        """Return whether the process is gone; false in another PID namespace, without a user."""
        held = self._held[key]
        if held.user is None:
            return False
        started_at = self._table.started_at(_pid(held.holder))
        return started_at is None or _is_another(started_at, held)

    def _see(self, uuid: str, holder: Holder, pid: int, now: datetime) -> list[Allocation]:
        """Return the changes for a process on a GPU: none, a new holder, or another under its pid."""
        key, changed = (uuid, holder), []
        old, before = self._held.get(key), self._started.get(key)
        if before is not None and timedelta() <= now - before[1] < _SAME_FOR:
            return []
        started = self._table.start_ticks(pid)
        if started is not None:
            self._started[key] = started, now
            if old is not None and before is not None and before[0] == started:
                return []
        process = self._table.find(pid)
        if old is not None:
            if not _is_another(process.started_at, old):
                return []
            changed.append(replace(old, ended_at=process.started_at))
        new = Allocation(
            subject=replace(self._node, gpu=uuid),
            holder=holder,
            user=process.user,
            command=process.command,
            started_at=now,
            place=process.place,
            began_before=uuid not in self._read,
        )
        self._held[key] = new
        return [*changed, new]


def continuing_allocation(
    holds: Iterable[Allocation], process_started: datetime | None = None
) -> tuple[Allocation, list[Allocation]]:
    """Return the one of a holder's open allocations of a GPU that goes on, and the others, ended.

    The oldest goes on. `process_started`: when the process with that pid started; an allocation
    from before that was another process's and ends then. ValueError where there is no allocation.
    """
    first, *others = sorted(holds, key=lambda one: one.started_at)
    ended: list[Allocation] = []
    while others and _is_another(process_started, first):
        ended.append(replace(first, ended_at=process_started))
        first, *others = others
    return first, [*ended, *(replace(one, ended_at=one.started_at) for one in others)]


def _pid(holder: Holder) -> int:
    return int(holder.name)


def _is_another(process_started: datetime | None, held: Allocation) -> bool:
    """Return whether a process started after its pid was seen on the GPU, and so is another one.

    The kernel's boot time varies by a second.
    """
    return process_started is not None and process_started > held.started_at + timedelta(seconds=2)
