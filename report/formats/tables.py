"""The tables of the HTML report."""

from collections.abc import Sequence

from gpuvigil.web.markup import Html, tag

from ..model import formatting
from ..model.content import Report, Trouble
from ..model.sheet import Cell, Column, Kind, Sheet, said
from .palette import INK, LINE, MUTED, SOFT, STATE_FILLS, USED

_Column = tuple[str, bool]  # its head, and whether it holds numbers
_FIRST = 26  # a text of the first column up to this length stays on one line
_SHORT = 16  # a text up to here stays on its line; a longer one may break anywhere
_LONG = 5  # a table with more rows may be split across pages
_WIDTH = 78  # of a trend line
_LEAST_SPAN = 10.0  # percentage points that fill its height


def by_day(report: Report) -> Html:
    """Return a table of every day of the span."""
    first, *numbers = formatting.DAY_HEADS
    columns = ((f"{first} ({report.time_zone})", False), *((head, True) for head in numbers))
    rows = [_row(*formatting.day_cells(one, report.digits)) for one in report.days]
    return _table("The same by day", columns, rows)


def by_state(report: Report) -> Html:
    """Return the five states; they add up to what was installed."""
    columns = (("State", False), ("Meaning", False), ("GPU-hours", True), ("Share", True))
    rows = [
        tag(
            "tr",
            tag("th", _swatch(part.state), part.label, scope="row"),
            tag("td", part.meaning),
            tag("td", formatting.hours(part.gpu_hours, report.digits), class_="n"),
            tag("td", formatting.percent(part.percent, 1), class_="n"),
        )
        for part in report.parts
    ]
    whole = formatting.hours(report.installed_gpu_hours, report.digits)
    foot = tag(
        "tr",
        tag("th", "installed", scope="row"),
        tag("td", ""),
        tag("td", whole, class_="n"),
        tag("td", "100.0 %", class_="n"),
    )
    return _table("GPU-hours by state", columns, rows, foot)


def by_loss(report: Report) -> Html:
    """Return losses by reason and what was in service; they add up to what is owned."""
    columns = (("Lost to", False), ("Meaning", False), ("GPU-hours", True), ("Of owned", True))
    found = report.capacity
    in_service = found.in_service_gpu_hours, found.in_service_percent
    listed = [(one.label, one.meaning, one.gpu_hours, one.percent) for one in found.losses]
    rows = [
        tag(
            "tr",
            tag("th", label, scope="row"),
            tag("td", meaning),
            tag("td", formatting.hours(hours, report.digits), class_="n"),
            tag("td", formatting.percent(percent, 1), class_="n"),
        )
        for label, meaning, hours, percent in (
            *listed,
            ("in service", "whether a job had it or not", *in_service),
        )
    ]
    foot = tag(
        "tr",
        tag("th", "owned", scope="row"),
        tag("td", ""),
        tag("td", formatting.hours(found.owned_gpu_hours, report.digits), class_="n"),
        tag("td", "100.0 %", class_="n"),
    )
    return _table("GPU-hours in service, and lost ones by reason", columns, rows, foot)


def sheet_table(sheet: Sheet) -> Html:
    """Return any table of the report as HTML."""
    sheet = sheet.shown
    columns = [(one.label, not one.kind.is_text) for one in sheet.columns]
    rows = [_sheet_row(sheet, row) for row in sheet.rows]
    foot = None if sheet.total is None else _sheet_row(sheet, sheet.total)
    return _table(sheet.caption, columns, rows, foot, long=len(rows) > _LONG)


def _sheet_row(sheet: Sheet, row: Sequence[Cell]) -> Html:
    first, *others = zip(sheet.columns, row, strict=True)
    rest = isinstance(row[0], str) and row[0].endswith(" more")
    return tag(
        "tr",
        tag(
            "th", said(*first), scope="row", class_="whole" if len(said(*first)) <= _FIRST else None
        ),
        *(_cell(column, cell) for column, cell in others),
        class_="rest" if rest else None,
    )


def _cell(column: Column, cell: Cell) -> Html:
    if column.kind.is_text:
        text = said(column, cell)
        return tag("td", text, class_="whole" if len(text) <= _SHORT else None)
    if column.kind is Kind.TREND:
        return tag("td", _spark(cell) if isinstance(cell, tuple) else "", class_="n")
    text = said(column, cell)
    kind = "n"
    if column.more_is and isinstance(cell, float) and cell:
        kind += " good" if (cell > 0) == (column.more_is == "better") else " bad"
    if column.bar:
        percent = cell if isinstance(cell, float) else None
        return tag("td", _bar(percent), tag("span", text, class_="share"), class_=kind)
    return tag("td", text, class_=kind)


