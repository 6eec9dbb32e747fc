"""The page of hardware, as trees."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from accounting.hardware.repeat_offenders import RULE, SPAN, Offender, Part
from gpuvigil.clock import duration, moment
from gpuvigil.faults import FAULTS
from gpuvigil.model import Rma, RmaState, with_kind
from gpuvigil.numbers_in_words import counted, percent, watts
from gpuvigil.web import page_links

from ..layout.tree import Node, each, el, wide
from .summary import Matrix, Rack

MOST_OFFENDERS, MOST_RMA, MOST_RACKS, MOST_NODES, MOST_INCIDENTS = 20, 30, 200, 64, 4
# From half of the worst on a cell is hot, from a fifth on it is warm.
_HOT, _WARM = 0.5, 0.2
_DASH = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Everything on the page."""

    now: datetime
    errors: Matrix
    offenders: Sequence[Offender]
    returns: Sequence[Rma]  # the newest step of each
    racks: Sequence[Rack]
    rack: str = ""  # the one that is asked for
    known: bool = True  # whether the hub said anything of what failed


def page(shown: Shown) -> list[Node]:
    """What failed where, what fails again and again, what is on its way back, and the racks."""
    if shown.rack:
        return [_all_racks(), *_one_rack(shown)]
    failed = (_errors(shown.errors), _offenders(shown), _returns(shown)) if shown.known else ()
    return each((*failed, _racks(shown)))


def _all_racks() -> Node:
    return el("p", el("a", "All hardware", href=page_links.HARDWARE), key="back")


def _table(heads: Sequence[str], rows: Sequence[Node], numbers: frozenset[str]) -> Node:
    cells = (
        el("th", name, scope="col", class_="number" if name in numbers else None) for name in heads
    )
    return wide(el("table", el("thead", el("tr", *cells)), el("tbody", *rows)), ", ".join(heads))


def _errors(found: Matrix) -> Node:
    head = el("h2", "Failures", el("small", f"by fault and rack, last {SPAN.days} days"))
    if not found.rows:
        nothing = el("p", f"No hardware failed in {SPAN.days} days.", class_="empty")
        return el("section", head, nothing, key="errors")
    columns = (
        el("th", el("a", name, href=found.pages.get(name)), scope="col") for name in found.places
    )
    rows = (
        el(
            "tr",
            el("th", el("a", title, href=page_links.incidents_of(fault)), scope="row"),
            *(el("td", str(it) if it else "", class_=_heat(it, found.most)) for it in counts),
            el("td", str(total)),
            key=fault,
        )
        for fault, title, counts, total in found.rows
    )
    table = el(
        "table",
        el(
            "thead",
            el("tr", el("th", "Fault", scope="col"), *columns, el("th", "All", scope="col")),
        ),
        el("tbody", *rows),
        class_="heat",
    )
    more = el("p", f"and {counted(found.more, 'more place')}", class_="more")
    return el(
        "section",
        head,
        wide(table, "Failures by fault and rack"),
        more if found.more else None,
        key="errors",
    )


def _heat(count: int, most: int) -> str | None:
    if count > 1 and count >= _HOT * most:
        return "hot"
    return "warm" if count and count >= _WARM * most else None


def _offenders(shown: Shown) -> Node:
    found = [one for one in shown.offenders if len(one.failures) > 1 or one.is_lemon]
    head = el("h2", "Repeat offenders", el("small", counted(len(found), "part")))
    if not found:
        nothing = el("p", f"Nothing failed twice in {SPAN.days} days.", class_="empty")
        return el("section", head, nothing, key="offenders")
    rows = [
        el(
            "tr",
            el("td", f"{one.score:.2f}", class_="number"),
            el("td", "lemon" if one.is_lemon else _DASH, class_="flag" if one.is_lemon else None),
            el("td", "GPU" if one.part is Part.GPU else one.part.value),
            el("td", el("a", one.node, href=page_links.node_page(one.cluster, one.node))),
            el("td", one.name if one.name != one.node else _DASH),
            el("td", str(len(one.failures)), class_="number"),
            el("td", f"{duration(shown.now - one.last_at)} ago"),
            el("td", ", ".join(sorted({_title(it.fault) for it in one.failures}))),
            key=f"{one.part.value} {one.cluster} {one.name}",
        )
        for one in found[:MOST_OFFENDERS]
    ]
    heads = ("Score", "Verdict", "Part", "Node", "Slot or serial", "Failures", "Last", "Faults")
    table = _table(heads, rows, frozenset({"Score", "Failures"}))
    more = len(found) - len(rows)
    return el(
        "section",
        head,
        table,
        el("p", f"{more} more: run gpuvigil lemons", class_="more") if more > 0 else None,
        el("p", RULE, class_="sub"),
        key="offenders",
    )


def _title(fault: str) -> str:
    return FAULTS[fault].title if fault in FAULTS else fault


