"""Draw the page of one job: thin glue between the snapshot, the hub and Streamlit."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import streamlit as st

from accounting.cost.example import of_cluster
from gpuvigil.errors import HubError
from gpuvigil.hub_client import Hub
from gpuvigil.model import Holder, Incident, Inventory
from gpuvigil.web import page_links
from gpuvigil.web.markup import Html, joined, tag

from ..components import style
from ..data import annotations, live
from ..device.chart import Frame
from ..device.device_query import is_compared, note_if_missing
from ..device.marks import shades, with_notes
from ..device.side_by_side import side_by_side
from ..device.window import CHOICES, WEEK, Window, address, asked
from ..layout import colours, panels
from ..layout.tree import Node, each, show
from ..lists.job_losses import Reliability
from ..lists.jobs import JobNow, find, with_incidents
from ..lists.one_job import holder_named
from . import job_drawing, over_time
from .bounds_strip import strip
from .held_up import with_held_up
from .job_query import Ending, apart, ending, history, incidents, some_of, stood
from .over_time import OverTime, Run
from .page import jobs

# How long each part of the page waits for its first answer; all but the history together about a second.
FIRST_SECONDS, NEXT_SECONDS = 0.6, 0.2
# The history of eight nodes takes up to 24 queries. A page that gives up earlier shows no chart until its next renewal.
HISTORY_SECONDS = 1.5
ENDED_FRESH_SECONDS, INCIDENTS_FRESH_SECONDS = 60.0, 20.0
# The shortest window, in which a job that just began is shown with some time before it.
_SHORTEST = timedelta(minutes=15)
_LONGEST, _ROUND = timedelta(days=7), timedelta(minutes=5)
_UNNAMED = "The link names no job: the page Jobs lists them."


def draw() -> None:
    """Draw the whole page; the current state refreshes at the page's pace, the history more slowly."""
    style("device", "incidents")
    refresh = live.refresh_seconds()
    st.fragment(_now, run_every=refresh)()
    st.fragment(_history, run_every=max(2 * refresh, 5.0))()
    st.fragment(_below, run_every=refresh)()


def _named() -> tuple[Holder, str | None] | None:
    """Return the holder and the cluster, if any, that the address names; None without a job."""
    text = st.query_params.get("job", "")[:300]
    return (holder_named(text), st.query_params.get("cluster") or None) if text.strip() else None


def _found(wait: float = 0.0) -> tuple[JobNow | None, Reliability | None, list[str]]:
    """Return the job if it runs, how often its cluster fails, and notes for the page."""
    named = _named()
    if named is None:
        return None, None, [_UNNAMED]
    board, notes = jobs(live.shared(), named[0], wait)
    job = next(find(board.running, named[1], named[0]), None)
    if job is not None:
        # The answer may be older than what the page lists below as active on its nodes.
        job = with_incidents(job, [one.incident for one in live.current().view().attention])
    here = [one for one in board.reliability if job is not None and one.cluster == job.cluster]
    return job, next(iter(here), None), notes


def _now() -> None:
    view, (job, reliability, notes) = live.current().view(), _found(FIRST_SECONDS)
    title = tag(
        "h1", "Job ", tag("small", tag("a", "All jobs", href=page_links.JOBS)), class_="gv-page"
    )
    st.html(joined(title, panels.warnings(view), panels.notes(notes)))
    if job is None:
        show("job", *_over())
        return
    prices = of_cluster(live.shared().config.cost, job.cluster)
    show(
        "job",
        job_drawing.head(job, view.now),
        job_drawing.tiles(job, reliability, prices, view.now),
    )


