"""The pipeline page, as trees of elements."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuvigil import __version__
from gpuvigil.clock import duration, moment
from gpuvigil.numbers_in_words import capitalized, counted
from gpuvigil.web import page_links

from ..layout.tree import Node, el, wide
from .clusters import CLOCK_LIMIT_SECONDS, MOST_NAMED, ClusterHealth, NodeHealth
from .services import HubHealth, Outbox, Pulse
from .view import (
    COVERAGE_LIMIT_PERCENT,
    LAG_LIMIT_SECONDS,
    SPOOL_LIMIT_SECONDS,
    Level,
    PipelineView,
    Problem,
)

UNKNOWN = "not known"
# Nodes with a smaller clock offset or a shorter wait are not named.
CLOCK_SHOWN_SECONDS = 0.5
SPOOL_SHOWN_SECONDS = 10.0
_STEP_SECONDS = 300
_HOUR = timedelta(hours=1)


def verdict(view: PipelineView) -> Node:
    """Return the verdict with what to do, and every other problem below it."""
    first, *rest = view.problems or (None,)
    look = "good" if first is None else _LOOKS[first.level][0]
    line = el("p", view.verdict, class_="line", role="status")
    return el(
        "section",
        line,
        el("p", el("em", *_advice(first.action))) if first is not None else None,
        el("ol", *(_problem(one) for one in rest if one is not None), class_="problems")
        if rest
        else None,
        class_=f"verdict {look}",
        aria_label="Verdict",
        key="verdict",
    )


_LOOKS = {Level.WRONG: ("bad", "wrong"), Level.CARE: ("warn", "note")}


def _problem(one: Problem) -> Node:
    look, name = _LOOKS[one.level]
    text = capitalized(one.text)
    return el(
        "li", el("span", name, class_=f"badge {look}"), text, " ", el("em", *_advice(one.action))
    )


def cluster(one: ClusterHealth, now: datetime) -> Node:
    """Return the collectors of one cluster: a line per question, with the worst nodes named."""
    at = _stepped(now)
    mark = "simulated" if one.simulated else "real"
    lines = [*_reporting_lines(one, now), *_health(one)]
    return el(
        "section",
        el("h2", f"Collectors of {one.name}", el("small", mark)),
        el("table", el("tbody", *(_line(line, at) for line in lines)), class_="facts"),
        key=f"cluster {one.name}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """One question about the collectors: the answer, and the worst nodes."""

    name: str
    value: str
    nodes: Sequence[NodeHealth] = ()
    said: Callable[[NodeHealth], str] = lambda _: ""
    flagged: bool = False


def _reporting_lines(one: ClusterHealth, now: datetime) -> list[_Line]:
    coverage, lag = one.coverage_percent, one.lag_seconds
    least = sorted(
        (n for n in one.nodes if n.coverage_percent is not None and n.coverage_percent < 99.5),
        key=lambda n: (n.coverage_percent, n.subject),
    )
    clocks = sum(node.offset_seconds is not None for node in one.nodes)
    wrong = one.worst("offset_seconds", CLOCK_LIMIT_SECONDS)
    return [
        _Line(
            name="Heard",
            value=f"{one.reporting:,} of {counted(len(one.nodes), 'node')}",
            nodes=one.silent,
            said=lambda n: f"silent {_for(n, now)}",
            flagged=one.reporting < len(one.nodes),
        ),
        _Line(
            name="Coverage, 15 min",
            value=UNKNOWN if coverage is None else f"{coverage:.1f} % of the ticks",
            nodes=least,
            said=lambda n: f"{n.coverage_percent:.0f} %",
            flagged=coverage is not None and coverage < COVERAGE_LIMIT_PERCENT,
        ),
        _Line(
            name="Age of newest data",
            value=UNKNOWN if lag is None else f"{lag:.1f} s in the median",
            nodes=one.worst("lag_seconds"),
            said=lambda n: _span(n.lag_seconds),
            flagged=lag is not None and lag > LAG_LIMIT_SECONDS,
        ),
        _Line(
            name="Clocks",
            value=f"{counted(len(wrong), 'clock')} more than 2 s off, of {clocks:,} known"
            if clocks
            else UNKNOWN,
            nodes=one.worst("offset_seconds", CLOCK_SHOWN_SECONDS),
            said=lambda n: f"{n.offset_seconds:+.1f} s",
            flagged=bool(wrong),
        ),
    ]


def _health(one: ClusterHealth) -> list[_Line]:
    dropped = one.worst("dropped_lately")
    hung = one.worst("driver_silent_seconds")
    sweeps = one.worst("sweep_seconds")
    versions = ", ".join(f"{version} on {number:,}" for version, number in one.versions)
    usual = one.versions[0][0] if one.versions else ""
    restarted = one.worst("restarts_lately")
    return [
        _Line(
            name="Waiting to be sent",
            value=_on_disk(one),
            nodes=one.worst("spool_oldest_seconds", SPOOL_SHOWN_SECONDS),
            said=_waits,
            flagged=bool(one.worst("spool_oldest_seconds", SPOOL_LIMIT_SECONDS)),
        ),
        _Line(
            name="Batches dropped",
            value=_sum(one, "dropped", _number),
            nodes=one.worst("dropped"),
            said=lambda n: f"{_number(n.dropped)}, lately {_number(n.dropped_lately)}",
            flagged=bool(dropped),
        ),
        _Line(
            name="Readers replaced, 15 min",
            value=_sum(one, "restarts_lately", _number),
            nodes=restarted,
            said=lambda n: _number(n.restarts_lately),
            flagged=bool(restarted),
        ),
        _Line(
            name="Driver does not answer",
            value=_of_known(one, "driver_silent_seconds", len(hung)),
            nodes=hung,
            said=lambda n: _span(n.driver_silent_seconds),
            flagged=bool(hung),
        ),
        _Line(
            name="Longest sweep of GPUs",
            value=_span(sweeps[0].sweep_seconds) if sweeps else UNKNOWN,
            nodes=sweeps[:1],
        ),
        _Line(
            name="Version",
            value=versions or UNKNOWN,
            nodes=[node for node in one.nodes if node.version not in {"", usual}],
            said=lambda n: n.version,
            flagged=len(one.versions) > 1,
        ),
    ]


def _line(one: _Line, at: datetime) -> Node:
    return el(
        "tr",
        el("th", one.name, scope="row"),
        el("td", one.value, class_="flag" if one.flagged else None),
        el("td", *_named(one, at), class_="sub"),
        key=one.name,
    )


def _named(one: _Line, at: datetime) -> list[Node]:
    """Return the worst nodes as links to their pages of the last hour, and how many more there are."""
    found: list[Node] = []
    for node in one.nodes[:MOST_NAMED]:
        href = page_links.subject_page(node.subject, at - _HOUR, at)
        found += [", "] if found else []
        found += [el("a", node.subject.node, href=href), f" {one.said(node)}"]
    more = len(one.nodes) - MOST_NAMED
    return [*found, f" and {more:,} more"] if more > 0 else found


def services(view: PipelineView, shown: datetime | None, refresh_seconds: float) -> Node:
    """Return hub, analyzer, alerts and this dashboard, each with its own report."""
    rows_at = "no data yet" if shown is None else f"{_since(view.now, shown)} old"
    dashboard = (
        ("Version", __version__),
        ("Refreshes", f"every {refresh_seconds:g} s"),
        ("Newest data shown", rows_at),
    )
    return el(
        "section",
        el(
            "div",
            *(
                _card(*card)
                for card in (
                    ("Hub", _hub(view.hub, view.now)),
                    ("Analyzer", _analyzer(view.analyzer, view.now)),
                    ("Alerts", _alerts(view.alerts, view.now)),
                    ("Dashboard", dashboard),
                )
            ),
            class_="cards",
        ),
        key="services",
        aria_label="Services",
    )


Pairs = Sequence[tuple[str, str]]


def _card(name: str, pairs: Pairs) -> Node:
    rows = [node for key, value in pairs for node in (el("dt", key), el("dd", value))]
    return el("div", el("h2", name), el("dl", *rows), class_="card", key=name)


# The names of what the hub keeps rows of, by measurement.
KEPT_OF = {
    "gpu": "GPUs",
    "nvlink": "NVLinks",
    "mig": "MIG devices",
    "port": "network ports",
    "node": "nodes",
    "inference": "inference servers",
    "extra": "other measurements",
}


def _hub(hub: HubHealth, now: datetime) -> Pairs:
    tables = ", ".join(
        f"{rows:,} of {KEPT_OF.get(name, name)}" for name, rows in hub.tables.items() if rows
    )
    numbers = f"{_days(hub.numbers_days)} of numbers, {_days(hub.rollup_days)} of roll-ups"
    if hub.elsewhere:
        numbers = "numbers as long as the store in [store] does"
    kept = f"{numbers}, {_days(hub.records_days)} of records"
    most = f" of {_bytes(hub.store_most_bytes)}" if hub.store_most_bytes else ""
    batches = _counted(hub.queue_bodies, "batch", "batches")
    full = f" of {_bytes(hub.queue_most_bytes)}" if hub.queue_most_bytes else ""
    return (
        ("Version", hub.version or UNKNOWN),
        (
            "Up",
            UNKNOWN
            if hub.started_at is None
            else f"{_since(now, hub.started_at)}, since {moment(hub.started_at)}",
        ),
        ("Its own store" if hub.elsewhere else "Store", f"{_bytes(hub.store_bytes)}{most}"),
        ("Damaged files", _number(None if hub.damaged is None else len(hub.damaged))),
        ("Rows kept", tables or ("none" if hub.tables else UNKNOWN)),
        ("Keeps", kept),
        (
            "Queue",
            f"{batches}, {_bytes(hub.queue_bytes)}{full}",
        ),
        ("Lines refused since its start", _number(hub.refused_lines)),
        ("Changes of records", _number(hub.sequence)),
        (
            "Last backup of the records",
            "none by the hub" if hub.records_backup_at is None else moment(hub.records_backup_at),
        ),
    )


def _days(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:g} d"


def _analyzer(found: Pulse | None, now: datetime) -> Pairs:
    if found is None:
        return (("Last pass", "never heard"),)
    took, tick = found.number("pass_seconds"), found.number("tick_seconds")
    newest = found.time("newest_at")
    return (
        ("Version", found.version or UNKNOWN),
        ("Last pass", f"{_since(now, found.at)} ago" + (", silent" if found.silent else "")),
        ("A pass takes", UNKNOWN if took is None else f"{took:.2f} s"),
        ("Interval", UNKNOWN if tick is None else f"every {tick:g} s"),
        ("GPUs, ports and nodes", _number(found.number("subjects"))),
        ("Newest data seen", UNKNOWN if newest is None else f"{_since(now, newest)} old"),
        ("Open incidents", _number(found.number("active"))),
    )


def _alerts(found: Pulse | None, now: datetime) -> Pairs:
    if found is None:
        return (("Last pulse", "never heard"),)
    began = found.time("started_at")
    return (
        ("Version", found.version or UNKNOWN),
        ("Last pulse", f"{_since(now, found.at)} ago" + (", silent" if found.silent else "")),
        ("Up", UNKNOWN if began is None else f"{_since(now, began)}"),
        ("Messages since its start", _became(found.body.get("counts"))),
    )


# The outcomes of messages, by the alerts service's states; due ones are in the outbox.
_BECAME = {
    "sent": "sent",
    "held": "not sent, each incident says why",
    "superseded": "superseded by an update",
    "dead": "given up",
}


def _became(counts: object) -> str:
    known = counts if isinstance(counts, Mapping) else {}
    found = [f"{known[key]:,} {said}" for key, said in _BECAME.items() if known.get(key)]
    return "; ".join(found) or "none yet"


def outbox(boxes: Sequence[Outbox], now: datetime) -> Node | None:
    """Return what waits for each channel and what was given up; None without channels, as the verdict says so."""
    if not boxes:
        return None
    names = ("Channel", "Due", "On its way", "For later", "Failing", "Given up", "Last sent", "")
    head = el(
        "thead", el("tr", *(el("th", name, scope="col") if name else el("td") for name in names))
    )
    table = el("table", head, el("tbody", *(_box(box, now) for box in boxes)))
    return el("section", el("h2", "Outbox"), wide(table, "Outbox"), key="outbox")


def _box(box: Outbox, now: datetime) -> Node:
    numbers = (box.waiting, box.in_flight, box.later)
    never = "none yet" if box.configured else UNKNOWN
    sent = never if box.last_sent_at is None else f"{_since(now, box.last_sent_at)} ago"
    said = [f"failing since {moment(box.failing_since)}"] if box.failing_since else []
    said += [f"next try {_next(box.next_try, now)}"] if box.failing else []
    said += [f"last error: {box.last_error}"] if box.last_error else []
    said += ["not configured any more"] if box.configured is False else []
    return el(
        "tr",
        el("th", box.channel, scope="row"),
        *(el("td", f"{number:,}") for number in numbers),
        el("td", f"{box.failing:,}", class_="flag" if box.failing else None),
        el("td", f"{box.dead:,}", class_="flag" if box.dead else None),
        el("td", sent),
        el("td", "; ".join(said), class_="sub"),
        key=box.channel,
    )


def _next(at: datetime | None, now: datetime) -> str:
    return "now" if at is None or at <= now else f"in {duration(at - now)}"


def _sum(one: ClusterHealth, name: str, form: Callable[[float | None], str]) -> str:
    known = [value for node in one.nodes if (value := getattr(node, name)) is not None]
    return form(sum(known)) if known else UNKNOWN


def _on_disk(one: ClusterHealth) -> str:
    """Return the bytes in the collectors' spools on disk; what waits in memory is not counted."""
    amount = _sum(one, "spool_bytes", _bytes)
    return amount if amount == UNKNOWN else f"{amount} on disk"


