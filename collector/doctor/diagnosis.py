"""One line of the doctor's report: its subject, its state, and what to do."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum


class State(str, Enum):
    """The state of what was looked at."""

    OK = "ok"
    LIMITED = "limited"  # the collector works, and says less than it could
    MISSING = "missing"  # the collector cannot do its work


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What was looked at, its state and why, and what to do when it is not well."""

    what: str
    state: State
    text: str
    todo: str = ""


def ok(what: str, text: str) -> Diagnosis:
    """Return a diagnosis that all is as it should be."""
    return Diagnosis(what=what, state=State.OK, text=text)


def limited(what: str, text: str, todo: str) -> Diagnosis:
    """Return a diagnosis that something could be had and is not."""
    return Diagnosis(what=what, state=State.LIMITED, text=text, todo=todo)


def missing(what: str, text: str, todo: str) -> Diagnosis:
    """Return a diagnosis that something essential is missing."""
    return Diagnosis(what=what, state=State.MISSING, text=text, todo=todo)


def can_work(found: Sequence[Diagnosis]) -> bool:
    """Return whether nothing essential is missing."""
    return all(diagnosis.state is not State.MISSING for diagnosis in found)


def lines(found: Sequence[Diagnosis]) -> list[str]:
    """Return one line per diagnosis, in aligned columns."""
    width = max((len(diagnosis.what) for diagnosis in found), default=0)
    return [
        f"{d.state.value:<8} {d.what:<{width}}  {d.text}" + (f" -> {d.todo}" if d.todo else "")
        for d in found
    ]


def as_json(found: Sequence[Diagnosis]) -> str:
    """Return everything as one JSON object."""
    rows = [{**asdict(diagnosis), "state": diagnosis.state.value} for diagnosis in found]
    return json.dumps({"can_work": can_work(found), "diagnoses": rows}, indent=2)
