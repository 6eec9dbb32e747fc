"""Small multiples: one panel per GPU or port side by side, all on one scale; pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpuvigil.clock import moment

from . import chart
from .chart import Frame
from .curves import A_WEEK_AGO, Curve, Measure, value
from .grid import median
from .hub_queries import Numbers
from .marks import Mark, Shade
from .window import Window

# The most panels in a row.
PANELS = 8
# The room for the scale's labels, and between two panels, in percent of the width.
_LEFT, _GAP = 4.0, 0.8
# Up to this width in pixels the screen is a phone's, on which the labels take this percentage of the width.
NARROW, _LEFT_NARROW = 700, 12.0
_TOP, _BOTTOM, _BOTTOM_LABELLED = 8, 4, 20
# How many times are labelled on a panel, since panels are narrow.
_TIMES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel with its own marks; its last curve is the strong one."""

    label: str
    curves: tuple[Curve, ...]
    marks: tuple[Mark, ...] = ()
    shades: tuple[Shade, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """Panels of one metric; `most` is the end of their common scale."""

    key: str
    title: str
    unit: str
    panels: tuple[Panel, ...]
    most: float | None
    digits: int

    @property
    def measured(self) -> bool:
        return any(_measured(curve) for panel in self.panels for curve in panel.curves)


def of_gpus(
    numbers: Numbers,
    gpus: Sequence[tuple[str, str]],
    measure: Measure,
    before: Numbers | None = None,
) -> Strip:
    """Return a metric of a node's GPUs (UUID and label): each with the median of all, and with its values
    in as many steps `before`.
    """
    name = next(iter(measure.lines))
    values = {uuid: value(numbers, uuid, name, measure) for uuid, _ in gpus}
    middle = median(list(values.values()), numbers.grid.count)
    panels = tuple(
        Panel(
            label=label,
            curves=(
                Curve(name="median", values=middle, look="peers"),
                *_before(before, uuid, name, measure),
                Curve(name=label, values=values[uuid]),
            ),
        )
        for uuid, label in gpus
    )
    return strip(measure.key, measure.title, measure.unit, panels, measure.most, measure.digits)


def _before(before: Numbers | None, uuid: str, name: str, measure: Measure) -> tuple[Curve, ...]:
    if before is None:
        return ()
    then = Curve(name=A_WEEK_AGO, values=value(before, uuid, name, measure), look="before")
    return (then,) if _measured(then) else ()


def strip(
    key: str,
    title: str,
    unit: str,
    panels: tuple[Panel, ...],
    most: float | None = None,
    digits: int = 1,
) -> Strip:
    """Return panels on a common scale that fits all of their lines."""
    lines = [curve.values for panel in panels for curve in panel.curves if _measured(curve)]
    highest = max((float(np.nanmax(values)) for values in lines), default=0.0)
    return Strip(
        key=key,
        title=title,
        unit=unit,
        panels=panels,
        most=most or chart.decent(highest),
        digits=digits,
    )


def lines(one: Strip) -> tuple[Strip, ...]:
    """Split the strip into rows of `PANELS`, all on the scale of the whole."""
    count = len(one.panels)
    return tuple(
        Strip(
            key=f"{one.key}-{start}",
            title=one.title,
            unit=one.unit,
            panels=one.panels[start : start + PANELS],
            most=one.most,
            digits=one.digits,
        )
        for start in range(0, count, PANELS)
    )


def option(one: Strip, frame: Frame, *, labelled: bool) -> dict[str, Any]:
    """Return a row of panels as one chart; `labelled`: with times below."""
    columns = {
        f"line{p}_{c}": np.round(curve.values, 3)
        for p, panel in enumerate(one.panels)
        for c, curve in enumerate(panel.curves)
    }
    wide, narrow = (_grids(one, left, labelled=labelled) for left in (_LEFT, _LEFT_NARROW))
    return {
        "useUTC": True,
        "animation": False,
        "backgroundColor": "transparent",
        "textStyle": {"color": frame.colours["muted"]},
        "tooltip": chart.tooltip(f"%.{one.digits}f {one.unit.replace('%', '%%')}"),
        "dataset": {"source": chart.table(frame.grid, columns)},
        "grid": wide,
        # Both widths need a rule, since ECharts keeps an option when its rule no longer applies.
        "media": [
            {"query": {"maxWidth": NARROW}, "option": {"grid": narrow}},
            {"query": {"minWidth": NARROW + 1}, "option": {"grid": wide}},
        ],
        "xAxis": [
            {**chart.x_axis(frame, p, labelled=labelled), "splitNumber": _TIMES}
            for p in range(len(one.panels))
        ],
        "yAxis": [
            chart.y_axis(frame, one.most, p, labelled=p == 0) for p in range(len(one.panels))
        ],
        "series": [
            _line(panel, (p, c), frame)
            for p, panel in enumerate(one.panels)
            for c, curve in enumerate(panel.curves)
        ],
    }


def _grids(one: Strip, left: float, *, labelled: bool) -> list[dict[str, Any]]:
    """Return the place of each panel, beside labels that take `left` percent of the width."""
    width = (100 - left) / PANELS
    return [
        {
            "left": f"{left + p * width:.3f}%",
            "width": f"{width - _GAP:.3f}%",
            "top": _TOP,
            "bottom": _BOTTOM_LABELLED if labelled else _BOTTOM,
            "outerBoundsMode": "none",
        }
        for p in range(len(one.panels))
    ]


def _line(panel: Panel, place: tuple[int, int], frame: Frame) -> dict[str, Any]:
    number, which = place
    curve = panel.curves[which]
    found = chart.line(curve, f"line{number}_{which}", frame, number=number)
    if which == len(panel.curves) - 1:
        own = replace(frame, marks=panel.marks, shades=panel.shades)
        found |= {
            "markLine": chart.mark_lines(own, named=False),
            "markArea": chart.mark_areas(own),
        }
    return found


def sentence(one: Strip, window: Window) -> str:
    """Return the strip in words, for people who cannot see it."""
    said = []
    for panel in one.panels:
        measured = panel.curves[-1].values
        measured = measured[np.isfinite(measured)]
        if not len(measured):
            said.append(f"{panel.label} was not measured")
            continue
        low, high = (f"{it:.{one.digits}f}" for it in (measured.min(), measured.max()))
        said.append(f"{panel.label} from {low} to {high}")
    span = f"{moment(window.start)} to {moment(window.end)}"
    return f"{one.title} in {one.unit} from {span}: {', '.join(said)}."


def _measured(curve: Curve) -> bool:
    return bool(np.isfinite(curve.values).any())
