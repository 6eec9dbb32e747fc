"""The parts of the overview that are plain HTML."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from gpuvigil.clock import duration, moment, to_text

from .attention import Attention
from .cluster import ClusterView, Look, PortView, Strip
from .markup import Html, joined, tag
from .views import FleetView
from .words import counted, percent, speed, watts

MOST_PORTS = 12

LEGEND = (
    (Look.FAILED, "failed"),
    (Look.DEGRADED, "degraded"),
    (Look.IDLE, "held, idle now"),
    (Look.ACTIVE, "busy 0 to 100 %"),
    (Look.FREE, "free"),
    (Look.UNKNOWN, "no data"),
)


def header(view: FleetView, cluster: ClusterView | None) -> Html:
    """Which cluster this is, how much there is of it, and from when the data are."""
    left: list[Html] = [tag("h1", "gpuvigil")]
    amount = ""
    if cluster is not None:
        left.append(tag("span", f"cluster {cluster.name}", class_="cluster"))
        amount = f"{counted(len(cluster.nodes), 'node')} · {counted(cluster.strip.gpus, 'GPU')} · "
        if cluster.simulated:
            left.append(tag("span", "SIMULATED: no real hardware", class_="simulated"))
    at = cluster.rows_at if cluster else view.rows_at
    return tag(
        "header",
        tag("div", *left),
        tag("div", amount, _data_of(at), class_="data"),
        class_="gv-head",
    )


def _data_of(at: datetime | None) -> Html:
    """Always visible: from when the numbers are."""
    text = "no data yet" if at is None else f"data of {moment(at)}"
    return tag("time", text, datetime=None if at is None else to_text(at))


def notes(lines: Iterable[str]) -> Html:
    """What is worth a line, and changes nothing of what is shown."""
    return joined(*(tag("div", text, class_="gv-note", role="status") for text in lines))


def banners(warnings: Iterable[str]) -> Html:
    """Why what is shown may not be true, loudly."""
    return joined(*(tag("div", text, class_="gv-banner", role="alert") for text in warnings))


def strip(numbers: Strip) -> Html:
    """Six numbers; what nobody could measure is a dash with the reason."""
    looks = numbers.looks
    unknown = looks[Look.UNKNOWN]
    asked = f"{numbers.held:,} of {numbers.known:,} known" + (
        f", {unknown:,} unknown" if unknown else ""
    )
    tiles = (
        (
            "Failing GPUs",
            f"{looks[Look.FAILED]:,}",
            joined(f"of {numbers.gpus:,}", _hung(numbers)),
            "failed",
            looks[Look.FAILED] + sum(numbers.hung.values()),
        ),
        (
            "Degraded",
            f"{looks[Look.DEGRADED]:,}",
            "work, with a fault",
            "degraded",
            looks[Look.DEGRADED],
        ),
        ("GPUs held", percent(numbers.held_percent), asked, "", 0),
        ("Used of held", percent(numbers.used_percent), "mean utilisation now", "", 0),
        ("Held, idle now", f"{looks[Look.IDLE]:,}", "at 0 % this moment", "idle", looks[Look.IDLE]),
        ("Power", _power(numbers), _limit(numbers), "", 0),
    )
    return tag("section", *(_tile(*tile) for tile in tiles), class_="gv-strip", aria_label="Status")


_HANGS = {"driver_silent": "driver hangs", "gpu_silent": "GPU hangs"}


def _hung(numbers: Strip) -> Html:
    """GPUs that may well fail and cannot be counted so: whatever would tell their state hangs."""
    causes = {_HANGS[fault]: count for fault, count in numbers.hung.items() if count}
    if not causes:
        return joined()
    total = sum(causes.values())
    why = ", ".join(
        cause if len(causes) == 1 else f"{count:,} {cause}" for cause, count in causes.items()
    )
    return tag("strong", f"+ {total:,} unknown: {why}", class_="hung")


def _tile(name: str, value: str, below: str, kind: str, alarm: int) -> Html:
    return tag(
        "div",
        tag("div", name, class_="name"),
        tag("div", value, class_="value"),
        tag("div", below, class_="below"),
        class_=f"tile {kind if alarm else ''}".strip(),
    )


def _power(numbers: Strip) -> str:
    return "–" if numbers.power_watts is None else watts(numbers.power_watts)


def _limit(numbers: Strip) -> str:
    if numbers.power_watts is None or not numbers.power_limit_watts:
        return "not measured"
    share = 100 * numbers.power_watts / numbers.power_limit_watts
    missing = numbers.gpus - numbers.power_measured
    rest = f", {missing:,} not measured" if missing else ""
    return f"{share:.0f} % of {watts(numbers.power_limit_watts)}{rest}"


def legend(numbers: Strip) -> Html:
    """What the colours and marks of the map mean, with how many there are."""
    items = (
        tag(
            "li",
            tag("i", class_=f"swatch {look.name.lower()}", aria_hidden="true"),
            f"{text} ",
            tag("b", f"{numbers.looks[look]:,}"),
        )
        for look, text in LEGEND
    )
    return tag("ul", *items, class_="gv-legend", aria_label="Legend")


def ports(cluster: ClusterView) -> Html:
    """The ports of a cluster: all of them where there are few, else those that are not up."""
    ranked = sorted(cluster.ports, key=lambda port: (_PORT_ORDER[port.word], port.subject))
    counts = {word: sum(port.word == word for port in ranked) for word in _PORT_ORDER}
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    few = len(ranked) <= MOST_PORTS
    shown = ranked if few else [p for p in ranked if p.word in _TROUBLED][:MOST_PORTS]
    rest = 0 if few else counts["down"] + counts["unknown"] - len(shown)
    return tag(
        "section",
        tag("h2", f"Network ports of {cluster.name}", tag("small", said or "none found")),
        _table(shown) if shown else joined(),
        tag("p", f"and {rest} more that are not up") if rest else joined(),
        class_="gv-ports",
    )


_PORT_ORDER = {"down": 0, "unknown": 1, "up": 2, "never connected": 3}
_TROUBLED = frozenset({"down", "unknown"})


def _table(shown: Iterable[PortView]) -> Html:
    head = tag(
        "tr", *(tag("th", name, scope="col") for name in ("Node", "Port", "Kind", "State", "Speed"))
    )
    return tag("table", tag("thead", head), tag("tbody", *map(_port, shown)))


def _port(port: PortView) -> Html:
    name = port.subject.device or ""
    if port.kind in {"infiniband", "roce"}:
        name = f"{name} port {port.subject.port}"
    cells = (port.subject.node, name, f"{port.kind}, {port.role}".strip(", "))
    return tag(
        "tr",
        *(tag("td", text) for text in cells),
        tag("td", port.word, class_=port.word.replace(" ", "-")),
        tag("td", speed(port.speed_bits_per_second), class_="number"),
    )


def other_cluster(cluster: ClusterView) -> Html:
    """A cluster that is not the one on the map, in its own words: nothing of it is in the sums."""
    why = f" ({'; '.join(cluster.drivers)})" if cluster.drivers and not cluster.strip.gpus else ""
    silent = len(cluster.silent_nodes)
    said = f"{counted(len(cluster.nodes), 'node')}, {counted(cluster.strip.gpus, 'GPU')}{why}"
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
    """How many incidents stand; simulated ones are counted by themselves."""
    simulated = sum(item.simulated for item in view.attention)
    real = len(view.attention) - simulated
    said = [f"{real}"] if real else []
    said += [f"{simulated} simulated"] if simulated else []
    count = tag("small", " + ".join(said) or "nothing")
    return tag("h2", "Needs attention", count, class_="gv-title")


def attention_items(view: FleetView, linked: Attention | None = None) -> list[dict[str, Any]]:
    """The list of incidents as plain values, for the component; first the one of a link."""
    first = [] if linked is None else [linked]
    return [_item(item, view) for item in (*first, *view.attention)]


def _item(item: Attention, view: FleetView) -> dict[str, Any]:
    state = "" if item.state == "open" else f" · {item.state}"
    state += f": {item.now}" if item.now and state else f" · {item.now}" if item.now else ""
    lasts = f"{item.impact} · for {duration(view.now - item.since)}{state}"
    details = [
        ["Evidence", *(evidence.text for evidence in item.evidence)],
        ["Since", moment(item.since)],
        ["Hides", *item.covers],
        ["Rule from", item.source],
        ["Subject", item.subject.key],
        ["Incident", item.id],
    ]
    return {
        "id": item.id,
        "title": item.title,
        "severity": item.severity.value,
        "simulated": item.simulated,
        "label": item.label,
        "over": item.over,
        "impact": f"while it stood: {item.impact}" if item.over else lasts,
        "action": "" if item.over else item.action,
        "told": [f"{told.channel}: {told.text}" for told in item.told]
        or ["no decision yet about telling anybody"],
        "details": [entry for entry in details if len(entry) > 1 and entry[1]],
        "gpu": _gpu_link(item),
    }


def _gpu_link(item: Attention) -> dict[str, str] | None:
    if item.subject.gpu is None:
        return None
    return {"cluster": item.subject.cluster, "node": item.subject.node, "gpu": item.subject.gpu}
