"""A GPU's identity and newest numbers, drawn from a small fleet at noon."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np

from dashboard.data.attention import attention
from dashboard.data.hub_queries import clocks
from dashboard.data.views import FleetView, fleet_view
from dashboard.device import drawing
from dashboard.device.curves import Chart, Curve
from dashboard.device.device_address import Device, device
from dashboard.device.ports import ERRORS
from dashboard.device.window import Window, asked
from dashboard.fleet import clusters
from dashboard.layout.details import described, identity, numbers
from dashboard.model.facts import Facts
from dashboard.model.newest_rows import gpu_table
from gpuvigil.config import AnalyzerSettings
from gpuvigil.metrics import GPU
from gpuvigil.model import GpuIdentity, Severity, Subject, Unmeasured
from gpuvigil.numbers_in_words import NOT_MEASURED, of_clock, of_many, title
from gpuvigil.web.page_links import job_page

from .scene import NOON, allocation, busy_fleet, gpu, incident, inventory, node, row

HOSTILE = '<img src=x onerror="alert(1)">'


def view_of(facts: Facts) -> FleetView:
    return fleet_view(facts, AnalyzerSettings(), NOON)


def test_the_numbers_are_every_metric_with_its_unit_and_what_was_not_measured_is_named() -> None:
    (cluster,) = clusters(busy_fleet([node()], 1))
    full = {metric.name: 1 for metric in GPU.metrics}
    shown = numbers(cluster.cells[0], {**full, "at": NOON})
    for metric in GPU.metrics:
        if metric.name not in {
            "up",
            "index",
            "unmeasured_reason",
            "unmeasured_seconds",
            "pcie_present",
        }:
            assert f">{title(metric)}</dt>" in shown
    assert NOT_MEASURED not in shown
    some = numbers(cluster.cells[0], {"power_watts": 3.0, "at": NOON})
    measured, missing = some.split("<summary>Not measured</summary>")
    assert measured.count("<dt") == 1
    assert missing.count(", ") == len(GPU.metrics) - 6 - 1
    assert "Loading the numbers." in numbers(cluster.cells[0], None)


def test_a_gpu_of_which_nothing_is_measured_says_why_and_since_when() -> None:
    lost = incident("gpu_lost", gpu(0), Severity.CRITICAL)
    gone: dict[str, Any] = dict.fromkeys((metric.name for metric in GPU.metrics), None)
    one = {**row(gpu(0)), **gone, "up": 0, "index": 0, "unmeasured_reason": Unmeasured.LOST}
    view = view_of(replace(busy_fleet([node()], 1), gpus=gpu_table([one]), incidents=(lost,)))
    (cell,) = view.clusters[0].cells
    text = numbers(cell, one, view.attention)
    assert NOT_MEASURED not in text
    assert "Nothing has been measured since 11:59:00 UTC on 31 Jan: lost (gpu_lost)." in text


def test_a_gpu_that_nobody_knows_any_more_has_no_numbers_and_says_so() -> None:
    assert "Not measured: its state is not known." in numbers(None, None)


def test_an_identity_leaves_out_what_nobody_said() -> None:
    known = GpuIdentity(uuid="GPU-1", index=0, pci_address="00000000:1B:00.0", model="H100")
    text = identity(known, "GPU-1", "580.95.05")
    assert "<dt>PCI address</dt><dd>00000000:1B:00.0</dd>" in text
    assert "<dt>Driver</dt><dd>580.95.05</dd>" in text
    assert "Serial" not in text
    assert "<dt>UUID</dt><dd>GPU-9</dd>" in identity(None, "GPU-9", None)


def found(query: dict[str, str], facts: Facts) -> Device:
    view = view_of(facts)
    known = device(view, {one.subject: one for one in facts.inventories}, query)
    assert known is not None
    return known


def test_an_address_names_a_gpu_by_index_or_uuid_with_or_without_its_cluster() -> None:
    facts = busy_fleet([node()], 8)
    uuid = gpu(5).gpu or ""
    for query in ({"gpu": "5", "cluster": "simulated"}, {"gpu": uuid}, {"gpu": "5"}):
        one = found({"node": "sim-001", **query}, facts)
        assert one.subject == gpu(5)
        assert one.label == "GPU 5"
        assert one.unknown == ""


def test_a_gpu_or_node_that_is_gone_still_has_its_page_and_says_so() -> None:
    facts = busy_fleet([node()], 8)
    gone = found({"node": "sim-001", "gpu": "GPU-gone"}, facts)
    assert gone.subject == Subject(cluster="simulated", node="sim-001", gpu="GPU-gone")
    assert "GPU 'GPU-gone' is not known on node sim-001" in gone.unknown
    never = found({"node": "sim-099", "cluster": "simulated"}, facts)
    assert "Node 'sim-099' is not known in cluster 'simulated'" in never.unknown
    long_gone = inventory(node(), at=NOON - timedelta(days=2))
    left = replace(facts, last_seen={}, gpus=gpu_table(), inventories=(long_gone,))
    assert "is not known any more" in found({"node": "sim-001"}, left).unknown


def test_an_address_without_a_node_names_nothing() -> None:
    facts = busy_fleet([node()], 1)
    assert device(view_of(facts), {}, {"gpu": "1"}) is None


def test_nothing_from_outside_becomes_html() -> None:
    here = node(HOSTILE)
    facts = busy_fleet([here], 1)
    bad = incident("gpu_xid", gpu(0, here), Severity.CRITICAL, action=HOSTILE, label=HOSTILE)
    facts = replace(facts, incidents=(bad,), inventories=(inventory(here, 1, rack=HOSTILE),))
    one, view = found({"node": HOSTILE, "cluster": "simulated", "gpu": "0"}, facts), view_of(facts)
    window = asked({}, NOON, NOON - NOON).window
    drawn = "".join(
        (
            drawing.head(
                one, HOSTILE, (HOSTILE, HOSTILE), (HOSTILE,), drawing.stamp(view, NOON, NOON)
            ),
            drawing.siblings(one, window.query),
            drawing.control(one, window, NOON),
            drawing.open_incidents(attention([bad], [], NOON), HOSTILE),
            drawing.past([replace(bad, resolved_at=NOON, title=HOSTILE)], NOON),
            described([(HOSTILE, HOSTILE)]),
        )
    )
    assert "<img" not in drawn
    assert "&lt;img" in drawn


def test_a_window_that_is_over_says_how_long_ago_it_ended_and_how_to_go_live() -> None:
    facts = busy_fleet([node()], 1)
    one = found({"node": "sim-001", "gpu": "0"}, facts)
    hour = asked({}, NOON, NOON - NOON).window
    text = drawing.control(one, Window(start=hour.start, end=hour.end, live=False), NOON)
    assert "Fixed window: 11:00:00 to 12:00:00 UTC on 31 Jan, 1 h, ended 0 s ago" in text
    assert "last=3600" in text
    assert ">Live</a>" in text


def test_a_nodes_clock_is_told_also_when_its_telemetry_goes_past_the_hub() -> None:
    one = {"cluster": "c", "offset_seconds": 0.1}
    status = {
        "nodes": [
            {**one, "node": "right", "clock": "right"},
            {**one, "node": "off", "clock": "corrected", "offset_seconds": -2.34},
            {**one, "node": "new", "clock": None, "offset_seconds": None},
        ],
        "wrong_clocks": [{**one, "node": "elsewhere", "offset_seconds": 3600.0}],
    }
    found = clocks(status)
    assert {name: of_clock(told) for (_, name), told in found.items()} == {
        "right": "right",
        "off": "2.3 s behind the hub's; times are put right",
        "elsewhere": "wrong: 3,600.0 s ahead of the hub's",
    }
    assert of_clock(view_of(Facts(now=NOON)).clocks.get(("c", "new"))) is None
    (kept,) = view_of(Facts(now=NOON, clocks={("c", "off"): (5.0, "corrected")})).clocks.values()
    assert kept == (5.0, "corrected")
    assert clocks({"nodes": []}) == {}


def test_what_is_known_by_its_plural_is_one_where_it_is_one() -> None:
    assert of_many(1, "recoveries") == "1 recovery"
    assert of_many(1200, "recoveries") == "1,200 recoveries"
    assert of_many(0, "discards") == "0 discards"
    for things in ERRORS.values():
        assert not of_many(1, things).endswith("s"), things
        assert " times" not in of_many(1, things), things


def test_a_node_says_to_whom_its_gpus_are_allocated_most_first() -> None:
    here, elsewhere = node("a"), node("b")
    held = [
        allocation(gpu(2, here), "job 8", None),
        *(allocation(gpu(n, here), "job 7") for n in range(2)),
        allocation(gpu(0, elsewhere), "job 9"),
    ]
    said = drawing.holders(here, held)
    assert said is not None
    assert re.sub("<[^>]*>", "", said) == "job 7 of ann (2 GPUs), job 8 (1 GPU)"
    assert f'href="{job_page(here.cluster, held[0].holder).replace("&", "&amp;")}"' in said
    assert drawing.holders(node("c"), held) is None
    many = [allocation(gpu(n, here), f"job {n}") for n in range(drawing.MOST_HOLDERS + 2)]
    assert "and 2 more" in (drawing.holders(here, many) or "")
    hostile = drawing.holders(here, [allocation(gpu(0, here), f"job {HOSTILE}", HOSTILE)])
    assert "<img" not in (hostile or "<img")


def test_a_chart_names_its_peers_unless_one_key_for_all_charts_does() -> None:
    lines = [
        Curve(name="median of the others", values=np.ones(2), look="peers"),
        Curve(name="power", values=np.ones(2)),
    ]
    drawn = Chart(key="power", title="Power", unit="W", curves=tuple(lines))
    assert '<i class="key peers"></i>median of the others' in drawing.chart_title(drawn)
    assert "median" not in drawing.chart_title(drawn, with_peers=False)
