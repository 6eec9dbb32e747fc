"""The page's tables, as trees."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType

from gpuvigil.clock import duration
from gpuvigil.numbers_in_words import counted

from ..layout.job_links import of_cell
from ..layout.tree import Node, each, el, wide
from ..lists.table import Column, Grid, Value
from .hub_queries import Tables

MOST_ROWS = 30
_DASH = "–"
_SIMULATED = el("span", "SIMULATED: no real hardware", class_="badge simulated")
# Columns by their keys, and what they are called where there is room.
_IDLE = {
    "user": "User",
    "holder": "Holder",
    "idle_gpus": "Idle GPUs",
    "gpus": "of",
    "idle_for_seconds": "Idle for",
    "why": "Why",
    "idle_cost": "Cost",
    "nodes": "Nodes",
    "partition": "Partition",
    "cluster": "Cluster",
}
_LITTLE = {
    "user": "User",
    "holder": "Holder",
    "gpus": "GPUs",
    "wasted_gpu_hours": "GPU-hours not filled",
    "wasted_cost": "Cost",
    "advice": "Advice",
    "said": "Because it",
    "cluster": "Cluster",
}
_SERVED = {
    "model": "Model",
    "verdict": "Verdict",
    "replicas": "Replicas",
    "replicas_needed": "Needed",
    "requests_running_p95": "Running, p95",
    "requests_waiting_p95": "Waiting, p95",
    "kv_cache_p95_percent": "Cache, p95",
    "activity_percent": "GPUs active",
    "spare_gpu_hours": "Spare GPU-hours",
    "spare_cost": "Cost",
    "said": "Because",
    "advice": "To do",
    "user": "User",
    "cluster": "Cluster",
}


def page(found: Tables) -> Sequence[Node | None]:
    """The three tables, each with what it says and where the whole of it is."""
    young = {"idle_for_seconds": f"under {duration(found.idle_after)}"}
    return (
        _who_idles(found),
        _section("Idle", "now", found.idle, _IDLE, "gpuvigil idle", young),
        _section(
            "Busy and doing little",
            "in the last hour",
            found.inefficient,
            _LITTLE,
            "gpuvigil inefficient",
        ),
        _section("Inference", "in the last day", found.inference, _SERVED, "gpuvigil inference"),
    )


def _section(
    title: str,
    when: str,
    grid: Grid,
    names: Mapping[str, str],
    command: str,
    blank: Mapping[str, str] = MappingProxyType({}),
) -> Node:
    rows = grid.rows
    body = (
        wide(_table(grid, names, rows[:MOST_ROWS], blank), title)
        if rows
        else el("p", grid.empty, class_="empty")
    )
    left = len(rows) - MOST_ROWS
    return el(
        "section",
        el(
            "h2",
            title,
            el("small", f" {when}, {counted(len(rows), 'row')}" if rows else ""),
            *([" ", _SIMULATED] if grid.simulated else []),
        ),
        *(el("p", line, class_="sub") for line in grid.head),
        body,
        el("p", f"{left:,} more: {command}", class_="sub") if left > 0 else None,
        key=title,
    )


def _who_idles(found: Tables) -> Node | None:
    """Who holds idle GPUs, and for how long, in one line."""
    grid = found.idle
    rows = [_by_key(grid, row) for row in grid.rows]
    if not rows:
        return None
    gpus = sum(int(str(row["idle_gpus"])) for row in rows)
    have = "has" if len(rows) == 1 else "have"
    said = f"{counted(len(rows), 'holder')} {have} {counted(gpus, 'GPU')} at 0 % now. "
    longest = max(rows, key=lambda row: _span(row["idle_for_seconds"]))
    if not _span(longest["idle_for_seconds"]):
        rest: list[Node] = [f"None of them has been idle for {duration(found.idle_after)} yet."]
    else:
        lasts = duration(_span(longest["idle_for_seconds"]))
        rest = ["Longest: ", *_named(longest), f", for {lasts}."]
    return el("p", el("b", said, *rest), class_="impact", key="who idles")


def _named(row: Mapping[str, Value]) -> list[Node]:
    """A holder and whose it is, each with its page."""
    shown: list[Node] = []
    for key, word in (("holder", ""), ("user", " of ")):
        value = row[key]
        if value is not None:
            href = of_cell(key, value, str(row["cluster"]))
            shown += [word, el("a", str(value), href=href) if href else str(value)]
    return shown


def _by_key(grid: Grid, row: Sequence[Value]) -> dict[str, Value]:
    return {column.key: value for column, value in zip(grid.columns, row, strict=True)}


def _span(value: Value) -> timedelta:
    return value if isinstance(value, timedelta) else timedelta(0)


def _table(
    grid: Grid,
    names: Mapping[str, str],
    rows: Sequence[Sequence[Value]],
    blank: Mapping[str, str],
) -> Node:
    """The named columns that the grid has and of which any row says something, in their order.

    `blank` is what a column says, by its key, where a row says nothing.
    """
    columns = {column.key: (place, column) for place, column in enumerate(grid.columns)}
    shown = [
        (names[key], *columns[key])
        for key in names
        if key in columns
        and (key in blank or any(row[columns[key][0]] is not None for row in rows))
    ]
    cluster = columns["cluster"][0] if "cluster" in columns else None
    head = (
        el(
            "th",
            f"{name}, {column.title.removeprefix('COST ')}" if name == "Cost" else name,
            scope="col",
            class_="number" if column.right else None,
        )
        for name, _, column in shown
    )
    lines = (
        el(
            "tr",
            *each(
                _cell(column, row[place], None if cluster is None else str(row[cluster]), blank)
                for _, place, column in shown
            ),
        )
        for row in rows
    )
    return el("table", el("thead", el("tr", *head)), el("tbody", *lines))


def _cell(column: Column, value: Value, cluster: str | None, blank: Mapping[str, str]) -> Node:
    """What it names leads to its page."""
    text = blank.get(column.key, _DASH) if value is None else column.show(value)
    href = of_cell(column.key, value, cluster)
    shown = el("a", text, href=href) if href else text
    return el("td", shown, class_="number" if column.right else None)
