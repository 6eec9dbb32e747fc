"""The list of incidents and its filters, as trees of elements."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from gpuvigil.clock import duration, moment
from gpuvigil.lifecycle import State
from gpuvigil.web.page_links import INCIDENTS

from ..layout.job_links import nodes
from ..layout.tree import Node, each, el
from ..model.fold import Fold
from .filters import LONGEST_TEXT, SPAN_NAMES, Filters
from .listing import Choice, Entry, Listing


def filters(found: Listing) -> Node:
    """Return every filter as links with counts; the less used ones are folded while an incident is open."""
    asked = found.filters
    rest = [
        _row(name, found.choices[key])
        for name, key in (
            ("Severity", "severity"),
            ("Fault", "fault"),
            ("Cluster", "cluster"),
            ("Node", "node"),
        )
    ]
    if asked.incident:
        used = any((asked.severity, asked.fault, asked.cluster, asked.node))
        folded = el(
            "details", el("summary", "More filters"), *each(rest), open="1" if used else None
        )
        rest = [folded]
    return el(
        "section",
        el("div", _row("Show", found.choices["show"]), _spans(asked), _search(asked), class_="top"),
        el("div", *each(rest), class_="top"),
        class_="filters",
        aria_label="Filters",
    )


def _row(name: str, choices: Iterable[Choice]) -> Node | None:
    chips = [_chip(one) for one in choices]
    if not chips:
        return None
    return el("div", el("span", name, class_="name"), *chips, class_="row", key=name)


def _chip(one: Choice) -> Node:
    return el(
        "a",
        one.name,
        " ",
        el("b", f"{one.count:,}"),
        href=one.href,
        class_="chip chosen" if one.chosen else "chip",
        aria_current="true" if one.chosen else None,
        key=one.value or "-",
    )


def _spans(asked: Filters) -> Node:
    chips = (
        el(
            "a",
            name,
            href=asked.set(last=value).href,
            class_="chip chosen" if asked.last == value else "chip",
            aria_current="true" if asked.last == value else None,
        )
        for value, name in SPAN_NAMES.items()
    )
    return el(
        "div", el("span", "Resolved in the last", class_="name"), *chips, class_="row", key="spans"
    )


def _search(asked: Filters) -> Node:
    kept = asked.set(q="").given()
    hidden = (el("input", type="hidden", name=name, value=value) for name, value in kept.items())
    field = el(
        "input",
        type="search",
        name="q",
        value=asked.q,
        maxlength=str(LONGEST_TEXT),
        placeholder="Title, node, GPU, job, user",
        aria_label="Text in incidents",
    )
    clear = (
        el("a", "Clear all", href=INCIDENTS, class_="chip")
        if asked.set(incident="").given()
        else None
    )
    return el(
        "form", *hidden, field, el("button", "Filter", type="submit"), clear, action=INCIDENTS
    )


def entries(found: Listing, now: datetime, cut: bool) -> list[Node]:
    """Return open incidents, then ended ones; `cut`: more may have ended than were read."""
    span = SPAN_NAMES[found.filters.last]
    open_ = [_open_row(one, found, now) for one in found.open_rows]
    real, simulated = found.left
    shown = found.real + found.simulated - real - simulated
    nodes = [_section("Open", open_, shown, "No open incident matches.")]
    rest = [f"{real:,}"] if real else []
    rest += [f"{simulated:,} simulated"] if simulated else []
    if rest:
        said = f"and {' and '.join(rest)} more open: narrow the filters."
        nodes.append(el("p", said, class_="more"))
    if found.filters.show not in {"active", "open"}:
        empty = f"No matching incident ended in the last {span}."
        over = [_entry(one, found.filters, now) for one in found.past]
        nodes.append(_section("Resolved", over, len(over), empty))
    if found.more or cut:
        more = f"{found.more:,} more" if found.more else "more"
        least = "at least " if cut and found.more else ""
        said = f"and {least}{more}, older: narrow the filters or the span."
        nodes.append(el("p", said, class_="more"))
    return nodes


def _section(name: str, rows: Sequence[Node], shown: int, empty: str) -> Node:
    """Return a section with the number of incidents in it, which is more than of rows where some are folded."""
    body = el("ol", *rows) if rows else el("p", empty, class_="empty")
    few = f"{shown:,} shown" if shown else "none"
    return el("section", el("h2", name, " ", el("small", few)), body, key=name)


def _open_row(one: Entry, found: Listing, now: datetime) -> Node:
    fold = found.folds.get(one.id)
    return _entry(one, found.filters, now) if fold is None else _fold(fold, one, found, now)


def _fold(fold: Fold, first: Entry, found: Listing, now: datetime) -> Node:
    """Return the row of several incidents, which leads to the list of them."""
    every = found.filters.set(show="active", fault=first.fault).href
    span = f"for up to {duration(now - fold.since)}"
    said = f"{fold.shares} · {span}" if fold.shares else span
    return el(
        "li",
        el("a", *_head(first, fold.title, fold.where), href=every, class_="head"),
        el("div", *nodes(said, first.cluster, fold.holders, fold.users), class_="sub"),
        class_=first.severity.value,
        key=fold.id,
    )


def _head(one: Entry, title: str, label: str) -> list[Node | None]:
    look = one.severity.value if one.is_open else "over"
    return [
        el("span", one.severity.value, class_=f"badge {look}"),
        _state(one),
        el("span", "out of service", class_="badge state", title=one.out_of_service)
        if one.out_of_service
        else None,
        el("span", "simulated", class_="badge simulated") if one.simulated else None,
        el("strong", title),
        el("span", label, class_="where"),
    ]


def _entry(one: Entry, asked: Filters, now: datetime) -> Node:
    opened = one.id == asked.incident
    look = one.severity.value if one.is_open else "over"
    link = el(
        "a",
        *_head(one, one.title, one.label),
        href=asked.set(incident="" if opened else one.id).href,
        aria_current="true" if opened else None,
        class_="head",
    )
    if one.ended_at is None:
        line = nodes(
            f"{one.impact} · for {duration(now - one.since)}", one.cluster, one.holders, one.users
        )
    else:
        line = [f"ended {moment(one.ended_at)}, lasted {duration(one.ended_at - one.since)}"]
    told = [el("div", text, class_="told") for text in one.delivery]
    classes = f"{look} opened" if opened else look
    return el("li", link, el("div", *line, class_="sub"), *told, class_=classes, key=one.id)


def _state(one: Entry) -> Node | None:
    if one.state == State.ACKNOWLEDGED.value:
        by = f"taken by {one.taken_by}" if one.taken_by else "taken"
        return el("span", by, class_="badge taken")
    if one.is_open and one.state == State.OPEN.value:
        return None
    return el("span", one.state, class_="badge state")


def amounts(found: Listing) -> str:
    """Return the counts beside the title; simulated incidents are counted separately."""
    said = [f"{found.real:,} open"] if found.real or not found.simulated else []
    said += [f"{found.simulated:,} simulated open"] if found.simulated else []
    return " · ".join([*said, f"{len(found.past):,} resolved shown"])
