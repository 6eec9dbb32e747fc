"""A GPU whose memory is failing, by the driver's own state or by how often it corrects errors."""

from collections.abc import Iterator
from datetime import datetime

import numpy as np

from gpuvigil.faults import found_by
from gpuvigil.faults.symptoms import (
    NO_SPARE_ROWS,
    REMAP_FAILURE,
    REPAIR_PENDING,
    RETIRED_PAGES,
    SRAM_THRESHOLD,
    UNCORRECTED,
)
from gpuvigil.model import EventKind, Evidence, Finding, Incident, Subject
from gpuvigil.store import Aggregate, Function

from ..evidence.claims import Claim, findings
from ..window.columns import Floats
from ..window.rows import Row, Rows
from ..window.window import Need, Span, Window
from . import Detector

_STATES = (SRAM_THRESHOLD, REMAP_FAILURE, RETIRED_PAGES, NO_SPARE_ROWS, REPAIR_PENDING)
_CORRECTED = Aggregate(function=Function.INCREASE, field="ecc_corrected_errors")
# Not the increase: without a collector's bridge, or its memory, the counter restarts at a reset, and that
# drop is no error.
_LEAST, _LAST = (
    Aggregate(function=function, field=UNCORRECTED.reads[0])
    for function in (Function.MIN, Function.LAST)
)
# Where that count is not read, as with dcgm-exporter's defaults, a row remapped for such an error stands for
# one.
_FEWEST_ROWS, _ROWS = (
    Aggregate(function=function, field="remapped_rows_uncorrected")
    for function in (Function.MIN, Function.LAST)
)
_ASKED = (_CORRECTED, _LEAST, _LAST, _FEWEST_ROWS, _ROWS)
# Rows remapped for any reason: the minimum and the last value of each count.
_REPLACED = tuple(
    tuple(Aggregate(function=function, field=name) for function in (Function.MIN, Function.LAST))
    for name in ("remapped_rows_corrected", "remapped_rows_uncorrected")
)
_OF_ROWS = tuple(one for pair in _REPLACED for one in pair)

NEEDS = (
    Need(
        measurement="gpu",
        span=Span.NOW,
        fields=tuple(name for state in _STATES for name in state.reads),
    ),
    Need(measurement="gpu", span=Span.RECENT, aggregates=_ASKED),
    Need(measurement="gpu", span=Span.STEADY, aggregates=(_CORRECTED,)),
    Need(measurement="gpu", span=Span.TREND, aggregates=(*_ASKED, *_OF_ROWS)),
    Need(measurement="gpu", span=Span.UNDERUSED, aggregates=_OF_ROWS),
    Need(measurement="node", span=Span.NOW, fields=("spool_oldest_seconds",)),
)

# Corrected errors: a healthy GPU has a few in a week. A cell that lost its charge has many within a minute
# and none after it; growth is what continues, in the steady span and before it.
_STORM_PER_SECOND, _GROWTH = 1.0, 3
# A remapped row is a repair. This many within hours, one after another, mean a bank that is going bad [ours].
_ROWS_GO, _CONDITION = 3, "rows_replaced"


def failing_memory(window: Window) -> list[Finding]:
    """Return one finding per GPU, worded by the most severe condition that holds."""
    claims = [
        *_by_state(window),
        *_by_rate(window),
        *_uncorrected(window),
        *_one_after_another(window),
    ]
    return findings("gpu_memory", claims)


def _by_state(window: Window) -> Iterator[Claim]:
    rows = window.get("gpu", Span.NOW)
    flagged = np.zeros(len(rows), dtype=bool)
    for state in _STATES:
        flagged |= state.holds(*map(rows.values, state.reads))
    for subject, row in rows.where(flagged):
        for condition, evidence in _states(row):
            if condition == REPAIR_PENDING.key and _was_reset_since(window, subject, row):
                continue
            yield Claim(condition=condition, subject=subject, since=row["at"], evidence=(evidence,))


def _was_reset_since(window: Window, subject: Subject, row: Row) -> bool:
    """Return whether the GPU was reset or its node booted after this row, so that only the next row says what is
    pending.
    """
    node = subject.of_node()
    resets = window.node_events(node, EventKind.GPU_RESET, EventKind.BOOT)
    return any(e.subject in {subject, node} and e.at >= row["at"] for e in resets)


def _states(row: Row) -> Iterator[tuple[str, Evidence]]:
    if SRAM_THRESHOLD.shows(row):
        yield SRAM_THRESHOLD.key, Evidence(name="SRAM threshold", value="exceeded", limit="not")
    if REMAP_FAILURE.shows(row):
        yield REMAP_FAILURE.key, Evidence(name="row remapping", value="failed", limit="no failure")
    if RETIRED_PAGES.shows(row):
        corrected, uncorrected = (row[name] or 0 for name in RETIRED_PAGES.reads)
        yield (
            RETIRED_PAGES.key,
            Evidence(
                name="retired pages",
                value=f"{corrected + uncorrected}, {uncorrected} of them by double-bit errors",
                limit=RETIRED_PAGES.normal,
            ),
        )
    if NO_SPARE_ROWS.shows(row):
        banks = str(row["remap_banks_none"])
        yield NO_SPARE_ROWS.key, Evidence(name="banks without a spare row", value=banks, limit="0")
    if REPAIR_PENDING.shows(row):
        names = [name for name in REPAIR_PENDING.reads if row[name]]
        waiting = ", ".join(name.removesuffix("_pending").replace("_", " ") for name in names)
        yield REPAIR_PENDING.key, Evidence(name="waits for a reset", value=waiting)


