"""The question to the NCCL child and its answer: one line of JSON each."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum

from gpuvigil.model import UNREADABLE, Collective

LONGEST_WHY = 300


class Look(str, Enum):
    """What the child looks at."""

    RAS = "ras"
    DUMPS = "dumps"
    INSPECTOR = "inspector"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The question about one user's jobs.

    `holders`: each job's processes on this node, and each process's GPUs by NVML's index, with
    UUIDs.
    """

    proc_root: str
    port: int
    pause_seconds: float
    versions: tuple[str, ...]
    holders: Mapping[str, Mapping[int, Mapping[int, str]]]
    # For files instead of RAS: their directories, their owners, and the greatest age that counts.
    look: Look = Look.RAS
    directories: tuple[str, ...] = ()
    users: tuple[int, ...] = ()
    youth_seconds: float = 0.0
    # Which dumps are read first: nodes that share a directory begin at ranks of their own.
    begin_rank: int | None = None
    begin_share: float = 0.0  # from 0 to 1, where no rank is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How the jobs stand, or why that is not known; neither where they go on."""

    found: tuple[Collective, ...] = ()
    why: str = ""
    is_final: bool = False  # asking this job again is useless


def question(asked: Asked) -> str:
    """Return the question for the child's command line."""
    return json.dumps(asdict(asked))


def read_question(text: str) -> Asked:
    """Parse what `question` wrote."""
    value = json.loads(text)
    holders = {
        holder: {
            int(pid): {int(index): str(uuid) for index, uuid in gpus.items()}
            for pid, gpus in pids.items()
        }
        for holder, pids in value.pop("holders").items()
    }
    lists = {name: tuple(value[name]) for name in ("versions", "directories", "users")}
    look = Look(value.pop("look"))
    return Asked(**{**value, **lists}, look=look, holders=holders)


def answer(said: Answer) -> str:
    """Return the answer as one line of JSON, without its line end."""
    found = [one.to_json() for one in said.found]
    return json.dumps({"found": found, "why": said.why[:LONGEST_WHY], "is_final": said.is_final})


def read_answer(text: str | bytes) -> Answer:
    """Parse a line that `answer` wrote; ValueError for anything else."""
    try:
        value = json.loads(text)
        found = tuple(map(Collective.from_json, value["found"]))
        why = "".join(ch if ch.isprintable() else "?" for ch in str(value["why"]))
        return Answer(found=found, why=why[:LONGEST_WHY], is_final=value["is_final"] is True)
    except UNREADABLE as error:
        raise ValueError(f"no answer of the child's: {error!r}") from None
