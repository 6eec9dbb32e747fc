"""Draws the page of one GPU: thin glue between what is known and Streamlit."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np
import streamlit as st

from gpuvigil.clock import SystemClock, duration, moment
from gpuvigil.errors import HubError
from gpuvigil.model import Event, Incident, Subject
from gpuvigil.model.reporting import silent_after
from gpuvigil.web import page_links
from gpuvigil.web.markup import Html, joined, tag

from ..components import style
from ..data import annotations, live
from ..data.questions import CachedAnswer
from ..layout import annotate, colours, details, job_links, panels
from . import curves, device_query, drawing, parts, peers, spans, timeline
from .chart import Frame
from .device_address import Device
from .grid import Floats
from .hub_queries import DeviceData, Numbers, moved, newest
from .marks import marks, shades, with_notes
from .side_by_side import side_by_side
from .window import step

COLUMNS = 3
ARRIVAL = timedelta(seconds=12)
# Links and MIG devices change rarely.
PARTS_SECONDS = 20.0


def draw() -> None:
    """The whole page: what is now renews itself at the page's pace, what was more slowly."""
    style("device")
    refresh = live.refresh_seconds()
    st.fragment(_now, run_every=refresh)()
    view, found = device_query.view_and_device()
    if found is None:
        return
    pace = device_query.pace(found, device_query.window(view), view.now)
    st.fragment(_over_time, run_every=pace)()
    st.fragment(_numbers, run_every=refresh)()
    st.fragment(_parts, run_every=PARTS_SECONDS)()
    annotate.form(found.node.cluster, found.node.node)


def _now() -> None:
    view, found = device_query.view_and_device()
    if found is None or not found.asked_gpu:
        st.html(
            panels.notes(["The link names no GPU: search for a node, a UUID or a PCI address."])
        )
        return
    shown = device_query.window(view)
    cell, items = found.cell, device_query.active_incidents(view, found)
    state = ("not known", "unknown") if cell is None else (cell.state.value, drawing.look(cell))
    at = view.rows_at if cell is None else found.view.heard_at if found.view else None
    reason = "" if cell is None else cell.reason
    held = "" if cell is None else _linked(_held(cell.held, cell.holder), found.subject)
    title = f"{found.node.node} · {found.label}"
    since = min((it.since for it in items if it.subject == found.subject), default=None)
    lasts = f"for {duration(view.now - since)}, since {moment(since)}" if since else ""
    stamp = drawing.stamp(view, at, SystemClock().now())
    st.html(drawing.head(found, title, state, (reason, lasts, held), stamp))
    unknown = found.unknown if drawing.is_loaded(view) else ""
    notes = [text for text in (unknown, shown.wrong) if text]
    if view.warnings or notes:
        st.html(joined(panels.warnings(view), panels.notes(notes)))
    st.html(drawing.siblings(found, shown.window.query))
    left, right = st.columns([5, 3], gap="medium")
    with left:
        st.html(
            drawing.open_incidents(items, "this GPU or its node", loaded=drawing.is_loaded(view))
        )
    with right:
        driver = found.inventory.driver if found.inventory else None
        st.html(details.identity(found.identity, found.gpu, driver))
        st.html(details.described(device_query.failed_before(found, view.now)))


def _linked(text: str, gpu: Subject) -> Html:
    """Jobs and users that it names lead to their pages."""
    held = [one for one in live.current().allocations() if one.subject == gpu]
    users = [one.user for one in held if one.user]
    return job_links.html(text, gpu.cluster, [str(one.holder) for one in held], users)


def _held(held: bool | None, holder: str) -> str:
    if holder:
        return f"allocated to {holder}"
    return {True: "allocated to a process", False: "not allocated", None: "holder not known"}[held]


def _over_time() -> None:
    told = device_query.over_time(whole=False)
    if told is not None:
        found, story = told
        gpu, numbers = _identified(found, story)
        _history(gpu, story, numbers)


def _identified(found: Device, story: DeviceData) -> tuple[Device, Numbers]:
    """The GPU and its numbers, also when only the store still knows which one it was."""
    numbers = story.numbers
    if not found.gpu:
        by_index = {
            uuid: fields["index"] for uuid, fields in numbers.gpus.items() if "index" in fields
        }
        uuid = next((it for it, index in by_index.items() if found.asked_gpu in _texts(index)), "")
        return replace(found, gpu=uuid), numbers
    if found.gpu not in numbers.gpus and found.cell is None:
        return found, _elsewhere(found, story) or numbers
    return found, numbers


def _texts(index: Floats) -> set[str]:
    return {str(int(it)) for it in index[np.isfinite(index)]}


