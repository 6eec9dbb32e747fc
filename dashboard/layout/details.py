"""A GPU's identity and its newest numbers."""

from collections.abc import Iterable, Mapping
from typing import Any

from gpuvigil.clock import moment
from gpuvigil.metrics import GPU
from gpuvigil.model import GpuIdentity, GpuState, Severity, Unmeasured
from gpuvigil.numbers_in_words import measured, title
from gpuvigil.web.markup import Html, joined, tag

from ..data.attention import Attention
from ..model.cluster import Cell

_ABOUT_THE_ROW = frozenset(
    {"up", "index", "unmeasured_reason", "unmeasured_seconds", "pcie_present"}
)


def numbers(
    cell: Cell | None, row: Mapping[str, Any] | None, items: Iterable[Attention] = ()
) -> Html:
    """Return every measured metric and the names of the others; if none is measured, why and since when."""
    metrics = [metric for metric in GPU.metrics if metric.name not in _ABOUT_THE_ROW]
    head = tag("h2", "Newest numbers", tag("small", _as_of(row)))
    if row is None or all(row.get(metric.name) is None for metric in metrics):
        why = tag("p", _nothing_measured(cell, row, tuple(items)), class_="nothing")
        return tag("section", head, why, class_="gv-details")
    rows = (
        tag(
            "div",
            tag("dt", title(metric), title=metric.sentence),
            tag("dd", measured(metric, row.get(metric.name))),
        )
        for metric in metrics
        if row.get(metric.name) is not None
    )
    missing = ", ".join(title(metric) for metric in metrics if row.get(metric.name) is None)
    folded = tag("details", tag("summary", "Not measured"), tag("p", missing, class_="gv-line"))
    return tag(
        "section",
        head,
        tag("dl", *rows, class_="numbers"),
        folded if missing else joined(),
        class_="gv-details",
    )


def _nothing_measured(
    cell: Cell | None, row: Mapping[str, Any] | None, items: tuple[Attention, ...]
) -> str:
    """Return a sentence on why nothing is measured; a critical incident says since when."""
    if cell is None:
        return "Not measured: its state is not known."
    if row is None and cell.state not in {GpuState.UNKNOWN, GpuState.UNAVAILABLE}:
        return "Loading the numbers."
    reason = (row or {}).get("unmeasured_reason")
    why = Unmeasured(reason).text if reason in set(Unmeasured) else cell.reason
    worst = min(items, key=lambda item: (item.severity.rank, item.since), default=None)
    if worst is None or worst.severity is not Severity.CRITICAL:
        return f"Nothing is measured: {why}."
    return f"Nothing has been measured since {moment(worst.since)}: {why} ({worst.title})."


def _as_of(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "no data younger than three ticks"
    reason = row.get("unmeasured_reason")
    why = f", {Unmeasured(reason).text}" if reason in set(Unmeasured) else ""
    return f"data of {moment(row['at'])}{why}"


def identity(known: GpuIdentity | None, uuid: str, driver: str | None) -> Html:
    """Return a GPU's identity; unknown facts are left out."""
    memory = known.memory_total_bytes if known else None
    facts = (
        ("Model", known.model if known else ""),
        ("UUID", uuid),
        ("PCI address", known.pci_address if known else ""),
        ("Serial", known.serial if known else ""),
        ("Part number", known.part_number if known else ""),
        ("VBIOS", known.vbios if known else ""),
        ("InfoROM", known.inforom if known else ""),
        ("GSP firmware", known.gsp_firmware if known else ""),
        ("Memory", f"{memory / 2**30:,.0f} GiB" if memory else ""),
        ("Driver", driver or ""),
    )
    return described(facts)


def described(facts: Iterable[tuple[str, str | None]]) -> Html:
    """Return names with their values; those without a value are left out."""
    pairs = (joined(tag("dt", name), tag("dd", value)) for name, value in facts if value)
    return tag("dl", *pairs, class_="gv-facts")
