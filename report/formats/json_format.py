"""The report as JSON, for programs: stable keys, each with its unit in its name."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from gpuvigil.clock import to_text

from ..model.content import Figure, Report
from ..model.sheet import Sheet

FORMAT = 2  # increases when a key changes its meaning or is removed


def json_text(reports: Sequence[Report]) -> str:
    """Return one object with a list of reports, one per cluster, never summed."""
    document = {"format": FORMAT, "reports": [_report(one) for one in reports]}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _report(report: Report) -> dict[str, Any]:
    found: dict[str, Any] = plain(report)
    found["step_seconds"] = found.pop("step")
    found["gpu_hours_decimals"] = found.pop("digits")
    found["figures"] = {one.key: _figure(one) for one in report.figures}
    found["sheets"] = {one.key: _sheet(one) for one in report.sheets}
    if not report.unjudged:
        del found["unjudged"]
    if not report.currency:
        del found["currency"]
    found["method"]["definitions"] = dict(report.method.definitions)
    return found


def _sheet(sheet: Sheet) -> dict[str, Any]:
    """Return a table keyed by its columns; a range and a trend are lists."""
    names = [one.key for one in sheet.columns]
    rows = [dict(zip(names, map(plain, row), strict=True)) for row in sheet.rows]
    total = None if sheet.total is None else dict(zip(names, map(plain, sheet.total), strict=True))
    return {"heading": sheet.heading, "caption": sheet.caption, "rows": rows, "all": total}


def _figure(figure: Figure) -> dict[str, Any]:
    names = ("label", "unit", "value", "low", "high", "change", "note")
    return {name: getattr(figure, name) for name in names}


def plain(value: Any) -> Any:
    """Return a value of dataclasses as JSON values: times as text, lengths as seconds."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, datetime):
        return to_text(value)
    return value.total_seconds() if isinstance(value, timedelta) else value
