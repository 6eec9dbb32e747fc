"""Draw the curves of an incident: the subject and its peers, with the onset."""

from datetime import datetime, timedelta

import streamlit as st

from gpuvigil.clock import moment
from gpuvigil.errors import HubError, StoreError
from gpuvigil.model import Incident
from gpuvigil.web.markup import joined, tag

from ..data import live
from ..device.chart import Frame
from ..device.hub_queries import Numbers, numbers
from ..device.marks import Mark
from ..device.side_by_side import side_by_side
from ..device.window import step
from ..layout import colours
from . import evidence_chart

# How long answers stay fresh: a window that goes on moves in steps of half a minute.
_SECONDS = 30.0
_USUAL_TICK = 10.0


def draw(one: Incident, now: datetime) -> None:
    """Draw the curves that moved most, or a line on why there is none."""
    why = evidence_chart.unseen(one.subject)
    found = None if why else _numbers(one, now)
    own = evidence_chart.loses_data(one)
    shown = (
        ()
        if found is None
        else evidence_chart.charts(found, one.subject, one.since, of_collector=own)
    )
    if not shown or found is None:
        said = why or "No chart: nothing was measured around its onset, or it is still being read."
        st.html(tag("p", said, class_="gv-line"))
        return
    frame = Frame(
        window=evidence_chart.window(one, now),
        grid=found.grid,
        marks=(Mark(at=one.since, label=f"{one.since:%H:%M}", good=False),),
        shades=(),
        colours=colours.shown(),
    )
    with st.container(key="curves"):
        side_by_side(shown, frame, f"incident-{one.id}", columns=evidence_chart.MOST_SHOWN)
    lines = evidence_chart.summary_lines(shown, found.grid, one.since)
    st.html(joined(tag("p", f"Since {moment(one.since)}: {'; '.join(lines)}.", class_="gv-line")))


def _numbers(one: Incident, now: datetime) -> Numbers | None:
    node, shown = one.subject.of_node(), evidence_chart.window(one, now)
    inventory = live.current().inventories().get(node)
    tick = _USUAL_TICK if inventory is None else inventory.tick_seconds
    apart = step(shown.span, timedelta(seconds=max(tick, 1.0)))
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
