"""The chart of allocated and used GPUs over a day, and the strip's numbers of an earlier time.

Shares are of the GPU-hours whose state is known. A quarter of an hour in which nothing was counted is a
gap in the lines, never 0.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from accounting.usage import BUCKET, Bucket, Usage, share_percent
from gpuvigil.clock import moment, to_text
from gpuvigil.lifecycle import State
from gpuvigil.model import Incident, Record, Severity, readable
from gpuvigil.schedulers.out_of_service import LostTo

from .annotations import Note, align, bands, labelled

SPAN, WEEK = timedelta(hours=24), timedelta(days=7)
MOST_MARKS = 40
# Of notes closer to each other than this share of the chart's width, only the first has a label.
_NEAR = 0.12
# The chart starts at the first count, but spans at least this long.
LEAST_SPAN = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The shares from `at` on, in percent; None if nothing was counted or measured."""

    at: datetime
    allocated: float | None
    used: float | None


def points(usage: Usage, now: datetime) -> tuple[Point, ...]:
    """Return a point for the start of each quarter of an hour, and an empty one where a gap or the end begins."""
    found: list[Point] = []
    buckets = [one for one in usage.buckets if one.start < now]
    shares = [_shares(one) for one in buckets]
    for i, (bucket, (allocated, used)) in enumerate(zip(buckets, shares, strict=True)):
        at = bucket.start if i else since(usage) or bucket.start
        found.append(Point(at=at, allocated=allocated, used=used))
        end = min(bucket.start + BUCKET, now)
        follows = i + 1 < len(buckets) and buckets[i + 1].start == bucket.start + BUCKET
        # Repeat the value at the quarter's end, so that it is as wide before an unknown quarter as before others.
        if not follows or None in shares[i + 1]:
            found.append(Point(at=end, allocated=allocated, used=used))
        if not follows:
            found.append(Point(at=end + timedelta(seconds=1), allocated=None, used=None))
    return tuple(found)


def _shares(bucket: Bucket) -> tuple[float | None, float | None]:
    """Return the allocated and used shares in percent; unmeasured held hours count as used like the rest."""
    seconds = bucket.seconds
    allocated = seconds.allocated_percent
    of_allocated = share_percent(seconds.used, seconds.measured)
    if allocated is None or (of_allocated is None and seconds.allocated > 0):
        return allocated, None
    return allocated, allocated * (of_allocated or 0.0) / 100


def since(usage: Usage) -> datetime | None:
    """Return since when anything was counted; None if nothing was yet."""
    if not usage.buckets:
        return None
    first = usage.buckets[0]
    return first.began if is_young(usage) else first.start


def is_young(usage: Usage) -> bool:
    """Return whether counting began within the day, so that its first part is missing."""
    return bool(usage.buckets) and usage.buckets[0].start - usage.start > BUCKET


def sentence(usage: Usage, incidents: Iterable[Incident]) -> str:
    """Return the chart in words, for people who cannot see it."""
    allocated, used = usage.allocated_percent, usage.used_percent
    first = since(usage)
    if first is None or allocated is None:
        return "Nothing was counted yet."
    worked = "" if used is None else f", of which {used:.0f} % was used"
    marks = sum(1 for _ in incidents)
    said = f" {marks} incident{'' if marks == 1 else 's'} began in that time." if marks else ""
    return f"Since {moment(first)}, {allocated:.0f} % of GPU-hours were allocated{worked}.{said}"


_CAUSES = {
    LostTo.FAULT: "faults",
    LostTo.REPAIR: "repairs",
    LostTo.MAINTENANCE: "maintenance",
    LostTo.UNKNOWN: "unknown causes",
}


def lost_sentence(usage: Usage) -> str:
    """Say what share of GPU-hours was in service and what the others were lost to; empty if none was lost."""
    seconds = usage.seconds
    hours = {to: round(seconds.lost(to) / 3600, 1) for to in LostTo}
    share = seconds.in_service_percent
    if share is None or not any(hours.values()):
        return ""
    lost = ", ".join(f"{hour:,.1f} to {_CAUSES[to]}" for to, hour in hours.items() if hour)
    return f"{share:.1f} % of all GPU-hours were in service; GPU-hours lost: {lost}"


def chart(  # noqa: PLR0913 - each is one layer of it
    usage: Usage,
    incidents: Iterable[Incident],
    now: datetime,
    colours: Mapping[str, str],
    *,
    letters: int = 12,
    before: Usage | None = None,
    done: Sequence[Note] = (),
) -> dict[str, Any]:
    """Return the options for ECharts; times are in UTC, `letters` is the font size in pixels.

    `before` is the usage of the same span a week ago, `done` the notes of this span.
    """
    drawn = points(usage, now)
    first = max(usage.start, min(since(usage) or now, now - LEAST_SPAN))
    marks = [_line(it.since, it.title, _ink(it, colours)) for it in _marks(incidents, first)]
    marks += _done(done, first, now, colours, letters)
    rows = [[to_text(p.at), _rounded(p.allocated), _rounded(p.used)] for p in drawn]
    axis = {"color": colours["muted"], "fontSize": letters}
    return {
        "useUTC": True,
        "animation": False,
        "backgroundColor": "transparent",
        "grid": {
            "left": 2,
            "right": 12,
            "top": 8 + bool(done) * letters,
            "bottom": 2,
            "containLabel": True,
        },
        "tooltip": {"trigger": "axis", "valueFormatter": "%.0f %%"},
        "xAxis": {
            "type": "time",
            "min": to_text(first),
            "max": to_text(now),
            "axisLabel": {**axis, "hideOverlap": True, "showMaxLabel": False},
            "axisLine": {"lineStyle": {"color": colours["line"]}},
            "splitLine": {"show": False},
        },
        "yAxis": {
            "type": "value",
            "min": 0,
            "max": 100,
            "interval": 25,
            "axisLabel": {**axis, "formatter": "{value} %"},
            "splitLine": {"lineStyle": {"color": colours["line"]}},
        },
        "series": [
            {
                **_area("allocated", [row[:2] for row in rows], colours["idle"], 0.3, marks),
                "markArea": _lasted(done, first, now, colours),
            },
            _area("used", [[row[0], row[2]] for row in rows], colours["busy-high"], 1.0, ()),
            *([] if before is None else _week_ago(before, first, now, colours)),
        ],
    }


