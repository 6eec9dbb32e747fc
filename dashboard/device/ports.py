"""A node's network ports over the window: rates as small multiples, errors as sums; pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpuvigil.numbers_in_words import natural, speed
from gpuvigil.web.markup import Html, joined, tag

from ..model.cluster import PortView
from .curves import Curve
from .grid import increase, rates
from .hub_queries import OFFSETS, Fields, Numbers
from .small_multiples import Panel, Strip, strip

_ERRORS = {
    "receive_errors": "receive errors",
    "transmit_discards": "discards",
    "symbol_errors": "symbol errors",
    "link_downed": "times down",
}
Port = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PortLine:
    """One port; numbers are None where nothing was measured."""

    name: str
    kind: str
    role: str
    word: str
    speed: str
    received: float | None  # bytes per second, newest
    sent: float | None
    errors: Mapping[str, float]
    asked: bool


def names(views: Iterable[PortView], numbers: Numbers, asked: str) -> tuple[Port, ...]:
    """Every port that is or was there; the one that a link asks for first."""
    known = {(it.subject.device or "", it.subject.port or "") for it in views}
    return tuple(
        sorted(
            {*known, *numbers.ports}, key=lambda it: ("/".join(it) != asked, natural(it[0]), it[1])
        )
    )


def rows(
    ports: Sequence[Port], views: Iterable[PortView], numbers: Numbers, asked: str
) -> tuple[PortLine, ...]:
    """What the table says of each port."""
    now = {(it.subject.device, it.subject.port): it for it in views}
    found = []
    for port in ports:
        view, fields = now.get(port), numbers.ports.get(port, {})
        kind, role = numbers.kinds.get(port, ("", ""))
        grown = {said: increase(fields[name]) for name, said in _ERRORS.items() if name in fields}
        found.append(
            PortLine(
                name="/".join(port),
                kind=view.kind if view and view.kind else kind,
                role=view.role if view and view.role else role,
                word=view.word if view else "gone",
                speed=speed(view.speed_bits_per_second) if view else "–",
                received=_newest(fields, "receive_bytes", numbers),
                sent=_newest(fields, "transmit_bytes", numbers),
                errors={said: count for said, count in grown.items() if count is not None},
                asked="/".join(port) == asked,
            )
        )
    return tuple(found)


def _newest(fields: Fields, name: str, numbers: Numbers) -> float | None:
    if name not in fields:
        return None
    grown = rates(fields[name], fields[OFFSETS], numbers.grid)
    measured = grown[np.isfinite(grown)]
    return float(measured[-1]) if len(measured) else None


def traffic(ports: Sequence[Port], numbers: Numbers) -> Strip:
    """Received and sent of each port, all on one scale."""
    panels = []
    for port in ports:
        fields = numbers.ports.get(port, {})
        offsets = fields.get(OFFSETS, numbers.nothing)
        received, sent = (
            rates(fields.get(name, numbers.nothing), offsets, numbers.grid) / 1e9
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
    return strip("traffic", "Network", "GB/s", tuple(panels), digits=2)


def table(lines: Sequence[PortLine]) -> Html:
    """Every port with its state, its newest rates and its errors in the window."""
    columns = (
        "Port",
        "Kind",
        "Role",
        "State now",
        "Speed",
        "Received",
        "Sent",
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
    )


def _row(line: PortLine) -> Html:
    name = tag("b", line.name) if line.asked else joined(line.name)
    return tag(
        "tr",
        tag("td", name),
        tag("td", line.kind),
        tag("td", line.role),
        tag("td", line.word, class_=line.word.replace(" ", "-")),
        tag("td", line.speed),
        tag("td", bytes_per_second(line.received)),
        tag("td", bytes_per_second(line.sent)),
        tag("td", _errors(line.errors)),
        class_="asked" if line.asked else None,
    )


def _errors(errors: Mapping[str, float]) -> str:
    if not errors:
        return "not measured"
    return ", ".join(f"{count:,.0f} {name}" for name, count in errors.items() if count) or "none"


def bytes_per_second(rate: float | None) -> str:
    """A rate in the unit in which it reads well."""
    if rate is None:
        return "–"
    for factor, unit in ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if rate >= factor:
            return f"{rate / factor:,.1f} {unit}"
    return f"{rate:,.0f} B/s"
