"""Draw the overview: thin glue between the shared data and Streamlit.

What must be fresh is in a fragment that refreshes at the page's pace, the day's chart in a slower one.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar
from urllib.parse import urlencode

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from accounting.cost.by_use import idle_sentence
from accounting.cost.money import Prices
from accounting.usage import Usage
from accounting.usage.query import recorded, usage
from gpuvigil.clock import SystemClock, from_text
from gpuvigil.errors import HubError
from gpuvigil.hub_client import Hub
from gpuvigil.model import Incident, Job, RecordKind, Scheduler, Subject, readable
from gpuvigil.numbers_in_words import HOLDERS_UNKNOWN, SOME_UNKNOWN
from gpuvigil.schedulers.jobs import going_on
from gpuvigil.web import page_links
from gpuvigil.web.markup import Html, joined, tag

from ..components import component
from ..data import annotations, live, map_frame, trend
from ..data.changes import Change, Happened, changes
from ..data.job_queue import queue_of, sentence
from ..data.questions import PATIENCE_SECONDS
from ..data.views import FleetView
from ..layout import annotate, colours, not_found, panels
from ..layout.frame import go, is_fresh, is_wall
from ..model.cluster import ClusterView
from . import try_this
from .deep_link import Place, place

# How long usage stays fresh; the chart refreshes more often, in case its first answer comes late.
USAGE_SECONDS, TREND_SECONDS = 60.0, 15.0
QUEUE_SECONDS = 30.0
# The most lines that fit beside the chart.
MOST_CHANGES, MOST_CHANGES_ON_WALL = 9, 7
CHART_PIXELS, CHART_PIXELS_ON_WALL = 190, 215

_T = TypeVar("_T")

_MAP = (
    '<div class="map"><div class="bar"><ul class="legend" aria-label="Legend"></ul>'
    '<div class="metrics" role="radiogroup" aria-label="The map shows"></div></div>'
    '<div class="plot"><canvas tabindex="0" role="application" aria-roledescription="map">'
    '</canvas><div class="tip" role="tooltip" hidden></div>'
    '<div class="live" aria-live="polite"></div></div></div>'
)
_TRY = (
    '<aside class="try" hidden aria-label="Try this"><b>Try this</b><ul></ul>'
    '<button type="button" aria-label="Close">×</button></aside>'
)
_ATTENTION = '<div class="attention"><ol></ol><p class="more" hidden></p></div>'


def draw() -> None:
    """Draw the whole page."""
    _follow_old_links()
    refresh = live.refresh_seconds()
    top = st.container()
    left, right = st.columns([7, 3], gap="medium")
    with top:
        st.fragment(_live, run_every=refresh)(right)
    with left:
        st.fragment(_trend, run_every=TREND_SECONDS)()
        if not is_wall():
            _annotate()
            st.fragment(_ports, run_every=5 * refresh)()


def _annotate() -> None:
    _, found = _shown()
    if found.cluster is not None and found.cluster.strip.gpus:
        annotate.form(found.cluster.name)


def _follow_old_links() -> None:
    """Redirect links in messages of earlier versions to the pages that GPUs and incidents now have.

    This is only done for a freshly opened address: somebody who comes back from another page wants to be
    here, and Streamlit leaves this path with the other page's query in the history.
    """
    if not is_fresh():
        return
    asked = st.query_params.to_dict()
    if incident := asked.get("incident"):
        go(page_links.incident_page(incident))
    if asked.get("node") and asked.get("gpu"):
        view = live.current().view()
        found = place(view, asked)
        if found.gpu is not None:
            start, end = _window(asked, view)
            go(page_links.subject_page(found.gpu.subject, start, end))


def _window(asked: Mapping[str, str], view: FleetView) -> tuple[datetime, datetime]:
    try:
        return from_text(asked["from"]), from_text(asked["to"])
    except (KeyError, ValueError):
        return view.span


def _shown() -> tuple[FleetView, Place]:
    view = live.current().view()
    return view, place(view, st.query_params.to_dict())


def _live(beside: DeltaGenerator) -> None:
    view, found = _shown()
    cluster = found.cluster
    head = panels.header(view, cluster, SystemClock().now())
    lost = not_found.redirect_note(st.query_params.get(not_found.ASKED))
    st.html(joined(head, panels.warnings(view), panels.notes((*lost, *found.unknown))))
    if cluster is None:
        return
    if not is_wall():
        _choose_cluster(view, cluster)
    if cluster.strip.gpus:
        # One piece of HTML, since the notes alone may be empty, and empty HTML is not allowed.
        st.html(joined(_strip(cluster, view.now), panels.notes(_queued(view, cluster))))
    with st.container(key="first"):
        left, right = st.columns([7, 3], gap="medium")
    with left:
        if cluster.strip.gpus:
            _map(view, cluster)
    with right:
        _attention(view)
    if not is_wall():
        _try(view)
    # In the same refresh, as each refresh costs server and browser more than what it changes.
    with beside:
        _changes(view, cluster)


def _try(view: FleetView) -> None:
    if found := try_this.links(view):
        component("try_this", _TRY)(key="try", data={"links": found})


def _choose_cluster(view: FleetView, shown: ClusterView) -> None:
    """Let people choose a cluster, as clusters are never summed and only one is shown."""
    names = [one.name for one in view.clusters if one.strip.gpus]
    if len(names) > 1:
        chosen = st.segmented_control("Cluster", names, default=shown.name, key="cluster_choice")
        if chosen and chosen != shown.name:
            st.query_params["cluster"] = chosen
            st.rerun()


def _strip(cluster: ClusterView, now: datetime) -> str:
    said = live.shared().days.get(cluster.name)
    if said is None:
        return panels.strip(cluster.strip)
    hour = trend.before(said, now, timedelta(hours=1), "1 h ago")
    day = trend.before(said, now, timedelta(hours=24), "yesterday")
    return panels.strip(cluster.strip, hour, day)


def _queued(view: FleetView, cluster: ClusterView) -> tuple[str, ...]:
    """Return a line on the queue if a scheduler is asked and jobs wait, else nothing."""

    def ask(hub: Hub) -> tuple[Sequence[Job], Sequence[Scheduler]]:
        waiting = going_on(hub, ("PENDING",))
        told = hub.records(RecordKind.SCHEDULER)
        return waiting, tuple(readable(told, Scheduler.from_record))

    said = _ask("queue", ask, QUEUE_SECONDS, view)
    found = queue_of(cluster, *said) if said is not None and said[0] else None
    return () if found is None or not found.jobs else (f"Queue: {sentence(found)}.",)


def _map(view: FleetView, cluster: ClusterView) -> None:
    show = component("fleet_map", _MAP, "map_data")
    shows = map_frame.metric(st.query_params.get("metric"))
    data = map_frame.framed(
        view.maps[cluster.name],
        cluster.name,
        view.span,
        shows=shows,
        holders_known=cluster.strip.holders_known,
        wall=is_wall(),
    )
    # One key for all clusters, so that another cluster's map replaces this one at once.
    show(key="map", data=data, on_metric_change=_metric)


def _metric() -> None:
    """Keep the map's metric in the address."""
    st.query_params["metric"] = map_frame.metric(st.session_state["map"]["metric"])


