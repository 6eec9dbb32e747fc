"""Options of a line chart for ECharts, with its data as an Arrow table of a column per line; pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from gpuvigil.clock import EPOCH, moment

from ..data.annotations import align
from .curves import Chart, Curve
from .grid import Floats, Grid
from .marks import Mark, Shade
from .window import Window

# Margins in pixels; above the lines there is room for the labels of marks.
_TOP, _BOTTOM, _LEFT, _RIGHT = 22, 22, 44, 12
_WIDTHS = {"own": 2.0, "second": 1.4, "limit": 1.2, "peers": 1.4, "before": 1.2, "other": 0.7}
_INKS = {
    "own": "link",
    "second": "ramp-high",
    "limit": "degraded-text",
    "peers": "muted",
    "before": "idle-text",
    "other": "free-line",
}
_LAYERS = {"other": 2, "limit": 3, "before": 3, "peers": 4, "second": 5, "own": 6}
_DASHES = {"limit": "dashed", "peers": "dotted", "before": "dashed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What all charts of a page share."""

    window: Window
    grid: Grid
    marks: tuple[Mark, ...]
    shades: tuple[Shade, ...]
    colours: Mapping[str, str]


def table(grid: Grid, columns: Mapping[str, Floats]) -> pa.Table:
    """Return `at` in ms since 1970 and a column per line; unmeasured values are null."""
    arrays = {name: pa.array(values, from_pandas=True) for name, values in columns.items()}
    return pa.table({"at": pa.array(grid.milliseconds), **arrays})


def option(chart: Chart, frame: Frame) -> dict[str, Any]:
    """Return the whole chart; times are in UTC, and all charts of a page have the same x axis."""
    columns = {f"line{number}": _rounded(c) for number, c in enumerate(chart.curves)}
    return {
        "useUTC": True,
        "animation": False,
        "backgroundColor": "transparent",
        "textStyle": {"color": frame.colours["muted"]},
        "grid": {
            "left": room(top(chart)),
            "right": _RIGHT,
            "top": _TOP,
            "bottom": _BOTTOM,
            "outerBoundsMode": "none",
        },
        "tooltip": tooltip(f"%.{chart.digits}f {chart.unit.replace('%', '%%')}"),
        "dataset": {"source": table(frame.grid, columns)},
        "xAxis": x_axis(frame),
        "yAxis": y_axis(frame, top(chart)),
        "series": [
            line(curve, f"line{number}", frame, marked=number == len(chart.curves) - 1)
            for number, curve in enumerate(chart.curves)
        ],
    }


def tooltip(form: str) -> dict[str, Any]:
    """Return a tooltip with the values of the strong lines at one moment."""
    return {
        "trigger": "axis",
        "valueFormatter": form,
        "confine": True,
        "axisPointer": {"animation": False},
    }


def x_axis(frame: Frame, number: int = 0, *, labelled: bool = True) -> dict[str, Any]:
    """Return a time axis from the window's start to its end."""
    return {
        "type": "time",
        "gridIndex": number,
        "min": _ms(frame.window.start),
        "max": _ms(frame.window.end),
        "splitNumber": 4,
        "axisLabel": {
            "show": labelled,
            "color": frame.colours["muted"],
            "fontSize": 11,
            "hideOverlap": True,
            # Midnight shows day and month, since the number of the day alone reads like a value.
            "formatter": {"day": "{d} {MMM}", "month": "{d} {MMM}"},
        },
        "axisLine": {"lineStyle": {"color": frame.colours["line"]}},
        "axisTick": {"show": labelled},
        "splitLine": {"show": False},
    }


def y_axis(
    frame: Frame, most: float | None, number: int = 0, *, labelled: bool = True
) -> dict[str, Any]:
    """Return an axis from 0 to `most`; None: as high as the lines need."""
    return {
        "type": "value",
        "gridIndex": number,
        "min": 0,
        "max": most,
        **({} if most is None else {"interval": interval(most)}),
        "axisLabel": {"show": labelled, "color": frame.colours["muted"], "fontSize": 11},
        "splitLine": {"lineStyle": {"color": frame.colours["line"], "opacity": 0.6}},
    }


def line(
    curve: Curve,
    column: str,
    frame: Frame,
    *,
    number: int = 0,
    dataset: int = 0,
    marked: bool = False,
) -> dict[str, Any]:
    """Return the line of one data column; a `marked` one carries the chart's marks."""
    ink = frame.colours[_INKS[curve.look]]
    quiet = curve.look == "other"
    found: dict[str, Any] = {
        "type": "line",
        "name": curve.name,
        "datasetIndex": dataset,
        "xAxisIndex": number,
        "yAxisIndex": number,
        "encode": {"x": "at", "y": column, "tooltip": [column]},
        "connectNulls": False,
        # A point between two gaps has no line, so it needs a symbol to be seen.
        "showSymbol": _has_lone_points(curve.values),
        "symbol": "circle",
        "symbolSize": 3,
        "silent": quiet,
        "color": ink,
        "lineStyle": {
            "color": ink,
            "width": _WIDTHS[curve.look],
            "type": _DASHES.get(curve.look, "solid"),
        },
        "z": _LAYERS[curve.look],
    }
    if quiet:
        found["tooltip"] = {"show": False}
    if marked:
        found |= {"markLine": mark_lines(frame), "markArea": mark_areas(frame)}
    return found


