"""The holder of a GPU, as a value; records keep its text."""

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache


class HolderKind(str, Enum):
    """What a holder is; its value is the word before its name."""

    JOB = "job"
    POD = "pod"
    PROCESS = "pid"
    OTHER = ""  # what sums call several at once, and what only a newer version knows


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """Unique on its node, or in its cluster where it is a job or a pod."""

    kind: HolderKind
    name: str  # the job's number, "namespace/name" of a pod, a process's number

    @classmethod
    @lru_cache(maxsize=65_536)  # a job of a thousand GPUs is named a thousand times
    def parse(cls, text: str) -> "Holder":
        """What records, exporters and people write: `job 1234`, `pod training/llama-0`, `pid 4711`."""
        word, _, name = text.partition(" ")
        kind = _KINDS.get(word, HolderKind.OTHER) if name else HolderKind.OTHER
        return cls(kind, text if kind is HolderKind.OTHER else name)

    def __str__(self) -> str:
        # A kind is its own word: asked for its value it takes longer than all else of a page's renewal.
        return self.kind + " " + self.name if self.kind else self.name


_KINDS = {kind.value: kind for kind in HolderKind if kind is not HolderKind.OTHER}


def job_holder(number: object) -> Holder:
    """A job by its scheduler's number."""
    return Holder(HolderKind.JOB, str(number))


def pod_holder(full_name: str) -> Holder:
    """A pod by its namespace and name, or by its UID where only that is known."""
    return Holder(HolderKind.POD, full_name)


def process_holder(pid: int) -> Holder:
    """A process by its number on its node."""
    return Holder(HolderKind.PROCESS, str(pid))
