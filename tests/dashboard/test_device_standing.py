"""What the page of a node says of incidents that name it among others, and before the hub has answered."""

from dataclasses import replace

from dashboard.data.views import FleetView, fleet_view
from dashboard.device import device_query, drawing
from dashboard.device.device_address import Device
from dashboard.device.spans import concerns
from dashboard.model.facts import Facts
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import Incident, Severity

from .scene import NOON, busy_fleet, gpu, incident, node

FIRST, SECOND, THIRD = (node(f"sim-{number:03d}") for number in (1, 2, 3))


def of_rack() -> Incident:
    """Two nodes of a rack that are silent, told as one."""
    silent = incident("node_silent", FIRST, Severity.CRITICAL)
    return replace(silent, members=(FIRST.key, SECOND.key))


def seen(*incidents: Incident) -> FleetView:
    facts = replace(busy_fleet([FIRST, SECOND, THIRD]), incidents=incidents)
    return fleet_view(facts, AnalyzerSettings(), NOON)


def test_an_incident_of_several_nodes_stands_on_each_that_it_names() -> None:
    view = seen(of_rack())
    found = [
        [it.id for it in device_query.active_incidents(view, Device(node=one))]
        for one in (FIRST, SECOND, THIRD)
    ]
    assert found == [[of_rack().id], [of_rack().id], []]
    assert concerns(of_rack(), gpu(0, SECOND))
    assert not concerns(of_rack(), gpu(0, THIRD))


def test_before_the_hub_has_answered_no_absence_is_claimed() -> None:
    nothing = fleet_view(Facts(now=NOON), AnalyzerSettings(), NOON)
    assert not drawing.is_loaded(nothing)
    early = drawing.open_incidents((), "this node", loaded=drawing.is_loaded(nothing))
    assert "Loading" in early
    assert "No open incident" not in early
    assert "Loading" in drawing.stamp(nothing, None, NOON)
    assert drawing.is_loaded(replace(nothing, oldest_at=NOON))
    known = seen()
    calm = drawing.open_incidents((), "this node", loaded=drawing.is_loaded(known))
    assert "No open incident on this node." in calm
    assert "no live data" in drawing.stamp(known, None, NOON)