def _returns(shown: Shown) -> Node:
    found = [one for one in shown.returns if one.state is not RmaState.REPLACED]
    head = el("h2", "Returns to the maker", el("small", f"{len(found)} open"))
    if not found:
        nothing = el("p", "No part is on its way back to its maker.", class_="empty")
        return el("section", head, nothing, key="returns")
    rows = [
        el(
            "tr",
            el("td", one.state.value),
            el("td", f"{moment(one.at)}, {duration(shown.now - one.at)}"),
            el(
                "td",
                el(
                    "a",
                    one.subject.node,
                    href=page_links.node_page(one.subject.cluster, one.subject.node),
                ),
            ),
            el("td", one.serial or _DASH),
            el("td", one.slot or _DASH),
            el("td", f"{one.by}: {one.note}" if one.note else one.by),
            el("td", el("a", "incident", href=page_links.incident_page(one.incident))),
            key=one.id,
        )
        for one in sorted(found, key=lambda it: it.at)[:MOST_RMA]
    ]
    heads = ("State", "Since", "Node", "Serial", "Slot", "By", "Incident")
    return el("section", head, _table(heads, rows, frozenset()), key="returns")


_RACK_HEADS = (
    "Rack",
    "Nodes",
    "GPUs",
    "Unavailable or failing",
    "Allocated",
    "Power",
    "Limit",
    "Hottest",
    "Median",
)
_NUMBERS = frozenset({*_RACK_HEADS[1:], "Incidents"})


def _racks(shown: Shown) -> Node:
    head = el("h2", "Racks", el("small", "GPUs' power and temperature now"))
    if not shown.racks:
        nothing = "No node reports its rack: set collector.rack on each."
        return el("section", head, el("p", nothing, class_="empty"), key="racks")
    rows = [_rack(one) for one in shown.racks[:MOST_RACKS]]
    more = len(shown.racks) - len(rows)
    heads = (*_RACK_HEADS, "Incidents", "Cluster")
    table = _table(heads, rows, _NUMBERS)
    return el(
        "section",
        head,
        table,
        el("p", f"and {counted(more, 'more rack')}", class_="more") if more > 0 else None,
        key="racks",
    )


def _rack(one: Rack) -> Node:
    silent = f" ({one.silent} silent)" if one.silent else ""
    return el(
        "tr",
        el("th", el("a", one.name, href=page_links.rack_page(one.cluster, one.name)), scope="row"),
        _number(f"{len(one.nodes)}{silent}"),
        *_sums(one),
        _number(str(len(one.open_incidents))),
        el("td", one.cluster),
        key=f"{one.cluster} {one.name}",
    )


def _node(one: Rack, now: datetime) -> Node:
    """A node of a rack, with the incidents open on it."""
    links = [
        el("div", el("a", it.title, href=page_links.incident_page(it.id)), key=it.id)
        for it in one.open_incidents[:MOST_INCIDENTS]
    ]
    more = len(one.open_incidents) - len(links)
    silent = el("span", " silent", class_="sub") if one.silent else None
    href = page_links.around(one.nodes[0], now - timedelta(hours=1), now)
    return el(
        "tr",
        el("th", el("a", one.name, href=href), silent, scope="row"),
        *_sums(one),
        el("td", *(links or [_DASH]), el("div", f"and {more} more") if more > 0 else None),
        key=f"{one.cluster} {one.name}",
    )


def _sums(one: Rack) -> Sequence[Node]:
    return (
        _number(str(one.gpus)),
        _number(str(one.failing) if one.failing or one.silent < len(one.nodes) else _DASH),
        _number(percent(one.held_percent)),
        _number(_DASH if one.power_watts is None else watts(one.power_watts)),
        _number(_DASH if one.power_limit_watts is None else watts(one.power_limit_watts)),
        _number(_celsius(one.hottest_celsius)),
        _number(_celsius(one.middle_celsius)),
    )


def _number(text: str) -> Node:
    return el("td", text, class_="number")


def _celsius(value: float | None) -> str:
    return _DASH if value is None else f"{value:.0f} °C"


def _one_rack(shown: Shown) -> list[Node]:
    """A rack with its nodes."""
    found = [one for one in shown.racks if one.name == shown.rack]
    if not found:
        said = f"No node reports {with_kind('rack', shown.rack)}."
        return [el("p", said, class_="empty", key="none")]
    rack_heads = (*_RACK_HEADS, "Incidents", "Cluster")
    body: list[Node] = [_table(rack_heads, [*map(_rack, found)], _NUMBERS)]
    for one in found:
        more = len(one.parts) - MOST_NODES
        heads = ("Node", *_RACK_HEADS[2:], "Open incidents")
        rows = [_node(it, shown.now) for it in one.parts[:MOST_NODES]]
        body.append(
            el(
                "section",
                el("h2", "Nodes", el("small", one.cluster)),
                _table(heads, rows, _NUMBERS),
                el("p", f"and {more} more", class_="more") if more > 0 else None,
                key=f"{one.cluster} nodes",
            )
        )
    return body
