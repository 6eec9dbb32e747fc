"""Draw the curves of an incident: the subject and its peers, with the onset."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import streamlit as st

from gpuvigil.clock import moment
from gpuvigil.errors import HubError, StoreError
from gpuvigil.model import Incident, Subject
from gpuvigil.web.markup import joined, tag

from ..data import live
from ..data.questions import FIRST_SECONDS
from ..device.chart import Frame
from ..device.curves import Chart
from ..device.grid import Grid
from ..device.hub_queries import Numbers, numbers, of_nodes
from ..device.marks import Mark
from ..device.side_by_side import side_by_side
from ..device.window import step
from ..layout import colours
from ..model.incident_place import rack_of
from . import evidence_chart
from .evidence_chart import NodeNumbers
from .evidence_nodes import nodes_of_rack, peers

# How long answers stay fresh: a window that goes on moves in steps of half a minute.
_SECONDS = 30.0
_USUAL_TICK = 10.0
# So long the page waits for its peers' first answer; without it the chart is drawn, and they come with a refresh.
_PEERS_SECONDS = 0.3


def draw(one: Incident, now: datetime) -> None:
    """Draw the curves that moved most, or a line on why there is none."""
    shown, grid = _charts(one, now)
    if not shown or grid is None:
        nothing = "No chart: nothing was measured around its onset, or it is still being read."
        said = evidence_chart.unseen(one.subject) or nothing
        st.html(tag("p", said, class_="gv-line"))
        return
    frame = Frame(
        window=evidence_chart.window(one, now),
        grid=grid,
        marks=(Mark(at=one.since, label=f"{one.since:%H:%M}", good=False),),
        shades=(),
        colours=colours.shown(),
    )
    with st.container(key="curves"):
        side_by_side(shown, frame, f"incident-{one.id}", columns=evidence_chart.MOST_SHOWN)
    lines = evidence_chart.summary_lines(shown, grid, one.since)
    st.html(joined(tag("p", f"Since {moment(one.since)}: {'; '.join(lines)}.", class_="gv-line")))


def _charts(one: Incident, now: datetime) -> tuple[Sequence[Chart], Grid | None]:
    """Return the charts that show it best, and their grid; none without an answer."""
    if evidence_chart.unseen(one.subject):
        return (), None
    inventories = live.current().inventories()
    rack = rack_of(one, inventories)
    own = evidence_chart.loses_data(one)
    if one.subject.kind == "node":
        nodes = _nodes(one, rack, now)
        found = evidence_chart.charts_of_nodes(nodes, one.since, of_collector=own)
        return found, nodes.own[0].grid if nodes.own else None
    said = _numbers(one, now)
    if said is None:
        return (), None
    return evidence_chart.charts(said, one.subject, one.since), said.grid


def _nodes(one: Incident, rack: str, now: datetime) -> NodeNumbers:
    """Return the numbers of its node, or of its rack's nodes, and of peers once they are read."""
    inventories, cluster = live.current().inventories(), one.subject.cluster

    def chosen() -> Sequence[Subject]:
        return nodes_of_rack(cluster, rack, inventories) if rack else (one.subject,)

    own = _of_nodes(one, "nodes", chosen, now)
    beside = _of_nodes(one, "peers", lambda: peers(one, rack, inventories), now, _PEERS_SECONDS)
    if not rack:
        return NodeNumbers(own=own, peers=beside)
    return NodeNumbers(
        own=own, peers=beside, own_name="median of its nodes", peers_name="other racks"
    )


def _of_nodes(
    one: Incident,
    what: str,
    nodes: Callable[[], Sequence[Subject]],
    now: datetime,
    first_seconds: float = FIRST_SECONDS,
) -> Sequence[Numbers]:
    """Return the numbers of these nodes; empty without an answer."""
    shown, apart = evidence_chart.window(one, now), _apart(one, now)
    try:
        said = live.shared().questions.ask(
            (f"incident {what}", one.id, shown.start, shown.end),
            lambda hub: of_nodes(hub, nodes(), shown, apart, evidence_chart.GPU_FIELDS),
            _SECONDS,
            first_seconds=first_seconds,
        )
    except (HubError, StoreError):
        return ()
    found: Sequence[Numbers] = said.value
    return found


def _apart(one: Incident, now: datetime) -> timedelta:
    """Return the distance between points."""
    inventory = live.current().inventories().get(one.subject.of_node())
    tick = _USUAL_TICK if inventory is None else inventory.tick_seconds
    return step(evidence_chart.window(one, now).span, timedelta(seconds=max(tick, 1.0)))


def _numbers(one: Incident, now: datetime) -> Numbers | None:
    """Return the numbers of its GPU or port, and of the others of its node."""
    node, shown, apart = one.subject.of_node(), evidence_chart.window(one, now), _apart(one, now)
    whole = one.subject.gpu is None
    try:
        said = live.shared().questions.ask(
            ("incident numbers", node.key, shown.start, shown.end, whole),
            lambda hub: numbers(hub, node, shown, apart, whole=whole),
            _SECONDS,
        )
    except (HubError, StoreError):
        return None
    found: Numbers = said.value
    return found
