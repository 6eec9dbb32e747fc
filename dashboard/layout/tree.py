"""Parts of pages that change while somebody reads them: trees that the browser patches in place.

Unchanged elements keep their focus, selected text and folding. Texts arrive as text, never as HTML.
"""

from collections.abc import Iterable
from typing import Any

from ..components import component

Node = str | list[Any]


def el(tag: str, *children: Node | None, **attributes: str | None) -> Node:
    """Return an element; children and attributes that are None are left out.

    `class_` and `aria_label` stand for `class` and `aria-label`. `key` identifies an element among its
    siblings, so that it stays the same element when others come and go.
    """
    given = {
        name.rstrip("_").replace("_", "-"): value
        for name, value in attributes.items()
        if value is not None
    }
    return [tag, given, *(child for child in children if child is not None)]


def wide(table: Node, name: str) -> Node:
    """Return a table that may be wider than its page and scrolls by itself, also by keyboard."""
    return el("div", table, class_="wide", tabindex="0", role="group", aria_label=name)


def stacked(table: Node, name: str) -> Node:
    """Return a table of sentences; a narrow screen shows a row as a block, each cell after its `data_name`."""
    return el("div", table, class_="stacked", tabindex="0", role="group", aria_label=name)


def fold(title: str, beside: str, *children: Node | None, key: str) -> Node:
    """Return a section that is open, but folded on a narrow screen until its reader opens it."""
    head = el("summary", el("h3", title, " ", el("small", beside)))
    return el("details", head, *children, class_="fold", open="wide", key=key)


def each(nodes: Iterable[Node | None]) -> list[Node]:
    """Return the nodes without None."""
    return [node for node in nodes if node is not None]


def show(key: str, *nodes: Node | None) -> None:
    """Draw a tree; `key` identifies its place on the page."""
    draw = component("tree", '<div class="tree"></div>')
    draw(key=key, data={"nodes": each(nodes)})
