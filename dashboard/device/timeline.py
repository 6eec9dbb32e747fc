"""Spans of time as rows of bars over one axis, with a table of the same for who does not see them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from gpuvigil.clock import duration, moment, to_text
from gpuvigil.web.markup import Html, joined, tag

from .marks import Mark, least
from .spans import Span
from .window import Window, cut

# More bars than this in a row are not stops of the Tab key: the table has them.
MOST_STOPS = 24
MOST_LISTED = 200
_TICKS = 8
_DECENT_MINUTES = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row: what it is about, and its spans."""

    name: str
    spans: tuple[Span, ...]
    href: str = ""
    nothing: str = ""  # said instead of an empty row


def timeline(
    rows: Sequence[Row], window: Window, now: datetime, marks: Sequence[Mark] = ()
) -> Html:
    """The rows, the axis below them, and the same as a table that can be unfolded."""
    lines = [_row(row, window, now) for row in rows]
    return tag(
        "section",
        tag(
            "div", tag("h2", "States and incidents", tag("small", "UTC")), _key(rows), class_="top"
        ),
        tag(
            "div",
            *lines,
            tag(
                "div", *(_mark(mark, window) for mark in marks), class_="marks", aria_hidden="true"
            ),
            _axis(window),
            class_="rows",
        ),
        _table(rows),
        class_="gv-timeline",
        aria_label="States and incidents over time",
    )


def _row(row: Row, window: Window, now: datetime) -> Html:
    name = tag("a", row.name, href=row.href) if row.href else joined(row.name)
    stops = len(row.spans) <= MOST_STOPS
    bars = [_bar(span, window, stop=stops) for span in row.spans]
    if now < window.end:
        bars.append(_future(window, now))
    empty = (
        tag("span", row.nothing, class_="nothing") if not row.spans and row.nothing else joined()
    )
    return tag(
        "div", tag("div", name, class_="name"), tag("div", *bars, empty, class_="bar"), class_="row"
    )


def _bar(span: Span, window: Window, *, stop: bool) -> Html:
    style = _place(window, span.start, max(span.end - span.start, least(window.span)))
    text = span_text(span)
    if span.href:
        return tag(
            "a",
            class_=f"span {span.kind}",
            style=style,
            href=span.href,
            aria_label=text,
            data_tip=text,
        )
    return tag(
        "span",
        class_=f"span {span.kind}",
        style=style,
        role="img",
        aria_label=text,
        data_tip=text,
        tabindex="0" if stop else None,
    )


def span_text(span: Span) -> str:
    """One span in words, with its exact times."""
    what = (
        span.text
        if span.kind in _TEXT_ALONE
        else _word(span.kind) + (f": {span.text}" if span.text else "")
    )
    times = f"{span.start:%H:%M:%S} to {span.end:%H:%M:%S} UTC"
    if span.start.date() != span.end.date():
        times = f"{moment(span.start)} to {moment(span.end)}"
    return f"{what} · {times} · {duration(span.end - span.start)}"


_TEXT_ALONE = frozenset({"held", "critical", "warning", "info"})


def _place(window: Window, at: datetime, length: timedelta) -> str:
    left = (at - window.start) / window.span * 100
    width = min(length / window.span * 100, 100 - left)
    return f"left:{left:.3f}%;width:{width:.3f}%"


def _future(window: Window, now: datetime) -> Html:
    start = max(now, window.start)
    style = _place(window, start, window.end - start)
    return tag("span", class_="span future", style=style, title="not yet")


def _mark(mark: Mark, window: Window) -> Html:
    left = (mark.at - window.start) / window.span * 100
    kind = "mark good" if mark.good else "mark"
    return tag(
        "span",
        tag("b", mark.label) if mark.label else joined(),
        class_=kind,
        style=f"left:{left:.3f}%",
    )


def ticks(window: Window) -> tuple[datetime, ...]:
    """Decent moments within the window, at most eight."""
    wanted = window.span / _TICKS
    minutes = next((it for it in _DECENT_MINUTES if timedelta(minutes=it) >= wanted), None)
    by = timedelta(minutes=minutes) if minutes else timedelta(days=-(-wanted // timedelta(days=1)))
    at = cut(window.start, by) + by
    found = []
    while at < window.end:
        found.append(at)
        at += by
    return tuple(found)


def _axis(window: Window) -> Html:
    labels = []
    for at in ticks(window):
        left = (at - window.start) / window.span * 100
        midnight = at == at.astimezone(timezone.utc).replace(
            hour=0, minute=0, second=0, microsecond=0
        )
        text = f"{at.day} {at:%b}" if midnight else f"{at:%H:%M}"
        labels.append(tag("span", text, style=f"left:{left:.3f}%"))
    return tag("div", *labels, class_="axis", aria_hidden="true")


_KEYS = ("active", "idle", "free", "unavailable", "unknown", "held", "critical", "warning", "info")


def _word(kind: str) -> str:
    """Nobody held it; whether it could be had then, or its node was drained, is not kept."""
    return {"free": "not allocated", "held": "allocated"}.get(kind, kind)


def _key(rows: Sequence[Row]) -> Html:
    kinds = {span.kind for row in rows for span in row.spans}
    shown = [kind for kind in _KEYS if kind in kinds]
    items = [tag("li", tag("i", class_=f"span {kind}"), _word(kind)) for kind in shown]
    return tag("ul", *items, class_="key") if items else joined()


def _table(rows: Sequence[Row]) -> Html:
    listed = [(row, span) for row in rows for span in row.spans]
    if not listed:
        return joined()
    body = [
        tag(
            "tr",
            tag("th", row.name, scope="row"),
            tag("td", _word(span.kind)),
            tag("td", tag("time", moment(span.start), datetime=to_text(span.start))),
            tag("td", duration(span.end - span.start)),
            tag("td", span.text),
        )
        for row, span in listed[:MOST_LISTED]
    ]
    names = ("Row", "What", "From", "For", "Text")
    rest = len(listed) - len(body)
    return tag(
        "details",
        tag("summary", "As a table"),
        tag(
            "table",
            tag("thead", tag("tr", *(tag("th", it, scope="col") for it in names))),
            tag("tbody", *body),
        ),
        tag("p", f"and {rest} more") if rest > 0 else joined(),
    )
