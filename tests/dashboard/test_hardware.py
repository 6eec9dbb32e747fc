"""The page of hardware: failures by place, repeat offenders, returns and racks; pure."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from accounting.hardware.repeat_offenders import Failure, offenders
from dashboard.data.views import fleet_view
from dashboard.hardware.drawing import Shown, page
from dashboard.hardware.summary import MOST_PLACES, NO_RACK, Matrix, matrix, racks
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import Rma, RmaState, Severity
from gpuvigil.web.page_links import rack_page

from .scene import NOON, busy_fleet, gpu, incident, inventory, node
from .test_incidents_page import _all, texts

DAY = timedelta(days=1)


def failure(node_: str, at: datetime = NOON - DAY, fault: str = "gpu_lost") -> Failure:
    return Failure(
        at=at,
        severity=Severity.CRITICAL,
        fault=fault,
        incident=f"{node_} {at}",
        cluster="lab",
        node=node_,
        slot="",
        serial="",
    )


def test_failures_are_counted_by_fault_and_rack_and_the_worst_come_first() -> None:
    found = [
        failure("n1"),
        failure("n2"),
        failure("n9"),
        failure("n1", fault="port_down"),
    ]
    told = matrix(found, {("lab", "n1"): "r1", ("lab", "n2"): "r1"})
    assert told.places == ["r1", "n9"]
    assert [(fault, counts, total) for fault, _, counts, total in told.rows] == [
        ("gpu_lost", [2, 1], 3),
        ("port_down", [1, 0], 1),
    ]
    assert told.rows[0][1] == "GPU fell off the bus"
    assert told.most == 2
    many = matrix([failure(f"n{n}") for n in range(MOST_PLACES + 2)], {})
    assert (len(many.places), many.more) == (MOST_PLACES, 2)
    assert many.places[1] == "n1"


def test_racks_stand_beside_each_other_and_a_switch_after_them() -> None:
    found = [failure(name) for name in ("n1", "leaf-01-0", "leaf-01-0", "n2", "n3", "n3", "n3")]
    told = matrix(found, {("lab", "n1"): "r1", ("lab", "n2"): "r2", ("lab", "n3"): "r3"})
    assert told.places == ["r3", "r1", "r2", "leaf-01-0"]
    assert [counts for _, _, counts, _ in told.rows] == [[3, 1, 1, 2]]


def test_a_rack_sums_its_gpus_and_says_how_hot_they_are() -> None:
    nodes = [node("n1", "lab"), node("n2", "lab"), node("n3", "lab")]
    view = fleet_view(busy_fleet(nodes), AnalyzerSettings(), NOON).clusters[0]
    told = {nodes[0]: "r10", nodes[1]: "r2"}
    active = [incident("gpu_lost", gpu(0, nodes[0]), Severity.CRITICAL)]
    first, second, rest = racks(view, told, active)
    assert [one.name for one in (first, second, rest)] == ["r2", "r10", NO_RACK]
    assert (second.gpus, second.power_watts, second.power_limit_watts) == (8, 4000.0, 5600.0)
    assert (second.hottest_celsius, second.middle_celsius) == (60.0, 60.0)
    assert (len(first.open_incidents), len(second.open_incidents)) == (0, 1)
    assert not second.parts
    _, asked, _ = racks(view, told, active, "r10")
    (part,) = asked.parts
    assert (part.nodes, part.gpus, len(part.open_incidents)) == (asked.nodes, 8, 1)
    assert racks(view, {}, active) == []


def test_the_page_leads_from_each_part_to_its_place() -> None:
    part = Rma(
        incident="i1",
        subject=gpu(0, node("n1", "lab")),
        state=RmaState.SHIPPED,
        by="ann",
        at=NOON - DAY,
        note="case 1",
        serial="123",
    )
    over = replace(part, incident="i2", state=RmaState.REPLACED, note="case 2")
    failed = [failure("n1", NOON - DAY), failure("n1", NOON - 2 * DAY)]
    view = fleet_view(busy_fleet([node("n1", "lab")]), AnalyzerSettings(), NOON).clusters[0]
    shown = Shown(
        now=NOON,
        errors=matrix(failed, {}),
        offenders=offenders(failed, NOON),
        returns=(part, over),
        racks=racks(view, {node("n1", "lab"): "r1"}, (), "r1"),
    )
    tree: list[Any] = ["div", {}, *page(shown)]
    said = texts(tree)
    for words in ("GPU fell off the bus", "lemon", "case 1", "4.0 kW", "60 °C"):
        assert words in said
    assert "case 2" not in said
    links = {it[1]["href"] for it in _all(tree) if it[0] == "a"}
    assert matrix(failed, {("lab", "n1"): "r1"}).pages == {"r1": rack_page("lab", "r1")}
    assert {rack_page("lab", "r1"), "/node?cluster=lab&node=n1", "/incidents?incident=i1"} <= links
    one = texts(["div", {}, *page(replace(shown, rack="r1"))])
    assert "n1" in one
    assert "case 1" not in one
    cells = [
        it
        for it in _all(["div", {}, *page(shown)])
        if it[0] == "tr" and it[1].get("key") == "lab r1"
    ]
    numbers = [it[2] for it in cells[0][2:] if it[1].get("class") == "number"]
    assert numbers[2] == "0", "none fails, and that is known"
    silent = [replace(it, silent=len(it.nodes)) for it in shown.racks]
    unheard = [it for it in _all(["div", {}, *page(replace(shown, racks=silent))]) if it[0] == "tr"]
    assert [it[2] for it in unheard[-1][2:] if it[1].get("class") == "number"][2] == "–"
    assert "No node reports rack r9." in texts(["div", {}, *page(replace(shown, rack="r9"))])


def test_where_nothing_failed_it_is_said_and_what_is_not_known_is_left_out() -> None:
    nothing = Matrix(places=(), rows=(), more=0)
    shown = Shown(now=NOON, errors=nothing, offenders=(), returns=(), racks=())
    said = texts(["div", {}, *page(shown)])
    assert "No hardware failed in 30 days." in said
    assert "set collector.rack" in said
    assert "No hardware failed" not in texts(["div", {}, *page(replace(shown, known=False))])
    assert inventory(node()).rack is None
