"""The holder of a GPU, as a value; records keep its text."""

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache


class HolderKind(str, Enum):
    """The kind of a holder; its value is the word before the holder's name."""

    JOB = "job"
    POD = "pod"
    PROCESS = "pid"
    OTHER = ""  # several holders summed up, or a kind that only a newer version knows


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """A GPU's holder, unique on its node; a job or a pod is unique in its cluster."""

    kind: HolderKind
    name: str  # the job's number, "namespace/name" of a pod, a process's number

    @classmethod
    @lru_cache(maxsize=65_536)  # a job of a thousand GPUs is named a thousand times
    def parse(cls, text: str) -> "Holder":
        """Parse what records, exporters and people write: `job 1234`, `pod training/llama-0`, `pid 4711`."""
        word, _, name = text.partition(" ")
        kind = _KINDS.get(word, HolderKind.OTHER) if name else HolderKind.OTHER
        return cls(kind, text if kind is HolderKind.OTHER else name)

    def __str__(self) -> str:
        # A kind is its own word: `.value` takes longer than everything else in renewing a page.
        return self.kind + " " + self.name if self.kind else self.name


_KINDS = {kind.value: kind for kind in HolderKind if kind is not HolderKind.OTHER}


def job_holder(number: object) -> Holder:
    """Return the holder for a job, by its scheduler's number."""
    return Holder(HolderKind.JOB, str(number))


def pod_holder(full_name: str) -> Holder:
    """Return the holder for a pod, by "namespace/name", or by its UID where only that is known."""
    return Holder(HolderKind.POD, full_name)


def process_holder(pid: int) -> Holder:
    """Return the holder for a process, by its number on its node."""
    return Holder(HolderKind.PROCESS, str(pid))
