"""The queries of both pages: the device that their address names, and its story, asked once for all."""

from datetime import datetime, timedelta

import streamlit as st

from accounting.hardware.repeat_offenders import Part
from gpuvigil.errors import HubError

from ..data import live, offenders
from ..data.attention import Attention
from ..data.questions import CachedAnswer
from ..data.views import FleetView
from ..layout import panels
from . import drawing
from .device_address import Device, device
from .hub_queries import DeviceData, Numbers, device_data, numbers
from .spans import concerns
from .window import Asked, asked, step, week_before

# A window that is over no longer changes, except for data that arrives late from a spool.
OVER_FRESH_SECONDS = 60.0
# Incidents of a month change slowly.
OFFENDERS_FRESH_SECONDS = 120.0
LATE = timedelta(minutes=2)


def view_and_device() -> tuple[FleetView, Device | None]:
    """Return the view, and the device that the page's address names."""
    snapshot = live.current()
    return snapshot.view(), device(
        snapshot.view(), snapshot.inventories(), st.query_params.to_dict()
    )


def window(view: FleetView) -> Asked:
    """Return the window of the page's address."""
    kept = timedelta(days=live.shared().config.hub.telemetry_days)
    return asked(st.query_params.to_dict(), view.now, kept, view.back)


def pace(found: Device, asked_for: Asked, now: datetime) -> float:
    """Return after how many seconds the charts may show something new."""
    if not asked_for.window.live and asked_for.window.end < now - LATE:
        return OVER_FRESH_SECONDS
    apart = step(asked_for.window.span, found.tick)
    return max(live.refresh_seconds(), apart.total_seconds())


def over_time(*, whole: bool) -> tuple[Device, DeviceData] | None:
    """Draw the choice of windows; return the device and its story, or None after a line that says why."""
    view, found = view_and_device()
    if found is None:
        return None
    asked_for = window(view)
    past = live.shared().at is not None
    compared = is_compared()
    st.html(drawing.control(found, asked_for.window, view.now, past=past, compared=compared))
    said = ask_device_data(found, asked_for, view.now, whole=whole)
    if isinstance(said, str):
        st.html(panels.notes([said]))
        return None
    story: DeviceData = said.value
    notes = [*live.outdated("what happened is", said), *story.history.cut]
    if notes:
        st.html(panels.notes(notes))
    return found, story


def ask_device_data(
    found: Device, asked_for: Asked, now: datetime, *, whole: bool
) -> CachedAnswer | str:
    """Return the `DeviceData` of the window, or a text that says why there is none yet."""
    shown = asked_for.window
    apart = step(shown.span, found.tick)
    when = ("last", shown.span) if shown.live else (shown.start, shown.end)
    key = ("device", found.node.key, *when, apart, whole)
    fresh = 0.9 * pace(found, asked_for, now)
    try:
        return live.shared().questions.ask(
            key, lambda hub: device_data(hub, found.node, shown, apart, now, whole=whole), fresh
        )
    except HubError as error:
        return live.unanswered("What happened in this window is not known", error)


def is_compared() -> bool:
    """Return whether the address also asks for the same span a week before."""
    return st.query_params.get("week") == "1"


def a_week_ago(found: Device, of: DeviceData) -> Numbers | None:
    """Return the node's numbers of the same span a week before, on the same steps; None if not known."""
    if not is_compared():
        return None
    then, apart = week_before(of.window), step(of.window.span, found.tick)
    key = ("week", found.node.key, of.numbers.grid.start, of.numbers.grid.count, apart)
    try:
        said = live.shared().questions.ask(
            key, lambda hub: numbers(hub, found.node, then, apart), OVER_FRESH_SECONDS
        )
    except HubError:
        return None
    known: Numbers = said.value
    return known if known.grid.count == of.numbers.grid.count else None


def note_if_missing(*, week: bool) -> None:
    """Draw a line if a week ago is asked for but nothing was measured then."""
    if is_compared() and not week:
        st.html(panels.notes(["Nothing was measured here in this span a week ago."]))


def failed_before(found: Device, now: datetime) -> tuple[tuple[str, str], ...]:
    """Return how often hardware failed: for a GPU's page the GPU and its slot, else the node."""
    known = found.identity if found.asked_gpu else None
    try:
        said = live.shared().questions.ask(
            ("offenders",), lambda hub: offenders.asked(hub, now), OFFENDERS_FRESH_SECONDS
        )
    except HubError:
        return ()
    here = offenders.of_place(
        said.value,
        found.node.cluster,
        found.node.node,
        known.pci_address if known else None,
        known.serial if known else None,
    )
    names = {Part.NODE: "Failures", Part.SLOT: "Failures of the slot", Part.GPU: "Failures"}
    shown = [one for one in here if not found.asked_gpu or one.part is not Part.NODE]
    return tuple((names[one.part], offenders.sentence(one)) for one in shown)


def active_incidents(view: FleetView, found: Device) -> tuple[Attention, ...]:
    """Return the open incidents on the GPU or its node; for a node's page also on its parts."""
    if found.asked_gpu:
        return tuple(it for it in view.attention if concerns(it.incident, found.subject))
    node, prefix = found.node.key, f"{found.node.key}/"
    return tuple(
        it
        for it in view.attention
        if it.subject.of_node() == found.node
        or any(member == node or member.startswith(prefix) for member in it.incident.members)
    )
