"""A GPU whose PCIe link has lost lanes or speed, or repeats packets."""

import math
from collections.abc import Iterator

import numpy as np

from gpuvigil.faults import found_by
from gpuvigil.faults.symptoms import PCIE_NARROW, PCIE_SLOW, WORKING_PERCENT
from gpuvigil.model import Evidence, Finding, Incident, Subject
from gpuvigil.store import Aggregate, Function

from ..evidence.claims import Claim, findings
from ..evidence.grouping import one_of_node
from ..window.columns import Floats, Mask, divided, seconds
from ..window.rows import Row, Rows
from ..window.window import Need, Span, Window
from . import Detector

# Packets that the GPU has to resend, and those it refuses so that the other end resends them: either way the
# same link.
_REPEATED = (
    (Aggregate(function=Function.INCREASE, field="pcie_replays"), "PCIe replays"),
    (Aggregate(function=Function.INCREASE, field="pcie_naks_sent"), "PCIe packets refused"),
)
_LINK = (
    Aggregate(function=Function.MAX, field="pcie_width"),
    Aggregate(function=Function.MAX, field="pcie_width_max"),
    Aggregate(function=Function.MAX, field="pcie_generation"),
    Aggregate(function=Function.MAX, field="pcie_generation_max"),
    Aggregate(function=Function.MIN, field="utilization_percent"),
    *(it for it, _ in _REPEATED),
)
_LEAST_WIDTH, _MEAN_WIDTH, _FIRST_WIDTH, _LAST_WIDTH = (
    Aggregate(function=function, field="pcie_width")
    for function in (Function.MIN, Function.MEAN, Function.FIRST, Function.LAST)
)
_WIDTHS = (_LEAST_WIDTH, _MEAN_WIDTH, _FIRST_WIDTH, _LAST_WIDTH)
NEEDS = (
    Need(measurement="gpu", span=Span.RECENT, aggregates=_LINK),
    Need(measurement="gpu", span=Span.STEADY, aggregates=(*_LINK, *_WIDTHS)),
)

_SEVERAL = "PCIe links of several GPUs of the node are degraded"
_SEVERAL_ACTION = (
    "Drain the node; look at what these GPUs share: a riser, a PCIe switch, its power."
)
# DCGM: replays per lane and minute at a bit error rate of 1e-12, by generation; the next doubles.
_PER_LANE = {1: 0.15, 2: 0.3, 3: 0.48, 4: 0.96, 5: 1.92, 6: 3.84}
_SAMPLES = 3
# Lanes that come and go must be lost for as much in total as half of them at three lines, and for a minute
# [ours].
_LOST_LINES, _LOST_MINUTES = 1.5, 0.5
# A node with fewer lines than this in the recent span is judged by the steady span: the recent one never has
# three.
_LINES_OF_SPARSE = 2.5


def degraded_links(window: Window) -> list[Finding]:
    """Return one finding per GPU, or per node with several: lanes lost, a lower generation under load, or too many
    replays.

    A node that is read seldom is also judged by the steady span: at one line a minute the recent one shows no
    increase.
    """
    rows, long = window.get("gpu", Span.RECENT), window.get("gpu", Span.STEADY)
    any_row, seldom = np.ones(len(rows), dtype=bool), _is_sparse(window, long, long)
    claims = [
        *_of_link(rows, ~_is_sparse(window, long, rows)),
        *_of_link(long, seldom),
        *_coming_and_going(long),
        *_of_replays(rows, any_row, window.settings.window_seconds / 60.0),
        *_of_replays(long, seldom, window.settings.steady_seconds / 60.0),
    ]
    return one_of_node(findings("gpu_pcie", claims), _SEVERAL, _SEVERAL_ACTION)


def _of_link(rows: Rows, asked: Mask) -> Iterator[Claim]:
    """Yield claims about lost lanes or a lower generation for the rows that `asked` selects."""
    asked = asked & (rows.values("samples") >= _SAMPLES)
    narrow = PCIE_NARROW.holds(rows.values("pcie_width_max"), rows.values("pcie_width_max_max"))
    # Under load at every sample.
    slow = PCIE_SLOW.holds(
        rows.values("pcie_generation_max"),
        rows.values("pcie_generation_max_max"),
        rows.values("utilization_percent_min"),
    )
    for subject, row in rows.where(narrow & asked):
        value, lanes = f"{row['pcie_width_max']} lanes", row["pcie_width_max_max"]
        said = Evidence(name="PCIe width", value=value, limit=str(lanes))
        yield _claim(PCIE_NARROW.key, subject, row, said)
    for subject, row in rows.where(slow & asked):
        value = f"{row['pcie_generation_max']} at {row['utilization_percent_min']} % or more"
        limit = str(row["pcie_generation_max_max"])
        said = Evidence(name="PCIe generation", value=value, limit=limit)
        yield _claim(PCIE_SLOW.key, subject, row, said)