def _elsewhere(found: Device, story: DeviceData) -> Numbers | None:
    """What the store has of the GPU in another node."""
    apart = step(story.window.span, found.tick)
    key = ("moved", found.subject.key, story.window.start, story.window.end, apart)
    try:
        said = live.shared().questions.ask(
            key, lambda hub: moved(hub, found.subject, story.window, apart), 60.0
        )
    except HubError:
        return None
    numbers: Numbers = said.value
    return numbers if numbers.gpus else None


def _history(found: Device, story: DeviceData, numbers: Numbers) -> None:
    subject, window, now = found.subject, story.window, story.now
    incidents = [one for one in story.history.incidents if spans.concerns(one, subject)]
    events = _own_events(story.history.events, subject)
    frame = Frame(
        window=window,
        grid=numbers.grid,
        marks=with_notes(marks(events, window), story.history.notes, window),
        shades=shades(incidents, window, now, story.history.notes),
        colours=colours.shown(),
    )
    st.html(timeline.timeline(_rows(found, story, numbers, incidents), window, now, frame.marks))
    _charts(found, numbers, device_query.a_week_ago(found, story), frame)
    if done := annotations.sentence(story.history.notes):
        st.html(tag("p", done, class_="gv-line"))
    left, right = st.columns(2, gap="medium")
    with left:
        st.html(drawing.events(events, _labels(found)))
    with right:
        st.html(drawing.past(incidents, now))


def _own_events(events: Sequence[Event], gpu: Subject) -> tuple[Event, ...]:
    """Those of the GPU and of what it hangs on; those of its neighbours are theirs."""
    return tuple(one for one in events if one.subject == gpu or one.subject.gpu is None)


def _labels(found: Device) -> dict[str, str]:
    return {found.subject.key: found.label}


def _rows(
    found: Device, story: DeviceData, numbers: Numbers, incidents: Sequence[Incident]
) -> tuple[timeline.Row, ...]:
    window, now = story.window, story.now
    held = [it for it in story.history.allocations if it.subject == found.subject]
    states = spans.states(
        numbers.gpus.get(found.gpu, {}),
        numbers.grid,
        window,
        now,
        allocations=held,
        incidents=incidents,
    )
    hrefs = {one.id: page_links.incident_page(one.id) for one in incidents}
    return (
        timeline.Row(name="State", spans=states, nothing="no data in this window"),
        timeline.Row(
            name="Allocated to",
            spans=spans.holders(held, window, now),
            nothing="nobody, as far as known",
        ),
        timeline.Row(
            name="Incidents", spans=spans.stood(incidents, window, now, hrefs), nothing="none"
        ),
    )


def _charts(found: Device, numbers: Numbers, before: Numbers | None, frame: Frame) -> None:
    others = len(numbers.gpus) - (found.gpu in numbers.gpus)
    drawn = list(curves.charts(numbers, found.gpu, before))
    week = any(line.look == "before" for one in drawn for line in one.curves)
    st.html(drawing.legend(others, week=week))
    device_query.note_if_missing(week=week)
    if compared := peers.against(drawn, others):
        st.html(tag("p", compared, class_="gv-line"))
    wrong = curves.errors(lambda name: numbers.of(found.gpu, name), curves.ERRORS, numbers)
    if wrong.chart is not None:
        drawn.append(wrong.chart)
    side_by_side(drawn, frame, "gpu", columns=COLUMNS, with_peers=False)
    pcie = curves.link(lambda name: numbers.of(found.gpu, name))
    st.html(tag("p", f"{wrong.text} {pcie}.", class_="gv-line"))


def _believed(found: Device) -> timedelta:
    """How old the newest row of a node that has not stopped reporting may be."""
    allowed = live.shared().config.analyzer.silent_after_seconds
    return silent_after(allowed, found.tick.total_seconds())


def _numbers() -> None:
    view, found = device_query.view_and_device()
    if found is None or not found.gpu:
        return
    since = view.now - _believed(found) - ARRIVAL
    items = device_query.active_incidents(view, found)
    try:
        said: CachedAnswer = live.shared().questions.ask(
            ("newest", found.subject.key),
            lambda hub: newest(hub, found.subject, since, view.now + timedelta(minutes=5)),
            0.9 * live.refresh_seconds(),
        )
    except HubError as error:
        st.html(panels.notes([f"The newest numbers are not known: {error}"]))
        return
    st.html(details.numbers(found.cell, said.value, items))


def _parts() -> None:
    view, found = device_query.view_and_device()
    if found is None or not found.gpu:
        return
    fresh = _believed(found) + ARRIVAL
    try:
        said: CachedAnswer = live.shared().questions.ask(
            ("parts", found.subject.key),
            lambda hub: parts.parts(hub, found.subject, view.now, fresh),
            0.9 * PARTS_SECONDS,
        )
    except HubError:
        return  # the numbers above say it already
    shown = parts.drawn(said.value)
    if shown:
        st.html(shown)
