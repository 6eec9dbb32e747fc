"""Draws the overview: thin glue between the shared snapshot and Streamlit."""

from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.components.v2.types import ComponentRenderer

from . import live, panels
from .attention import Attention, from_past
from .cluster import Cell, ClusterView
from .details import gpu_details
from .fleet_map import with_selection
from .markup import joined
from .place import place
from .snapshot import Snapshot
from .views import FleetView

COMPONENTS = Path(__file__).parent / "components"


@cache
def _component(name: str, html: str) -> ComponentRenderer:
    js = (COMPONENTS / f"{name}.js").read_text(encoding="utf-8")
    css = (COMPONENTS / f"{name}.css").read_text(encoding="utf-8")
    return st.components.v2.component(f"gpuvigil.{name}", html=html, css=css, js=js)


def draw() -> None:
    """The whole page; what is live sits in one fragment that renews itself."""
    st.html(COMPONENTS / "overview.css")
    snapshot = live.current()
    st.fragment(_live, run_every=live.refresh_seconds())(snapshot)


def _live(snapshot: Snapshot) -> None:
    view = snapshot.view(complete="gpu" in st.query_params)
    found = place(view, st.query_params.to_dict())
    cluster, selected = found.cluster, found.gpu
    linked, missing = _linked(snapshot, view)
    said = panels.notes([*found.unknown, *missing])
    st.html(joined(panels.header(view, cluster), panels.banners(view.warnings), said))
    if cluster is None:
        return
    _choose_cluster(view, cluster)
    if cluster.strip.gpus:
        st.html(panels.strip(cluster.strip))
    left, right = st.columns([7, 3], gap="medium")
    with left:
        if cluster.strip.gpus:
            _map(view, cluster, selected)
        if selected is not None:
            _details(snapshot, view, selected)
        if cluster.ports:
            st.html(panels.ports(cluster))
    with right:
        _attention(view, linked)
        for other in view.clusters:
            if other is not cluster:
                st.html(joined(panels.other_cluster(other), panels.ports(other)))


def _choose_cluster(view: FleetView, shown: ClusterView) -> None:
    """Clusters are never summed, so one is shown at a time."""
    names = [one.name for one in view.clusters if one.strip.gpus]
    if len(names) > 1:
        st.segmented_control(
            "Cluster", names, default=shown.name, key="cluster_choice", on_change=_cluster_chosen
        )


def _cluster_chosen() -> None:
    chosen = st.session_state["cluster_choice"]
    if chosen:
        st.query_params.from_dict({"cluster": chosen})


def _map(view: FleetView, cluster: ClusterView, selected: Cell | None) -> None:
    st.html(panels.legend(cluster.strip))
    show = _component(
        "fleet_map",
        '<div class="map"><canvas tabindex="0" role="application" aria-roledescription="map">'
        '</canvas><div class="tip" role="tooltip" hidden></div>'
        '<div class="live" aria-live="polite"></div></div>',
    )
    data = with_selection(view.maps[cluster.name], cluster.cells, selected)
    show(key=f"map-{cluster.name}", data=data, on_pick_change=lambda: _picked(cluster.name))


def _picked(cluster: str) -> None:
    pick = st.session_state[f"map-{cluster}"]["pick"]
    _select({**pick, "cluster": cluster})


def _linked(snapshot: Snapshot, view: FleetView) -> tuple[Attention | None, list[str]]:
    """The incident of the address when it is not among those that stand, or why there is none."""
    wanted = st.query_params.get("incident", "")
    if not wanted or any(item.id == wanted for item in view.attention):
        return None, []
    past = snapshot.past(wanted)
    if past is None:
        return None, ["The hub has not said yet what became of the link's incident."]
    item = from_past(past, view.now)
    return item, [] if item else [f"The link's incident {wanted[:80]!r} is not known to the hub."]


def _attention(view: FleetView, linked: Attention | None) -> None:
    st.html(joined(panels.attention_title(view), panels.notes(view.failing_channels)))
    if not view.attention and linked is None:
        return
    show = _component("attention", "<ol></ol>")
    show(
        key="attention",
        data={
            "items": panels.attention_items(view, linked),
            "opened": st.query_params.get("incident", ""),
        },
        on_incident_change=_incident_opened,
        on_gpu_change=_incident_gpu,
    )


def _incident_opened() -> None:
    chosen = st.session_state["attention"]["incident"]
    if chosen:
        st.query_params["incident"] = chosen
    elif "incident" in st.query_params:
        del st.query_params["incident"]


def _incident_gpu() -> None:
    pick = st.session_state["attention"]["gpu"]
    if pick:
        _select(pick)


def _select(pick: dict[str, Any]) -> None:
    """Put the GPU into the address; picking it once more takes it out."""
    wanted = {name: str(pick[name]) for name in ("cluster", "node", "gpu")}
    if all(st.query_params.get(name) == wanted[name] for name in wanted):
        for name in ("node", "gpu"):
            del st.query_params[name]
    else:
        st.query_params.update(wanted)


def _details(snapshot: Snapshot, view: FleetView, cell: Cell) -> None:
    own = {cell.subject.key, cell.subject.of_node().key}
    items = [item for item in view.attention if item.subject.key in own]
    row, identity = snapshot.details(cell.subject), snapshot.identity(cell.subject)
    st.html(gpu_details(cell, row, identity, items))
