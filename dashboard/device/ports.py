"""A node's network ports over the window: rates as small multiples, errors as sums; pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuvigil.numbers_in_words import counted, natural, of_many, speed
from gpuvigil.web import page_links
from gpuvigil.web.markup import Html, joined, tag

from ..model.cluster import PortView
from .curves import Curve
from .grid import Floats, increase, rates
from .hub_queries import OFFSETS, Fields, Numbers
from .small_multiples import Panel, Strip, strip

ERRORS = {
    "receive_errors": "receive errors",
    "transmit_discards": "discards",
    "symbol_errors": "symbol errors",
    "link_downed": "times down",
    "link_recoveries": "recoveries",
    "local_integrity_errors": "local integrity errors",
    "buffer_overruns": "buffer overruns",
    "receive_remote_errors": "packets marked bad upstream",
    "receive_discards": "receive discards",
    "out_of_buffer": "without a receive buffer",
    "receiver_not_ready": "receiver not ready",
    "retransmits": "retransmits",
    "path_timeouts": "timeouts on a path",
    "out_of_sequence": "out of sequence",
    "pause_storms": "pause storms",
    "module_faults": "module faults",
}
# Counters of congestion, which do no harm by themselves: as a share of the time, and per second.
_STOPPED = {
    "receive_pause_microseconds": "waits",
    "transmit_pause_microseconds": "makes others wait",
}
_MARKED = {
    "transmit_held_back": "times held back by a shaper",
    "ecn_marked_packets": "packets marked by ECN",
    "cnp_sent": "CNPs sent",
    "cnp_ignored": "CNPs ignored",
    "cnp_handled": "CNPs handled",
}
# Nobody publishes the length of a tick without credit, so ports are compared: so many times the ticks of the
# node's other ports of that kind, at least two of them, are worth mentioning [own].
_TICKS, _TIMES, _OTHERS = "transmit_wait_ticks", 3.0, 2
# Below this share of the time, or this rate, nothing is mentioned [own].
_LEAST_SHARE, _LEAST_PER_SECOND, _MICROSECONDS = 0.001, 0.1, 1e6
Port = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PortLine:
    """One port; numbers are None if not measured."""

    name: str
    kind: str
    role: str
    word: str
    speed: str
    received: float | None  # bytes per second, newest
    sent: float | None
    errors: Mapping[str, float]
    congestion: tuple[str, ...] | None
    lanes: int | None
    module_celsius: float | None  # newest
    asked: bool
    href: str = ""  # the page of its link


def names(views: Iterable[PortView], numbers: Numbers, asked: str) -> tuple[Port, ...]:
    """Return every port that is or was there; the one that the address asks for comes first."""
    known = {(it.subject.device or "", it.subject.port or "") for it in views}
    return tuple(
        sorted(
            {*known, *numbers.ports}, key=lambda it: ("/".join(it) != asked, natural(it[0]), it[1])
        )
    )


def rows(
    ports: Sequence[Port], views: Iterable[PortView], numbers: Numbers, asked: str
) -> tuple[PortLine, ...]:
    """Return the table's line for each port."""
    now = {(it.subject.device, it.subject.port): it for it in views}
    found = []
    for port in ports:
        view, fields = now.get(port), numbers.ports.get(port, {})
        kind, role = numbers.kinds.get(port, ("", ""))
        found.append(
            PortLine(
                name="/".join(port),
                kind=view.kind if view and view.kind else kind,
                role=view.role if view and view.role else role,
                word=view.word if view else "gone",
                speed=speed(view.speed_bits_per_second) if view else "–",
                received=_newest_rate(fields, "receive_bytes", numbers),
                sent=_newest_rate(fields, "transmit_bytes", numbers),
                errors=_grown(fields, ERRORS),
                congestion=_congestion(port, numbers),
                lanes=None if (lanes := _newest(fields, "width_lanes")) is None else round(lanes),
                module_celsius=_newest(fields, "module_celsius"),
                asked="/".join(port) == asked,
                href=page_links.link_page(view.subject) if view and _is_linked(view) else "",
            )
        )
    return tuple(found)


def _is_linked(view: PortView) -> bool:
    """Return whether the port is on a fabric, whose links have pages."""
    return view.kind in {"infiniband", "roce"}


def _grown(fields: Fields, words: Mapping[str, str]) -> Mapping[str, float]:
    """Return how much each measured counter grew, by its name for people."""
    grown = {said: increase(fields[name]) for name, said in words.items() if name in fields}
    return {said: count for said, count in grown.items() if count is not None}


def _congestion(port: Port, numbers: Numbers) -> tuple[str, ...] | None:
    """Say how long a port waited or made others wait, and how often it was told to slow down; None: not measured."""
    fields = numbers.ports.get(port, {})
    known = {
        name: rate
        for name in (*_STOPPED, *_MARKED, _TICKS)
        if (rate := _mean_rate(fields, name, numbers)) is not None
    }
    if not known:
        return None
    shares = {name: known.get(name, 0.0) / _MICROSECONDS for name in _STOPPED}
    times = _times_others(port, known.get(_TICKS, 0.0), numbers)
    return (
        *(
            f"{said} {100.0 * min(shares[name], 1.0):.1f} % of the time"
            for name, said in _STOPPED.items()
            if shares[name] >= _LEAST_SHARE
        ),
        *([f"waits {times:.0f} times as long as its peers here"] if times else []),
        *(
            f"{known[name]:,.1f} {said} a second"
            for name, said in _MARKED.items()
            if known.get(name, 0.0) >= _LEAST_PER_SECOND
        ),
    )


