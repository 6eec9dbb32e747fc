"""Draw the handover of a shift, a page that one link shares."""

from collections.abc import Sequence
from datetime import datetime

import streamlit as st

from gpuvigil.clock import duration, from_text, moment, to_text
from gpuvigil.errors import HubError
from gpuvigil.model import Incident
from gpuvigil.web import page_links
from gpuvigil.web.markup import joined, tag

from ..components import style
from ..data import live
from ..layout import job_links, panels
from ..layout.tree import Node, el, show
from ..model.fold import Fold, folds, rows
from ..model.incident_place import Inventories, place_page
from .hub_queries import records
from .summary import Done, Shift, sentence, shift

_SECONDS = 15.0
_MOST = 30


def draw() -> None:
    """Draw the whole page; without a time in its address it is the shift up to now, which refreshes."""
    style("incidents")
    st.fragment(_live, run_every=_SECONDS)()


def _live() -> None:
    view = live.current().view()
    asked = st.query_params.get("to", "")
    end, wrong = end_of(asked, view.now)
    # For the shift up to now the key is empty, so that all sessions share an answer while it is fresh.
    key = ("handover", asked if asked and not wrong else "")
    try:
        said = live.shared().questions.ask(key, lambda hub: records(hub, end), _SECONDS)
    except HubError as error:
        title = tag("h1", "Shift handover", class_="gv-page")
        st.html(joined(title, panels.notes([live.unanswered("The shift is not known", error)])))
        return
    found = shift(said.value, end)
    span = f"{moment(found.start)} to {moment(found.end)}"
    st.html(
        joined(
            tag("h1", "Shift handover ", tag("small", span), class_="gv-page"),
            panels.warnings(view),
            panels.notes([*([wrong] if wrong else []), *live.outdated("this shift is", said)]),
        )
    )
    show("handover", *body(found, live.current().inventories()))


def end_of(asked: str, now: datetime) -> tuple[datetime, str]:
    """Return the end of the shift that an address asks for, and an error text or ""."""
    if not asked:
        return now, ""
    try:
        end = from_text(asked)
    except ValueError:
        return now, "The link's time cannot be read: this is the shift up to now."
    return min(end, now), ""


def body(found: Shift, inventories: Inventories) -> list[Node | None]:
    """Return a sentence, open incidents, what was done, and ended incidents; new ones are marked in both."""
    return [
        el(
            "p",
            el("b", sentence(found)),
            " ",
            el("a", "Link to this shift", href=page_links.handover_page(found.end)),
            " ",
            el("a", "Nodes out of service", href=page_links.OUT_OF_SERVICE),
            key="sentence",
        ),
        _incidents("Still open", found.still_open, found, inventories),
        _done(found.done),
        _incidents("Ended", found.ended, found, inventories),
        _silences(found),
    ]


def _incidents(name: str, shown: Sequence[Incident], of: Shift, inventories: Inventories) -> Node:
    found = folds(one for one in shown if not _is_over(one, of.end))
    listed = rows(shown, found)[:_MOST]
    lines = [
        _fold(found[one.id], of.end) if one.id in found else _line(one, of, inventories)
        for one in listed
    ]
    more = len(shown) - sum(
        len(found[one.id].incidents) if one.id in found else 1 for one in listed
    )
    return el(
        "section",
        el("h2", name, el("small", str(len(shown)))),
        el("ul", *lines, class_="others") if lines else el("p", "Nothing.", class_="empty"),
        el("p", f"and {more} more", class_="more") if more else None,
        key=name,
    )


def _line(one: Incident, of: Shift, inventories: Inventories) -> Node:
    where = place_page(one, one.resolved_at or of.end, inventories)
    return el(
        "li",
        el("span", one.severity.value, class_=f"badge {one.severity.value}"),
        el("span", "new", class_="badge state") if one.since > of.start else None,
        el("a", one.title, href=page_links.incident_page(one.id)),
        " ",
        el("a", one.label or one.subject.key, href=where, class_="where"),
        " ",
        el("span", "simulated", class_="badge simulated") if one.simulated else None,
        el("span", f"· {_state(one, of.end)}", class_="sub"),
        _suffers(one, of.end),
        key=one.id,
    )


def _fold(fold: Fold, end: datetime) -> Node:
    """Return the line of several incidents, which leads to the list of those that are open now."""
    one = fold.first
    taken = f", taken by {one.acknowledged_by}" if one.acknowledged_by else ""
    return el(
        "li",
        el("span", one.severity.value, class_=f"badge {one.severity.value}"),
        el("a", fold.title, href=page_links.open_incidents_of(one.fault)),
        f" {fold.where} ",
        el("span", "simulated", class_="badge simulated") if one.simulated else None,
        el("span", f"· for up to {duration(end - fold.since)}{taken}", class_="sub"),
        el(
            "div",
            *job_links.nodes(fold.shares, one.subject.cluster, fold.holders, fold.users),
            class_="sub",
        ),
        key=fold.id,
    )


def _is_over(one: Incident, end: datetime) -> bool:
    return one.resolved_at is not None and one.resolved_at <= end


def _suffers(one: Incident, end: datetime) -> Node | None:
    """Return whose work an open incident affects; None if it is over."""
    said = one.impact
    if _is_over(one, end) or not said.text:
        return None
    named = job_links.nodes(said.text, one.subject.cluster, said.holders, said.users)
    return el("div", *named, class_="sub")


def _state(one: Incident, end: datetime) -> str:
    if one.resolved_at is not None and _is_over(one, end):
        return f"ended {moment(one.resolved_at)}, lasted {duration(one.resolved_at - one.since)}"
    taken = f", taken by {one.acknowledged_by}" if one.acknowledged_by else ", nobody has taken it"
    return f"for {duration(end - one.since)}{taken}"


def _done(done: Sequence[Done]) -> Node:
    rows = [
        el(
            "li",
            el("time", moment(one.at), datetime=to_text(one.at)),
            el(
                "div",
                el("b", one.who),
                f" {one.text} ",
                el("a", "incident", href=page_links.incident_page(one.incident))
                if one.incident
                else None,
            ),
        )
        for one in done[:_MOST]
    ]
    more = len(done) - len(rows)
    return el(
        "section",
        el("h2", "What was done", el("small", str(len(done)))),
        el("ol", *rows, class_="timeline") if rows else el("p", "Nothing.", class_="empty"),
        el("p", f"and {more} more", class_="more") if more else None,
        key="done",
    )


def _silences(found: Shift) -> Node | None:
    if not found.silences:
        return None
    rows = [
        el("li", el("code", " ".join(one.matchers)), f" until {moment(one.ends_at)}, {one.by}")
        for one in found.silences[:_MOST]
    ]
    return el("section", el("h2", "Silenced"), el("ul", *rows), key="silenced")
