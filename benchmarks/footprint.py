"""What processes take of a machine: processor time by the nanosecond, and memory by mapping."""

import os
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_HEAD = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ *(.*)$")
_SIZE = re.compile(r"^(\w+): +(\d+) kB$")


def cpu_seconds(pids: Collection[int]) -> float:
    """Processor time of these processes so far, ended threads included.

    The clock of another process, clock_getcpuclockid(3): the complement of its id, and which of
    its clocks (2: the scheduler's) in the lowest three bits. OSError when one has ended.
    """
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def ended_children_seconds(pids: Collection[int]) -> float:
    """Processor time of what these processes have started and seen end, theirs included, so far.

    proc_pid_stat(5), fields 16 and 17: in ticks of mostly 10 ms. OSError when one has ended.
    """
    found = 0
    for pid in pids:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        found += sum(map(int, text.rpartition(")")[2].split()[13:15]))
    return found / os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Mapping:
    """A stretch of a process's memory; sizes in KiB."""

    path: str
    sizes: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def private(self) -> int:
        return self.sizes["Private_Clean"] + self.sizes["Private_Dirty"]

    @property
    def shared(self) -> int:
        return self.sizes["Shared_Clean"] + self.sizes["Shared_Dirty"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of a program's processes in MiB, without what a library has mapped."""

    pss: float  # proportional set size: pages that others map too count by their share
    alone: float  # an upper bound where nothing else maps them: each shared page counts once
    library: float  # proportional set size of the library's own pages


def memory(pids: Collection[int], library: str) -> Memory:
    """Of all these processes; the mappings of the file that is named `library` count apart."""
    pss = private = apart = 0
    shared: dict[str, int] = defaultdict(int)
    for pid in pids:
        of_process: dict[str, int] = defaultdict(int)
        for mapping in _mappings(pid):
            if Path(mapping.path).name == library:
                apart += mapping.sizes["Pss"]
                continue
            pss += mapping.sizes["Pss"]
            private += mapping.private
            of_process[mapping.path or f"{pid}"] += mapping.shared
        for path, size in of_process.items():
            shared[path] = max(shared[path], size)
    alone = private + sum(shared.values())
    return Memory(pss=pss / 1024, alone=alone / 1024, library=apart / 1024)


def _mappings(pid: int) -> Iterator[Mapping]:
    mapping: Mapping | None = None
    for line in Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8").splitlines():
        if head := _HEAD.match(line):
            if mapping is not None:
                yield mapping
            mapping = Mapping(head[1])
        elif mapping is not None and (size := _SIZE.match(line)):
            mapping.sizes[size[1]] = int(size[2])
    if mapping is not None:
        yield mapping
