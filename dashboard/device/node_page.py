"""Draw the page of one node: thin glue between the data and Streamlit."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from gpuvigil.clock import SystemClock, moment
from gpuvigil.model import Inventory, Subject
from gpuvigil.numbers_in_words import NOT_MEASURED, counted, of_clock
from gpuvigil.web import page_links
from gpuvigil.web.markup import joined, tag

from ..components import style
from ..data import annotations, live
from ..layout import annotate, colours, details, panels
from . import curves, device_query, drawing, host, ports, small_multiples, spans, timeline, window
from .chart import Frame
from .device_address import Device
from .hub_queries import DeviceData
from .marks import marks, shades, with_notes
from .side_by_side import side_by_side
from .small_multiples import Strip

STRIP_PIXELS, LABELS_PIXELS = 74, 16
STRIPS = ("utilization", "power", "temperature", "memory", "clock", "nvlink")
_PARTS = ("Parts", "as its last inventory has them: earlier ones are not kept")
_NO_NODE = "The link names no node: search for a node, a UUID or a PCI address."


def draw() -> None:
    """Draw the whole page; the current state refreshes at the page's pace, the history more slowly."""
    style("device")
    st.fragment(_now, run_every=live.refresh_seconds())()
    view, found = device_query.view_and_device()
    if found is None:
        return
    pace = device_query.pace(found, device_query.window(view), view.now)
    st.fragment(_over_time, run_every=pace)()
    annotate.form(found.node.cluster, found.node.node)


def _now() -> None:
    view, found = device_query.view_and_device()
    if found is None:
        st.html(panels.notes([_NO_NODE]))
        return
    shown = device_query.window(view)
    heard = found.view.heard_at if found.view else None
    silent = found.view is None or found.view.silent
    word = "not known" if found.view is None else "silent" if silent else "reporting"
    since = f"since {moment(heard)}" if silent and heard else ""
    stamp = drawing.stamp(view, heard, SystemClock().now())
    state = (word, "unknown" if silent else "active")
    st.html(drawing.head(found, found.node.node, state, (since, _amounts(found)), stamp))
    unknown = found.unknown if drawing.is_loaded(view) else ""
    notes = [text for text in (unknown, shown.wrong) if text]
    if view.warnings or notes:
        st.html(joined(panels.warnings(view), panels.notes(notes)))
    st.html(drawing.siblings(found, shown.window.query))
    left, right = st.columns([5, 3], gap="medium")
    with left:
        items, loaded = device_query.active_incidents(view, found), drawing.is_loaded(view)
        which = "this node, which is silent" if silent else "this node"
        st.html(drawing.open_incidents(items, which, loaded=loaded))
    with right:
        clock = view.clocks.get((found.node.cluster, found.node.node))
        failed = device_query.failed_before(found, view.now)
        holders = drawing.holders(found.node, live.current().allocations())
        known = (("Allocated to", holders), *_identity(found))
        st.html(details.described((*known, ("Clock", of_clock(clock)), *failed)))


def _amounts(found: Device) -> str:
    cells = found.view.cells if found.view else ()
    states = Counter(cell.state.value for cell in cells)
    said = ", ".join(f"{count} {state}" for state, count in states.most_common())
    return f"{counted(len(cells), 'GPU')}: {said}" if cells else "no GPUs"


def _identity(found: Device) -> Sequence[tuple[str, str | None]]:
    known = found.inventory
    if known is None:
        return (("Cluster", found.node.cluster),)
    driver = known.driver or known.driver_state
    return (
        ("Cluster", found.node.cluster),
        (
            "Rack",
            tag("a", known.rack, href=page_links.rack_page(found.node.cluster, known.rack))
            if known.rack
            else None,
        ),
        ("GPUs", ", ".join(sorted({gpu.model for gpu in known.gpus}))),
        ("Driver", driver),
        ("Not supported", ", ".join(gpu.words for gpu in known.unsupported) or None),
        ("Boot", known.boot if known.collected else None),
        ("Collector", _collector(known)),
        ("Inventory of", moment(known.at)) if live.shared().at is None else _PARTS,
    )


def _collector(known: Inventory) -> str:
    every = f"every {known.tick_seconds:g} s"
    if not known.collected:
        return f"none: read from Prometheus, which scrapes {every}"
    return f"gpuvigil {known.version}, a tick {every}"


def _over_time() -> None:
    told = device_query.over_time(whole=True)
    if told is not None:
        _history(*told)


def _history(found: Device, story: DeviceData) -> None:
    frame = Frame(
        window=story.window,
        grid=story.numbers.grid,
        marks=with_notes(
            marks(story.history.events, story.window), story.history.notes, story.window
        ),
        shades=shades(story.history.incidents, story.window, story.now, story.history.notes),
        colours=colours.shown(),
    )
    gpus = _gpus(found, story)
    if gpus:
        rows = _rows(found, story, gpus)
        st.html(timeline.timeline(rows, story.window, story.now, frame.marks))
        _multiples(found, story, gpus, frame)
    if done := annotations.sentence(story.history.notes):
        st.html(tag("p", done, class_="gv-line"))
    _ports(found, story, frame)
    _host(found, story, frame)
    left, right = st.columns(2, gap="medium")
    with left:
        labels = {_subject(found, uuid).key: label for uuid, label in gpus}
        st.html(drawing.events(story.history.events, labels))
    with right:
        st.html(drawing.past(story.history.incidents, story.now))


