"""What differs from an earlier report of the same span, in one line, and why; pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from accounting.cost.money import listed
from gpuvigil.clock import from_text, to_text
from gpuvigil.numbers_in_words import capitalized, counted

from ..inputs.facts import Facts
from ..model import formatting
from ..model.content import Report
from ..model.rounding import HOUR
from ..model.sheet import Kind, said

# This many differences are named, in the report's order.
MOST = 4
_SHEETS = ("losses", "teams")
# Changes and trends are left out: they depend on other spans, too.
_COMPARED = frozenset({Kind.HOURS, Kind.PERCENT, Kind.MONEY, Kind.ENERGY})
# Smaller differences come from rounding.
_LEAST_HOURS = 0.05
# Labels and kinds of losses in reports that an earlier version kept, and their present names.
_CALLED_BEFORE = {
    "Idle and held": "Allocated but idle",
    "Held GPU-h": "Allocated GPU-h",
    "held, while a fault stopped the job": "allocated, while a fault stopped the job",
    "unoccupied": "not allocated",
    "occupied but idle": "allocated but idle",
    "occupied and inefficient": "allocated and inefficient",
}
EarlierNumbers = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The inputs of the numbers: differences here explain differences in the numbers."""

    known_gpu_hours: float
    holders: int
    judged_hours: int
    incidents: int
    prices: tuple[str, ...]
    idle_seconds: float
    idle_percent: float
    version: str

    @classmethod
    def of(cls, facts: Facts, report: Report) -> "Sources":
        usage = facts.usage
        models = {model for one in usage.buckets for model in one.models}
        return cls(
            known_gpu_hours=round(usage.seconds.known / HOUR, 2),
            holders=usage.holders,
            judged_hours=len(facts.now.wastes),
            incidents=len(facts.incidents),
            prices=tuple(listed(facts.prices, facts.cluster, models, usage.end)),
            idle_seconds=facts.idle_after.total_seconds(),
            idle_percent=facts.idle_below_percent,
            version=report.method.version,
        )


def numbers_to_keep(facts: Facts, report: Report) -> EarlierNumbers:
    """Return the JSON values that are kept of a report beside its text."""
    sources = Sources.of(facts, report)
    return {
        "cluster": report.cluster,
        "team": report.team,
        "start": to_text(report.start),
        "end": to_text(report.end),
        "made_at": to_text(report.made_at),
        "numbers": dict(_numbers(report)),
        "sources": {one.name: getattr(sources, one.name) for one in fields(sources)},
    }


def revised(facts: Facts, report: Report, past: Iterable[EarlierNumbers]) -> str:
    """Say which numbers differ from the newest report of the same span, and why; "" for none."""
    same = [one for one in past if all(one[key] == value for key, value in _span(report).items())]
    if not same:
        return ""
    then = max(same, key=lambda one: from_text(one["made_at"]))
    now = dict(_numbers(report))
    # A team may be called as a loss was before: its numbers have their name still.
    before = {
        name if name in now else _name_now(name): number for name, number in then["numbers"].items()
    }
    moved = list(_moved(before, now))
    if not moved:
        return ""
    made_at = from_text(then["made_at"])
    more = f" and {counted(len(moved) - MOST, 'other number')}" if moved[MOST:] else ""
    why = list(_why(then["sources"], facts, report, made_at))
    return (
        f"Since the report made {formatting.at(made_at)} {made_at:%Y} UTC: {'; '.join(moved[:MOST])}{more}."
        f" {capitalized('; '.join(why)) if why else 'Why is not known'}."
    )


def _span(report: Report) -> Mapping[str, str]:
    return {
        "cluster": report.cluster,
        "team": report.team,
        "start": to_text(report.start),
        "end": to_text(report.end),
    }


def _numbers(report: Report) -> Iterator[tuple[str, str]]:
    """Yield each number's name, and the number as people read it."""
    for figure in report.figures:
        yield figure.label, formatting.value(figure, report.digits)
    for sheet in (one for one in report.sheets if one.key in _SHEETS):
        for row in (*sheet.rows, *(() if sheet.total is None else (sheet.total,))):
            for column, cell in zip(sheet.columns[1:], row[1:], strict=True):
                if column.kind in _COMPARED:
                    yield f"{row[0]}, {column.label}", said(column, cell)


def _name_now(name: str) -> str:
    """Return the present name of a number: a label, or `row, label`."""
    row, comma, label = name.rpartition(", ")
    return f"{_CALLED_BEFORE.get(row, row)}{comma}{_CALLED_BEFORE.get(label, label)}"


def _moved(then: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in {**now, **then}:
        before, after = then.get(name, formatting.NONE), now.get(name, formatting.NONE)
        if before != after:
            yield f"{name} {before} → {after}"


def _why(then: EarlierNumbers, facts: Facts, report: Report, made_at: datetime) -> Iterator[str]:
    """Yield known reasons: data that came late, new information, changed settings."""
    now = Sources.of(facts, report)
    again = sum(one.counted_at > made_at for one in facts.usage.buckets)
    late = now.known_gpu_hours - then["known_gpu_hours"]
    if again:
        quarters = counted(again, "quarter")
        yield f"{quarters} of an hour {'was' if again == 1 else 'were'} counted after it"
    if abs(late) >= _LEAST_HOURS:
        yield f"{_more(late, f'{abs(late):,.1f}')} GPU-hours are known, of data that came late"
    for key, thing, what in (
        ("holders", "holder", "known"),
        ("judged_hours", "hour", "judged for what was not filled"),
        ("incidents", "incident", "counted"),
    ):
        difference = getattr(now, key) - then[key]
        if difference:
            size = abs(difference)
            named, verb = (thing, "is") if size == 1 else (f"{thing}s", "are")
            yield f"{_more(difference, f'{size:,}')} {named} {verb} {what}"
    touched = sum(one.updated_at > made_at for one in facts.incidents)
    if touched and now.incidents == then["incidents"]:
        yield f"{counted(touched, 'incident')} changed"
    yield from _settings(then, now)


def _settings(then: EarlierNumbers, now: Sources) -> Iterator[str]:
    if list(now.prices) != list(then["prices"]):
        yield "prices changed"
    if (now.idle_seconds, now.idle_percent) != (then["idle_seconds"], then["idle_percent"]):
        yield "the idle rule's limits changed"
    if now.version != then["version"]:
        yield f"gpuvigil {then['version']} made it, {now.version} this one"


def _more(difference: float, text: str) -> str:
    return f"{text} {'more' if difference > 0 else 'fewer'}"
