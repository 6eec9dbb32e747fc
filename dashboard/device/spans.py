"""A GPU's states, holders and incidents over the window, as spans of time; pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from gpuvigil.clock import moment
from gpuvigil.faults.affected import affected_keys
from gpuvigil.faults.gpu_states import gpu_state
from gpuvigil.model import Allocation, GpuState, Incident, Subject
from gpuvigil.web import page_links

from .grid import Grid
from .hub_queries import Fields
from .window import Window

# How late a row may arrive after its time; until then it is not missing.
ARRIVAL = timedelta(seconds=3)
MOST_SPANS, MOST_NAMED = 300, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span of time within the window."""

    start: datetime
    end: datetime
    kind: str  # a state, a severity, or "held"
    text: str
    href: str = ""


def states(
    fields: Fields,
    on: Grid,
    window: Window,
    now: datetime,
    *,
    allocations: Sequence[Allocation],
    incidents: Sequence[Incident],
) -> tuple[Span, ...]:
    """Return a GPU's state in every step that is over; adjacent steps with the same state are joined.

    `allocations` are those of the GPU, `incidents` those of the GPU and its node.
    """
    found: list[Span] = []
    measured = _measured(fields, on)
    for number, at in enumerate(on.times):
        start, end = max(at, window.start), min(at + on.step, window.end, now)
        if start >= end or (not measured[number] and now - at < 2 * on.step + ARRIVAL):
            continue
        row = _row(fields, number) if measured[number] else None
        held = any(_held(one, start, end) for one in allocations)
        faults = {it.fault: it.severity for it in incidents if _stood(it, start, end)}
        state, reason = gpu_state(row, held=held, faults=faults)
        text = "" if state is GpuState.ACTIVE else reason
        last = found[-1] if found else None
        if last is not None and (last.end, last.kind, last.text) == (start, state.value, text):
            found[-1] = Span(start=last.start, end=end, kind=state.value, text=text)
        else:
            found.append(Span(start=start, end=end, kind=state.value, text=text))
    return tuple(found)


def holders(allocations: Iterable[Allocation], window: Window, now: datetime) -> tuple[Span, ...]:
    """Return who held the GPU and when; if several did at once, the span names them all."""
    changes: list[tuple[datetime, bool, int, Allocation]] = []
    until = min(window.end, now)
    for number, one in enumerate(allocations):
        start, end = max(one.started_at, window.start), min(one.ended_at or until, until)
        if start < end:
            changes += [(start, True, number, one), (end, False, number, one)]
    changes.sort(key=lambda it: it[:3])
    found: list[Span] = []
    holding: dict[int, Allocation] = {}
    before = window.start
    for at, began, number, one in changes:
        if holding and before < at:
            _go_on(found, before, at, list(holding.values()))
        before = at
        if began:
            holding[number] = one
        else:
            del holding[number]
    return tuple(found)


def _go_on(
    found: list[Span], start: datetime, end: datetime, holding: Sequence[Allocation]
) -> None:
    """Add a span, or extend the last one if it has the same text and ended just now."""
    last, text = found[-1] if found else None, _named(holding)
    pages = {page_links.job_page(one.subject.cluster, one.holder) for one in holding}
    href = next(iter(pages)) if len(pages) == 1 else ""
    if last is not None and last.end == start and last.text == text:
        start = found.pop().start
    elif len(found) >= MOST_SPANS:
        # There are too many spans to see them one by one.
        start, text, href = found.pop().start, "many, one after the other", ""
    found.append(Span(start=start, end=end, kind="held", text=text, href=href))


def _named(holding: Iterable[Allocation]) -> str:
    everybody: dict[str, None] = {}
    for one in holding:
        who = str(one.holder) + (f" ({one.user})" if one.user else "")
        everybody[f"{who}: {one.command}" if one.command else who] = None
    named = list(everybody)
    rest = f" and {len(named) - MOST_NAMED} more" if named[MOST_NAMED:] else ""
    return ", ".join(named[:MOST_NAMED]) + rest


def stood(
    incidents: Iterable[Incident], window: Window, now: datetime, hrefs: Mapping[str, str]
) -> tuple[Span, ...]:
    """Return a span for each incident; the worst comes last, so that it lies on top."""
    ranked = sorted(incidents, key=lambda one: (-one.severity.rank, one.since))
    spans = []
    for one in ranked:
        start = max(one.since, window.start)
        end = min(one.resolved_at or now, window.end, now)
        if start < end:
            over = "open" if one.resolved_at is None else f"resolved at {moment(one.resolved_at)}"
            text = f"{one.title}, since {moment(one.since)}, {over}"
            href = hrefs.get(one.id, "")
            spans.append(Span(start=start, end=end, kind=one.severity.value, text=text, href=href))
    return tuple(spans)


def concerns(incident: Incident, gpu: Subject) -> bool:
    """Return whether the incident is about the GPU or its whole node."""
    if incident.subject in {gpu, gpu.of_node()} or gpu.key in incident.members:
        return True
    return bool(incident.members) and gpu.of_node().key in affected_keys(incident)


def _measured(fields: Fields, on: Grid) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    some = np.zeros(on.count, dtype=np.bool_)
    for values in fields.values():
        some |= np.isfinite(values)
    return some


def _row(fields: Fields, number: int) -> dict[str, float | int | None]:
    """Return a step as one row; of coded fields, the mean is rounded to the nearest code."""
    row: dict[str, float | int | None] = {}
    for name in ("up", "unmeasured_reason", "utilization_percent", "compute_processes"):
        values = fields.get(name)
        value = None if values is None or np.isnan(values[number]) else float(values[number])
        whole = value is not None and name in {"up", "unmeasured_reason"}
        row[name] = round(value) if whole and value is not None else value
    return row


def _held(one: Allocation, start: datetime, end: datetime) -> bool:
    return one.started_at < end and (one.ended_at is None or one.ended_at > start)


def _stood(one: Incident, start: datetime, end: datetime) -> bool:
    return one.since < end and (one.resolved_at is None or one.resolved_at > start)
