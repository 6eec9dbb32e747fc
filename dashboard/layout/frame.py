"""The frame of every page: the bar with the pages and the search, and moving between pages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import parse_qsl, urlencode, urlsplit

import streamlit as st

from gpuvigil.clock import SystemClock
from gpuvigil.errors import HubError
from gpuvigil.model import Subject
from gpuvigil.web import page_links
from gpuvigil.web.markup import joined, tag

from ..components import component, style
from ..data import live
from ..data.questions import PATIENCE_SECONDS
from ..lists.wiring import switch_names
from . import panels, search

_SHELL = (
    '<div class="shell"><nav aria-label="Pages" hidden>'  # shown once it is known that this is not the wall
    '<button class="skip" type="button">Skip to the content</button><span class="brand">gpuvigil</span>'
    '<button class="menu" type="button" aria-expanded="false" aria-controls="gv-pages"><span aria-hidden="true">☰</span> <span class="page"></span></button>'
    '<span class="links" id="gv-pages"></span>'
    '<form role="search"><input name="text" type="search" maxlength="200" autocomplete="off"'
    ' aria-label="Search" placeholder="Find anything"></form>'
    '<span class="when"><button class="pick" type="button" aria-expanded="false" aria-controls="gv-when">'
    '<span class="clock">Now</span><span class="zone"></span></button>'
    '<div class="choose" id="gv-when" hidden><b>Look at another time</b><p class="steps"></p>'
    '<form class="at"><label>Time in UTC <input name="at" type="datetime-local" step="1" required></label>'
    '<button type="submit">Go</button><small class="here"></small></form></div></span>'
    '<select aria-label="Colours"><option value="auto">Auto</option><option value="dark">Dark'
    '</option><option value="light">Light</option></select></nav>'
    '<div class="lost" role="alert" hidden></div></div>'
)
THEMES = ("auto", "dark", "light")
# A page says that it is stale after this many missed refreshes, and at least this many seconds.
RENEWALS, LEAST_SECONDS = 3, 10.0
_SWITCHES_SECONDS = 60.0
# A search that found one page, with that page. It is repeated until the browser has left, as a single message
# may be overtaken.
_LEAVE = "gv-leave"
# The last answered search and its page; the results stay there and show on no other page.
_ANSWERED = "gv-answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page: its path in the address, its script, and its title."""

    path: str
    script: str
    title: str
    listed: bool = True  # whether it is in the bar; other pages are reached by links
    only_now: str = ""  # why there is no page of the past


PAGES = (
    Page(path=page_links.OVERVIEW, script="pages/overview.py", title="Overview"),
    Page(path=page_links.NODE, script="pages/node.py", title="Node", listed=False),
    Page(path=page_links.GPU, script="pages/gpu.py", title="GPU", listed=False),
    Page(path=page_links.INCIDENTS, script="pages/incidents.py", title="Incidents"),
    Page(path=page_links.JOBS, script="pages/jobs.py", title="Jobs"),
    Page(path=page_links.JOB, script="pages/job.py", title="Job", listed=False),
    Page(path=page_links.PEOPLE, script="pages/people.py", title="Users and teams"),
    Page(path=page_links.NETWORK, script="pages/network.py", title="Network"),
    Page(path=page_links.HARDWARE, script="pages/hardware.py", title="Hardware"),
    Page(path=page_links.OUT_OF_SERVICE, script="pages/out_of_service.py", title="Out of service"),
    Page(path=page_links.HANDOVER, script="pages/handover.py", title="Handover", listed=False),
    Page(path=page_links.INFERENCE, script="pages/inference.py", title="Inference"),
    Page(path=page_links.EFFICIENCY, script="pages/efficiency.py", title="Efficiency"),
    Page(path=page_links.REPORTS, script="pages/reports.py", title="Reports"),
    Page(path=page_links.SILENCES, script="pages/silences.py", title="Silences"),
    Page(
        path=page_links.PIPELINE,
        script="pages/pipeline.py",
        title="Monitoring",
        only_now="gpuvigil keeps no history of its own health.",
    ),
)