def _week_ago(
    usage: Usage, first: datetime, now: datetime, colours: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return dashed lines of a week ago, shifted onto the span that is shown."""
    found = [(it.at + WEEK, it.allocated, it.used) for it in points(usage, now - WEEK)]
    rows = [[to_text(at), _rounded(a), _rounded(u)] for at, a, u in found if at >= first]
    names = ("allocated a week ago", "used a week ago")
    inks = (colours["idle-text"], colours["soft"])
    return [
        {
            "name": name,
            "type": "line",
            "step": "end",
            "showSymbol": False,
            "connectNulls": False,
            "data": [[row[0], row[place]] for row in rows],
            "color": ink,
            "lineStyle": {"color": ink, "width": 1.2, "type": "dashed", "opacity": 0.8},
            "z": 5,
        }
        for place, (name, ink) in enumerate(zip(names, inks, strict=True), start=1)
    ]


def _area(
    name: str,
    data: list[list[Any]],
    colour: str,
    opacity: float,
    marks: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    return {
        "name": name,
        "type": "line",
        "step": "end",
        "showSymbol": False,
        "connectNulls": False,
        "data": data,
        "color": colour,
        "lineStyle": {"color": colour, "width": 1.5},
        "areaStyle": {"color": colour, "opacity": opacity},
        "markLine": {
            "silent": True,
            "symbol": "none",
            "label": {"show": False},
            "lineStyle": {"type": "solid", "width": 1.5},
            "data": marks,
        },
    }


def _line(at: datetime, name: str, ink: str) -> dict[str, Any]:
    return {"xAxis": to_text(at), "name": name, "lineStyle": {"color": ink}}


def _done(
    done: Sequence[Note], start: datetime, end: datetime, colours: Mapping[str, str], letters: int
) -> list[dict[str, Any]]:
    """Return mark lines for the notes, with labels over the chart where there is room."""
    inside = [it for it in done if (it.until or it.at) >= start]
    ink = colours["muted"]
    text = {"color": ink, "fontSize": letters - 1, "position": "end"}
    return [
        {
            **_line(at, label, ink),
            "label": {
                "show": bool(label),
                "formatter": label,
                "align": align(at, start, end),
                **text,
            },
        }
        for at, label in labelled(inside, (), (end - start) * _NEAR, start)
    ]


def _lasted(
    done: Sequence[Note], start: datetime, end: datetime, colours: Mapping[str, str]
) -> dict[str, Any]:
    """Return mark areas for the notes that lasted."""
    ink = {"color": colours["muted"], "opacity": 0.15}
    data = [
        [{"xAxis": to_text(since), "itemStyle": ink}, {"xAxis": to_text(until)}]
        for since, until in bands(done, start, end)
    ]
    return {"silent": True, "animation": False, "data": data}


def marked(records: Iterable[Record]) -> tuple[Incident, ...]:
    """Return the incidents worth a line: not suspected or dismissed ones, nor those of severity info."""
    passing = {State.SUSPECT.value, State.DISMISSED.value}
    return tuple(
        one
        for one in readable(records, Incident.from_record)
        if one.severity is not Severity.INFO and one.state not in passing
    )


def _marks(incidents: Iterable[Incident], start: datetime) -> tuple[Incident, ...]:
    """Return incidents that began since `start`; of too many, the most severe and newest."""
    inside = [one for one in incidents if one.since >= start]
    ranked = sorted(inside, key=lambda one: (one.severity.rank, -one.since.timestamp()))
    return tuple(ranked[:MOST_MARKS])


def _ink(incident: Incident, colours: Mapping[str, str]) -> str:
    return colours["failed" if incident.severity is Severity.CRITICAL else "degraded"]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """The strip's numbers at an earlier time; None is not known."""

    ago: str  # "1 h ago", "yesterday"
    idle: float | None
    held_percent: float | None
    used_percent: float | None
    power_watts: float | None


def before(usage: Usage, now: datetime, ago: timedelta, name: str) -> Before | None:
    """Return the strip's numbers in the quarter of an hour `ago`; None if nothing was counted then."""
    at = now - ago
    for bucket in usage.buckets:
        if bucket.start <= at < bucket.start + BUCKET:
            return _before(bucket, name)
    return None


def _before(bucket: Bucket, name: str) -> Before | None:
    seconds = bucket.seconds
    counted = bucket.counted.total_seconds()
    if counted <= 0 or seconds.known <= 0:
        return None
    # Power is a sum over the measured GPUs, so it is only given if nearly all were measured.
    whole = seconds.powered >= 0.98 * seconds.installed
    return Before(
        ago=name,
        idle=None if seconds.unattributed > 0 else seconds.idle / counted,
        held_percent=seconds.allocated_percent,
        used_percent=share_percent(seconds.used, seconds.measured),
        power_watts=seconds.energy_joules / counted if whole else None,
    )
