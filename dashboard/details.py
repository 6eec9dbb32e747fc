"""The panel of one GPU."""

from collections.abc import Iterable, Mapping
from typing import Any

from gpuvigil.clock import moment
from gpuvigil.metrics import GPU
from gpuvigil.model import GpuIdentity, GpuState, Severity, Unmeasured

from .attention import Attention
from .cluster import Cell
from .markup import Html, joined, tag
from .words import measured, title


def gpu_details(
    cell: Cell,
    row: Mapping[str, Any] | None,
    identity: GpuIdentity | None,
    items: Iterable[Attention],
) -> Html:
    """One GPU: who it is, who holds it, what stands against it, and every metric with its unit."""
    facts = [
        ("State", f"{cell.state.value}: {cell.reason}"),
        ("Held by", cell.holder or ("nobody" if cell.held is False else "not known")),
        ("UUID", cell.subject.gpu or ""),
        *_identity(identity),
        *((item.severity.value, f"{item.title}: {item.action}") for item in items),
    ]
    items = tuple(items)
    return tag(
        "section",
        tag("h2", f"{cell.subject.node} · {cell.label}", *_as_of(row)),
        tag("dl", *(joined(tag("dt", n), tag("dd", v)) for n, v in facts), class_="facts"),
        _numbers(cell, row, items),
        class_="gv-details",
        aria_label="Selected GPU",
    )


_ABOUT_THE_ROW = frozenset({"up", "index", "unmeasured_reason"})


def _numbers(cell: Cell, row: Mapping[str, Any] | None, items: tuple[Attention, ...]) -> Html:
    """Every metric; where none was measured, why and since when instead of a list of absences."""
    metrics = [metric for metric in GPU.metrics if metric.name not in _ABOUT_THE_ROW]
    if row is None or all(row.get(metric.name) is None for metric in metrics):
        return tag("p", _nothing_measured(cell, row, items), class_="nothing")
    rows = (
        joined(
            tag("dt", title(metric), title=metric.sentence),
            tag("dd", measured(metric, row.get(metric.name))),
        )
        for metric in metrics
    )
    return tag("dl", *rows, class_="numbers")


def _nothing_measured(
    cell: Cell, row: Mapping[str, Any] | None, items: tuple[Attention, ...]
) -> str:
    """One sentence; the worst incident says since when, where there is one."""
    if row is None and cell.state not in {GpuState.UNKNOWN, GpuState.UNAVAILABLE}:
        return "The numbers are on their way."
    reason = (row or {}).get("unmeasured_reason")
    why = Unmeasured(reason).text if reason in set(Unmeasured) else cell.reason
    worst = min(items, key=lambda item: (item.severity.rank, item.since), default=None)
    if worst is None or worst.severity is not Severity.CRITICAL:
        return f"Nothing is measured: {why}."
    return f"Nothing is measured since {moment(worst.since)}: {why} ({worst.title})."


def _as_of(row: Mapping[str, Any] | None) -> list[Html]:
    if row is None:
        return [tag("small", "no data younger than three ticks")]
    reason = row.get("unmeasured_reason")
    why = f", {Unmeasured(reason).text}" if reason in set(Unmeasured) else ""
    return [tag("small", f"data of {moment(row['at'])}{why}")]


def _identity(identity: GpuIdentity | None) -> list[tuple[str, str]]:
    if identity is None:
        return []
    known = (
        ("Model", identity.model),
        ("PCI address", identity.pci_address),
        ("Serial", identity.serial),
        ("VBIOS", identity.vbios),
    )
    return [(name, value) for name, value in known if value]
