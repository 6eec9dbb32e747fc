"""The chart of allocated against used over time, with the worst incidents marked."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from gpuvigil.clock import EPOCH
from gpuvigil.web.markup import Html

from ..model import formatting
from ..model.calendar import step_after, zone_of
from ..model.content import Point, Report, Trouble
from .palette import LINE, MUTED, NO_DATA, RED, SOFT, UNUSED, USED
from .svg import Spec, Values, field, marks, ms, svg

_WIDTH, _HEIGHT = 780, 190
_LONGEST_LABEL = 74
_BAND = 15.0  # percentage points that a word needs to itself
_Stretch = tuple[Point, ...]  # steps without a gap between them
# From here on the longest labels reach beyond the chart.
_ROOM = 0.6


def over_time(report: Report, name: str) -> Html:
    """Return allocated against used, with the worst incidents marked; empty without any point."""
    if not report.points:
        return Html("")
    stretches = tuple(_stretches(report))
    layers = [*_gaps(report, stretches), *_areas(report, stretches)]
    layers += [*_end_words(report, stretches[-1][-1]), *_marks(report)]
    title, said = "Allocated against used over time", said_over_time(report)
    return svg(layers, (_WIDTH, _HEIGHT), name, title, said)


def said_over_time(report: Report) -> str:
    """Return the chart in a sentence."""
    allocated = [one.allocated_percent for one in report.points]
    used = [one.used_percent for one in report.points if one.used_percent is not None]
    if not allocated:
        return "Nothing was counted, so there is no chart."
    text = f"By {report.grain}, allocated was {_between(allocated)}"
    if used:
        text += f", used {_between(used)} of all GPU-hours"
    return text + "."


def _between(percents: Sequence[float]) -> str:
    low, high = (formatting.percent(pick(percents)) for pick in (min, max))
    return low if low == high else f"between {low} and {high}"


def _after(report: Report, point: Point) -> datetime:
    """Return the end of a point's step: a day on which the clocks change is longer or shorter."""
    return step_after(point.at, report.step, zone_of(report.time_zone))


def _stretches(report: Report) -> Iterator[_Stretch]:
    run: list[Point] = []
    for point in report.points:
        if run and (point.at > _after(report, run[-1]) or _kind(point) != _kind(run[-1])):
            yield tuple(run)
            run = []
        run.append(point)
    if run:
        yield tuple(run)


def _kind(point: Point) -> bool:
    return point.used_percent is None


def _areas(report: Report, stretches: Sequence[_Stretch]) -> Iterator[Spec]:
    """Yield areas of used, with the rest of allocated on top; grey where use is not known."""
    rows = []
    for number, stretch in enumerate(stretches):
        last = stretch[-1]
        ends = (
            *((one.at, one) for one in stretch),
            (min(_after(report, last), report.end), last),
        )
        for at, one in ends:
            used = one.used_percent
            rows.append(
                {
                    "at": ms(max(at, report.counted_from)),
                    "run": number,
                    "allocated": one.allocated_percent,
                    "used": 0 if used is None else used,
                    "measured": used is not None,
                }
            )
    known = [row for row in rows if row["measured"]]
    yield _area(report, known, USED, "used", None)
    yield _area(report, known, UNUSED, "allocated", "used")
    yield _area(report, [row for row in rows if not row["measured"]], SOFT, "allocated", None)


def _area(report: Report, rows: Values, fill: str, y: str, y2: str | None) -> Spec:
    encoding = {
        "x": _time(report),
        "y": _percent(y),
        "y2": {"field": y2} if y2 else {"datum": 0},
        "detail": field("run:N"),
    }
    return marks("area", rows, encoding, interpolate="step-after", fill=fill)


def _gaps(report: Report, stretches: Sequence[_Stretch]) -> Iterator[Spec]:
    """Yield the gaps of unknown data, as areas of their own."""
    edges = [(one[0].at, _after(report, one[-1])) for one in stretches]
    starts = [report.counted_from, *(end for _, end in edges)]
    ends = [*(start for start, _ in edges), report.end]
    whole = report.end - report.counted_from
    rows = [
        {
            "from": ms(start),
            "to": ms(end),
            "mid": ms(start + (end - start) / 2),
            "label": "no data" if end - start > whole * 0.058 else "",
        }
        for start, end in zip(starts, ends, strict=True)
        if end > start
    ]
    surface = {
        "x": _time(report, "from"),
        "x2": {"field": "to"},
        "y": {"value": 0},
        "y2": {"value": _HEIGHT},
    }
    yield marks("rect", rows, surface, fill=NO_DATA, stroke=LINE, strokeDash=[3, 3])
    words = {"x": _time(report, "mid"), "text": field("label:N")}
    yield marks("text", rows, words, fontSize=11, color=MUTED, y=_HEIGHT / 2)


