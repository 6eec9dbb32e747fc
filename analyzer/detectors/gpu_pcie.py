"""A GPU whose PCIe link has lost lanes or speed, or repeats packets."""

import math
from collections.abc import Iterator

import numpy as np

from gpuvigil.faults import found_by
from gpuvigil.faults.symptoms import PCIE_NARROW, PCIE_SLOW, WORKING_PERCENT
from gpuvigil.model import Evidence, Finding, Incident
from gpuvigil.store import Aggregate, Function

from ..evidence.claims import Claim, findings
from ..window.columns import Floats
from ..window.rows import Row
from ..window.window import Need, Span, Window
from . import Detector

NEEDS = (
    Need(
        measurement="gpu",
        span=Span.RECENT,
        aggregates=(
            Aggregate(function=Function.MAX, field="pcie_width"),
            Aggregate(function=Function.MAX, field="pcie_width_max"),
            Aggregate(function=Function.MAX, field="pcie_generation"),
            Aggregate(function=Function.MAX, field="pcie_generation_max"),
            Aggregate(function=Function.MIN, field="utilization_percent"),
            Aggregate(function=Function.INCREASE, field="pcie_replays"),
        ),
    ),
)

# DCGM: replays per lane and minute at a bit error rate of 1e-12, by generation; the next doubles.
_PER_LANE = {1: 0.15, 2: 0.3, 3: 0.48, 4: 0.96, 5: 1.92, 6: 3.84}
_SAMPLES = 3


def degraded_links(window: Window) -> list[Finding]:
    """One finding per GPU: lanes lost, a lower generation under load, or too many replays."""
    rows = window.get("gpu", Span.RECENT)
    width, width_max = rows.values("pcie_width_max"), rows.values("pcie_width_max_max")
    speed, speed_max = (
        rows.values("pcie_generation_max"),
        rows.values("pcie_generation_max_max"),
    )
    seen = rows.values("samples") >= _SAMPLES
    narrow = PCIE_NARROW.holds(width, width_max) & seen
    # Working at every sample.
    slow = PCIE_SLOW.holds(speed, speed_max, rows.values("utilization_percent_min")) & seen
    minutes = window.settings.window_seconds / 60.0
    replays = rows.values("pcie_replays_increase") >= _limits(speed_max, width_max, minutes)
    claims = []
    flagged = narrow | slow | replays
    for (subject, row), *which in zip(
        rows.where(flagged), narrow[flagged], slow[flagged], replays[flagged], strict=True
    ):
        for condition, evidence in _told(row, *which, minutes=minutes):
            claims.append(
                Claim(
                    condition=condition,
                    subject=subject,
                    since=row["last_at"],
                    evidence=(evidence,),
                )
            )
    return findings("gpu_pcie", claims)


def says_whether_degraded(window: Window, incident: Incident) -> bool:
    """Whether the last minute would show it: not from the first lines after a gap, and a lower
    generation only under load. An idle link saves power.
    """
    row = window.get("gpu", Span.RECENT).get(incident.subject)
    if row is None or row["samples"] < _SAMPLES:
        return False
    least = row["utilization_percent_min"]
    return incident.condition != "pcie_slow" or (least is not None and least >= WORKING_PERCENT)


def _limits(generation: Floats, lanes: Floats, minutes: float) -> Floats:
    """Replays that a healthy link may have in the span; at least one a lane where it is unknown."""
    known = np.nan_to_num(np.clip(generation, 1, 6), nan=6).astype(np.int64)
    per_lane = np.array([0.0, *(_PER_LANE[g] for g in range(1, 7))])[known]
    limit: Floats = np.ceil(per_lane * np.nan_to_num(lanes, nan=16.0) * minutes) + 1.0
    return limit


def _told(
    row: Row, narrow: bool, slow: bool, replays: bool, *, minutes: float
) -> Iterator[tuple[str, Evidence]]:
    lanes, generation = row["pcie_width_max_max"], row["pcie_generation_max_max"]
    if narrow:
        value = f"{row['pcie_width_max']} lanes"
        yield PCIE_NARROW.key, Evidence(name="PCIe width", value=value, limit=str(lanes))
    if slow:
        value = f"{row['pcie_generation_max']} at {row['utilization_percent_min']} % or more"
        yield PCIE_SLOW.key, Evidence(name="PCIe generation", value=value, limit=str(generation))
    if replays:
        most = _PER_LANE.get(generation or 6, 3.84) * (lanes or 16) * minutes
        yield (
            "pcie_replays",
            Evidence(
                name="PCIe replays",
                value=f"{row['pcie_replays_increase']} in {minutes:g} min",
                limit=f"{math.ceil(most)} at most",
            ),
        )


DETECTOR = Detector(
    name="gpu_pcie",
    find=degraded_links,
    faults=found_by("gpu_pcie"),
    needs=NEEDS,
    sentence="A GPU whose PCIe link has lost lanes or speed, or repeats packets.",
    source="NVML's current and maximum link; DCGM's limit for replays",
    would_show=says_whether_degraded,
)
