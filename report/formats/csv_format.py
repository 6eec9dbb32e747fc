"""The report as one tidy table, for spreadsheets and for scripts that pick single numbers.

Columns: cluster, simulated, section, item, name, value, unit. A number that was not measured has
no value. `item` is the row within its section: a state, a holder, a time, a number.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpuvigil.clock import to_text

from ..model import formatting
from ..model.content import Report
from ..model.sheet import Kind, Sheet

COLUMNS = ("cluster", "simulated", "section", "item", "name", "value", "unit")
# A spreadsheet takes a text that starts like this for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Row(NamedTuple):
    """One value; None means not measured."""

    section: str
    item: str
    name: str
    value: str | float | None
    unit: str = ""


def csv_text(reports: Sequence[Report]) -> str:
    """Return every report's rows under one header."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for report in reports:
        mark = "SIMULATED" if report.simulated else "no"
        for row in rows(report):
            value = _safe(row.value) if isinstance(row.value, str) else _number(row.value)
            safe = (_safe(report.cluster), mark, row.section, _safe(row.item), row.name)
            writer.writerow((*safe, value, row.unit))
    return out.getvalue()


def rows(report: Report) -> Iterator[Row]:
    """Yield all rows of one report."""
    yield from _about(report)
    yield from _figures(report)
    yield from _rules(report)
    yield from _parts(report)
    yield from _capacity(report)
    yield from _sentences(report)
    for sheet in report.sheets:
        yield from _sheet(sheet)
    yield Row("scattered", "", "gpu_hours", report.scattered_gpu_hours, "GPU-hours")
    yield Row("scattered", "", "hours_judged", report.judged_hours, "hours")
    yield from _hardware(report)
    yield from _times(report)
    yield from _method(report)


def _about(report: Report) -> Iterator[Row]:
    yield Row("about", "", "title", report.title)
    yield Row("about", "", "start", to_text(report.start))
    yield Row("about", "", "end", to_text(report.end))
    yield Row("about", "", "covers", report.covers)
    yield Row("about", "", "time_zone", report.time_zone)
    yield Row("about", "", "made_at", to_text(report.made_at))
    yield Row("about", "", "gpus", report.gpus, "GPUs")
    yield Row("about", "", "nodes", report.nodes, "nodes")
    for model, number in report.models.items():
        yield Row("about", model, "gpus", number, "GPUs")
    for number, sentence in enumerate(report.verdict, 1):
        yield Row("verdict", str(number), "sentence", sentence.text.replace(formatting.GAP, " "))
        yield Row("verdict", str(number), "rests_on", ", ".join(sentence.rests_on))
    yield Row("verdict", "", "comparison", report.comparison)
    yield Row("verdict", "", "revised", report.revised)


def _sentences(report: Report) -> Iterator[Row]:
    for number, action in enumerate(report.actions, 1):
        yield Row("action", str(number), "text", action.text)
        yield Row("action", str(number), "gpu_hours_a_day", action.gpu_hours_a_day, "GPU-hours")
        yield Row("action", str(number), "cost_a_day", action.cost_a_day, report.currency)
        yield Row("action", str(number), "rests_on", ", ".join(action.rests_on))
    for number, old in enumerate(report.became, 1):
        yield Row("became", str(number), "text", old.text)
        yield Row("became", str(number), "became", old.became)
        yield Row("became", str(number), "done", "yes" if old.done else "no")
        yield Row("became", str(number), "rests_on", ", ".join(old.rests_on))


def _sheet(sheet: Sheet) -> Iterator[Row]:
    """Yield a row per cell; two for a range, and for a trend one per span, the newest last."""
    for item, row in sheet.cells():
        for column, cell in zip(sheet.columns, row, strict=True):
            unit = "" if column.kind.is_text else column.kind.value
            unit = sheet.currency if column.kind is Kind.MONEY else unit
            if not isinstance(cell, tuple):
                yield Row(sheet.key, item, column.key, cell, unit)
                continue
            names = ("low", "high") if column.kind is Kind.HOURS else range(1, len(cell) + 1)
            for name, value in zip(names, cell, strict=True):
                yield Row(sheet.key, item, f"{column.key}_{name}", value, unit)


def _figures(report: Report) -> Iterator[Row]:
    for one in report.figures:
        yield Row("figure", one.key, "value", one.value, one.unit)
        if one.low is not None:
            yield Row("figure", one.key, "low", one.low, one.unit)
            yield Row("figure", one.key, "high", one.high, one.unit)
        unit = "percentage points" if one.unit == "percent" else one.unit
        yield Row("figure", one.key, "change", one.change, unit)


