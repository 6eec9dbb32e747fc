"""What one look at the machine has seen, as a line between the child that looks and its parent."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .parts import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """None is what was not read: not there, or not in time."""

    fans: tuple[Part, ...] | None = None
    supplies: tuple[Part, ...] | None = None
    memory_errors: tuple[int, int] | None = None  # corrected and not
    watched: int = 0  # mounts
    hung: tuple[str, ...] = ()  # mounts that do not answer
    gone: Mapping[str, str] = field(default_factory=dict)  # mounts that answer with an error
    fullest: tuple[str, float] | None = None  # a mount, and the share of it in use


def line(seen: Seen) -> str:
    """One line, without its end."""
    return json.dumps(asdict(seen), separators=(",", ":"))


def parse(text: str | bytes) -> Seen:
    """What `line` has written; ValueError when it is anything else."""
    try:
        said = json.loads(text)
        return Seen(
            fans=_parts(said["fans"]),
            supplies=_parts(said["supplies"]),
            memory_errors=_pair(said["memory_errors"]),
            watched=int(said["watched"]),
            hung=tuple(map(str, said["hung"])),
            gone={str(path): str(why) for path, why in said["gone"].items()},
            fullest=None if said["fullest"] is None else _full(*said["fullest"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no look at the machine: {error!r}") from error


def _parts(said: Any) -> tuple[Part, ...] | None:
    return None if said is None else tuple(Part(**one) for one in said)


def _pair(said: Any) -> tuple[int, int] | None:
    return None if said is None else (int(said[0]), int(said[1]))


def _full(path: str, share: float) -> tuple[str, float]:
    return str(path), float(share)
