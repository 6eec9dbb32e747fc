"""The parts of the GPU's and the node's page that are plain HTML."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from gpuvigil.clock import duration, moment, to_text
from gpuvigil.model import Allocation, Event, Incident, Subject
from gpuvigil.numbers_in_words import counted
from gpuvigil.web import page_links
from gpuvigil.web.markup import Html, joined, tag

from ..data.attention import Attention
from ..data.views import FleetView
from ..layout import job_links
from ..model.cluster import Cell, DisplayState
from ..model.short_label import short_label
from . import window as windows
from .curves import Chart
from .device_address import Device
from .marks import is_good, name
from .window import Choice, Window

MOST_LISTED = 12
MOST_EVIDENCE = 6
MOST_HOLDERS = 6
_LOOKS = {
    DisplayState.FREE: "free",
    DisplayState.ACTIVE: "active",
    DisplayState.IDLE: "idle",
    DisplayState.DEGRADED: "degraded",
    DisplayState.FAILED: "unavailable",
    DisplayState.UNKNOWN: "unknown",
    DisplayState.OUT: "out",
}


def look(cell: Cell | None) -> str:
    """Return the style class by which a GPU is coloured."""
    return "unknown" if cell is None else _LOOKS[cell.look]


def is_loaded(view: FleetView) -> bool:
    """Whether the hub has told anything yet: before that nothing can be said to be absent."""
    return bool(view.clusters) or view.oldest_at is not None or view.as_of is not None


def stamp(view: FleetView, at: datetime | None, drawn: datetime) -> Html:
    """Return the time of the numbers; `drawn` is when the page was, so that the browser sees it is alive."""
    at = view.as_of or at
    text = "no live data" if at is None else f"data of {moment(at)}"
    text = text if is_loaded(view) else "Loading …"
    when = None if at is None else to_text(at)
    return tag("div", tag("time", text, datetime=when, data_drawn=to_text(drawn)), class_="data")


def holders(node: Subject, allocations: Iterable[Allocation]) -> Html | None:
    """Return to whom a node's GPUs are allocated, most GPUs first, as links; None if no holder is known."""
    gpus = Counter(
        (str(it.holder), it.user or "")
        for it in allocations
        if it.subject.node == node.node and it.subject.cluster == node.cluster
    )
    shown = gpus.most_common(MOST_HOLDERS)
    said = ", ".join(
        f"{holder}{f' of {user}' if user else ''} ({counted(count, 'GPU')})"
        for (holder, user), count in shown
    )
    more = f" and {len(gpus) - len(shown)} more" if len(gpus) > len(shown) else ""
    names, users = zip(*(it for it, _ in shown), strict=True) if shown else ((), ())
    return job_links.html(f"{said}{more}", node.cluster, names, users) if shown else None


def head(
    device: Device, title: str, state: tuple[str, str], facts: Iterable[str], data_of: Html
) -> Html:
    """Return the page's head: title, current state (word and colour) and other important facts."""
    word, kind = state
    simulated = device.node.simulated
    mark = tag("span", "SIMULATED: no real hardware", class_="simulated") if simulated else joined()
    said = joined(*(tag("span", fact, class_="fact") for fact in facts if fact))
    badge = tag("span", word, class_=f"gv-state {kind}")
    left = tag("div", tag("h1", title), badge, said, mark)
    return tag("header", left, data_of, class_="gv-head gv-device-head")


def siblings(device: Device, window: Mapping[str, str]) -> Html:
    """Return links to the pages of the node and all of its GPUs, with the same window."""
    place = {"cluster": device.node.cluster, "node": device.node.node}
    node = _chip(
        device.node.node,
        "node",
        windows.address(page_links.NODE, place, window),
        not device.asked_gpu,
    )
    cells = device.view.cells if device.view else ()
    chips = [
        _chip(
            cell.label,
            look(cell),
            windows.address(page_links.GPU, {**place, "gpu": cell.subject.gpu or ""}, window),
            cell.subject.gpu == device.gpu,
            f"{cell.label}: {cell.state.value}, {cell.reason}",
        )
        for cell in cells
    ]
    return tag("nav", node, *chips, class_="gv-siblings", aria_label="The node and its GPUs")


def _chip(text: str, kind: str, href: str, chosen: bool, title: str | None = None) -> Html:
    mark = tag("i", class_=f"span {kind}") if kind != "node" else joined()
    current = "page" if chosen else None
    return tag("a", mark, text, href=href, class_="gv-chip", aria_current=current, title=title)


