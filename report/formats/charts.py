"""The report's other charts: where the GPU-hours went, and the hours of the week.

The light colours also differ in lightness, so that they can be told apart in grey print and by
colour-blind readers; words are written on the marks instead of in a legend. Unknown values are gaps.
"""

from collections.abc import Sequence
from typing import Any

from gpuvigil.web.markup import Html

from ..model import formatting
from ..model.content import Report
from .palette import INK, LINE, MUTED, NO_DATA, STATE_FILLS, ramp
from .svg import field, marks, own, svg

_WIDTH = 918


def where_they_went(report: Report, name: str) -> Html:
    """Return a bar of the five states; empty when nothing was counted."""
    if report.installed_gpu_hours <= 0:
        return Html("")
    rows: list[dict[str, Any]] = []
    reached = 0.0
    for part in report.parts:
        width, fill = part.percent or 0.0, STATE_FILLS[part.state]
        rows.append(
            {
                "from": reached,
                "to": reached + width,
                "mid": reached + width / 2,
                "fill": fill.fill,
                "ink": fill.ink,
                "label": part.label if width >= _needed(part.label) else "",
                "share": f"{width:.1f} %" if width >= _needed("100 %") else "",
            }
        )
        reached += width
    wide = [row for row in rows if row["to"] > row["from"]]
    surface = {
        "x": field("from:Q", scale={"domain": [0, 100], "nice": False}, axis=None),
        "x2": {"field": "to"},
        "y": {"value": 0},
        "y2": {"value": 44},
        "fill": own("fill"),
    }
    words_ = {"x": field("mid:Q", axis=None), "color": own("ink")}
    label, share = ({**words_, "text": field(f"{one}:N")} for one in ("label", "share"))
    layers = (
        marks("rect", wide, surface, stroke=INK, strokeWidth=0.6),
        marks("text", wide, label, fontSize=12, fontWeight="bold", y=15),
        marks("text", wide, share, fontSize=12, y=31),
    )
    said = ", ".join(f"{part.label} {formatting.percent(part.percent, 1)}" for part in report.parts)
    said = f"Of installed GPU-hours: {said}."
    return svg(layers, (_WIDTH, 44), name, "Where the GPU-hours went", said)


def week(report: Report, name: str) -> Html:
    """Return used percent by weekday and hour, written into the cells; empty for a short span."""
    if not report.hours:
        return Html("")
    known = [cell.used_percent for cell in report.hours if cell.used_percent is not None]
    least, most = _tens(known)
    rows = [
        {
            "x": cell.hour,
            "y": cell.weekday,
            "fill": NO_DATA
            if cell.used_percent is None
            else ramp((cell.used_percent - least) / (most - least))[0],
            "ink": MUTED
            if cell.used_percent is None
            else ramp((cell.used_percent - least) / (most - least))[1],
            "label": "" if cell.used_percent is None else f"{cell.used_percent:.0f}",
        }
        for cell in report.hours
    ]
    hour = "(datum.value < 10 ? '0' : '') + datum.value"
    top = {**_BARE, "orient": "top", "labelExpr": hour}
    left = {**_BARE, "labelExpr": f"{list(formatting.WEEKDAYS)}[datum.value]"}
    place = {
        "x": field("x:O", axis=top, scale={"paddingInner": 0.06}),
        "y": field("y:O", axis=left, scale={"paddingInner": 0.1}),
    }
    numbers = {**place, "text": field("label:N"), "color": own("ink")}
    layers = (
        marks("rect", rows, {**place, "fill": own("fill")}, stroke=LINE, strokeWidth=0.5),
        marks("text", rows, numbers, fontSize=10.5),
    )
    size = _WIDTH - 42, 168
    return svg(layers, size, name, "Used by weekday and hour", said_week(report))


def said_week(report: Report) -> str:
    """Return a sentence on when the cluster is busiest and least busy."""
    known = [(cell.used_percent, cell) for cell in report.hours if cell.used_percent is not None]
    if not known:
        return "No hour of the week was measured."
    (most, high), (least, low) = (pick(known, key=lambda one: one[0]) for pick in (max, min))
    return (
        f"Busiest on {formatting.WEEKDAYS[high.weekday]} at {high.hour:02d}:00 with {most:.0f} % of "
        f"GPU-hours used, least busy on {formatting.WEEKDAYS[low.weekday]} at {low.hour:02d}:00 with "
        f"{least:.0f} %."
    )


def _tens(percents: Sequence[float]) -> tuple[float, float]:
    """Return bounds at whole tens: the cells show numbers, so the colours need only show the pattern."""
    if not percents:
        return 0.0, 100.0
    low = min(percents) // 10 * 10
    return min(low, 90.0), max(-(-max(percents) // 10) * 10, low + 10)


_BARE: dict[str, Any] = {"domain": False, "ticks": False, "title": None, "labelAngle": 0}


def _needed(label: str) -> float:
    """Return the share of the bar's width that a word needs, in percent."""
    return 100 * (len(label) * 7.6 + 8) / (_WIDTH)
