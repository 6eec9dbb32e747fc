"""The parts of the overview that are plain HTML."""

from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from typing import Any

from gpuvigil.clock import duration, moment, to_text
from gpuvigil.faults import FAULTS, About
from gpuvigil.faults.gpu_states import HUNG
from gpuvigil.numbers_in_words import counted, percent, speed, unbroken, watts
from gpuvigil.web import page_links
from gpuvigil.web.markup import Html, joined, tag

from ..data.attention import Attention
from ..data.changes import Change
from ..data.freshness import Loading
from ..data.trend import Before
from ..data.views import NAMED_NODES, FleetView
from ..model.cluster import ClusterView, DisplayState, PortView, Strip
from ..model.fold import Fold, folds, rows
from ..model.incident_place import Inventories, place_page
from ..model.ports import PORT_WORDS
from ..model.short_label import short_label
from . import job_links

MOST_PORTS = 12
MOST_ATTENTION = 30


def header(view: FleetView, cluster: ClusterView | None, drawn: datetime) -> Html:
    """Which cluster this is, how much there is of it, and from when the data are.

    `drawn` is when the page was drawn: a page in a browser sees by it that it is not drawn anew.
    """
    name = "No cluster yet" if cluster is None else f"Cluster {cluster.name}"
    left: list[Html] = [tag("h1", name)]
    if cluster is not None:
        if cluster.simulated:
            left.append(tag("span", "SIMULATED: no real hardware", class_="simulated"))
        amount = (
            f"{counted(len(cluster.layout.nodes), 'node')} · {counted(cluster.strip.gpus, 'GPU')}"
        )
        left.append(tag("span", amount, class_="data"))
    at = view.as_of or (cluster.rows_at if cluster else view.rows_at)
    right = tag("div", _data_of(at, to_text(drawn)), class_="data")
    return tag("header", tag("div", *left), right, class_="gv-head")


def _data_of(at: datetime | None, drawn: str | None = None) -> Html:
    """Always visible: from when the numbers are."""
    text = "no data yet" if at is None else f"data of {moment(at)}"
    return tag("time", text, datetime=None if at is None else to_text(at), data_drawn=drawn)


def past(at: datetime, now: datetime, back: str) -> Html:
    """Which moment all of the page is of; the shell adds the reader's own time, and keeps its age."""
    seconds = f":{at:%S}" if at.second else ""
    said = f"The past: {at.day} {at:%b %H:%M}{seconds} UTC · {duration(now - at)} ago"
    return tag(
        "div",
        tag("time", said, datetime=to_text(at)),
        tag("span", "Nothing can be acknowledged or silenced here.", class_="why"),
        tag("a", "Back to now", href=back, data_now="1"),
        class_="gv-past",
        role="status",
    )


def notes(lines: Iterable[str]) -> Html:
    """What is worth a line, and changes nothing of what is shown."""
    return joined(*(_note(text) for text in lines))


def _note(text: str) -> Html:
    kind = "gv-loading" if isinstance(text, Loading) else "gv-note"
    return tag("div", text, class_=kind, role="status")


def banners(warnings: Iterable[str | Html]) -> Html:
    """Why what is shown may not be true, loudly."""
    return joined(*(tag("div", text, class_="gv-banner", role="alert") for text in warnings))


def warnings(view: FleetView) -> Html:
    """Those of the view; a silent node that is named leads to its page."""
    pages = {
        node.name: page_links.node_page(cluster.name, node.name)
        for cluster in view.clusters
        for node in cluster.silent_nodes[:NAMED_NODES]
    }
    loading = [text for text in view.warnings if isinstance(text, Loading)]
    loud = [text for text in view.warnings if not isinstance(text, Loading)]
    return joined(banners(job_links.linked(text, pages) for text in loud), notes(loading))


def strip(numbers: Strip, hour: Before | None = None, day: Before | None = None) -> Html:
    """Six numbers, each with what it was; what nobody could measure is a dash with the reason."""
    looks = numbers.looks
    long = day or hour
    known = numbers.gpus - looks[DisplayState.UNKNOWN]
    unknown = f", {looks[DisplayState.UNKNOWN]:,} unknown" if looks[DisplayState.UNKNOWN] else ""
    failing = looks[DisplayState.FAILED] + sum(numbers.hung.values())
    all_in = ", all in service" if numbers.in_service == numbers.gpus else ""
    in_service = f"{numbers.in_service:,} of {numbers.gpus:,} in service"

    def counted_as(look: DisplayState) -> str:
        """Of GPUs of which nothing is known none can be counted."""
        return f"{looks[look]:,}" if known else "–"

    tiles = (
        _tile(
            "Unavailable or failing",
            counted_as(DisplayState.FAILED),
            joined(
                f"of {known:,} known{unknown}" if unknown else f"of {known:,}{all_in}",
                _hung(numbers),
            ),
            in_service if known and not all_in else "",
            "failed" if failing else "",
        ),
        _tile(
            "Degraded",
            counted_as(DisplayState.DEGRADED),
            "work with a fault",
            "",
            "degraded" if looks[DisplayState.DEGRADED] else "",
        ),
        _tile(
            "GPUs allocated",
            percent(numbers.held_percent),
            _asked(numbers),
            _was(long, lambda was: was.held_percent, "{:.0f} %".format),
        ),
        _tile(
            "Used of allocated",
            percent(numbers.used_percent),
            "mean utilisation",
            _was(long, lambda was: was.used_percent, "{:.0f} %".format),
        ),
        _tile(
            "Allocated but idle",
            counted_as(DisplayState.IDLE) if numbers.holders_known else "–",
            "at 0 % utilisation",
            _was(hour, lambda was: was.idle, "{:.0f}".format),
            "idle" if looks[DisplayState.IDLE] else "",
        ),
        _tile(
            "Power",
            _power(numbers),
            _limit(numbers),
            _was(hour, lambda was: was.power_watts, watts),
        ),
    )
    return tag("section", *tiles, class_="gv-strip", aria_label="Status")