def _attention(view: FleetView) -> None:
    st.html(joined(panels.attention_title(view), panels.notes(view.failing_channels)))
    if not view.attention:
        return
    show = component("attention", _ATTENTION)
    items = panels.attention_items(view, live.current().inventories())
    left = len(view.attention) - sum(item["count"] for item in items)
    data = {"items": items, "left": left, "page": page_links.INCIDENTS, "wall": is_wall()}
    show(key="attention", data=data)


def _changes(view: FleetView, cluster: ClusterView) -> None:
    lines = _changed(view, cluster)
    wall = is_wall()
    most = MOST_CHANGES_ON_WALL if wall else MOST_CHANGES
    st.html(panels.changed(lines, most, count_rest=not wall))
    if not wall:
        for other in view.clusters:
            if other is not cluster:
                st.html(joined(panels.other_cluster(other), panels.ports(other)))


# By cluster: the last list of changes, valid until something new happens or a minute is over.
_made: dict[str, tuple[Happened, datetime, tuple[Change, ...]]] = {}


def _changed(view: FleetView, cluster: ClusterView) -> tuple[Change, ...]:
    said = _ask("changes", live.shared().changes.advance, live.refresh_seconds(), view)
    happened = None if said is None else said.get(cluster.name)
    if happened is None:
        return ()
    minute = view.now.replace(second=0, microsecond=0)
    made = _made.get(cluster.name)
    if made is None or made[0] is not happened or made[1] != minute:
        lines = changes(happened, view.now, lambda subject: _name(cluster, subject))
        made = _made[cluster.name] = happened, minute, lines
    return made[2]


def _name(cluster: ClusterView, subject: Subject) -> str:
    cell = cluster.find(subject.node, subject.gpu) if subject.gpu else None
    if cell is not None:
        return f"{subject.node} {cell.label}"
    return " ".join(part for part in (subject.node, subject.device or subject.gpu) if part)


def _ports() -> None:
    _, found = _shown()
    if found.cluster is not None and found.cluster.ports:
        st.html(panels.ports(found.cluster))