def mark_lines(frame: Frame, *, named: bool = True) -> dict[str, Any]:
    """Return every event as a line from top to bottom."""
    data = []
    for mark in frame.marks:
        ink = frame.colours["muted" if mark.good else "failed-text"]
        label: dict[str, Any] = {
            "show": named and bool(mark.label),
            "formatter": mark.label,
            "color": ink,
            # A centred label over a line at the edge would be cut.
            "align": align(mark.at, frame.window.start, frame.window.end),
        }
        data.append(
            {"xAxis": _ms(mark.at), "name": mark.label, "label": label, "lineStyle": {"color": ink}}
        )
    return {
        "silent": True,
        "animation": False,
        "symbol": "none",
        "label": {"position": "end", "fontSize": 11, "distance": 3},
        "lineStyle": {"type": "solid", "width": 1.2},
        "data": data,
    }


def mark_areas(frame: Frame) -> dict[str, Any]:
    """Return shaded areas for incidents and for annotations that lasted."""
    data = [
        [
            {
                "xAxis": _ms(shade.start),
                "itemStyle": {"color": frame.colours[_shade_ink(shade)], "opacity": 0.1},
            },
            {"xAxis": _ms(shade.end)},
        ]
        for shade in frame.shades
    ]
    return {"silent": True, "animation": False, "data": data}


def _shade_ink(shade: Shade) -> str:
    if shade.severity is None:
        return "muted"
    return "failed" if shade.severity.rank == 0 else "degraded"


def top(chart: Chart) -> float | None:
    """Return a round end of the scale above every line; None if nothing was measured."""
    if chart.most is not None:
        return chart.most
    highest = max(
        (float(np.nanmax(c.values)) for c in chart.curves if np.isfinite(c.values).any()),
        default=0.0,
    )
    return decent(highest)


# By the scale's end: into how many parts it divides well.
_ENDS = {1.0: 5, 1.2: 4, 1.5: 3, 2.0: 4, 2.5: 5, 3.0: 3, 4.0: 4, 5.0: 5, 6.0: 3, 8.0: 4, 10.0: 5}


def decent(highest: float) -> float | None:
    """Return the next round value; None for 0 or a value that is not finite."""
    if highest <= 0 or not np.isfinite(highest):
        return None
    power = 10.0 ** math.floor(math.log10(highest))
    end = next(it for it in _ENDS if it * power >= highest or it == 10.0)
    return float(f"{end * power:.6g}")


def interval(most: float) -> float:
    """Return the distance between the labels of a scale from 0 to that end."""
    power = 10.0 ** math.floor(math.log10(most) + 1e-9)
    parts = next((n for end, n in _ENDS.items() if abs(end * power - most) < power / 100), 4)
    return float(f"{most / parts:.6g}")


# Pixels: a digit at 11 px in the widest of the usual fonts, and the space beside a label.
_LETTER, _BESIDE = 6.6, 10


def room(most: float | None) -> int:
    """Return the width of the labels of a scale from 0 to that end, in pixels."""
    if most is None:
        return _LEFT
    ticks = np.arange(0.0, most * 1.001, interval(most))
    longest = max(len(f"{float(f'{tick:.6g}'):,}".removesuffix(".0")) for tick in ticks)
    return max(_LEFT, math.ceil(_BESIDE + _LETTER * longest))


def sentence(chart: Chart, window: Window) -> str:
    """Return the chart in words, for people who cannot see it."""
    said = []
    for curve in chart.curves:
        if curve.look == "other":
            continue
        measured = curve.values[np.isfinite(curve.values)]
        if not len(measured):
            said.append(f"{curve.name} was not measured")
            continue
        low, high, last = (
            f"{it:.{chart.digits}f}" for it in (measured.min(), measured.max(), measured[-1])
        )
        missing = len(curve.values) - len(measured)
        gaps = f", nothing in {missing} of {len(curve.values)} steps" if missing else ""
        said.append(f"{curve.name} from {low} to {high} {chart.unit}, last {last}{gaps}")
    span = f"{moment(window.start)} to {moment(window.end)}"
    return f"{chart.title} from {span}: {'; '.join(reversed(said))}."


def _has_lone_points(values: Floats) -> bool:
    there = np.isfinite(values)
    before, after = np.roll(there, 1), np.roll(there, -1)
    before[0], after[-1] = False, False
    return bool((there & ~before & ~after).any())


def _rounded(curve: Curve) -> Floats:
    rounded: Floats = np.round(curve.values, 3)
    return rounded


def _ms(at: datetime) -> float:
    return (at - EPOCH).total_seconds() * 1000