def _was(
    before: Before | None,
    of: Callable[[Before], float | None],
    written: Callable[[float], str],
) -> str:
    """What the number was; nothing where nobody counted it."""
    value = None if before is None else of(before)
    return "" if before is None or value is None else f"{before.ago}: {written(value)}"


def _asked(numbers: Strip) -> str:
    """Of how many GPUs it is known whether they are held."""
    unknown = numbers.gpus - numbers.known
    rest = f", {unknown:,} unknown" if unknown else ""
    if numbers.unattributed and numbers.held == numbers.known:
        return f"{numbers.held:,} allocated{rest}" if numbers.held else "holders not known"
    known = f"{numbers.held:,} of {numbers.known:,} known" if numbers.known else "none known"
    return f"{known}{rest}"


_HANGS = {key: "driver hangs" if FAULTS[key].about is About.NODE else "GPU hangs" for key in HUNG}


def _hung(numbers: Strip) -> Html:
    """GPUs that may well fail and cannot be counted so: whatever would tell their state hangs."""
    causes = {_HANGS[fault]: count for fault, count in numbers.hung.items() if count}
    if not causes:
        return joined()
    total = sum(causes.values())
    why = ", ".join(
        cause if len(causes) == 1 else f"{count:,} {cause}" for cause, count in causes.items()
    )
    return tag("strong", f"{total:,} of the unknown: {why}", class_="hung")


def _tile(name: str, value: str, below: str, was: str, kind: str = "") -> Html:
    return tag(
        "div",
        tag("div", name, class_="name"),
        tag("div", value, class_="value"),
        tag("div", below if isinstance(below, Html) else unbroken(below), class_="below"),
        tag("div", unbroken(was), class_="before") if was else joined(),
        class_=f"tile {kind}".strip(),
    )


def _power(numbers: Strip) -> str:
    return "–" if numbers.power_watts is None else watts(numbers.power_watts)


def _limit(numbers: Strip) -> str:
    if numbers.power_watts is None:
        return "not measured"
    missing = numbers.gpus - numbers.power_measured
    rest = f", {missing:,} not measured" if missing else ""
    if not numbers.power_limit_watts:
        return f"limits not measured{rest}"
    share = 100 * numbers.power_watts / numbers.power_limit_watts
    return f"{share:.0f} % of {watts(numbers.power_limit_watts)}{rest}"


def ports(cluster: ClusterView) -> Html:
    """The ports of a cluster: all of them where there are few, else those that are not up."""
    counts = cluster.ports.counts
    said = ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)
    few = len(cluster.ports) <= MOST_PORTS
    shown = cluster.ports.first(PORT_WORDS if few else _TROUBLED, MOST_PORTS)
    rest = 0 if few else counts["down"] + counts["unknown"] - len(shown)
    return tag(
        "section",
        tag("h2", f"Network ports of {cluster.name}", tag("small", said or "none found")),
        _table(shown) if shown else joined(),
        tag("p", f"and {rest} more that are not up") if rest else joined(),
        class_="gv-ports",
    )


_TROUBLED = ("down", "unknown")


def _table(shown: Iterable[PortView]) -> Html:
    head = tag(
        "tr", *(tag("th", name, scope="col") for name in ("Node", "Port", "Kind", "State", "Speed"))
    )
    return tag("table", tag("thead", head), tag("tbody", *map(_port, shown)))


def _port(port: PortView) -> Html:
    name = port.subject.device or ""
    if fabric := port.kind in {"infiniband", "roce"}:
        name = f"{name} port {port.subject.port}"
    at = port.subject
    return tag(
        "tr",
        tag("td", tag("a", at.node, href=page_links.node_page(at.cluster, at.node))),
        tag("td", tag("a", name, href=page_links.link_page(at)) if fabric else name),
        tag("td", f"{port.kind}, {port.role}".strip(", ")),
        tag("td", port.word, class_=port.word.replace(" ", "-")),
        tag("td", speed(port.speed_bits_per_second), class_="number"),
    )


