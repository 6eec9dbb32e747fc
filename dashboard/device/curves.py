"""Choose the lines of each chart from the numbers of a page; pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from gpuvigil.clock import duration
from gpuvigil.metrics import GPU
from gpuvigil.numbers_in_words import of_many, title

from .grid import Floats, increase, median, rates
from .hub_queries import OFFSETS, Numbers

GIB = 2.0**30
A_WEEK_AGO = "a week ago"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line of a chart; `look` is own, second, limit, peers, before or other."""

    name: str
    values: Floats
    look: str = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One chart; `most` is the top of its scale if that is fixed."""

    key: str
    title: str
    unit: str
    curves: tuple[Curve, ...]
    most: float | None = None
    digits: int = 0
    note: str = ""  # why there is no line, if nothing was measured

    @property
    def measured(self) -> bool:
        return any(np.isfinite(curve.values).any() for curve in self.curves if _own(curve))


def _own(curve: Curve) -> bool:
    return curve.look in {"own", "second"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """How one chart is made from the fields of a GPU."""

    key: str
    title: str
    unit: str
    lines: Mapping[str, str]  # name of the line by field; the first is compared with peers
    factor: float = 1.0
    rate: bool = False
    most: float | None = None
    digits: int = 0
    limit: str = ""  # the field with the limit


MEASURES = (
    Measure(
        key="utilization",
        title="Utilisation",
        unit="%",
        lines={"utilization_percent": "GPU", "memory_utilization_percent": "memory busy"},
        most=100.0,
    ),
    Measure(
        key="power",
        title="Power",
        unit="W",
        lines={"power_watts": "power"},
        limit="power_limit_watts",
    ),
    Measure(
        key="temperature",
        title="Temperature",
        unit="°C",
        lines={"temperature_celsius": "core", "memory_temperature_celsius": "memory"},
    ),
    Measure(
        key="memory",
        title="Memory used",
        unit="GiB",
        lines={"memory_used_bytes": "used"},
        factor=1 / GIB,
        digits=1,
        limit="memory_total_bytes",
    ),
    Measure(
        key="clock",
        title="SM clock",
        unit="MHz",
        lines={"sm_clock_hertz": "SM clock"},
        factor=1e-6,
    ),
    Measure(
        key="nvlink",
        title="NVLink",
        unit="GB/s",
        lines={"nvlink_receive_bytes": "received", "nvlink_transmit_bytes": "sent"},
        factor=1e-9,
        rate=True,
        digits=1,
    ),
)
BY_KEY = {measure.key: measure for measure in MEASURES}
ERRORS = {
    "ecc_uncorrected_errors": "uncorrected ECC errors",
    "ecc_corrected_errors": "corrected ECC errors",
    "nvlink_errors": "NVLink errors",
    "pcie_replays": "PCIe replays",
}


def charts(numbers: Numbers, uuid: str, before: Numbers | None = None) -> tuple[Chart, ...]:
    """Return charts with one GPU strong, the node's others faint, and the median of the others.

    `before` has as many steps of a week ago, drawn faint; without measurements there is no such line.
    """
    return tuple(_chart(numbers, uuid, measure, before) for measure in MEASURES)


def _chart(numbers: Numbers, uuid: str, measure: Measure, before: Numbers | None) -> Chart:
    first = next(iter(measure.lines))
    others = {
        other: value(numbers, other, first, measure) for other in numbers.gpus if other != uuid
    }
    curves = [Curve(name="another GPU", values=it, look="other") for it in others.values()]
    if others:
        middle = median(list(others.values()), numbers.grid.count)
        curves.append(Curve(name="median of the others", values=middle, look="peers"))
    if before is not None:
        then = value(before, uuid, first, measure)
        curves += [Curve(name=A_WEEK_AGO, values=then, look="before")] if _any(then) else []
    if measure.limit:
        limit = numbers.of(uuid, measure.limit) * measure.factor
        curves.append(
            Curve(
                name="limit" if measure.key == "power" else "installed", values=limit, look="limit"
            )
        )
    looks = ("own", "second")
    for look, (name, called) in reversed(list(zip(looks, measure.lines.items(), strict=False))):
        curves.append(Curve(name=called, values=value(numbers, uuid, name, measure), look=look))
    return Chart(
        key=measure.key,
        title=measure.title,
        unit=measure.unit,
        curves=tuple(curves),
        most=measure.most,
        digits=measure.digits,
    )


def _any(values: Floats) -> bool:
    return bool(np.isfinite(values).any())


def value(numbers: Numbers, uuid: str, name: str, measure: Measure) -> Floats:
    """Return a field of a GPU in its chart's unit."""
    values = numbers.of(uuid, name)
    if measure.rate:
        values = rates(values, numbers.of(uuid, OFFSETS), numbers.grid)
    return values * measure.factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """What error counters did in the window; `chart` is None if none of them grew."""

    text: str
    chart: Chart | None = None
    counts: Mapping[str, float] = field(default_factory=dict)


def errors(read: Callable[[str], Floats], names: Mapping[str, str], numbers: Numbers) -> Errors:
    """Return how much the counters in `names` grew, in words and per step; `read` returns a counter."""
    grown = {name: increase(read(name)) for name in names}
    measured = {names[name]: count for name, count in grown.items() if count is not None}
    moved = {name for name, count in grown.items() if count}
    if not measured:
        return Errors(text="Errors were not measured in this window.")
    if not moved:
        return Errors(text=f"No errors in this window: {_listed(measured)} did not grow.")
    seconds = numbers.grid.step.total_seconds()
    curves = tuple(
        Curve(
            name=names[name],
            values=rates(read(name), read(OFFSETS), numbers.grid) * seconds,
            look=look,
        )
        for name, look in zip((it for it in names if it in moved), _LOOKS, strict=False)
    )
    counts = {names[name]: count for name, count in grown.items() if count}
    said = ", ".join(of_many(count, name) for name, count in counts.items())
    # A step of the chart, not of a job: 1,000 errors say nothing without the time they took.
    unit = f"per {duration(numbers.grid.step)}"
    chart = Chart(key="errors", title="Errors", unit=unit, curves=curves)
    return Errors(text=f"In this window: {said}.", chart=chart, counts=counts)


_LOOKS = ("own", "second", "limit", "peers")


def _listed(names: Mapping[str, float]) -> str:
    return ", ".join(names)


def link(read: Callable[[str], Floats]) -> str:
    """Describe the PCIe link in one line, with every width and generation that it had if it changed."""
    widths, generations = (_seen(read(name)) for name in ("pcie_width", "pcie_generation"))
    if not widths or not generations:
        return "PCIe not measured"
    most = (_seen(read("pcie_width_max")), _seen(read("pcie_generation_max")))
    now = f"PCIe gen {generations[-1]} x{widths[-1]}"
    best = f" of gen {most[1][-1]} x{most[0][-1]}" if most[0] and most[1] else ""
    changed = []
    if len(set(widths)) > 1:
        changed.append(f"width was {_ways(widths)}")
    if len(set(generations)) > 1:
        changed.append(f"generation was {_ways(generations)}")
    return now + best + (f"; {', '.join(changed)} in this window" if changed else ", unchanged")


def _seen(values: Floats) -> list[int]:
    """Return the distinct whole values, ordered by when each was last seen, newest last."""
    whole = [int(it) for it in values[np.isfinite(values)].tolist() if it == int(it)]
    return list(dict.fromkeys(reversed(whole)))[::-1]


def _ways(values: list[int]) -> str:
    return " and ".join(str(it) for it in values)


def named(metric: str) -> str:
    """Return the title of a GPU metric."""
    return title(GPU.metric(metric))
