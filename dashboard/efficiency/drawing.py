"""The tables of the efficiency page, as trees of elements."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from gpuvigil.clock import duration
from gpuvigil.numbers_in_words import counted

from ..layout.grids import by_key, section
from ..layout.job_links import of_cell
from ..layout.tree import Node, el
from ..lists.table import Value
from .hub_queries import Tables

# The page's column titles, which are longer than a terminal's, by column key.
_IDLE = {
    "user": "User",
    "holder": "Allocated to",
    "idle_gpus": "Idle GPUs",
    "gpus": "Of its GPUs",
    "idle_for_seconds": "Idle for",
    "why": "Why",
    "idle_cost": "Cost",
    "nodes": "Nodes",
    "partition": "Partition",
    "cluster": "Cluster",
}
_LITTLE = {
    "user": "User",
    "holder": "Allocated to",
    "gpus": "GPUs",
    "wasted_gpu_hours": "GPU-hours unused",
    "wasted_cost": "Cost",
    "advice": "Advice",
    "said": "Because it",
    "cluster": "Cluster",
}


def page(found: Tables) -> Sequence[Node | None]:
    """Return a summary and both tables, each with the command that prints it in full."""
    young = {"idle_for_seconds": f"under {duration(found.idle_after)}"}
    return (
        _who_idles(found),
        section("Idle", "now", found.idle, _IDLE, "gpuvigil idle", young),
        section(
            "Busy, but inefficient",
            "in the last hour",
            replace(found.inefficient, head=()),
            _LITTLE,
            "gpuvigil inefficient",
        ),
        _scattered(found),
    )


def _scattered(found: Tables) -> Node | None:
    """Return how free GPUs lie, of each cluster; None if they are not scattered."""
    lines = [el("p", line) for line in found.inefficient.head]
    title = el("h2", "Free, but scattered", el("small", " now"))
    return el("section", title, *lines, key="scattered") if lines else None


def _who_idles(found: Tables) -> Node | None:
    """Return a line on how many hold idle GPUs and who does longest; None if nobody does."""
    grid = found.idle
    rows = [by_key(grid, row) for row in grid.rows]
    if not rows:
        return None
    gpus = sum(int(str(row["idle_gpus"])) for row in rows)
    whose = "one job or user" if len(rows) == 1 else f"{len(rows):,} jobs or users"
    are = "is" if gpus == 1 else "are"
    said = f"{counted(gpus, 'GPU')} allocated to {whose} {are} at 0 % now. "
    longest = max(rows, key=lambda row: _span(row["idle_for_seconds"]))
    if not _span(longest["idle_for_seconds"]):
        rest: list[Node] = [f"None of them has been idle for {duration(found.idle_after)} yet."]
    else:
        lasts = duration(_span(longest["idle_for_seconds"]))
        rest = ["Longest: ", *_named(longest), f", for {lasts}."]
    return el("p", el("b", said, *rest), class_="impact", key="who idles")


def _named(row: Mapping[str, Value]) -> list[Node]:
    """Return a holder and its user as links to their pages."""
    shown: list[Node] = []
    for key, word in (("holder", ""), ("user", " of ")):
        value = row[key]
        if value is not None:
            href = of_cell(key, value, str(row["cluster"]))
            shown += [word, el("a", str(value), href=href) if href else str(value)]
    return shown


def _span(value: Value) -> timedelta:
    return value if isinstance(value, timedelta) else timedelta(0)