def _waits(node: NodeHealth) -> str:
    """Say how much data waits on a node, where, and for how long."""
    where = f"{_bytes(node.spool_bytes)} on disk, " if node.spool_bytes else ""
    where = "in memory, " if node.spool_bytes == 0 else where
    return f"{where}oldest {_span(node.spool_oldest_seconds)}"


def _of_known(one: ClusterHealth, name: str, number: int) -> str:
    known = sum(getattr(node, name) is not None for node in one.nodes)
    return f"on {counted(number, 'node')}, of {known:,} known" if known else UNKNOWN


def _for(node: NodeHealth, now: datetime) -> str:
    return "ever since" if node.heard_at is None else f"for {duration(now - node.heard_at)}"


def _since(now: datetime, at: datetime) -> str:
    return duration(now - at)


def _span(seconds: float | None) -> str:
    """Return a duration; short ones in ms, as a sweep of 40 ms is not 0 s."""
    if seconds is None:
        return UNKNOWN
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 10 else duration(timedelta(seconds=seconds))


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def _counted(value: float | None, one: str, many: str) -> str:
    return f"{_number(value)} {one if value == 1 else many}"


def _advice(text: str) -> list[Node]:
    """Return advice with the parts between backticks as code."""
    parts = text.split("`")
    return [el("code", part) if number % 2 else part for number, part in enumerate(parts) if part]


def _bytes(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} B"


def _stepped(now: datetime) -> datetime:
    """Return the end of a link's window, which moves in steps so that the link stays the same for a while."""
    return now + timedelta(seconds=_STEP_SECONDS - now.timestamp() % _STEP_SECONDS)