def _times_others(port: Port, rate: float, numbers: Numbers) -> float | None:
    """Return a port's waits for credit as a multiple of its peers' on the node; None if that is not unusual."""
    kind = numbers.kinds.get(port)
    others = [
        known
        for other, fields in numbers.ports.items()
        if other != port and numbers.kinds.get(other) == kind
        if (known := _mean_rate(fields, _TICKS, numbers)) is not None
    ]
    usual = float(np.median(others)) if len(others) >= _OTHERS else 0.0
    return rate / usual if usual > 0.0 and rate >= _TIMES * usual else None


def _mean_rate(fields: Fields, name: str, numbers: Numbers) -> float | None:
    """Return a counter's mean growth per second between its first and last measured step; None without two."""
    places = np.flatnonzero(np.isfinite(fields[name])) if name in fields else np.zeros(0)
    grown = increase(fields[name]) if len(places) > 1 else None
    if grown is None:
        return None
    steps = float(places[-1] - places[0])
    return grown / (steps * numbers.grid.step.total_seconds())


def _newest_rate(fields: Fields, name: str, numbers: Numbers) -> float | None:
    if name not in fields:
        return None
    return _last(rates(fields[name], fields[OFFSETS], numbers.grid))


def _newest(fields: Fields, name: str) -> float | None:
    return _last(fields[name]) if name in fields else None


def _last(values: Floats) -> float | None:
    measured = values[np.isfinite(values)]
    return float(measured[-1]) if len(measured) else None


# A scale reads well from one of its unit on.
_UNITS = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s"))


def unit_of(highest: float) -> tuple[float, str]:
    """Return how many bytes a second are one of the unit that fits a scale up to `highest`, and its name."""
    return next((one for one in _UNITS if highest >= one[0]), _UNITS[0])


def traffic(ports: Sequence[Port], numbers: Numbers) -> Strip:
    """Return what each port received and sent, all on one scale, in the unit that fits the highest."""
    panels = []
    for port in ports:
        fields = numbers.ports.get(port, {})
        offsets = fields.get(OFFSETS, numbers.nothing)
        received, sent = (
            rates(fields.get(name, numbers.nothing), offsets, numbers.grid)
            for name in ("receive_bytes", "transmit_bytes")
        )
        panels.append(
            Panel(
                label="/".join(port),
                curves=(
                    Curve(name="sent", values=sent, look="second"),
                    Curve(name="received", values=received),
                ),
            )
        )
    highest = strip("traffic", "Network", "B/s", tuple(panels)).most or 0.0
    factor, unit = unit_of(highest)
    scaled = tuple(
        replace(
            panel, curves=tuple(replace(one, values=one.values / factor) for one in panel.curves)
        )
        for panel in panels
    )
    return strip("traffic", "Network", unit, scaled, digits=2)


def table(lines: Sequence[PortLine]) -> Html:
    """Return a table of every port with its state, newest rates, and errors in the window."""
    columns = (
        "Port",
        "Kind",
        "Role",
        "State now",
        "Speed",
        "Received",
        "Sent",
        "Module",
        "Congestion in the window",
        "Errors in the window",
    )
    return tag(
        "section",
        tag(
            "table",
            tag("thead", tag("tr", *(tag("th", it, scope="col") for it in columns))),
            tag("tbody", *map(_row, lines)),
        ),
        class_="gv-ports",
        # On a narrow screen the table scrolls, also by keyboard.
        tabindex="0",
        role="group",
        aria_label="Network ports",
    )


def _row(line: PortLine) -> Html:
    text = tag("a", line.name, href=line.href) if line.href else joined(line.name)
    name = tag("b", text) if line.asked else text
    return tag(
        "tr",
        tag("td", name),
        tag("td", line.kind),
        tag("td", line.role),
        tag("td", line.word, class_=line.word.replace(" ", "-")),
        tag(
            "td",
            line.speed if line.lanes is None else f"{line.speed}, {counted(line.lanes, 'lane')}",
        ),
        tag("td", bytes_per_second(line.received)),
        tag("td", bytes_per_second(line.sent)),
        tag("td", "–" if line.module_celsius is None else f"{line.module_celsius:.0f} °C"),
        tag("td", _joined(line.congestion)),
        tag("td", _counts(line.errors)),
        class_="asked" if line.asked else None,
    )


def _joined(words: Sequence[str] | None) -> str:
    return "not measured" if words is None else ", ".join(words) or "none"


def _counts(counts: Mapping[str, float]) -> str:
    if not counts:
        return "not measured"
    return ", ".join(of_many(count, name) for name, count in counts.items() if count) or "none"


def bytes_per_second(rate: float | None) -> str:
    """Return a rate in the unit in which it reads well, a dash for None."""
    if rate is None:
        return "–"
    for factor, unit in _UNITS[:-1]:
        if rate >= factor:
            return f"{rate / factor:,.1f} {unit}"
    return f"{rate:,.0f} B/s"