def _trend() -> None:
    view, found = _shown()
    if found.cluster is None or not found.cluster.strip.gpus:
        return
    said = _usage(view, found.cluster.name)
    if said is None or trend.since(said) is None:
        st.html(joined(panels.trend_title(None, 0), panels.nothing_counted(asked=said is not None)))
        return
    if said.allocated_percent is None and said.seconds.unattributed > 0:
        why = SOME_UNKNOWN if said.seconds.allocated > 0 else HOLDERS_UNKNOWN
        st.html(joined(panels.trend_title(None, 0), panels.notes([why])))
        return
    wall, incidents = is_wall(), _incidents(view, found.cluster.name, said.start)
    done = _done(view, found.cluster.name, said)
    young = trend.since(said) if trend.is_young(said) else None
    before = _week_ago(view, found.cluster.name) if week_asked() else None
    st.html(
        panels.trend_title(
            young, len(incidents), week=before is not None, way=None if wall else _other_week()
        )
    )
    st.echarts_chart(
        trend.chart(
            said,
            incidents,
            view.now,
            colours.shown(),
            letters=16 if wall else 12,
            before=before,
            done=done,
        ),
        height=CHART_PIXELS_ON_WALL if wall else CHART_PIXELS,
        key="trend",
        alt=f"{trend.sentence(said, incidents)} {annotations.sentence(done)}".strip(),
    )
    if wall:  # on a wall nobody scrolls down
        return
    idle = idle_sentence(said.buckets, Prices(settings=live.shared().config.cost))
    unknown = week_asked() and before is None
    notes = ["Nothing was counted in this span a week ago."] if unknown else []
    notes += [f"In this time: {one}" for one in (idle, trend.lost_sentence(said)) if one]
    if notes:
        st.html(panels.notes(notes))
    if told := annotations.sentence(done):
        st.html(tag("p", told, class_="gv-line"))


def _done(view: FleetView, cluster: str, of: Usage) -> tuple[annotations.Note, ...]:
    """Return the notes of the cluster in the chart's day."""
    start, end = of.start, of.end

    def ask(hub: Hub) -> tuple[annotations.Note, ...]:
        return annotations.notes(annotations.done(hub, cluster, start, end), start, end)

    return _ask(("done", cluster), ask, USAGE_SECONDS, view) or ()


def _usage(view: FleetView, cluster: str) -> Usage | None:
    """Return the last day's usage; None before the hub's first answer."""

    def ask(hub: Hub) -> Usage:
        now = from_text(hub.status()["now"])
        return usage(hub, cluster, now - trend.SPAN, now, now)

    said = _ask(("usage", cluster, "day"), ask, USAGE_SECONDS, view)
    if said is not None:
        live.shared().days[cluster] = said
    return said


def week_asked() -> bool:
    """Return whether the address asks for a week ago beside the last day."""
    return st.query_params.get("week") == "1"


def _other_week() -> Html:
    """Return a link to the same page with or without a week ago."""
    query = {name: value for name, value in st.query_params.items() if name != "week"}
    query |= {} if week_asked() else {"week": "1"}
    href = f"{page_links.OVERVIEW}?{urlencode(query)}" if query else page_links.OVERVIEW
    return tag("a", "Without a week ago" if week_asked() else "Compare with a week ago", href=href)


def _week_ago(view: FleetView, cluster: str) -> Usage | None:
    """Return the recorded usage of the same day a week before; None if nothing was counted."""

    def ask(hub: Hub) -> Usage:
        now = from_text(hub.status()["now"])
        start, end = now - trend.SPAN - trend.WEEK, now - trend.WEEK
        buckets = tuple(sorted(recorded(hub, cluster, start, end), key=lambda one: one.start))
        return Usage(cluster=cluster, start=start, end=end, buckets=buckets)

    said = _ask(("usage", cluster, "a week ago"), ask, USAGE_SECONDS, view)
    return said if said is not None and said.buckets else None


def _incidents(view: FleetView, cluster: str, start: datetime) -> tuple[Incident, ...]:
    """Return the cluster's incidents since then that are worth a line in the chart."""

    def ask(hub: Hub) -> tuple[Incident, ...]:
        return trend.marked(hub.records(RecordKind.INCIDENT, since=start, limit=2000))

    said = _ask(("incidents", "day"), ask, USAGE_SECONDS, view)
    return tuple(one for one in said or () if one.subject.cluster == cluster)


def _ask(
    key: Hashable, ask: Callable[[Hub], _T], fresh_seconds: float, view: FleetView
) -> _T | None:
    """Return the hub's last answer or None; do not wait while the hub is known to be away."""
    patience = 0.0 if view.as_of else PATIENCE_SECONDS
    try:
        said = live.shared().questions.ask(
            key, ask, fresh_seconds, patience_seconds=patience, first_seconds=patience
        )
    except HubError:
        return None
    answer: _T = said.value
    return answer
