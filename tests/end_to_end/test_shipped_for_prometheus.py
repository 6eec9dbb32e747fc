"""The shipped rules and dashboards in a real Prometheus that scrapes the demo."""

import json
import re
from collections.abc import Iterator, Mapping, Set
from typing import Any

import pytest

from tests.demo import Demo, Scraping
from tests.polling import wait_until
from tests.servers import ROOT

pytestmark = [pytest.mark.server, pytest.mark.site, pytest.mark.timeout(400)]

PROMETHEUS, GRAFANA = ROOT / "packaging/prometheus", ROOT / "packaging/grafana"
RULES = sorted(PROMETHEUS.glob("*.rules.yml"))
DASHBOARDS = {file.stem: json.loads(file.read_text()) for file in sorted(GRAFANA.glob("*.json"))}
# What is injected where, and what has to fire there.
FAULTS = {
    "xid79 --node sim-001 --gpu 0": (
        "GpuvigilXidCritical",
        "GpuvigilGpuLost",
        "GpuvigilIncidentCritical",
    ),
    "xid94 --node sim-001 --gpu 1": ("GpuvigilXidWarning", "GpuvigilEccUncorrected"),
    "heat --node sim-001 --gpu 2": ("GpuvigilGpuHot",),
    "nvlink-errors --node sim-001 --gpu 3": ("GpuvigilNvlinkErrors",),
    "gpu-lost --node sim-002 --gpu 0": ("GpuvigilGpuLost", "GpuvigilGpusMissing"),
    "idle --node sim-002 --gpu 1": ("GpuvigilGpuIdleHeld",),
    "port-down --node sim-002": ("GpuvigilPortDown",),
    "port-flap --node sim-001": ("GpuvigilPortFlapping",),
    "bad-cable --node sim-000": ("GpuvigilPortErrors",),
    "driver-hang --node sim-003": ("GpuvigilDriverSilent",),
    "node-silent --node sim-000": ("GpuvigilNodeSilent",),
}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with Demo(tmp_path_factory.mktemp("demo")) as running:
        yield running


@pytest.fixture(scope="module")
def prometheus(demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraping]:
    directory = tmp_path_factory.mktemp("prometheus")
    with Scraping(directory, demo.targets, RULES) as server:
        up = 'count(up{job=~"gpuvigil-.*"} == 1)'
        wait_until("all are scraped", lambda: value(server, up) == 4, 60.0)
        yield server


def value(server: Scraping, expr: str) -> float | None:
    found = server.ask("query", query=expr)["result"]
    return float(found[0]["value"][1]) if found else None


def test_every_panel_of_every_dashboard_has_data(demo: Demo, prometheus: Scraping) -> None:
    demo.inject("xid13", "--node", "sim-003", "--gpu", "0")
    demo.inject("heat", "--node", "sim-003", "--gpu", "1")
    wait_until("an incident", lambda: value(prometheus, "sum(gpuvigil_incidents)"), 60.0)
    wait_until("an Xid", lambda: value(prometheus, "sum(gpuvigil_gpu_xids_total)"), 60.0)
    asked = 0
    for name, dashboard in DASHBOARDS.items():
        chosen = variables(prometheus, dashboard)
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                expr = substituted(target["expr"], chosen)
                asked += 1
                wait_until(
                    f"{name}: {panel['title']}: {expr}",
                    lambda expr=expr: prometheus.ask("query", query=expr)["result"],  # type: ignore[misc]
                    15.0,
                )
    assert asked > 80
    demo.inject("--clear", "all")


def variables(server: Scraping, dashboard: Mapping[str, Any]) -> dict[str, str]:
    """What Grafana would choose at first: the first value, or all of them."""
    chosen: dict[str, str] = {}
    for one in dashboard["templating"]["list"]:
        if one["type"] != "query":
            continue
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", substituted(one["definition"], chosen))
        assert found is not None, one["definition"]
        selector, label = found[1], found[2]
        values = server.ask(f"label/{label}/values", **{"match[]": selector})
        assert values, one["definition"]
        chosen[one["name"]] = f"({'|'.join(values)})" if one["multi"] else values[0]
    return chosen


def substituted(text: str, chosen: Mapping[str, str]) -> str:
    text = re.sub(r"\$(\w+)", lambda it: chosen[it[1]], text)
    assert "$" not in text
    return text


def test_the_rules_fire_on_injected_faults(demo: Demo, prometheus: Scraping) -> None:
    wait_until("calm", lambda: not about(prometheus, "sim-002"), 60.0)
    wanted: set[str] = set()
    for fault, alerts in FAULTS.items():
        name, *place = fault.split()
        if name == "node-silent":
            # What else was injected there is seen before nothing is.
            have_fired(prometheus, wanted)
        demo.inject(name, *place)
        node = place[place.index("--node") + 1]
        wanted |= {f"{alert} {node}" for alert in alerts}
    have_fired(prometheus, wanted)
    demo.end("analyze")
    wait_until("the analyzer", lambda: "GpuvigilScrapeFails" in prometheus.firing(), 60.0)


def about(server: Scraping, node: str) -> set[str]:
    return {one for one in server.firing() if one.endswith(node)}


def have_fired(server: Scraping, wanted: Set[str]) -> None:
    for one in sorted(wanted):
        wait_until(one, lambda one=one: one in fired(server), 120.0)  # type: ignore[misc]


def fired(server: Scraping) -> set[str]:
    """Whatever has fired within the last minutes, as `name node`."""
    found = server.ask("query", query='max_over_time(ALERTS{alertstate="firing"}[5m])')["result"]
    return {f"{one['metric']['alertname']} {one['metric'].get('node', '')}" for one in found}
