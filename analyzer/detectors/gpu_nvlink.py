"""A GPU with fewer NVLinks up than its peers, whose NVLinks count errors, or that sends far less than they do."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from gpuvigil.faults import found_by
from gpuvigil.faults.symptoms import NVLINKS_DOWN, STARTS_WITHIN_SECONDS
from gpuvigil.model import EventKind, Evidence, Finding, Incident, Subject
from gpuvigil.store import Aggregate, Function

from ..evidence.claims import Claim, findings
from ..evidence.job_pace import TIMESCALES
from ..evidence.lost_pace import lost_pace
from ..evidence.nvlink_balance import NEEDS as OF_BALANCE
from ..evidence.nvlink_balance import is_even, uneven
from ..window.columns import combined_codes, group_maximum, models, nodes
from ..window.rows import Row
from ..window.window import Need, Span, Window
from . import Detector
from .gpu_slow import lapsed as of_job

_CRC, _REPLAYS, _RECOVERIES = (
    Aggregate(function=Function.INCREASE, field=f"nvlink_{kind}_errors")
    for kind in ("crc", "replay", "recovery")
)
NEEDS = (
    Need(
        measurement="gpu",
        span=Span.RECENT,
        aggregates=(
            Aggregate(function=Function.MAX, field="nvlink_links_up"),
            Aggregate(function=Function.LAST, field="nvlink_worst_link"),
        ),
    ),
    Need(measurement="gpu", span=Span.TREND, aggregates=(_CRC, _REPLAYS, _RECOVERIES)),
    *OF_BALANCE,
)
_UP = Aggregate(function=Function.MAX, field="nvlink_links_up")
# What `fallen_links` reads in addition.
OF_PAST = (
    Need(measurement="gpu", span=Span.TREND, aggregates=(_UP,)),
    Need(measurement="gpu", span=Span.NOW, fields=("mig_mode",)),
)

# DCGM warns at one CRC error a second and fails at any replay. A single one is no reason to drain a node: it
# takes this many of each within the trend span.
_MOST_CRC, _MOST_REPLAYS = 10, 3
_UNEVEN = "nvlink_uneven"
# It takes this many lines with fewer links: at a single one the links may still be training.
_SAMPLES = 3
# After these events links come up one after the other.
_JOINS = timedelta(seconds=STARTS_WITHIN_SECONDS)
_BEGINS = (EventKind.BOOT, EventKind.GPU_RESET, EventKind.DRIVER_BACK)


def broken_links(window: Window) -> list[Finding]:
    """Return one finding per GPU for links that are down, error counts, or traffic unlike its peers'.

    Where its job slows down meanwhile, the evidence says by how much.
    """
    claims = [*_down(window), *_errors(window), *_uneven(window)]
    return [_with_pace(window, one) for one in findings("gpu_nvlink", claims)]


def _with_pace(window: Window, one: Finding) -> Finding:
    told = (lost_pace(window, one.subject, scale) for scale in TIMESCALES)
    pace = next((it for it in told if it is not None), None)
    return one if pace is None else replace(one, evidence=(*one.evidence, pace))


def would_show_uneven_traffic(window: Window, incident: Incident) -> bool | None:
    """Return whether uneven traffic would show; None for an incident of another condition.

    Uneven traffic is a change, and is over when the GPU sends as others do.
    """
    if incident.condition != _UNEVEN:
        return None
    return is_even(window, incident.subject)


def lapsed(window: Window, incident: Incident) -> datetime | None:
    """Return when uneven traffic was last seen, where that is long ago and no job can show it now."""
    return of_job(window, incident) if incident.condition == _UNEVEN else None


def _uneven(window: Window) -> Iterator[Claim]:
    rows = window.get("gpu", Span.STEADY)
    for subject, share in uneven(window):
        row = rows.get(subject)
        yield Claim(
            condition=_UNEVEN,
            subject=subject,
            since=window.now if row is None else row["first_at"],
            evidence=(
                Evidence(
                    name="sent over NVLink",
                    value=f"{100.0 * share:.0f} % of what its peers send for the same received",
                    limit="over 50 %",
                ),
            ),
        )


def fallen_links(window: Window) -> list[Finding]:
    """Return one finding per GPU with fewer links up than within the trend span, whatever its peers have.

    A failed switch takes a link of every GPU. Telling that from how a machine is built takes several nodes, so
    the caller must know which GPUs share their switches.
    """
    rows = window.get("gpu", Span.RECENT)
    if not len(rows):
        return []
    up, before = rows.values(_UP.column), window.get("gpu", Span.TREND).beside(rows, _UP.column)
    fell = (up < before) & (rows.values("samples") >= _SAMPLES)
    # A GPU that is split into MIG devices needs no links: somebody wanted it so.
    fell &= ~(window.get("gpu", Span.NOW).beside(rows, "mig_mode") == 1)
    return findings(
        "gpu_nvlink",
        (
            Claim(
                condition="nvlink_fell",
                subject=subject,
                since=row["first_at"],
                evidence=(
                    Evidence(name="NVLinks up", value=str(row[_UP.column]), limit=f"{best:g}"),
                ),
            )
            for (subject, row), best in zip(rows.where(fell), before[fell], strict=True)
            if not _begins(window, subject.of_node())
        ),
    )


def _begins(window: Window, node: Subject) -> bool:
    return any(window.now - e.at < _JOINS for e in window.node_events(node, *_BEGINS))


def _down(window: Window) -> Iterator[Claim]:
    """Yield GPUs with fewer links up than others of the model on their node.

    Where all GPUs of a node have equally few, the machine may be built so.
    """
    rows = window.get("gpu", Span.RECENT)
    up = rows.values("nvlink_links_up_max")
    peers = group_maximum(combined_codes(nodes(rows), models(window, rows)), up)
    fewer = NVLINKS_DOWN.holds(up, peers)
    for (subject, row), best in zip(rows.where(fewer), peers[fewer], strict=True):
        yield Claim(
            condition=NVLINKS_DOWN.key,
            subject=subject,
            since=row["last_at"],
            evidence=(
                Evidence(
                    name="NVLinks up", value=str(row["nvlink_links_up_max"]), peers=f"{best:g}"
                ),
            ),
        )


def _errors(window: Window) -> Iterator[Claim]:
    rows = window.get("gpu", Span.TREND)
    crc = rows.values(_CRC.column) >= _MOST_CRC
    repeats = np.nan_to_num(rows.values(_REPLAYS.column))
    repeats += np.nan_to_num(rows.values(_RECOVERIES.column))
    minutes = window.settings.trend_seconds / 60.0
    for subject, row in rows.where(crc | (repeats >= _MOST_REPLAYS)):
        recent = window.get("gpu", Span.RECENT).get(subject)
        link = None if recent is None else recent["nvlink_worst_link_last"]
        for condition, evidence in _counts(row, minutes):
            more = () if link is None else (Evidence(name="worst link", value=str(link)),)
            yield Claim(
                condition=condition,
                subject=subject,
                since=row["last_at"],
                evidence=(evidence, *more),
            )


def _counts(row: Row, minutes: float) -> Iterator[tuple[str, Evidence]]:
    crc, replays, recoveries = (row[a.column] or 0 for a in (_CRC, _REPLAYS, _RECOVERIES))
    if replays + recoveries >= _MOST_REPLAYS:
        value = f"{replays} and {recoveries} recoveries in {minutes:g} min"
        limit = f"fewer than {_MOST_REPLAYS}"
        yield "nvlink_recovery", Evidence(name="NVLink replays", value=value, limit=limit)
    if crc >= _MOST_CRC:
        value = f"{crc} in {minutes:g} min"
        limit = f"fewer than {_MOST_CRC}"
        yield "nvlink_crc", Evidence(name="NVLink CRC errors", value=value, limit=limit)


DETECTOR = Detector(
    name="gpu_nvlink",
    find=broken_links,
    faults=found_by("gpu_nvlink"),
    needs=NEEDS,
    sentence="A GPU with fewer NVLinks up than its peers, whose NVLinks count errors, or that sends far less than they do.",
    source="DCGM health, NVLink; the job's other GPUs of the node",
    would_show=would_show_uneven_traffic,
    lapsed=lapsed,
)
