"""The question to the NCCL child and its answer: a line of JSON each."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum

from gpuvigil.model import UNREADABLE, Collective

LONGEST_WHY = 300


class Look(str, Enum):
    """What is looked at."""

    RAS = "ras"
    DUMPS = "dumps"
    INSPECTOR = "inspector"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Jobs of one user whose NCCL is asked. `holders`: of each its processes here, and of those
    their GPUs by NVML's index and UUID.
    """

    proc_root: str
    port: int
    pause_seconds: float
    versions: tuple[str, ...]
    holders: Mapping[str, Mapping[int, Mapping[int, str]]]
    # Instead of asking: where files of these users lie, and how young those are that count.
    look: Look = Look.RAS
    directories: tuple[str, ...] = ()
    users: tuple[int, ...] = ()
    youth_seconds: float = 0.0
    # Of many dumps, whose are read first: nodes that share a directory begin at ranks of their own.
    begin_rank: int | None = None
    begin_share: float = 0.0  # from 0 to 1, where no rank is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How one of the jobs stands, or why that is not known; neither where it goes on."""

    found: tuple[Collective, ...] = ()
    why: str = ""
    is_final: bool = False  # to ask this job again is of no use


def question(asked: Asked) -> str:
    """For the command line of the child."""
    return json.dumps(asdict(asked))


def read_question(text: str) -> Asked:
    """What `question` wrote."""
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
    """One line, without its end."""
    found = [one.to_json() for one in said.found]
    return json.dumps({"found": found, "why": said.why[:LONGEST_WHY], "is_final": said.is_final})


def read_answer(text: str | bytes) -> Answer:
    """What `answer` wrote; ValueError when it is none."""
    try:
        value = json.loads(text)
        found = tuple(map(Collective.from_json, value["found"]))
        why = "".join(ch if ch.isprintable() else "?" for ch in str(value["why"]))
        return Answer(found=found, why=why[:LONGEST_WHY], is_final=value["is_final"] is True)
    except UNREADABLE as error:
        raise ValueError(f"no answer of the child's: {error!r}") from None
