"""The parts of the network page, as trees of elements."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from gpuvigil.clock import moment as time_of
from gpuvigil.model import SIMULATED_CLUSTER, SWITCH_DEVICE, Incident, Subject
from gpuvigil.numbers_in_words import counted
from gpuvigil.web import page_links

from ..layout.job_links import nodes
from ..layout.tree import Node, each, el, stacked, wide
from ..lists.links import AVERAGES, MOST_TIMES, SPAN, times
from ..lists.network import COLUMNS, WORTH_TIMES, Cell, Network, across
from ..lists.table import Value
from .fabric import fabric

MOST_ROWS = 15
MOST_RACKS = 40
_DASH = "–"
_SIMULATED = el("span", "SIMULATED: no real hardware", class_="badge simulated")
# The limits in percent from which a cell has the colour of a busy or a full link: by waiting time, and by load.
_WAITS, _WAITS_LONG = 5.0, 20.0
_BUSY, _FULL = 60.0, 95.0


def page(found: Network, now: datetime) -> Sequence[Node]:
    """Return the answer, its evidence, and what is not seen."""
    return each(
        (
            _answer(found),
            _numbers(found),
            _findings(found, now),
            *fabric(found.wirings),
            _matrix(found),
            _busiest(found, now),
            _unseen(found),
        )
    )


def _answer(found: Network) -> Node:
    worst = found.worst
    kind = "good" if worst is None else worst.severity.value
    return el(
        "section",
        el("h2", found.answer),
        el("p", *_summary(found), class_="impact") if found.summary else None,
        el("p", el("b", "Do now: "), found.to_do, class_="action") if found.to_do else None,
        el("p", el("a", "Open the incident", href=page_links.incident_page(worst.id)))
        if worst is not None
        else None,
        class_=f"story-head {kind}",
        key="answer",
    )


def _summary(found: Network) -> Sequence[Node]:
    worst = found.worst
    if worst is None:
        return (found.summary,)
    return nodes(found.summary, worst.subject.cluster, worst.impact.holders, worst.impact.users)


def _suffers(one: Incident) -> Sequence[Node]:
    return nodes(one.impact.text, one.subject.cluster, one.impact.holders, one.impact.users)


def _numbers(found: Network) -> Node:
    keys = {key for one in found.findings for key in (one.subject.key, *one.members)}
    told = _links(found, [port for port in map(Subject.parse, keys) if port.kind == "port"])
    facts = (
        ("Links with a finding", f"{len(told):,} of {_known_links(found, told):,}"),
        ("Jobs that may suffer", _suffering(found)),
        ("Findings", f"{len(found.findings):,}"),
        ("Links not readable", f"{found.unread:,}" if found.unread else "none"),
    )
    tiles = (el("div", el("dt", name), el("dd", value)) for name, value in facts)
    return el("section", el("dl", *tiles, class_="tiles"), key="numbers")


def _links(found: Network, ports: Sequence[Subject]) -> Sequence[Subject]:
    """Return a port for each link: a switch's port is left out where the other end is among the ports."""
    keys = {one.key for one in ports}
    return [one for one in ports if keys.isdisjoint(_other_ends(found, one))]


def _other_ends(found: Network, port: Subject) -> Iterable[str]:
    """Yield the host's end of a link that is named by its switch's port."""
    link = found.known.link(port, ()) if found.known and port.device == SWITCH_DEVICE else None
    ends = () if link is None else (end.subject for end in link.ends)
    return (end.key for end in ends if end.device != SWITCH_DEVICE)


def _suffering(found: Network) -> str:
    """Return the number of jobs that may suffer; of cables between switches it is not always known."""
    sending = across(found.findings)
    may = max(len(found.jobs), sending or 0)
    if may:
        return f"{may:,}"
    return "not known" if sending is None else "none"


def _known_links(found: Network, told: Iterable[Subject]) -> int:
    """Return the number of known links: measured ones, cables between switches, and unmeasured host
    links with a finding, such as those of a silent node.
    """
    names = {
        (it.cluster, it.node, it.device, it.port)
        for it in told
        if not found.wirings or it.device != SWITCH_DEVICE
    }
    cables = sum(one.links for one in found.wirings)
    return cables + len(found.links) + len(names.difference(found.links.names) if names else ())


def _findings(found: Network, now: datetime) -> Node | None:
    if not found.findings:
        return None
    rows = found.grid.rows[: len(found.findings)]
    simulated = any(one.subject.cluster == SIMULATED_CLUSTER for one in found.findings)
    lines = (
        el(
            "tr",
            el("td", _link(row, one.subject, now), data_name="Link"),
            el(
                "td",
                el("a", one.title, href=page_links.incident_page(one.id)),
                data_name="Verdict",
            ),
            el("td", time_of(one.since), data_name="Since"),
            el("td", *_suffers(one), data_name="Suffers"),
            *(_rate(name, _shown(key, row)) for name, key in _RATES.items()),
            key=one.id,
        )
        for row, one in zip(rows[:MOST_ROWS], found.findings[:MOST_ROWS], strict=True)
    )
    more = len(found.findings) - MOST_ROWS
    return el(
        "section",
        el("h2", "Findings", *([" ", _SIMULATED] if simulated else [])),
        stacked(_table(("Link", "Verdict", "Since", "Suffers", *_RATES), lines), "Findings"),
        el("p", f"{more:,} more: run gpuvigil network", class_="sub") if more > 0 else None,
        el("p", _MEANT, class_="sub"),
        key="findings",
    )


_RATES = {
    "Load": "load_percent",
    "Wait": "wait_percent",
    "Wait vs peers": "wait_times_usual",
    "Errors/h": "errors_per_hour",
    "Packets lost/h": "losses_per_hour",
}
_MEANT = (
    "Wait: the share of the time in which a port had data and was not allowed to send."
    f" Wait vs peers: how many times as long as ports like it; 1.0 × is usual. {AVERAGES}"
)
_PLACES = {column.key: place for place, column in enumerate(COLUMNS)}