def frame(current: Page) -> None:
    """Draw the bar over the page; a followed link leaves this page at once.

    If the address asks for the past and this page has none, the script stops here.
    """
    st.session_state["runs"] = st.session_state.get("runs", 0) + 1
    wall = current.path == page_links.OVERVIEW and is_wall()
    style("tokens", "overview", *(["wall"] if wall else []))
    show, moment = component("shell", _SHELL), live.asked_moment()
    asked = show(
        key="shell",
        data={
            "pages": [[page.path, page.title if page.listed else ""] for page in PAGES],
            "current": current.path,
            "title": current.title,
            "wall": wall,
            "theme": _theme(wall),
            "account": live.shared().own_name,
            "leave": st.session_state.get(_LEAVE),
            "at": "" if moment.at is None else page_links.stamp(moment.at),
            "patience": max(RENEWALS * live.refresh_seconds(), LEAST_SECONDS),
        },
        on_go_change=_nothing,
        on_search_change=_nothing,
    )
    if asked.go:
        st.session_state.pop(_LEAVE, None)  # the search's target no longer counts
        go(str(asked.go))
    if asked.search:
        _search(current, *map(str, asked.search))
    if moment.wrong:
        st.html(panels.notes([moment.wrong]))
    if moment.at is not None:
        _past(current, moment.at)


def _past(current: Page, at: datetime) -> None:
    """Draw a banner that this is the past, visible wherever the page is scrolled to."""
    query = {name: value for name, value in st.query_params.items() if name != live.AT}
    back = f"{current.path}?{urlencode(query)}" if query else current.path
    with st.container(key="past"):
        st.html(panels.past(at, SystemClock().now(), back))
    if current.only_now:
        title = tag("h1", current.title, class_="gv-page")
        st.html(joined(title, panels.notes([f"Not known for the past. {current.only_now}"])))
        st.stop()


def _search(current: Page, number: str, text: str) -> None:
    """Go to the page that the search means, or list the pages that it may mean.

    The browser sends the text with every run, so that it is not lost if the next run stops this one.
    """
    here = (current.path, st.query_params.to_dict())
    answered, where = st.session_state.get(_ANSWERED, ("", None))
    if not text or (answered == number and where != here):
        return
    snapshot = live.current()
    view = snapshot.view()
    hits = search.find(
        view, snapshot.inventories(), text, snapshot.allocations(), _switches(view.now)
    )
    if len(hits) == 1 and answered != number:
        # The browser follows a link there, so that "back" returns here.
        st.session_state[_LEAVE] = [number, hits[0].href]
        st.session_state[_ANSWERED] = (number, None)
        st.rerun()
    st.session_state[_ANSWERED] = (number, here)
    style("search")
    st.html(search.results(text, hits))


def _switches(now: datetime) -> Sequence[Subject]:
    """Return the switches that are read; none while the hub does not answer, as all else is found without it."""
    try:
        said = live.shared().questions.ask(
            "switch names",
            lambda hub: switch_names(hub, now),
            _SWITCHES_SECONDS,
            first_seconds=PATIENCE_SECONDS,
        )
    except HubError:
        return ()
    names: Sequence[Subject] = said.value
    return names


def is_fresh() -> bool:
    """Return whether the page was just opened by its address and not reached from another page."""
    return bool(st.session_state["runs"] == 1)


def is_wall() -> bool:
    """Return whether the page is for a wall screen: nothing to click, everything readable from afar."""
    return st.query_params.get("wall") == "1"


def _theme(wall: bool) -> str:
    """Return the theme in the address; else dark on a wall, or "" for the browser's own choice."""
    asked = st.query_params.get("theme", "")
    return asked if asked in THEMES else "dark" if wall else ""


def go(href: str) -> None:
    """Go to another of our pages; any other address changes nothing."""
    parts = urlsplit(href)
    for page in PAGES:
        if page.path == parts.path:
            st.switch_page(page.script, query_params=_lasting(dict(parse_qsl(parts.query))))


def _lasting(query: dict[str, str]) -> Mapping[str, str]:
    """Return the query with a GPU's UUID for its index, which changes if another GPU is lost at boot."""
    index = query.get("gpu", "")
    shown = live.current().view().cluster(query.get("cluster")) if index.isdecimal() else None
    if shown is None or shown.name != query.get("cluster"):
        return query
    cell = shown.find(query.get("node", ""), index)
    return query if cell is None or not cell.subject.gpu else {**query, "gpu": cell.subject.gpu}


def _nothing() -> None:
    """Do nothing: a trigger needs a listener, but the script reads its value when it runs."""
