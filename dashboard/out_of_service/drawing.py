"""The table of nodes that are out of service, as a tree of elements."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from gpuvigil.clock import duration, moment, to_text
from gpuvigil.numbers_in_words import counted
from gpuvigil.schedulers.out_of_service import LostTo
from gpuvigil.web import page_links

from ..layout.tree import Node, el, stacked
from .rows import Row

MOST_SHOWN = 200
_WORDS = {
    LostTo.FAULT: "fault",
    LostTo.REPAIR: "in repair",
    LostTo.MAINTENANCE: "maintenance",
    LostTo.UNKNOWN: "not known",
    None: "silent",
}
_COLUMNS = ("Node", "Why", "Since", "Jobs", "Who", "Ticket", "Next step", "Last acceptance")
# The most jobs of a node that are named.
_MOST_JOBS = 4


def sentence(rows: Sequence[Row]) -> str:
    """Say how many nodes are out of service and why."""
    if not rows:
        return "No node is out of service."
    gpus = sum(row.gpus for row in rows)
    amounts = [(word, sum(row.lost_to is kind for row in rows)) for kind, word in _WORDS.items()]
    parts = ", ".join(f"{amount} {word}" for word, amount in amounts if amount)
    said = f"{counted(len(rows), 'node')} out of service with {counted(gpus, 'GPU')}: {parts}."
    aged = next((row for row in rows if row.since is not None), None)
    return f"{said} {aged.node.node} has waited longest." if aged and rows[1:] else said


def table(rows: Sequence[Row], now: datetime) -> list[Node]:
    """Return a table with a row per node, in the given order; empty without rows."""
    if not rows:
        return []
    head = el("thead", el("tr", *(el("th", name, scope="col") for name in _COLUMNS)))
    shown = rows[:MOST_SHOWN]
    more = len(rows) - len(shown)
    body = el("tbody", *(_row(row, now) for row in shown))
    found = [stacked(el("table", head, body), "Nodes out of service")]
    return [*found, el("p", f"and {more} more", class_="more")] if more else found


def _row(row: Row, now: datetime) -> Node:
    span = timedelta(hours=1)
    at = row.since or now - span
    href = page_links.around(row.node, max(at, now - timedelta(days=2)), now)
    return el(
        "tr",
        el("th", el("a", row.node.node, href=href), " ", _simulated(row), scope="row"),
        *map(_cell, _COLUMNS[1:], _cells(row, now)),
        key=row.node.key,
    )


def _cell(name: str, text: Sequence[Node]) -> Node:
    """Return a cell; a narrow screen hides an empty one."""
    return el("td", *text or ("–",), class_=None if text else "none", data_name=name)


def _cells(row: Row, now: datetime) -> Sequence[Sequence[Node]]:
    """Return the contents of each column after the node."""
    return (
        (el("b", _WORDS[row.lost_to]), f": {row.why}" if row.why else "", *_incident(row)),
        (_since(row, now),),
        _jobs(row),
        (row.who,) if row.who else (),
        (row.ticket,) if row.ticket else (),
        (row.step,),
        (_accepted(row),),
    )


def _simulated(row: Row) -> Node | None:
    return el("span", "simulated", class_="badge simulated") if row.node.simulated else None


def _incident(row: Row) -> Sequence[Node]:
    if row.incident is None:
        return ()
    link = page_links.incident_page(row.incident.id)
    return (" ", el("a", row.incident.title, href=link))


def _jobs(row: Row) -> Sequence[Node]:
    """Return the jobs on the node and their users, as links."""
    found: list[Node] = []
    for one in row.jobs[:_MOST_JOBS]:
        name = str(one.holder)
        href = page_links.job_page(row.node.cluster, one.holder)
        found += [", " if found else "", el("a", name, href=href) if href else name]
        if one.user:
            found += [" of ", el("a", one.user, href=page_links.user_page(one.user))]
    more = len(row.jobs) - _MOST_JOBS
    return (*found, f" and {more} more") if more > 0 else found


def _since(row: Row, now: datetime) -> Node:
    if row.since is None:
        return "no live data" if row.lost_to is None else "not known"
    said = f"{moment(row.since)}, {duration(now - row.since)}"
    return el("time", said, datetime=to_text(row.since))


def _accepted(row: Row) -> str:
    one = row.accepted
    return "none" if one is None else f"{moment(one.at)} by {one.by}: {one.note}"