def would_show_corrections(window: Window, incident: Incident) -> bool | None:
    """Return False while the long span still holds enough errors to keep the incident open; otherwise None.

    While too few errors are new the growth does not show, but it is not over either.
    """
    if incident.condition == _CONDITION:
        rows = window.get("gpu", Span.UNDERUSED).of_subject(incident.subject)
        return False if (_new_rows(rows, rows) >= _ROWS_GO).any() else None
    row = window.get("gpu", Span.TREND).get(incident.subject)
    grew = row is not None and (row[_CORRECTED.column] or 0) >= _GROWTH
    return False if grew and incident.condition == "corrected_growth" else None


def _by_rate(window: Window) -> Iterator[Claim]:
    settings = window.settings
    recent, long = window.get("gpu", Span.RECENT), window.get("gpu", Span.TREND)
    storm = _STORM_PER_SECOND * settings.window_seconds
    gained, lately = (
        rows.beside(long, _CORRECTED.column) for rows in (long, window.get("gpu", Span.STEADY))
    )
    grows = (gained >= _GROWTH) & (lately > 0) & (gained > lately)
    for rows, told, seconds, condition, limit in (
        (
            recent,
            recent.values(_CORRECTED.column) >= storm,
            settings.window_seconds,
            "corrected_storm",
            storm,
        ),
        (long, grows, settings.trend_seconds, "corrected_growth", _GROWTH),
    ):
        for subject, row in rows.where(told):
            yield Claim(
                condition=condition,
                subject=subject,
                since=row["last_at"],
                evidence=(
                    Evidence(
                        name="corrected memory errors",
                        value=f"{row[_CORRECTED.column]} in {seconds / 60.0:g} min",
                        limit=f"fewer than {limit:g}",
                    ),
                ),
            )


def _uncorrected(window: Window) -> Iterator[Claim]:
    """Yield GPUs that counted an uncorrectable error, whether or not an Xid reported it.

    Errors counted before the GPU was first seen are no growth, nor are those that a reset has ended. Where
    older bodies still wait in a node's spool, the reset may be among them, so the claim is marked late.
    """
    rows = window.get("gpu", Span.TREND)
    counted = rows.values(_LAST.column) - rows.values(_LEAST.column)
    replaced = rows.values(_ROWS.column) - rows.values(_FEWEST_ROWS.column)
    grown = UNCORRECTED.holds(np.where(np.isnan(counted), replaced, counted))
    for subject, row in rows.where(grown):
        reset_at = _reset_at(window, subject)
        if reset_at is not None and reset_at >= row["first_at"]:
            recent = window.get("gpu", Span.RECENT).get(subject)
            if (
                recent is None
                or recent["first_at"] < reset_at
                or not UNCORRECTED.holds(_gained(recent))
            ):
                continue
        by_rows = row[_LAST.column] is None
        what = "memory rows replaced for uncorrectable errors"
        yield Claim(
            condition=UNCORRECTED.key,
            subject=subject,
            since=row["last_at"],
            evidence=(
                Evidence(
                    name=what if by_rows else "uncorrectable memory errors",
                    value=f"{_gained(row)} in {window.settings.trend_seconds / 60.0:g} min",
                    limit="none",
                ),
            ),
            late=_is_behind(window, subject.of_node()),
        )


def _one_after_another(window: Window) -> Iterator[Claim]:
    """Yield GPUs with rows remapped again and again, one of them lately, and not all at once by a single error."""
    rows, long = window.get("gpu", Span.TREND), window.get("gpu", Span.UNDERUSED)
    gained, lately = _new_rows(long, rows), _new_rows(rows, rows)
    hours = window.settings.underused_after_seconds / 3600.0
    for subject, row in rows.where((gained >= _ROWS_GO) & (lately >= 1) & (gained > lately)):
        count = gained[rows.index.number(subject)]
        yield Claim(
            condition=_CONDITION,
            subject=subject,
            since=row["last_at"],
            evidence=(
                Evidence(
                    name="memory rows replaced",
                    value=f"{count:.0f} in {hours:g} h",
                    limit=f"fewer than {_ROWS_GO}",
                ),
            ),
        )


def _new_rows(of: Rows, rows: Rows) -> Floats:
    """Return for each of `rows` how many memory rows were remapped over the span of `of`; NaN where no count was read."""
    counts = np.array(
        [of.beside(rows, last.column) - of.beside(rows, least.column) for least, last in _REPLACED]
    )
    read = ~np.isnan(counts)
    found: Floats = np.where(read.any(axis=0), np.where(read, counts, 0.0).sum(axis=0), np.nan)
    return found


def _is_behind(window: Window, node: Subject) -> bool:
    """Return whether what the node sends last of its spool is older than `late_after_seconds`."""
    row = window.newest(node)
    seconds = None if row is None else row.get("spool_oldest_seconds")
    return seconds is not None and bool(seconds > window.settings.late_after_seconds)


def _gained(row: Row) -> int:
    """Return by how many the error count grew, else the remapped rows; 0 where neither was measured."""
    last, least = row[_LAST.column], row[_LEAST.column]
    if last is None:
        last, least = row[_ROWS.column], row[_FEWEST_ROWS.column]
    return 0 if last is None or least is None else int(last - least)


def _reset_at(window: Window, subject: Subject) -> datetime | None:
    """Return when the GPU was last reset or its node last booted; None where neither is known."""
    node = subject.of_node()
    events = window.node_events(node, EventKind.GPU_RESET, EventKind.GPU_BACK, EventKind.BOOT)
    return max((e.at for e in events if e.subject in {subject, node}), default=None)


DETECTOR = Detector(
    name="gpu_memory",
    find=failing_memory,
    faults=found_by("gpu_memory"),
    needs=NEEDS,
    sentence="A GPU whose memory failed, waits for a repair, or corrects errors again and again.",
    source="NVIDIA, A100 GPU memory error management; DCGM health",
    would_show=would_show_corrections,
)
