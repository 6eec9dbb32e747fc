"""Draw the page of incidents: thin glue between the hub's answers and Streamlit."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import streamlit as st

from accounting.hardware.node_changes import changed
from gpuvigil.clock import moment
from gpuvigil.errors import HubError
from gpuvigil.model import Incident, Silence, Subject
from gpuvigil.web.markup import Html, joined, tag

from ..components import style
from ..data import live
from ..layout import panels
from ..layout.tree import el, show
from ..model.incident_place import link_end, members
from . import (
    acknowledgement,
    drawing,
    evidence,
    other_steps,
    part_return,
    story_drawing,
    usefulness,
)
from .covers import covered
from .export import as_json, as_markdown
from .filters import Filters
from .hub_queries import (
    MOST,
    NEWEST,
    PastIncidents,
    Similar,
    Story,
    newest_past_incidents,
    similar,
    story,
)
from .listing import Listing, listing, open_entry
from .messages import channels, configured
from .named_places import NamedPlaces
from .story import Assignment, AssignmentState, assignment, on_trial, timeline

# How often ended incidents are read: the newest ones, and a long list.
NEWEST_SECONDS = 5.0
MOST_SECONDS = 60.0
# Ended incidents change little, and reading them costs a thousand records.
SIMILAR_SECONDS = 300.0
# The page's time may be so old, so a silence that was just made already counts.
NEWER = timedelta(seconds=10)


def draw() -> None:
    """Draw the whole page, which refreshes as one."""
    style("incidents", "device")
    st.fragment(_live, run_every=live.refresh_seconds())()


def _live() -> None:
    view = live.current().view()
    asked = Filters.of(st.query_params.to_dict())
    past, wrong = _past(asked, view.now)
    found = listing([open_entry(item) for item in view.attention], past.entries, asked)
    st.html(
        joined(
            _title(asked, found),
            panels.warnings(view),
            panels.notes([*view.failing_channels, *wrong]),
        )
    )
    if asked.incident:
        with st.container(key="incident"):
            _story(asked, view.now)
        return
    rows = drawing.entries(found, view.now, cut=not past.reaches(view.now - asked.span))
    show("incidents", drawing.filters(found), *rows)


def _title(asked: Filters, found: Listing) -> Html:
    if asked.incident:
        return tag("h1", "Incident", class_="gv-page")
    return tag("h1", "Incidents ", tag("small", drawing.amounts(found)), class_="gv-page")


def _past(asked: Filters, now: datetime) -> tuple[PastIncidents, list[str]]:
    """Return ended incidents as far back as the span asks, and lines on why some may be missing."""
    ask, since = live.shared().questions.ask, now - asked.span
    try:
        newest = ask(
            "incidents newest", lambda hub: newest_past_incidents(hub, NEWEST), NEWEST_SECONDS
        )
        past: PastIncidents = newest.value
        old = live.outdated("what is over is", newest)
        if not past.reaches(since):
            most = ask("incidents most", lambda hub: newest_past_incidents(hub, MOST), MOST_SECONDS)
            past = most.value.and_newer(past)
            old = old or live.outdated("what was over before is", most)
    except HubError as error:
        return PastIncidents(), [live.unanswered("Resolved incidents are not known", error)]
    kept = tuple(one for one in past.entries if one.ended_at is None or one.ended_at >= since)
    return PastIncidents(entries=kept, cut=not past.reaches(since)), old


def silences(about: Iterable[Silence], now: datetime) -> list[str]:
    """Return a line for each active or future silence."""
    now += NEWER
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
        st.html(panels.notes([live.unanswered("This incident is not known yet", error)]))
        return
    # In the same tree as what follows, since a line of its own would move the form.
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
    holding = assignment(found, now)
    notes = [
        el("p", line, class_="empty", role="status", key=f"note-{place}")
        for place, line in enumerate([*on_trial(found), *silences(found.silences, now)])
    ]
    head = story_drawing.head(found, holding, asked, _places(found.incident, now), now)
    show("story", *old, *notes, head)
    acknowledgement.form(found.incident, holding, key)
    _body(found, asked, now)
    _more(found, holding, key, now)


def _body(found: Story, asked: Filters, now: datetime) -> None:
    """Draw evidence and timeline on the left; what it covers and what helped before on the right."""
    one, over = found.incident, found.incident.resolved_at is not None
    told = channels(found.notices, now, over=over, there=configured(found.pulses))
    places = covered(members(one), _index)
    with st.container(key="story-body"):
        left, right = st.columns([3, 2], gap="medium")
    with left:
        evidence.draw(one, now)
        changes = changed(found.setups, one.since)
        drawn = story_drawing.facts(found, timeline(found), changes, _places(one, now))
        show("story-facts", *drawn)
    with right:
        past = _similar(one, now)
        show("story-beside", *story_drawing.beside(found, places, past, told, asked, now))


def _places(one: Incident, now: datetime) -> NamedPlaces:
    return NamedPlaces(
        incident=one, until=link_end(one, now), inventories=live.current().inventories()
    )


def _index(gpu: Subject) -> int | None:
    known = live.current().identity(gpu)
    return None if known is None else known.index


def _similar(one: Incident, now: datetime) -> Similar:
    """Return similar incidents; if the hub does not answer, the page goes on without them."""
    try:
        said = live.shared().questions.ask(
            ("similar", one.id), lambda hub: similar(hub, one, now), SIMILAR_SECONDS
        )
    except HubError:
        return Similar(unknown=True)
    found: Similar = said.value
    return found


def _more(found: Story, holding: Assignment, key: tuple[str, str], now: datetime) -> None:
    """Draw the rarely used forms, folded."""
    one = found.incident

    def markdown() -> str:
        changes = changed(found.setups, one.since)
        return as_markdown(found, timeline(found), changes, _similar(one, now), now)

    may = live.shared().may_change
    what = "Hand over, close as false, return a part, rate this alert, export" if may else "Export"
    with st.expander(what):
        if holding.state is not AssignmentState.OVER:
            other_steps.form(one, key)
        part_return.form(found, key)
        usefulness.form(one)
        other_steps.files(found, markdown, lambda: as_json(found))
