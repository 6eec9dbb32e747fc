"""Which nodes of a job ask it. Pure.

Each question goes through all processes of the job, and any of them answers for all: a few nodes
are enough, and all nodes of a large job would be a flood. Nodes do not talk to each other, but a
launcher tells its processes their rank and the number of ranks.
"""

from collections.abc import Iterable

from gpuvigil.steps import RANKS, WORLDS

# Ours: ranks so far apart that one of them is on a node that can ask, whatever else is broken.
FEW = 4
_MOST_DIGITS = 9


def is_asking(environs: Iterable[str]) -> bool | None:
    """Return whether a node is one of the few, by its processes' environments (proc(5), `environ`).

    None where none of them names its rank.
    """
    said = [place for text in environs if (place := _place(text)) is not None]
    if not said:
        return None
    return any(rank in {world * n // FEW for n in range(FEW)} for rank, world in said)


def lowest_rank(environs: Iterable[str]) -> int | None:
    """Return the lowest rank of a node's processes; None where none of them names its rank."""
    return min((it[0] for it in map(_place, environs) if it is not None), default=None)


def _place(environ: str) -> tuple[int, int] | None:
    """Return a process's rank and the number of ranks; None where it does not name them."""
    values = dict(line.partition("=")[::2] for line in environ.split("\0"))
    for names in zip(RANKS, WORLDS, strict=True):
        rank, world = (values.get(name, "") for name in names)
        if all(it.isdecimal() and len(it) <= _MOST_DIGITS for it in (rank, world)):
            return int(rank), int(world)
    return None