def control(
    device: Device,
    window: Window,
    now: datetime,
    *,
    past: bool = False,
    compared: bool = False,
) -> Html:
    """Return the shown time and the links to other times.

    `compared`: whether a week ago is shown, too.
    """
    kept = _WEEK if compared else {}
    spans = [_choice(device, one, kept) for one in windows.choices(window, now)]
    earlier, later, live = (
        _choice(device, one, kept) for one in windows.moves(window, now, past=past)
    )
    fixed = Choice(name="Freeze", query=page_links.window(window.start, window.end))
    hold = _choice(device, fixed, kept) if window.live else joined()
    beside = Choice(name="A week ago", query=window.query, chosen=compared)
    week = _choice(device, beside, {} if compared else _WEEK)
    over = past or (not window.live and window.end <= now)
    text = windows.sentence(window, now, past=past)
    return tag(
        "nav",
        tag("span", text, class_="window past" if over else "window"),
        tag("span", earlier, *spans, later, live, hold, week, class_="choices"),
        class_="gv-control",
        aria_label="Window of time",
    )


_WEEK = {"week": "1"}


def _choice(device: Device, one: Choice, kept: Mapping[str, str]) -> Html:
    if one.query is None:
        return tag("span", one.name, class_="gv-chip off")
    href = windows.address(device.path, device.query, {**one.query, **kept})
    return tag(
        "a", one.name, href=href, class_="gv-chip", aria_current="true" if one.chosen else None
    )


def open_incidents(items: Sequence[Attention], what: str, *, loaded: bool = True) -> Html:
    """Return the open incidents, each with its evidence and what to do first."""
    if not items and not loaded:
        return tag(
            "section", tag("p", "Loading …", class_="gv-empty"), class_="gv-active-incidents"
        )
    if not items:
        return tag(
            "section",
            tag("p", f"No open incident on {what}.", class_="gv-empty"),
            class_="gv-active-incidents",
        )
    return tag(
        "section",
        *map(_open_incident, items),
        class_="gv-active-incidents",
        aria_label="Open incidents",
    )


def _open_incident(item: Attention) -> Html:
    evidence = [tag("li", one.text) for one in item.evidence if not one.detail][:MOST_EVIDENCE]
    where = short_label(item.incident) or item.label
    return tag(
        "article",
        tag(
            "h2",
            tag("span", item.severity.value, class_="badge"),
            " ",
            tag("a", item.title, href=page_links.incident_page(item.id)),
            tag("small", f"{where}, {item.state}, since {moment(item.since)}"),
        ),
        tag("p", tag("b", "Do now: "), item.action, class_="action") if item.action else joined(),
        tag(
            "p",
            job_links.html(
                item.impact,
                item.subject.cluster,
                item.incident.impact.holders,
                item.incident.impact.users,
            ),
            class_="impact",
        )
        if item.impact
        else joined(),
        tag("ul", *evidence) if evidence else joined(),
        class_=item.severity.value,
    )


def events(found: Sequence[Event], labels: Mapping[str, str]) -> Html:
    """Return the events of the window, newest first."""
    shown = found[::-1][:MOST_LISTED]
    rows = [
        tag(
            "li",
            tag("time", f"{one.at:%H:%M:%S}", datetime=to_text(one.at), title=moment(one.at)),
            tag(
                "span",
                tag("b", name(one)),
                " ",
                labels.get(one.subject.key, one.subject.node),
                " ",
                tag("small", one.message),
            ),
            class_="good" if is_good(one) else "bad",
        )
        for one in shown
    ]
    rest = len(found) - len(shown)
    return tag(
        "section",
        tag("h2", "Events in the window", tag("small", f"{len(found):,}, UTC")),
        tag("ol", *rows) if rows else tag("p", "None was reported.", class_="gv-empty"),
        tag("p", f"and {rest:,} older", class_="gv-empty") if rest > 0 else joined(),
        class_="gv-happened",
    )