def other_cluster(cluster: ClusterView) -> Html:
    """A cluster that is not the one on the map, in its own words: nothing of it is in the sums."""
    why = f" ({'; '.join(cluster.drivers)})" if cluster.drivers and not cluster.strip.gpus else ""
    silent = len(cluster.silent_nodes)
    said = (
        f"{counted(len(cluster.layout.nodes), 'node')}, {counted(cluster.strip.gpus, 'GPU')}{why}"
    )
    said += f", {silent} silent" if silent else ""
    return tag(
        "section",
        tag(
            "h2",
            f"Cluster {cluster.name}",
            tag("small", "simulated" if cluster.simulated else "real"),
        ),
        tag("p", f"{said} · ", _data_of(cluster.rows_at)),
        class_="gv-other",
    )


def attention_title(view: FleetView) -> Html:
    """How many incidents are open; simulated ones are counted by themselves."""
    simulated = sum(item.simulated for item in view.attention)
    real = len(view.attention) - simulated
    said = [f"{real}"] if real else []
    said += [f"{simulated} simulated"] if simulated else []
    count = tag("small", " + ".join(said) or "nothing")
    return tag("h2", "Needs attention", count, class_="gv-title")


def attention_items(view: FleetView, inventories: Inventories) -> list[dict[str, Any]]:
    """The first incidents as plain values, for the component: more fit on no screen.

    `count` is how many incidents a row is of; use of one kind is one row, whoever holds the GPUs.
    """
    found = folds(item.incident for item in view.attention)
    return [
        _folded(found[item.id], view.now)
        if item.id in found
        else _item(item, view.now, inventories)
        for item in rows(view.attention, found)[:MOST_ATTENTION]
    ]


def _folded(fold: Fold, now: datetime) -> dict[str, Any]:
    page = page_links.open_incidents_of(fold.first.fault)
    state = "" if fold.first.state == "open" else f" · {fold.first.state}"
    said = " · for up to ".join(filter(None, (fold.shares, duration(now - fold.since)))) + state
    return {
        "id": fold.id,
        "count": len(fold.incidents),
        "title": fold.title,
        "severity": fold.severity.value,
        "simulated": fold.first.simulated,
        "label": fold.where,
        "impact": job_links.parts(
            unbroken(said), fold.first.subject.cluster, fold.holders, fold.users
        ),
        "action": fold.action,
        "told": [],
        "page": page,
        "place": page,
    }


def _item(item: Attention, now: datetime, inventories: Inventories) -> dict[str, Any]:
    state = "" if item.state == "open" else f" · {item.state}"
    state += f": {item.now}" if item.now and state else f" · {item.now}" if item.now else ""
    # Cut to minutes, so that an entry does not become another one with every renewal.
    seen = max(item.since, now.replace(second=0, microsecond=0))
    return {
        "id": item.id,
        "count": 1,
        "title": item.title,
        "severity": item.severity.value,
        "simulated": item.simulated,
        "label": short_label(item.incident) or item.label,
        "impact": job_links.parts(
            unbroken(f"{item.impact} · for {duration(now - item.since)}{state}"),
            item.subject.cluster,
            item.incident.impact.holders,
            item.incident.impact.users,
        ),
        "action": item.action,
        "told": [f"{told.channel}: {told.text}" for told in item.delivery],
        "page": page_links.incident_page(item.id),
        "place": place_page(item.incident, seen, inventories),
    }


def changed(lines: Iterable[Change], most: int, *, count_rest: bool = True) -> Html:
    """The newest `most` of what changed, and how many more there were."""
    listed = list(lines)
    items = [
        tag(
            "li",
            tag("time", f"{line.at.astimezone(timezone.utc):%H:%M}", datetime=to_text(line.at)),
            tag("a", line.text, href=line.href) if line.href else tag("span", line.text),
            class_=line.tone or None,
        )
        for line in listed[:most]
    ]
    rest = len(listed) - most
    return tag(
        "section",
        tag("h2", "What changed", tag("small", "last 6 h, UTC")),
        tag("ol", *items) if items else tag("p", "nothing in the last 6 h", class_="gv-empty"),
        tag("p", f"and {rest} more before that", class_="gv-empty")
        if rest > 0 and count_rest
        else joined(),
        class_="gv-changes",
    )


def trend_title(
    young_since: datetime | None, marks: int, *, week: bool = False, way: Html | None = None
) -> Html:
    """What the chart shows, and its colours in words; `way` leads to it with or without a week ago."""
    title = "Allocated against used" if young_since is None else "Allocated against used so far"
    span = "last 24 h, UTC" if young_since is None else f"counted since {moment(young_since)}"
    entries = [("allocated", "allocated"), ("used", "used; the gap is waste")]
    entries += [("incident", counted(marks, "incident"))] if marks else []
    entries += [("before", "a week ago")] if week else []
    key = (tag("li", tag("i", class_=name, aria_hidden="true"), text) for name, text in entries)
    last = tag("li", way) if way is not None else joined()
    return tag("div", tag("h2", title, tag("small", span)), tag("ul", *key, last), class_="gv-key")


def nothing_counted(*, asked: bool) -> Html:
    """Instead of an empty chart; `asked`: the hub has answered that there is nothing."""
    nothing = "Nothing is counted yet: that takes a quarter of an hour."
    return tag("p", nothing if asked else "Loading the day.", class_="gv-empty")