def _rules(report: Report) -> Iterator[Row]:
    for one in report.rules:
        yield Row("rule", one.rule, "title", one.title)
        yield Row("rule", one.rule, "noise", one.noise, "answers")
        yield Row("rule", one.rule, "useful", one.useful, "answers")
        yield Row("rule", one.rule, "incidents", one.incidents, "incidents")
        yield Row("rule", one.rule, "unjudged", one.unjudged, "incidents")
        yield Row("rule", one.rule, "told_in", formatting.told_in(one))


def _parts(report: Report) -> Iterator[Row]:
    for part in report.parts:
        yield Row("state", part.state, "gpu_hours", part.gpu_hours, "GPU-hours")
        yield Row("state", part.state, "share", part.percent, "percent")
    yield Row("state", "installed", "gpu_hours", report.installed_gpu_hours, "GPU-hours")


def _capacity(report: Report) -> Iterator[Row]:
    found = report.capacity
    for one in found.losses:
        yield Row("capacity", one.lost_to, "lost_gpu_hours", one.gpu_hours, "GPU-hours")
        yield Row("capacity", one.lost_to, "share", one.percent, "percent")
    yield Row("capacity", "", "in_service_gpu_hours", found.in_service_gpu_hours, "GPU-hours")
    yield Row("capacity", "", "in_service_percent", found.in_service_percent, "percent")
    yield Row("capacity", "", "owned_gpu_hours", found.owned_gpu_hours, "GPU-hours")
    yield Row("capacity", "", "unjudged_gpu_hours", found.unjudged_gpu_hours, "GPU-hours")


def _hardware(report: Report) -> Iterator[Row]:
    for number, it in enumerate(report.troubles, 1):
        item = str(number)
        yield Row("incident", item, "where", it.where)
        yield Row("incident", item, "title", it.title)
        yield Row("incident", item, "severity", it.severity)
        yield Row("incident", item, "since", to_text(it.since))
        yield Row("incident", item, "hours", it.hours, "hours")
        yield Row("incident", item, "open", "yes" if it.open else "no")
        yield Row("incident", item, "gpus", it.gpus, "GPUs")
        yield Row("incident", item, "evidence", it.evidence)
        yield Row("incident", item, "action", it.action)
        yield Row("incident", item, "acknowledged_by", it.acknowledged_by)
    yield Row("incident", "more", "incidents", report.more_troubles, "incidents")


def _times(report: Report) -> Iterator[Row]:
    for day in report.days:
        yield Row("day", day.day, "allocated", day.allocated_percent, "percent")
        yield Row("day", day.day, "used_of_allocated", day.used_of_allocated_percent, "percent")
        yield Row("day", day.day, "allocated_gpu_hours", day.allocated_gpu_hours, "GPU-hours")
        yield Row("day", day.day, "unavailable_gpu_hours", day.unavailable_gpu_hours, "GPU-hours")
    for point in report.points:
        at = to_text(point.at)
        yield Row("time", at, "allocated", point.allocated_percent, "percent of known")
        yield Row("time", at, "used", point.used_percent, "percent of known")
    for cell in report.hours:
        item = f"{formatting.WEEKDAYS[cell.weekday]} {cell.hour:02d}"
        yield Row("week", item, "used", cell.used_percent, "percent of known")


def _method(report: Report) -> Iterator[Row]:
    method = report.method
    yield Row("method", "", "coverage", method.coverage_percent, "percent")
    yield Row("method", "", "quarters", method.quarters, "quarters of an hour")
    yield Row("method", "", "quarters_missing", method.quarters_missing, "quarters of an hour")
    since = method.counted_since
    yield Row("method", "", "counted_since", None if since is None else to_text(since))
    yield Row("method", "", "step", report.step.total_seconds(), "seconds")
    for term, text in method.definitions:
        yield Row("method", term, "definition", text)
    for number, note in enumerate(method.notes, 1):
        yield Row("method", str(number), "note", note)
    for node in method.excluded_nodes:
        yield Row("method", node, "excluded_node", node)
    yield Row("method", "", "version", method.version)
    for version in method.collector_versions:
        yield Row("method", version, "collector_version", version)


def _number(value: float | None) -> str:
    """Return a number as short as is exact: `12`, `12.5`."""
    if value is None:
        return ""
    return f"{value:.0f}" if value == int(value) else repr(value)


def _safe(text: str) -> str:
    """Return the text with an apostrophe in front if a spreadsheet would take it for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text