def _spark(values: Sequence[float | None]) -> Html:
    """Return a trend line, the newest value with a dot; values that were not measured are gaps."""
    known = [one for one in values if one is not None]
    if len(known) < 2:
        return Html("")
    low, high = min(known), max(known)
    # A nearly constant line is drawn flat, not as if it had jumped.
    middle, half = (low + high) / 2, max((high - low) / 2, _LEAST_SPAN / 2)
    step = _WIDTH / (len(values) - 1)
    points = [
        None if one is None else (n * step, 10.0 - 8.0 * (one - middle) / half)
        for n, one in enumerate(values)
    ]
    path, pen = "", "M"
    for point in points:
        path += "" if point is None else f"{pen}{point[0]:.0f} {point[1]:.1f}"
        pen = "M" if point is None else "L"
    last = points[-1]
    dot = (
        ""
        if last is None
        else f'<circle cx="{last[0]:.0f}" cy="{last[1]:.1f}" r="2.4" fill="{INK}"/>'
    )
    text = " ".join("–" if one is None else f"{one:.0f}" for one in values)
    return Html(
        f'<svg class="spark" viewBox="-3 -1 {_WIDTH + 6} 22" role="img" aria-label="{text} %">'
        f'<path d="{path}" fill="none" stroke="{MUTED}" stroke-width="1.4"/>{dot}</svg>'
    )


def _bar(percent: float | None) -> Html:
    """Return a small bar; empty when the value was not measured."""
    if percent is None:
        return Html("")
    width = min(max(percent, 0.0), 100.0)
    return Html(
        f'<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="100" height="10" fill="{SOFT}" stroke="{LINE}"/>'
        f'<rect width="{width:.0f}" height="10" fill="{USED}"/></svg>'
    )


def _swatch(state: str) -> Html:
    fill = STATE_FILLS[state].fill
    return Html(f'<span class="swatch" style="background:{fill}" aria-hidden="true"></span>')


def rules(report: Report) -> Html:
    """Return people's feedback on messages, by rule."""
    columns = (
        ("Rule", False),
        ("Called noise", True),
        ("Called useful", True),
        ("Incidents", True),
        ("Not judged", True),
        ("Told in", True),
    )
    rows = [_row(one.title, *formatting.answers(one)) for one in report.rules]
    return _table("Answers to messages, by rule; the noisiest first", columns, rows)


def troubles(report: Report) -> Html:
    """Return the worst incidents, each with its evidence and first action."""
    columns = (
        ("Where", False),
        ("What, evidence, first action", False),
        ("Severity", False),
        ("Since (UTC)", False),
        ("Lasted", True),
        ("GPUs hit", True),
    )
    rows = [_trouble(one) for one in report.troubles]
    more = report.more_troubles
    said = f" and {more:,} more" if more else ""
    caption = f"The worst first{said}; numbers are those on the chart"
    return _table(caption, columns, rows, long=True)


def _trouble(one: Trouble) -> Html:
    mark = tag("span", str(one.mark), class_="mark") if one.mark else Html("")
    still = tag("span", " still", class_="still") if one.open else Html("")
    details = [tag("div", one.evidence, class_="evidence")] if one.evidence else []
    details += [tag("div", f"First action: {one.action}")] if one.action else []
    if one.acknowledged_by:
        details.append(tag("div", f"Acknowledged by {one.acknowledged_by}"))
    # One row, not two: no printer may separate an incident from its action.
    return tag(
        "tr",
        tag("th", mark, one.where, scope="row"),
        tag("td", tag("div", one.title, class_="what"), *details),
        tag("td", one.severity),
        tag("td", formatting.at(one.since), class_="when"),
        tag("td", formatting.lasting(one.hours), still, class_="n"),
        tag("td", f"{one.gpus:,}", class_="n"),
    )


def _row(first: str, *numbers: str) -> Html:
    cells = (tag("td", number, class_="n") for number in numbers)
    return tag("tr", tag("th", first, scope="row"), *cells)


def _table(
    caption: str,
    columns: Sequence[_Column],
    rows: Sequence[Html],
    foot: Html | None = None,
    *,
    long: bool = False,
) -> Html:
    # The first column is left-aligned even if it is a number, and no unit is split.
    numbers = (False, *(number for _, number in columns[1:]))
    heads = (
        tag("th", name.replace("GPU-h", "GPU\u2011h"), scope="col", class_="n" if number else None)
        if name
        else tag("td", "")
        for (name, _), number in zip(columns, numbers, strict=True)
    )
    table = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *heads)),
        tag("tbody", *rows),
        Html("") if foot is None else tag("tfoot", foot),
    )
    return tag(
        "div",
        table,
        class_="wide long" if long else "wide",
        tabindex="0",
        role="region",
        aria_label=caption,
    )
