"""The result of one inspection of the machine, as the child passes it to its parent."""

import json
from typing import Any, NamedTuple

from .lldp import Heard, Neighbour
from .parts import Part


class InspectionResult(NamedTuple):
    """What one inspection read; None is what was absent, or not read in time.

    Not a dataclass: a child that starts every minute must not import what that takes.
    """

    fans: tuple[Part, ...] | None = None
    supplies: tuple[Part, ...] | None = None
    memory_errors: tuple[int, int] | None = None  # corrected and uncorrected
    watched: int = 0  # mounts
    hung: tuple[str, ...] = ()  # mounts that do not answer
    gone: tuple[tuple[str, str], ...] = ()  # mounts that answer with an error, and the error
    fullest: tuple[str, float] | None = None  # the fullest mount, and its share in use
    heard: Heard = Heard()  # neighbours, from lldpd


def line(result: InspectionResult) -> str:
    """Return the result as one line of JSON, without its line end."""
    return json.dumps(result._asdict(), separators=(",", ":"))


def parse(text: str | bytes) -> InspectionResult:
    """Parse a line that `line` wrote; ValueError for anything else."""
    try:
        said = json.loads(text)
        return InspectionResult(
            fans=_parts(said["fans"]),
            supplies=_parts(said["supplies"]),
            memory_errors=_pair(said["memory_errors"]),
            watched=int(said["watched"]),
            hung=tuple(map(str, said["hung"])),
            gone=tuple((str(path), str(why)) for path, why in said["gone"]),
            fullest=None if said["fullest"] is None else _full(*said["fullest"]),
            heard=_lldp_answer(*said["heard"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no look at the machine: {error!r}") from error


def _parts(found: Any) -> tuple[Part, ...] | None:
    return None if found is None else tuple(Part(*one) for one in found)


def _pair(found: Any) -> tuple[int, int] | None:
    return None if found is None else (int(found[0]), int(found[1]))


def _lldp_answer(neighbours: Any, why_not: str) -> Heard:
    known = None if neighbours is None else tuple(Neighbour(*one) for one in neighbours)
    return Heard(known, str(why_not))


def _full(path: str, share: float) -> tuple[str, float]:
    return str(path), float(share)
