"""Draws the page of incidents: thin glue between the hub's answers and Streamlit."""

from collections.abc import Iterable
from datetime import datetime

import streamlit as st

from gpuvigil.clock import moment
from gpuvigil.errors import HubError
from gpuvigil.model import Silence
from gpuvigil.web.markup import joined, tag

from ..components import style
from ..data import live
from ..layout import panels
from ..layout.tree import el, show
from . import acknowledgement, drawing, part_return, story_drawing, usefulness
from .filters import Filters
from .hub_queries import MOST, NEWEST, Past, Story, newest_past, story
from .listing import listing, standing_entry
from .messages import channels
from .story import Taken, hands, timeline

# What ended is looked up this often; a long list of it less often.
NEWEST_SECONDS = 5.0
MOST_SECONDS = 60.0


def draw() -> None:
    """The whole page; it renews itself as one."""
    style("incidents")
    st.fragment(_live, run_every=live.refresh_seconds())()


def _live() -> None:
    view = live.current().view()
    asked = Filters.of(st.query_params.to_dict())
    past, wrong = _past(asked, view.now)
    found = listing([standing_entry(item) for item in view.attention], past.entries, asked)
    st.html(
        joined(
            tag("h1", "Incidents ", tag("small", drawing.amounts(found)), class_="gv-page"),
            panels.banners(view.warnings),
            panels.notes([*view.failing_channels, *wrong]),
        )
    )
    rows = drawing.entries(found, view.now, cut=not past.reaches(view.now - asked.span))
    # Always two columns: a list that moved to another place would lose the focus.
    with st.container(key="incidents-page"):
        left, right = st.columns([2, 3], gap="medium")
        with left:
            show("incidents", drawing.filters(found), *rows)
        if asked.incident:
            with right, st.container(key="incident"):
                _story(asked, view.now)


def _past(asked: Filters, now: datetime) -> tuple[Past, list[str]]:
    """What is over, as far back as the span asks, and why that may not be all."""
    ask, since = live.shared().questions.ask, now - asked.span
    try:
        newest = ask("incidents newest", lambda hub: newest_past(hub, NEWEST), NEWEST_SECONDS)
        past: Past = newest.value
        old = live.outdated("what is over is", newest)
        if not past.reaches(since):
            most = ask("incidents most", lambda hub: newest_past(hub, MOST), MOST_SECONDS)
            past = most.value.and_newer(past)
            old = old or live.outdated("what was over before is", most)
    except HubError as error:
        return Past(), [f"What is over is not known: {error}"]
    kept = tuple(one for one in past.entries if one.ended_at is None or one.ended_at >= since)
    return Past(entries=kept, cut=not past.reaches(since)), old


def silences(about: Iterable[Silence], now: datetime) -> list[str]:
    """A line for each silence that holds or is to come."""
    return [
        f"{'Silenced' if one.holds(now) else f'To be silenced from {moment(one.starts_at)}'} by {one.by}"
        f" until {moment(one.ends_at)}: {one.reason}"
        for one in about
        if one.ends_at > now
    ]


def _story(asked: Filters, now: datetime) -> None:
    key = ("incident", asked.incident)
    try:
        said = live.shared().questions.ask(
            key, lambda hub: story(hub, asked.incident), live.refresh_seconds()
        )
    except HubError as error:
        st.html(panels.notes([f"This incident is not known yet: {error}"]))
        return
    # In the same tree as what follows: a line that came by itself would move the form.
    old = [
        el("p", line, class_="empty", role="status", key="old")
        for line in live.outdated("this incident is", said)
    ]
    found: Story | None = said.value
    if found is None:
        text = f"The link's incident {asked.incident[:80]!r} is not known to the hub."
        show(
            "story",
            *old,
            el("p", text, class_="empty"),
            el("a", "Close", href=asked.set(incident="").href),
        )
        return
    holding = hands(found, now)
    over = holding.taken is Taken.OVER
    silenced = [
        el("p", line, class_="empty", role="status", key=f"silence-{place}")
        for place, line in enumerate(silences(found.silences, now))
    ]
    show("story", *old, *silenced, story_drawing.head(found, holding, asked, now))
    acknowledgement.form(found.incident, holding, key)
    told = channels(found.notices, now, over=over)
    show("story-body", *story_drawing.body(found, told, timeline(found), asked, now))
    part_return.form(found, key)
    usefulness.form(found.incident)