def _table(names: Sequence[str], lines: Iterable[Node]) -> Node:
    head = (
        el("th", name, scope="col", class_="number" if name in _RATES else None) for name in names
    )
    return el("table", el("thead", el("tr", *head)), el("tbody", *lines))


def _shown(key: str, row: Sequence[Value]) -> str:
    place = _PLACES[key]
    return _DASH if row[place] is None else COLUMNS[place].show(row[place])


def _rate(name: str, shown: str) -> Node:
    """Return a cell; a narrow screen, where a row is a block, hides what was not measured."""
    kind = "number none" if shown == _DASH else "number"
    return el("td", shown, class_=kind, data_name=name)


def _link(row: Sequence[Value], subject: Subject, now: datetime) -> Node:
    """Return a link: a port's to its link with both ends, a node's to the node's page."""
    if subject.kind == "port":
        return el("a", str(row[0]), href=page_links.link_page(subject))
    hour_ago = now - timedelta(hours=1)
    return el("a", str(row[0]), href=page_links.subject_page(subject, hour_ago, now))


def _busiest(found: Network, now: datetime) -> Node | None:
    """Return the links without a finding that wait or carry most; None without any."""
    first, most = len(found.findings), found.grid.rows_for_people or 0
    rows = found.grid.rows[first : max(first + 5, most)][:MOST_ROWS]
    if not rows:
        return None
    judged = any(row[_PLACES["verdict"]] is not None for row in rows)
    lines = (
        el(
            "tr",
            el("td", _link(row, _subject(row), now)),
            el("td", _shown("verdict", row)) if judged else None,
            *(el("td", _shown(key, row), class_="number") for key in _RATES.values()),
            key=_subject(row).key,
        )
        for row in rows
    )
    minutes = f" without a finding, in the last {SPAN.seconds // 60} minutes"
    return el(
        "section",
        el("h2", "Busiest links", el("small", minutes)),
        wide(_table(("Link", *(["Verdict"] if judged else []), *_RATES), lines), "Busiest links"),
        None if found.findings else el("p", _MEANT, class_="sub"),
        key="busiest",
    )


def _subject(row: Sequence[Value]) -> Subject:
    keys = ("node", "device", "port", "cluster")
    node, device, port, cluster = (str(row[_PLACES[key]]) for key in keys)
    return Subject(cluster=cluster, node=node, device=device, port=port)


def _matrix(found: Network) -> Node | None:
    """Return racks by rails, to see where waits or load gather; None without rails."""
    if not found.rails:
        return None
    racks = sorted(found.racks.items(), key=lambda it: -max(map(_rank, it[1].values()), default=0))
    lines = (
        el(
            "tr",
            el("th", el("a", rack, href=page_links.rack_page("", rack)), scope="row"),
            *(_cell(cells.get(rail)) for rail in found.rails),
            key=rack,
        )
        for rack, cells in racks[:MOST_RACKS]
    )
    head = (el("th", name, scope="col") for name in ("Rack", *found.rails))
    more = len(racks) - MOST_RACKS
    said = " the worst port of each: down, else its waits, else its load"
    return el(
        "section",
        el("h2", "Rack × rail", el("small", said)),
        wide(
            el("table", el("thead", el("tr", *head)), el("tbody", *lines), class_="heat"),
            "Racks by rails",
        ),
        _legend(),
        el("p", f"{counted(more, 'more rack')}, all calmer", class_="sub") if more > 0 else None,
        key="matrix",
    )


def _rank(cell: Cell) -> float:
    waits = (cell.wait or 0.0) + min(_times(cell), MOST_TIMES)
    return 1e6 * cell.down + 1000.0 * waits + (cell.load or 0.0)


def _times(cell: Cell) -> float:
    """Return waits for credit as a multiple of the peers', 0 below `WORTH_TIMES`."""
    return cell.times if cell.times is not None and cell.times >= WORTH_TIMES else 0.0


def _cell(cell: Cell | None) -> Node:
    if cell is None:
        return el("td", _DASH)
    if cell.down:
        return el("td", f"{cell.down} down", class_="hot")
    if cell.wait is not None and cell.wait >= 1.0:
        kind = _load_kind(cell.wait, _WAITS, _WAITS_LONG)
        return el("td", f"waits {cell.wait:.0f} %", class_=kind)
    if waits := _times(cell):
        return el("td", f"waits {times(waits, digits=0)}", class_="busy")
    if cell.load is None:
        return el("td", _DASH)
    return el("td", f"{cell.load:.0f} %", class_=_load_kind(cell.load, _BUSY, _FULL))


def _load_kind(value: float, busy: float, full: float) -> str:
    """Return the style class of a load or a wait: a full link is no fault, and never has the colour of one."""
    return "full" if value >= full else "busy" if value >= busy else "calm"


def _legend() -> Node:
    busy = f"load from {_BUSY:.0f} %, waits from {_WAITS:.0f} % or {WORTH_TIMES:.0f} × its peers'"
    full = f"load from {_FULL:.0f} %, waits from {_WAITS_LONG:.0f} %"
    return el(
        "p",
        el("span", "down: a fault", class_="hot"),
        el("span", f"busy: {busy}", class_="busy"),
        el("span", f"full: {full}", class_="full"),
        class_="heat",
        key="legend",
    )


def _unseen(found: Network) -> Node | None:
    if not found.unseen:
        return None
    return el(
        "section",
        el("h2", "Blind spots"),
        el("ul", *(el("li", line) for line in found.unseen)),
        key="unseen",
    )