def _gpus(found: Device, story: DeviceData) -> tuple[tuple[str, str], ...]:
    """Return UUID and label of every GPU that is there now or that the store has for this window."""
    cells = found.view.cells if found.view else ()
    labels = {cell.subject.gpu or "": cell.label for cell in cells}
    told = found.inventory.gpus if found.inventory else ()
    for gpu in told:
        labels.setdefault(gpu.uuid, gpu.uuid if gpu.index is None else f"GPU {gpu.index}")
    for uuid in story.numbers.gpus:
        labels.setdefault(uuid, uuid)
    return tuple(labels.items())


def _subject(found: Device, uuid: str) -> Subject:
    return Subject(cluster=found.node.cluster, node=found.node.node, gpu=uuid)


def _rows(
    found: Device, story: DeviceData, gpus: Sequence[tuple[str, str]]
) -> tuple[timeline.Row, ...]:
    shown, now, numbers = story.window, story.now, story.numbers
    rows = []
    for uuid, label in gpus:
        subject = _subject(found, uuid)
        states = spans.states(
            numbers.gpus.get(uuid, {}),
            numbers.grid,
            shown,
            now,
            allocations=[it for it in story.history.allocations if it.subject == subject],
            incidents=[it for it in story.history.incidents if spans.concerns(it, subject)],
        )
        place = {"cluster": subject.cluster, "node": subject.node, "gpu": uuid}
        href = window.address(page_links.GPU, place, shown.query)
        nothing = "no data in this window"
        rows.append(timeline.Row(name=label, spans=states, href=href, nothing=nothing))
    incidents = story.history.incidents
    hrefs = {one.id: page_links.incident_page(one.id) for one in incidents}
    stood = spans.stood(incidents, shown, now, hrefs)
    return (*rows, timeline.Row(name="Incidents", spans=stood, nothing="none"))


def _multiples(
    found: Device, story: DeviceData, gpus: Sequence[tuple[str, str]], frame: Frame
) -> None:
    before = device_query.a_week_ago(found, story)
    strips = [
        _marked(
            found,
            story,
            gpus,
            small_multiples.of_gpus(story.numbers, gpus, curves.BY_KEY[key], before),
        )
        for key in STRIPS
    ]
    week = any(it.look == "before" for one in strips for at in one.panels for it in at.curves)
    st.html(drawing.multiples_legend(len(gpus), week=week))
    device_query.note_if_missing(week=week)
    for number in range(0, len(gpus), small_multiples.PANELS):
        here = gpus[number : number + small_multiples.PANELS]
        with st.container(key=f"strips-{number}"):
            st.html(drawing.strip_head(found, here, story.window.query))
            for one in strips:
                _strip(
                    small_multiples.lines(one)[number // small_multiples.PANELS],
                    frame,
                    one is strips[-1],
                )


def _marked(found: Device, story: DeviceData, gpus: Sequence[tuple[str, str]], one: Strip) -> Strip:
    """Add to each panel the marks of its GPU and of the whole node."""
    panels = []
    for (uuid, _), panel in zip(gpus, one.panels, strict=True):
        subject = _subject(found, uuid)
        own = {subject, found.node}
        events = [it for it in story.history.events if it.subject in own]
        incidents = [it for it in story.history.incidents if spans.concerns(it, subject)]
        panels.append(
            replace(
                panel,
                marks=marks(events, story.window),
                shades=shades(incidents, story.window, story.now, story.history.notes),
            )
        )
    return replace(one, panels=tuple(panels))


def _strip(one: Strip, frame: Frame, last: bool) -> None:
    st.html(drawing.strip_title(one.title, one.unit))
    if not one.measured:
        st.html(tag("p", f"{NOT_MEASURED} in this window", class_="gv-line"))
        return
    st.echarts_chart(
        small_multiples.option(one, frame, labelled=last),
        height=STRIP_PIXELS + (LABELS_PIXELS if last else 0),
        key=f"node-{one.key}",
        alt=small_multiples.sentence(one, frame.window),
    )


def _ports(found: Device, story: DeviceData, frame: Frame) -> None:
    numbers = story.numbers
    named = ports.names(found.ports, numbers, found.asked_port)
    if not named:
        return
    traffic = _port_marked(found, story, ports.traffic(named, numbers))
    st.html(drawing.ports_title(len(named)))
    lines = ports.rows(named, found.ports, numbers, found.asked_port)
    with st.container(key="strips-ports"):
        for one in small_multiples.lines(traffic):
            st.html(drawing.port_head([panel.label for panel in one.panels], found.asked_port))
            _strip(one, frame, last=True)
    st.html(ports.table(lines))


def _port_marked(found: Device, story: DeviceData, one: Strip) -> Strip:
    """Add to each panel the marks of its port and of the whole node."""
    panels = []
    for panel in one.panels:
        device, _, port = panel.label.partition("/")
        subject = replace(found.node, device=device, port=port)
        own = {subject, found.node}
        events = [it for it in story.history.events if it.subject in own]
        incidents = [it for it in story.history.incidents if it.subject in own]
        shown = shades(incidents, story.window, story.now, story.history.notes)
        panels.append(replace(panel, marks=marks(events, story.window), shades=shown))
    return replace(one, panels=tuple(panels))


def _host(found: Device, story: DeviceData, frame: Frame) -> None:
    events = [it for it in story.history.events if it.subject == found.node]
    incidents = [it for it in story.history.incidents if it.subject == found.node]
    shown = shades(incidents, story.window, story.now, story.history.notes)
    frame = replace(frame, marks=marks(events, story.window), shades=shown)
    drawn = host.charts(story.numbers)
    side_by_side(drawn, frame, "node", columns=3)
    st.html(tag("p", host.health(story.numbers), class_="gv-line"))
