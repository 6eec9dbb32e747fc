"""How figures are written on the scoreboard's page: with what they are of, and their interval."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .baselines import SETS
from .judge.intervals import wilson
from .judge.score import Tally

OURS = "gpuvigil"


def share(value: Mapping[str, Any]) -> str:
    """`0.75 (0.41 to 0.93, 6 of 8)`."""
    if value["value"] is None:
        return "-"
    low, high = value["interval"]
    return f"{value['value']:.2f} ({low:.2f} to {high:.2f}, {value['hits']} of {value['of']})"


def rate(value: Mapping[str, Any]) -> str:
    """`62.5 (12.9 to 182.7, 3)`."""
    if value["value"] is None:
        return "-"
    low, high = value["interval"]
    return f"{value['value']:.1f} ({low:.1f} to {high:.1f}, {value['count']})"


def number(value: float | None, digits: int = 0) -> str:
    """A number, or that there is none."""
    return "-" if value is None else f"{value:.{digits}f}"


def commit(described: str | None) -> str:
    """A commit in short, and whether files were changed that it does not hold."""
    if described is None:
        return "commit not kept"
    return f"`{described[:9]}`" + (" (changed)" if described.endswith("-dirty") else "")


def in_order(of: Mapping[str, Sequence[Tally]]) -> Iterator[tuple[str, Sequence[Tally]]]:
    """Who played, in the order of the tables."""
    return ((name, of[name]) for name in SETS if of.get(name))


def added(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Two shares of different things as one, with the interval of all of them."""
    return part_of(one["hits"] + other["hits"], one["of"] + other["of"])


def part_of(hits: int, of: int) -> dict[str, Any]:
    """A share with its interval, as `share` writes it."""
    value = hits / of if of else None
    return {"value": value, "hits": hits, "of": of, "interval": wilson(hits, of)}
