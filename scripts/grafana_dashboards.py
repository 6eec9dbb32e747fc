"""Write `packaging/grafana/*.json` from the tables here: `python -m scripts.grafana_dashboards`.

The format is Grafana's, "Dashboard JSON model" (docs/sources/dashboards/build-dashboards/view-dashboard-json-model)
and "Panel options"; `schemaVersion` 39 is that of Grafana 11, and later releases migrate older ones.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from scripts.grafana_panels import DASHBOARDS, Panel

FOLDER = Path(__file__).parent.parent / "packaging/grafana"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT = 24, 8
_STAT_HEIGHT = 4


def main() -> None:
    """Write every dashboard."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in texts():
        (FOLDER / name).write_text(text, encoding="utf-8")


def texts() -> Iterator[tuple[str, str]]:
    """Yield the files by name."""
    for name, title, variables, several, panels in DASHBOARDS:
        whole = dashboard(name, title, variables, several, panels)
        yield f"{name}.json", json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def dashboard(
    name: str,
    title: str,
    variables: Sequence[tuple[str, str]],
    several: Sequence[str],
    panels: Sequence[Panel],
) -> dict[str, Any]:
    return {
        "id": None,
        "uid": f"gpuvigil-{name}",
        "title": title,
        "tags": ["gpuvigil"],
        "timezone": "browser",
        "editable": True,
        "graphTooltip": 1,
        "schemaVersion": 39,
        "version": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "annotations": {"list": []},
        "links": [_others(), _page()],
        "templating": {
            "list": [
                _data_source(),
                *(_variable(key, query, key in several) for key, query in variables),
                _address(),
            ]
        },
        "panels": [_panel(number, one, at) for number, one, at in _placed(panels)],
    }


def _placed(panels: Sequence[Panel]) -> Iterator[tuple[int, Panel, dict[str, int]]]:
    """Yield the panels with their places, from left to right, row by row."""
    x = y = height = 0
    for number, panel in enumerate(panels, 1):
        own = _STAT_HEIGHT if panel.kind == "stat" else HEIGHT
        if x + panel.width > WIDTH or (x and own != height):
            x, y = 0, y + height
        height = own
        yield number, panel, {"h": own, "w": panel.width, "x": x, "y": y}
        x += panel.width


def _panel(number: int, panel: Panel, at: dict[str, int]) -> dict[str, Any]:
    table = panel.kind == "table"
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": SOURCE,
            "expr": expr,
            **({"legendFormat": legend} if legend else {}),
            **({"instant": True, "format": "table"} if table else {}),
        }
        for index, (expr, legend) in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "gridPos": at,
        "targets": targets,
        "fieldConfig": {
            "defaults": _defaults(panel),
            "overrides": [],
        },
        "options": _OPTIONS[panel.kind],
        **({"transformations": [_columns(panel)]} if table else {}),
    }


_OPTIONS: dict[str, dict[str, Any]] = {
    "stat": {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}},
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "table": {"showHeader": True},
}
# Labels of the scrape and not of what is shown; the last ones are those of Prometheus's operator.
_OF_SCRAPE = ("job", "instance", "namespace", "pod", "container", "endpoint", "service")
_PERCENT = {"percent": 100, "percentunit": 1}
# What is drawn from zero says nothing there.
_FROM_ANYWHERE = {"celsius", "hertz"}


def _defaults(panel: Panel) -> dict[str, Any]:
    """Return a panel's field options.

    Without thresholds Grafana colours each number from 80 on red (its "Configure thresholds", "Default thresholds").
    """
    usual = "green" if panel.bad_from else "text"
    steps: list[dict[str, Any]] = [{"color": usual, "value": None}]
    steps += [{"color": colour, "value": value} for value, colour in panel.bad_from]
    found: dict[str, Any] = {
        "unit": panel.unit,
        "links": [_of_node(panel.kind == "table")],
        "noValue": panel.nothing,
        "color": {"mode": "palette-classic" if panel.kind == "timeseries" else "thresholds"},
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.kind == "timeseries" and panel.unit not in _FROM_ANYWHERE:
        found["min"] = 0
        found |= {"max": _PERCENT[panel.unit]} if panel.unit in _PERCENT else {}
    return found


def _columns(panel: Panel) -> dict[str, Any]:
    """Return the columns of a table of instant values, without those that need not be shown."""
    hidden = ("Time", "__name__", *_OF_SCRAPE, *(() if panel.value else ("Value",)))
    return {
        "id": "organize",
        "options": {
            "excludeByName": dict.fromkeys(hidden, True),
            "renameByName": {"Value": panel.value} if panel.value else {},
        },
    }


def _of_node(table: bool) -> dict[str, Any]:
    """Return a link from a series to gpuvigil's page of its node."""
    place = "__data.fields" if table else "__field.labels"
    query = f"cluster=${{{place}.cluster}}&node=${{{place}.node}}"
    return {"title": "Open in gpuvigil", "url": f"${{gpuvigil}}/node?{query}", "targetBlank": True}


def _others() -> dict[str, Any]:
    return {
        "type": "dashboards",
        "title": "gpuvigil",
        "tags": ["gpuvigil"],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
    }


def _page() -> dict[str, Any]:
    return {"type": "link", "title": "gpuvigil's pages", "url": "${gpuvigil}", "targetBlank": True}


def _data_source() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }


def _variable(name: str, query: str, several: bool) -> dict[str, Any]:
    return {
        "name": name,
        "label": name.title(),
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": "StandardVariableQuery"},
        "definition": query,
        "refresh": 2,  # when the time range changes
        "sort": 1,
        "multi": several,
        "includeAll": several,
        # All of them by no more than this, and not by the names of a thousand nodes in each query.
        **(
            {"current": {"text": ["All"], "value": ["$__all"]}, "allValue": ".*"} if several else {}
        ),
    }


def _address() -> dict[str, Any]:
    """Return the variable with the address of gpuvigil's pages, for the links."""
    url = "http://127.0.0.1:8501"
    return {
        "name": "gpuvigil",
        "label": "gpuvigil's address",
        "type": "textbox",
        "query": url,
        "current": {"text": url, "value": url},
    }


if __name__ == "__main__":
    main()
