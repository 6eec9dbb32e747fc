"""The terminal's tables drawn on a page, with links to what they name."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from gpuvigil.numbers_in_words import counted

from ..lists.table import Column, Grid, Value
from .job_links import of_cell
from .tree import Node, each, el, wide

MOST_ROWS = 30
# The most nodes that are named in a cell.
MOST_NODES = 4
_DASH = "–"
_SIMULATED = el("span", "SIMULATED: no real hardware", class_="badge simulated")


def section(
    title: str,
    when: str,
    grid: Grid,
    names: Mapping[str, str],
    command: str,
    blank: Mapping[str, str] = MappingProxyType({}),
) -> Node:
    """Return a table with its head; `names` are column titles by key, `command` prints the whole table."""
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


def by_key(grid: Grid, row: Sequence[Value]) -> dict[str, Value]:
    """Return a row's values by column key."""
    return {column.key: value for column, value in zip(grid.columns, row, strict=True)}


def _table(
    grid: Grid,
    names: Mapping[str, str],
    rows: Sequence[Sequence[Value]],
    blank: Mapping[str, str],
) -> Node:
    """Return a table of the named columns that the grid has, in their order, without empty ones.

    `blank` has the text for missing values, by column key; such columns are always shown.
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
    """Return a cell, with a link to the page of what it names."""
    text = blank.get(column.key, _DASH) if value is None else column.show(value)
    href = of_cell(column.key, value, cluster)
    if not href and column.key == "nodes" and isinstance(value, str):
        return el("td", *_nodes(text, cluster))
    shown = el("a", text, href=href) if href else text
    return el("td", shown, class_="number" if column.right else None)


def _nodes(text: str, cluster: str | None) -> list[Node]:
    """Return the first of several nodes as links, and how many more there are."""
    names = text.split(" ")
    shown: list[Node] = []
    for name in names[:MOST_NODES]:
        href = of_cell("node", name, cluster)
        shown += [", " if shown else "", el("a", name, href=href) if href else name]
    more = len(names) - MOST_NODES
    return [*shown, f" and {more:,} more"] if more > 0 else shown