def _coming_and_going(rows: Rows) -> Iterator[Claim]:
    """Yield links that lost lanes and got them back by themselves while their GPUs worked all along.

    An idle link may save power, and a width of no lanes is a failed reading.
    """
    most = rows.values("pcie_width_max_max")
    lost = 1.0 - divided(rows.values(_MEAN_WIDTH.column), most)
    least, first, last = (
        rows.values(it.column) for it in (_LEAST_WIDTH, _FIRST_WIDTH, _LAST_WIDTH)
    )
    told = (least > 0) & (first == most) & (last == most)
    told &= rows.values("utilization_percent_min") >= WORKING_PERCENT
    told &= (lost * rows.values("samples") >= _LOST_LINES) & (
        lost * seconds(rows) >= 60.0 * _LOST_MINUTES
    )
    for subject, row in rows.where(told):
        value = (
            f"{row[_LEAST_WIDTH.column]} lanes at times, {row[_MEAN_WIDTH.column]:.1f} on average"
        )
        said = Evidence(name="PCIe width", value=value, limit=str(row["pcie_width_max_max"]))
        yield _claim(PCIE_NARROW.key, subject, row, said)


def _of_replays(rows: Rows, asked: Mask, minutes: float) -> Iterator[Claim]:
    """Yield claims about too many replays within `minutes` for the rows that `asked` selects."""
    limits = _limits(
        rows.values("pcie_generation_max_max"), rows.values("pcie_width_max_max"), minutes
    )
    for counter, name in _REPEATED:
        for subject, row in rows.where(asked & (rows.values(counter.column) >= limits)):
            per_lane = _PER_LANE.get(row["pcie_generation_max_max"] or 6, 3.84)
            most = per_lane * (row["pcie_width_max_max"] or 16) * minutes
            said = Evidence(
                name=name,
                value=f"{row[counter.column]} in {minutes:g} min",
                limit=f"{math.ceil(most)} at most",
            )
            yield _claim("pcie_replays", subject, row, said)


def _claim(condition: str, subject: Subject, row: Row, said: Evidence) -> Claim:
    return Claim(condition=condition, subject=subject, since=row["last_at"], evidence=(said,))


def would_show_degraded_link(window: Window, incident: Incident) -> bool:
    """Return whether the last minute of any GPU of the incident would show the fault, or the steady span on a node
    that is read seldom.

    The first lines after a gap would not, and a lower generation shows only under load: an idle link saves
    power.
    """
    gpus = {incident.subject, *map(Subject.parse, incident.members)}
    return any(_would_show(window, gpu, incident.condition) for gpu in gpus)


def _would_show(window: Window, gpu: Subject, condition: str) -> bool:
    long = window.get("gpu", Span.STEADY).of_subject(gpu)
    is_sparse = bool(_is_sparse(window, long, long).any())
    row = (long if is_sparse else window.get("gpu", Span.RECENT)).get(gpu)
    if row is None or row["samples"] < _SAMPLES:
        return False
    least = row["utilization_percent_min"]
    return condition != "pcie_slow" or (least is not None and least >= WORKING_PERCENT)


def _is_sparse(window: Window, long: Rows, of: Rows) -> Mask:
    """Return for each row of `of` whether its lines in the steady span are too far apart for the recent span."""
    apart = seconds(long, of) / np.maximum(long.beside(of, "samples") - 1.0, 1.0)
    found: Mask = apart > window.settings.window_seconds / _LINES_OF_SPARSE
    return found


def _limits(generation: Floats, lanes: Floats, minutes: float) -> Floats:
    """Return how many replays in the span are too many for a healthy link.

    An unknown generation counts as 6, and an unknown width as 16 lanes.
    """
    known = np.nan_to_num(np.clip(generation, 1, 6), nan=6).astype(np.int64)
    per_lane = np.array([0.0, *(_PER_LANE[g] for g in range(1, 7))])[known]
    limit: Floats = np.ceil(per_lane * np.nan_to_num(lanes, nan=16.0) * minutes) + 1.0
    return limit


DETECTOR = Detector(
    name="gpu_pcie",
    find=degraded_links,
    faults=found_by("gpu_pcie"),
    needs=NEEDS,
    sentence="A GPU whose PCIe link has lost lanes or speed, or repeats packets.",
    source="NVML's current and maximum link; DCGM's limit for replays",
    would_show=would_show_degraded_link,
)
