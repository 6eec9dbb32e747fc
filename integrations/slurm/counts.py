"""Slurm's notations for GPUs: requested, given, and by which numbers.

`gpu:h200:4(IDX:0-3)`, `gpu:(null):4(IDX:0-3,5)`, `gres:gpu:2`, `gres/gpu=4`, `gpu:a100_3g.20gb:2(IDX:0,1)`: squeue(1),
scontrol(1) and gres.conf(5) of 20.11 to 24.11.
"""

import re
from dataclasses import dataclass

from collector.owners.jobfiles import numbers

# Commas part entries, but not those within an entry's brackets.
_PART = re.compile(r"(?:[^,(]|\([^)]*\))+")
_GIVEN = re.compile(r"([^(=]*)(?:=(\w+))?(?:\(([^)]*)\))?")
_TAKEN = re.compile(r"\d+/\d+(?:,\d+/\d+)*")
_FACTORS = {"": 1, "K": 1024, "M": 1024**2}
_COUNT = re.compile(r"(\d+)([KM]?)")
_GPU = "gpu"


@dataclass(frozen=True, slots=True)
class Given:
    """One entry: `indexes` are Slurm's own numbers, None where it names none."""

    name: str
    type: str | None
    count: int
    indexes: tuple[int, ...] | None = None


def entries(text: str) -> tuple[Given, ...]:
    """All that a text of Slurm's names, of whatever kind; what is none is left out."""
    found = (_entry(part.strip()) for part in _PART.findall(text or ""))
    return tuple(one for one in found if one is not None)


def gpus(text: str) -> int | None:
    """How many GPUs a text names, slices of MIG among them; None where it names none.

    `gres/gpu=4,gres/gpu:h200=4` are four: the first counts all types. Shards are parts of GPUs, and no GPUs.
    """
    named = [one for one in entries(text) if one.name == _GPU]
    untyped = [one.count for one in named if one.type is None]
    if not named:
        return None
    return sum(untyped) if untyped else sum(one.count for one in named)


def indexes(text: str) -> tuple[int, ...]:
    """Slurm's numbers of the GPUs, shared ones as well: a shard lies on the GPU of its number."""
    found: list[int] = []
    for one in entries(text):
        if one.name in {_GPU, "shard", "mps"}:
            found += one.indexes or ()
    return tuple(dict.fromkeys(found))


def _entry(part: str) -> Given | None:
    said, count, more = _GIVEN.match(part.replace("(null)", "")).groups()  # type: ignore[union-attr]
    words = said.strip().removeprefix("gres/").removeprefix("gres:").split(":")
    name, rest = words[0], [word for word in words[1:] if word]
    if count is None:
        count = rest.pop() if rest and _COUNT.fullmatch(rest[-1]) else "1"
    number = _COUNT.fullmatch(count)
    if not name or number is None:
        return None
    kind = rest[0] if rest else None
    return Given(name, kind, int(number[1]) * _FACTORS[number[2]], _indexes(more or ""))


def _indexes(said: str) -> tuple[int, ...] | None:
    """`IDX:0-3,5`; of shards `2/8,0/8` is how much of each GPU is taken; `S:0-1` are sockets."""
    if _TAKEN.fullmatch(said):
        taken = enumerate(part.partition("/")[0] for part in said.split(","))
        return tuple(number for number, used in taken if int(used))
    key, _, text = said.partition(":")
    return numbers(text) or None if key == "IDX" else None