def past(found: Sequence[Incident], now: datetime) -> Html:
    """Return the window's incidents that are over, newest first."""
    over = sorted(
        (one for one in found if one.resolved_at), key=lambda one: one.since, reverse=True
    )
    rows = [
        tag(
            "li",
            tag(
                "time",
                f"{one.since:%H:%M:%S}",
                datetime=to_text(one.since),
                title=moment(one.since),
            ),
            tag(
                "span",
                tag("a", one.title, href=page_links.incident_page(one.id)),
                " ",
                tag(
                    "small",
                    f"{one.label or one.subject.node}, {one.severity.value}, lasted {duration((one.resolved_at or now) - one.since)}",
                ),
            ),
            class_=one.severity.value,
        )
        for one in over[:MOST_LISTED]
    ]
    rest = len(over) - len(rows)
    return tag(
        "section",
        tag("h2", "Incidents resolved in the window", tag("small", f"{len(over):,}")),
        tag("ol", *rows) if rows else tag("p", "None ended.", class_="gv-empty"),
        tag("p", f"and {counted(rest, 'older incident')}", class_="gv-empty")
        if rest > 0
        else joined(),
        class_="gv-happened",
    )


def chart_title(chart: Chart, *, with_peers: bool = True) -> Html:
    """Return a chart's title, unit and key of lines, which stand beside the data, never over it.

    `with_peers`: its key names the peers; not where one key for all charts of a page does.
    """
    looks = ("own", "second", "peers", "limit") if with_peers else ("own", "second", "limit")
    names = {curve.look: curve.name for curve in chart.curves if curve.look in looks}
    keys = [
        tag("li", tag("i", class_=f"key {look}"), names[look]) for look in looks if look in names
    ]
    return tag(
        "div",
        tag("h3", chart.title, tag("small", chart.unit)),
        tag("ul", *keys) if len(keys) > 1 else joined(),
        class_="gv-chart-title",
    )


def legend(peers: int, *, week: bool = False) -> Html:
    """Return the key of the lines that every chart of the page has."""
    keys = [("own", "this GPU")]
    keys += [("before", "a week ago")] if week else []
    if peers:
        keys += [
            ("peers", "median of the others"),
            ("other", f"the node's {counted(peers, 'other GPU')}"),
        ]
    keys += [("event", "event"), ("stood", "incident open")]
    items = [tag("li", tag("i", class_=f"key {look}"), text) for look, text in keys]
    return tag(
        "div",
        tag("h2", "Over time", tag("small", "UTC; a gap: nothing was measured")),
        tag("ul", *items),
        class_="gv-chart-title gv-legend",
    )


def multiples_legend(gpus: int, *, week: bool = False) -> Html:
    """Return the key of the lines in the GPUs' panels."""
    keys = [("own", "the GPU")]
    keys += [("before", "a week ago")] if week else []
    keys += [("peers", "median of all of them")] if gpus > 1 else []
    keys += [("event", "event"), ("stood", "incident open")]
    items = [tag("li", tag("i", class_=f"key {look}"), text) for look, text in keys]
    text = "each row on one scale, UTC; a gap: nothing was measured"
    return tag(
        "div",
        tag("h2", "GPUs over time", tag("small", text)),
        tag("ul", *items),
        class_="gv-chart-title gv-legend",
    )


def strip_head(device: Device, gpus: Sequence[tuple[str, str]], window: Mapping[str, str]) -> Html:
    """Return the heads of the panels: the GPU of each, as a link to its page."""
    cells = {cell.subject.gpu: cell for cell in device.view.cells} if device.view else {}
    items = []
    for uuid, label in gpus:
        place = {"cluster": device.node.cluster, "node": device.node.node, "gpu": uuid}
        cell = cells.get(uuid)
        state = "not known" if cell is None else cell.state.value
        items.append(
            tag(
                "a",
                tag("i", class_=f"span {look(cell)}"),
                label,
                tag("small", state),
                href=windows.address(page_links.GPU, place, window),
            )
        )
    return tag("div", *items, class_="gv-strip-head", style=_COLUMNS)


# As many columns as a full strip has panels.
_COLUMNS = "grid-template-columns: repeat(8, 1fr)"


def strip_title(title: str, unit: str) -> Html:
    """Return the title and unit of a row of panels."""
    return tag("div", tag("h3", title, tag("small", unit)), class_="gv-chart-title")


def ports_title(count: int) -> Html:
    """Return the title and key of the ports' panels."""
    keys = (("own", "received"), ("second", "sent"))
    items = [tag("li", tag("i", class_=f"key {look}"), text) for look, text in keys]
    return tag(
        "div",
        tag("h2", "Network ports", tag("small", f"{counted(count, 'port')}, all on one scale")),
        tag("ul", *items),
        class_="gv-chart-title gv-legend",
    )


def port_head(names: Sequence[str], asked: str) -> Html:
    """Return the heads of the panels: the port of each."""
    items = [tag("span", one, class_="port asked" if one == asked else "port") for one in names]
    return tag("div", *items, class_="gv-strip-head", style=_COLUMNS)