def _over() -> Sequence[Node]:
    """Return how the job ended, or a text that it is unknown or still being looked for."""
    named = _named()
    if named is None:
        return ()
    holder, cluster = named
    try:
        said = live.shared().questions.ask(
            ("job ended", cluster, holder),
            lambda hub: ending(hub, str(holder), cluster),
            ENDED_FRESH_SECONDS,
            first_seconds=NEXT_SECONDS,
        )
    except HubError as error:
        return (job_drawing.nothing(live.unanswered("How it ended is not known yet", error)),)
    found: Ending | None = said.value
    if found is None:
        return (
            job_drawing.nothing(
                "Nothing is known of this job: no scheduler or collector has reported it."
            ),
        )
    return job_drawing.ended(found)


def _window(job: JobNow, now: datetime) -> Window:
    """Return the window of the address; by default the job's last hour, or all of a shorter job."""
    # In whole steps, so that for a young job the question stays the same for a while.
    ran = min(max((now - job.started_at) // _ROUND * _ROUND, _SHORTEST), timedelta(hours=1))
    kept = timedelta(days=live.shared().config.hub.telemetry_days)
    return asked(st.query_params.to_dict(), now, kept, ran).window


def _control(job: JobNow, window: Window, now: datetime) -> Html:
    """Return links to the spans that may be shown."""
    ran = min(max(now - job.started_at, _SHORTEST), _LONGEST)
    choices = [(span, name) for span, name in CHOICES if span < ran]
    choices.append((ran, "Whole job" if ran < _LONGEST else "7 d"))
    compared = is_compared()
    week = {"week": "1"} if compared else {}
    links = [
        _chip(job, name, _last(span) | week, abs(span - window.span) < timedelta(seconds=30))
        for span, name in choices
    ]
    other = window.query | ({} if compared else {"week": "1"})
    links.append(_chip(job, "A week ago", other, compared))
    return tag(
        "nav",
        tag(
            "span",
            f"Over time: {window.start:%d %b %H:%M} to {window.end:%H:%M} UTC",
            class_="window",
        ),
        tag("span", *links, class_="choices"),
        class_="gv-control",
        aria_label="Window of time",
    )


def _last(span: timedelta) -> dict[str, str]:
    return {"last": str(round(span.total_seconds()))}


def _chip(job: JobNow, name: str, query: Mapping[str, str], chosen: bool) -> Html:
    href = address(page_links.JOB, {"cluster": job.cluster, "job": str(job.holder)}, query)
    return tag("a", name, href=href, class_="gv-chip", aria_current="true" if chosen else None)


def _read(
    job: JobNow, window: Window, tick: timedelta, first_seconds: float
) -> tuple[OverTime, Sequence[Run]]:
    """Return what the job did and what bounded it, shared by all sessions; HubError before the first answer."""
    nodes = some_of(job.nodes, [one.subject.node for one in job.incidents])
    when = ("last", window.span) if window.live else (window.start, window.end)

    def read(hub: Hub) -> tuple[OverTime, Sequence[Run]]:
        found = history(hub, job.cluster, nodes, window, tick)
        return found, over_time.runs(found, job)

    said = live.shared().questions.ask(
        ("job history", job.cluster, job.holder, tuple(nodes), *when),
        read,
        max(apart(window.span, tick).total_seconds(), 10.0),
        patience_seconds=NEXT_SECONDS,
        first_seconds=first_seconds,
    )
    found: tuple[OverTime, Sequence[Run]] = said.value
    return found


def _a_week_ago(job: JobNow, found: OverTime, tick: timedelta) -> OverTime | None:
    """Return its nodes in the same span a week before, on the same steps; None if not asked for or not known."""
    if not is_compared():
        return None
    onto = found.grid
    then = Window(start=onto.start - WEEK, end=onto.times[-1] + onto.step - WEEK, live=False)
    try:
        said = live.shared().questions.ask(
            ("job week", job.cluster, job.holder, tuple(found.nodes), then.start, onto.count),
            lambda hub: history(hub, job.cluster, found.nodes, then, tick),
            ENDED_FRESH_SECONDS,
        )
    except HubError:
        return None
    known: OverTime = said.value
    return known if known.grid.count == onto.count else None


def _notes(job: JobNow, window: Window) -> tuple[annotations.Note, ...]:
    """Return notes on its nodes in the window; empty before the hub's first answer."""
    start, end = window.start, window.end
    when = window.span if window.live else (start, end)
    try:
        said = live.shared().questions.ask(
            ("job done", job.cluster, when),
            lambda hub: annotations.done(hub, job.cluster, start, end),
            INCIDENTS_FRESH_SECONDS,
            first_seconds=NEXT_SECONDS,
        )
    except HubError:
        return ()
    nodes = {gpu.of_node() for gpu in job.gpus}
    return annotations.notes(said.value, start, end, nodes)


def _history() -> None:
    view, (job, _, _) = live.current().view(), _found()
    if job is None:
        return
    window = _window(job, view.now)
    st.html(_control(job, window, view.now))
    try:
        found, bounds = _read(job, window, _tick(job), HISTORY_SECONDS)
    except HubError as error:
        st.html(panels.notes([live.unanswered("Its history is not known yet", error)]))
        return
    keys = [subject.key for subject in job.gpus]
    of = f"by {len(found.nodes)} of its {len(job.nodes)} nodes"
    part = of if len(found.nodes) < len(job.nodes) else "by all its GPUs"
    bounds = with_held_up(bounds, _stood(job, view.now, 0.0), job, window, view.now)
    done = _notes(job, window)
    written = over_time.marks(over_time.checkpoints(found, keys))
    frame = Frame(
        window=window,
        grid=found.grid,
        marks=with_notes(written, done, window),
        shades=shades(job.incidents, window, view.now, done),
        colours=colours.shown(),
    )
    show("bounds", strip(bounds, window, part))
    before = _a_week_ago(job, found, _tick(job))
    charts = over_time.charts(found, keys, before, job.with_others)
    # Four are two rows of two.
    columns = 3 if sum(one.measured for one in charts) < len(charts) else 2
    side_by_side(charts, frame, "job", columns=columns)
    note_if_missing(week=any(it.look == "before" for one in charts for it in one.curves))
    if told := annotations.sentence(done):
        st.html(tag("p", told, class_="gv-line"))


def _tick(job: JobNow) -> timedelta:
    inventories = live.current().inventories()
    found: list[Inventory] = [
        one for it in {gpu.of_node() for gpu in job.gpus} if (one := inventories.get(it))
    ]
    return timedelta(seconds=max((one.tick_seconds for one in found), default=10.0))


def _below() -> None:
    view, (job, reliability, _) = live.current().view(), _found()
    if job is None:
        return
    window = _window(job, view.now)
    try:
        found, _ = _read(job, window, _tick(job), NEXT_SECONDS)
        written = over_time.checkpoints(found, [subject.key for subject in job.gpus])
    except HubError:
        written = []
    left, right = st.columns([5, 3], gap="medium")
    with left:
        ranks = job_drawing.ranks(job, live.current().inventories(), view.now)
        show("ranks", *each((ranks, job_drawing.network(job, view.now))))
    with right:
        told = job_drawing.incidents(
            _stood(job, view.now),
            [one.id for one in job.incidents if one is job.holds_up],
            view.now,
        )
        show(
            "beside",
            *each(
                (
                    job_drawing.to_do(job),
                    job_drawing.checkpoints(job, reliability, written, view.now),
                    told,
                )
            ),
        )


def _stood(job: JobNow, now: datetime, first_seconds: float = NEXT_SECONDS) -> Sequence[Incident]:
    """Return the incidents since the job began; only the open ones before the hub's first answer."""
    try:
        said = live.shared().questions.ask(
            ("job incidents", job.cluster, job.holder),
            lambda hub: incidents(
                hub, job.cluster, job.nodes, str(job.holder), job.started_at, now
            ),
            INCIDENTS_FRESH_SECONDS,
            first_seconds=first_seconds,
        )
    except HubError:
        return job.incidents
    return stood(said.value, job.incidents)