def _end_words(report: Report, last: Point) -> Iterator[Spec]:
    """Yield the areas' names, written at their right end."""
    top, low = last.allocated_percent, last.used_percent
    places = [("allocated", top, "#5b3a94")]
    if low is not None:
        places.append(("used", min(low, top - _BAND), "#0b5e54"))
    for label, y, color in places:
        rows = [{"y": max(y, 2.0), "label": label}]
        look = {"align": "left", "dx": 8, "x": _WIDTH, "fontSize": 12, "fontWeight": "bold"}
        words = {"y": _percent("y"), "text": field("label:N")}
        yield marks("text", rows, words, **look, color=color)


def _marks(report: Report) -> Iterator[Spec]:
    """Yield a line where each incident began, with its label above the chart in a row of its own."""
    found = sorted((one for one in report.troubles if one.mark), key=lambda one: one.since)
    # Labels run to the right of their line or, without room there, to the left. So no line of another
    # incident is behind them, except a late incident's behind an early one's.
    early = [one for one in found if not _is_late(report, one)]
    marked = [one for one in reversed(found) if _is_late(report, one)] + early
    heights = [-8 - 15 * (len(marked) - 1 - row) for row in range(len(marked))]
    for one, height in zip(marked, heights, strict=True):
        line = {"x": _time(report), "y": {"value": height - 5}, "y2": {"value": _HEIGHT}}
        dashed = {"color": RED, "strokeWidth": 1.2, "strokeDash": [4, 2]}
        yield marks("rule", [{"at": ms(one.since)}], line, **dashed)
    for one, height in zip(marked, heights, strict=True):
        late = _is_late(report, one)
        side: dict[str, Any] = {"align": "right", "dx": -5} if late else {"align": "left", "dx": 5}
        rows = [{"at": ms(one.since), "label": _label(one)}]
        words = {"x": _time(report), "text": field("label:N")}
        # A white rim keeps a label readable on another incident's line.
        rim: dict[str, Any] = {"color": "white", "stroke": "white", "strokeWidth": 4}
        for look in (rim, {"color": RED}):
            yield marks("text", rows, words, y=height, fontSize=11, **side, **look)


def _is_late(report: Report, one: Trouble) -> bool:
    """Return whether its label has no room on the right."""
    return (one.since - report.counted_from) > _ROOM * (report.end - report.counted_from)


def _label(one: Trouble) -> str:
    text = f"{one.mark}  {formatting.at(one.since)} {one.where}: {one.title}, {formatting.lasting(one.hours)}"
    return text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1].rstrip() + "…"


# Distance of labels, for spans of more than so many days.
_TICKS = (
    (200.0, timedelta(days=56)),
    (60.0, timedelta(days=28)),
    (16.0, timedelta(days=7)),
    (2.0, timedelta(days=1)),
    (1.0, timedelta(hours=6)),
    (0.4, timedelta(hours=3)),
    (0.1, timedelta(hours=1)),
    (0.0, timedelta(minutes=15)),
)


def _time(report: Report, name: str = "at") -> Spec:
    days = (report.end - report.counted_from) / timedelta(days=1)
    every = next(step for least, step in _TICKS if days > least)
    zone, form = zone_of(report.time_zone), "%a {0.day} %b" if days > 2 else "%a %H:%M"
    local = {ms(at): at.astimezone(zone) for at in _ticks(report, every)}
    labels = {at: format(one, form.format(one)) for at, one in local.items()}
    axis = {
        "title": None,
        "values": list(labels),
        "labelExpr": f"{json.dumps(labels)}[time(datum.value)]",
        "grid": False,
        "labelAlign": "left",
        "labelOffset": 3,
        "labelFlush": False,
        "tickColor": LINE,
        "domainColor": LINE,
    }
    domain = [ms(report.counted_from), ms(report.end)]
    scale = {"type": "utc", "domain": domain, "nice": False}
    return field(f"{name}:T", scale=scale, axis=axis)


def _ticks(report: Report, every: timedelta) -> Iterator[datetime]:
    """Yield whole steps by the zone's clock, days at midnight; none too near the end to have room."""
    zone = zone_of(report.time_zone)
    step = EPOCH + ((report.counted_from - EPOCH) // every - 1) * every
    last = report.end - (report.end - report.counted_from) * 0.02
    while (at := step.replace(tzinfo=zone)) < last:
        if at >= report.counted_from:
            yield at.astimezone(timezone.utc)
        step += every


def _percent(name: str) -> Spec:
    axis = {
        "title": None,
        "values": [0, 25, 50, 75, 100],
        "labelExpr": "datum.value + ' %'",
        "gridColor": LINE,
        "domain": False,
        "ticks": False,
    }
    return field(f"{name}:Q", scale={"domain": [0, 100]}, axis=axis)
