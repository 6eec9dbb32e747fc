"""The report as one tidy table: opens in a spreadsheet, and a line of a script picks any number.

Columns: cluster, simulated, section, item, name, value, unit. A number that was not measured has
no value. `item` says which row of a section it is: a state, a holder, a time, a number.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpuvigil.clock import to_text

from . import formatting
from .content import Holder, IdleSpell, Report, Underuse

COLUMNS = ("cluster", "simulated", "section", "item", "name", "value", "unit")
# A spreadsheet takes a text that begins so for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Row(NamedTuple):
    """One value; None was not measured."""

    section: str
    item: str
    name: str
    value: str | float | None
    unit: str = ""


def csv_text(reports: Sequence[Report]) -> str:
    """Every report's rows below one head."""
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
    """All rows of one report."""
    yield from _about(report)
    yield from _figures(report)
    yield from _rules(report)
    yield from _parts(report)
    yield from _capacity(report)
    yield from _holders(report)
    yield from _idle(report)
    yield from _underused(report)
    yield from _costs(report)
    yield from _hardware(report)
    yield from _times(report)
    yield from _method(report)


def _about(report: Report) -> Iterator[Row]:
    yield Row("about", "", "title", report.title)
    yield Row("about", "", "start", to_text(report.start))
    yield Row("about", "", "end", to_text(report.end))
    yield Row("about", "", "made_at", to_text(report.made_at))
    yield Row("about", "", "gpus", report.gpus, "GPUs")
    yield Row("about", "", "nodes", report.nodes, "nodes")
    for model, number in report.models.items():
        yield Row("about", model, "gpus", number, "GPUs")
    for number, sentence in enumerate(report.verdict, 1):
        yield Row("verdict", str(number), "sentence", sentence.replace(formatting.GAP, " "))
    for number, text in enumerate(report.actions, 1):
        yield Row("action", str(number), "text", text)
    yield Row("verdict", "", "comparison", report.comparison)


def _costs(report: Report) -> Iterator[Row]:
    for one in report.costs:
        yield Row("cost", one.key, "gpu_hours", one.gpu_hours, "GPU-hours")
        yield Row("cost", one.key, "cost", one.cost, report.currency)


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


def _holders(report: Report) -> Iterator[Row]:
    for number, one in enumerate(report.holders, 1):
        yield Row("holder", str(number), "holder", one.holder)
        yield Row("holder", str(number), "user", one.user)
        yield Row("holder", str(number), "command", one.command)
        yield Row("holder", str(number), "gpus_at_once", one.gpus, "GPUs")
        yield from _held(str(number), one)
    if report.holders_rest is not None:
        yield Row("holder", "more", "holders", report.more_holders, "holders")
        yield from _held("more", report.holders_rest)
    yield from _held("all", report.holders_total)


def _held(item: str, one: Holder) -> Iterator[Row]:
    yield Row("holder", item, "gpu_hours", one.gpu_hours, "GPU-hours")
    yield Row("holder", item, "used", one.used_percent, "percent")
    yield Row("holder", item, "zero_gpu_hours", one.zero_gpu_hours, "GPU-hours")


def _idle(report: Report) -> Iterator[Row]:
    for number, one in enumerate(report.idle, 1):
        yield from _spell(str(number), one)
    if report.idle_rest is not None:
        yield Row("idle", "more", "spells", report.more_idle, "incidents")
        yield Row("idle", "more", "gpu_hours", report.idle_rest.gpu_hours, "GPU-hours")
    yield Row("idle", "all", "gpu_hours", report.idle_gpu_hours, "GPU-hours")


def _spell(item: str, one: IdleSpell) -> Iterator[Row]:
    yield Row("idle", item, "where", one.where)
    yield Row("idle", item, "holder", one.holder)
    yield Row("idle", item, "user", one.user)
    yield Row("idle", item, "since", None if one.since is None else to_text(one.since))
    yield Row("idle", item, "gpus", one.gpus, "GPUs")
    yield Row("idle", item, "hours", one.hours, "hours")
    yield Row("idle", item, "gpu_hours", one.gpu_hours, "GPU-hours")
    yield Row("idle", item, "still", "yes" if one.still else "no")


def _underused(report: Report) -> Iterator[Row]:
    if not report.underused_hours:
        return
    for number, one in enumerate(report.underused, 1):
        yield from _underuse(str(number), one, report.currency)
    yield from _underuse("all", report.underused_total, report.currency)
    yield Row("underused", "all", "hours_judged", report.underused_hours, "hours")
    yield Row("underused", "scattered", "gpu_hours", report.scattered_gpu_hours, "GPU-hours")


def _underuse(item: str, one: Underuse, currency: str) -> Iterator[Row]:
    yield Row("underused", item, "holder", one.holder)
    yield Row("underused", item, "user", one.user)
    yield Row("underused", item, "advice", one.advice)
    yield Row("underused", item, "gpus_at_once", one.gpus, "GPUs")
    yield Row("underused", item, "gpu_hours", one.gpu_hours, "GPU-hours")
    if one.cost is not None:
        yield Row("underused", item, "cost", one.cost, currency)


def _hardware(report: Report) -> Iterator[Row]:
    for one in report.faults:
        yield Row("fault", one.title, "incidents", one.incidents, "incidents")
        yield Row("fault", one.title, "gpus", one.gpus, "GPUs")
        yield Row("fault", one.title, "hours", one.hours, "hours")
        yield Row("fault", one.title, "standing", one.standing, "incidents")
    for number, it in enumerate(report.troubles, 1):
        item = str(number)
        yield Row("incident", item, "where", it.where)
        yield Row("incident", item, "title", it.title)
        yield Row("incident", item, "severity", it.severity)
        yield Row("incident", item, "since", to_text(it.since))
        yield Row("incident", item, "hours", it.hours, "hours")
        yield Row("incident", item, "standing", "yes" if it.standing else "no")
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
    """As short as it is exact: `12`, `12.5`."""
    if value is None:
        return ""
    return f"{value:.0f}" if value == int(value) else repr(value)


def _safe(text: str) -> str:
    """The text, never a formula: one that looks like it gets an apostrophe in front."""
    return f"'{text}" if text.startswith(_FORMULA) else text
