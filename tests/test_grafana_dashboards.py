"""The shipped dashboards, held against Grafana's JSON model as it is documented."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from gpuvigil import metrics
from scripts.grafana_dashboards import FOLDER, texts
from tests.test_prometheus_rules import OTHERS

FILES = sorted(FOLDER.glob("*.json"))
# Of Grafana's "Unit categories", those that are used here.
UNITS = {
    "short",
    "percent",
    "percentunit",
    "watt",
    "kwatth",
    "celsius",
    "bytes",
    "s",
    "cps",
    "hertz",
    "Bps",
    "bps",
}
COUNTED = {"gpuvigil_hub_lines_total", "gpuvigil_hub_queue_bytes", "gpuvigil_alerts_attempts_total"}
COUNTED |= {f"gpuvigil_analyzer_{name}_total" for name in ("passes", "pass_seconds")}


@pytest.mark.medium
def test_the_files_are_what_the_script_writes() -> None:
    assert {file.name: file.read_text(encoding="utf-8") for file in FILES} == dict(texts())


@pytest.fixture(params=FILES, ids=lambda it: it.stem)
def dashboard(request: pytest.FixtureRequest) -> Any:
    return json.loads(request.param.read_text(encoding="utf-8"))


def test_a_dashboard_names_no_data_source_of_its_own(dashboard: Any) -> None:
    assert dashboard["id"] is None
    assert re.fullmatch(r"gpuvigil-[a-z]{1,31}", dashboard["uid"])  # at most 40 characters
    assert dashboard["schemaVersion"] == 39
    variables = {one["name"]: one for one in dashboard["templating"]["list"]}
    assert next(iter(variables)) == "datasource"
    assert variables["datasource"]["type"] == "datasource"
    assert variables["gpuvigil"]["type"] == "textbox"
    assert {json.dumps(it) for it in objects(dashboard, "datasource")} == {
        json.dumps({"type": "prometheus", "uid": "${datasource}"})
    }
    # Whatever is put into a text is a variable of the dashboard, or of Grafana.
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard)))
    assert used <= {*variables, "__field", "__data", "__all"}
    assert any(link["url"] == "${gpuvigil}" for link in dashboard["links"] if "url" in link)


def objects(value: Any, key: str) -> Iterator[Any]:
    for name, one in value.items() if isinstance(value, dict) else enumerate(value):
        if name == key:
            yield one
        elif isinstance(one, dict | list):
            yield from objects(one, key)


def test_panels_lie_side_by_side_and_say_what_they_show(dashboard: Any) -> None:
    taken: set[tuple[int, int]] = set()
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert numbers == sorted(set(numbers))
    titles = [panel["title"] for panel in dashboard["panels"]]
    assert len(titles) == len(set(titles))
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] in {"stat", "timeseries", "table"}
        assert panel["description"].endswith((".", "?")), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        references = [target["refId"] for target in panel["targets"]]
        assert references == sorted(set(references))


def test_a_number_is_coloured_only_where_it_is_said_from_which_on(dashboard: Any) -> None:
    for panel in dashboard["panels"]:
        thresholds = panel["fieldConfig"]["defaults"]["thresholds"]
        first, *others = thresholds["steps"]
        assert thresholds["mode"] == "absolute"
        assert first == {"color": "green" if others else "text", "value": None}
        values = [it["value"] for it in others]
        assert values == sorted(values)
        assert {it["color"] for it in others} <= {"orange", "red"}


def test_a_percentage_is_drawn_on_a_scale_of_its_own(dashboard: Any) -> None:
    whole = {"percent": 100, "percentunit": 1}
    for panel in dashboard["panels"]:
        defaults = panel["fieldConfig"]["defaults"]
        if panel["type"] == "timeseries" and defaults["unit"] in whole:
            assert (defaults["min"], defaults["max"]) == (0, whole[defaults["unit"]])


def test_what_is_not_measured_is_said_to_be_and_is_no_zero(dashboard: Any) -> None:
    for panel in dashboard["panels"]:
        assert panel["fieldConfig"]["defaults"]["noValue"]
        for target in panel["targets"]:
            assert "vector(" not in target["expr"], panel["title"]


def test_all_nodes_are_one_short_expression(dashboard: Any) -> None:
    for one in dashboard["templating"]["list"]:
        if one.get("includeAll"):
            assert one["allValue"] == ".*"
            expressions = [it["expr"] for panel in dashboard["panels"] for it in panel["targets"]]
            assert not [it for it in expressions if f'="${one["name"]}"' in it]


def test_a_table_shows_no_label_of_its_scrape(dashboard: Any) -> None:
    # Prometheus's operator sets these on what a PodMonitor scrapes (its api.md, PodMonitor).
    operators = {"job", "instance", "namespace", "pod", "container", "endpoint"}
    for panel in dashboard["panels"]:
        if panel["type"] == "table":
            ((columns,),) = [[it["options"] for it in panel["transformations"]]]
            assert operators <= set(columns["excludeByName"])
            assert ("Value" in columns["excludeByName"]) is not bool(columns["renameByName"])


def test_every_metric_that_a_panel_asks_for_is_shown_somewhere(dashboard: Any) -> None:
    known = {metric.prometheus for one in metrics.EXPORTED for metric in one.metrics}
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            asked = set(re.findall(r"\bgpuvigil_\w+", target["expr"]))
            assert asked
            assert asked <= known | OTHERS | COUNTED, panel["title"]
