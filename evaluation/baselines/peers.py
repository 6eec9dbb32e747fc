"""What a library provides: outliers among the GPUs that do the same work, by scikit-learn.

Each GPU's quarter of an hour is a row: means of its activity and power, extremes of some, how often
each of its counters of errors and throttling rose, the load and fabric traffic of its node, and the
number of samples. The job's median is subtracted, so that the rest is how the GPU differs from its peers.
The differences of all jobs, each in units of its usual spread, go to the estimator, and a GPU whose score
lies far out names its machine. Outliers name no cause.

The span is that of Minder's baseline (NSDI 25: Mahalanobis, F1 0.777 on its own data), which sees
no counters of errors and no silence: here both are given to it. The threshold is a score: each of
`LIMITS` is played, and the one that is best on tuning seeds counts as what would be shipped.
"""

import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.covariance import MinCovDet
from sklearn.ensemble import IsolationForest

from analyzer.correlation.all_detectors import Detector
from analyzer.window.index import NOWHERE, Index
from analyzer.window.rows import Column, Rows
from analyzer.window.window import Need, Span, Window
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import Evidence, Finding, Holder, HolderKind, Severity, Subject
from gpuvigil.store import Aggregate, Function

from ..judge.fault_names import NAMING

Matrix = Any
# A score for each row, higher is more unusual.
Scores = Callable[[Matrix], Matrix]

# Minder looks at 15 minutes every 8; five are the nearest that divide them.
SETTINGS = AnalyzerSettings(tick_seconds=300.0, window_seconds=900.0, clear_seconds=600.0)
_FEWEST_PEERS, _FEWEST_ROWS = 4, 16

# Fields and the smallest difference that can mean anything: a step of the sensor or of the work.
_MEANS: Mapping[str, float] = {
    "utilization_percent": 1.0,
    "sm_activity_percent": 1.0,
    "tensor_activity_percent": 1.0,
    "dram_activity_percent": 1.0,
    "power_watts": 5.0,
    "temperature_celsius": 1.0,
    "memory_temperature_celsius": 1.0,
    "sm_clock_hertz": 15e6,
    "memory_clock_hertz": 15e6,
    "memory_used_bytes": 2.0**30,
    "pcie_receive_bytes_per_second": 1e7,
    "pcie_transmit_bytes_per_second": 1e7,
    "power_limit_watts": 5.0,
    "nvlink_links_up": 0.5,
    "pcie_width": 0.5,
}
_EXTREMES: Mapping[str, float] = {
    "utilization_percent": 2.0,
    "power_watts": 10.0,
    "sm_clock_hertz": 30e6,
}
_TRAFFIC: Mapping[str, float] = {"nvlink_receive_bytes": 1e10, "nvlink_transmit_bytes": 1e10}
# Counters that grow when something goes wrong, on a scale of orders of magnitude.
_ERRORS = (
    "pcie_replays",
    "nvlink_errors",
    "ecc_corrected_errors",
    "ecc_uncorrected_errors",
    "power_cap_seconds",
    "hardware_thermal_slowdown_seconds",
    "software_thermal_slowdown_seconds",
    "power_brake_seconds",
)
_NODE: Mapping[str, float] = {"load_average": 2.0, "memory_available_bytes": 2.0**33}
_PORT_TRAFFIC: Mapping[str, float] = {"receive_bytes": 1e10, "transmit_bytes": 1e10}
_PORT_ERRORS = ("symbol_errors", "transmit_discards", "receive_errors", "link_downed")


def _of(function: Function, names: Sequence[str] | Mapping[str, float]) -> tuple[Aggregate, ...]:
    return tuple(Aggregate(function=function, field=name) for name in names)


_GAUGES = (
    *_of(Function.MEAN, _MEANS),
    *_of(Function.MIN, _EXTREMES),
    *_of(Function.MAX, _EXTREMES),
)
_STEPS = (*_MEANS.values(), *_EXTREMES.values(), *_EXTREMES.values())
_COUNTED = _of(Function.INCREASE, (*_TRAFFIC, *_ERRORS))
_NEEDS = (
    Need(measurement="gpu", span=Span.RECENT, aggregates=(*_GAUGES, *_COUNTED)),
    Need(measurement="node", span=Span.RECENT, aggregates=_of(Function.MEAN, _NODE)),
    Need(
        measurement="port",
        span=Span.RECENT,
        aggregates=_of(Function.INCREASE, (*_PORT_TRAFFIC, *_PORT_ERRORS)),
    ),
)


def mahalanobis(rows: Matrix) -> Matrix:
    """Return the distance from the centre of the bulk, by a robust covariance."""
    with warnings.catch_warnings():
        # Columns that never vary among these peers: the library warns, and goes on without them.
        warnings.filterwarnings("ignore", "The covariance matrix .* is not full rank", UserWarning)
        warnings.filterwarnings("ignore", "Determinant has increased", RuntimeWarning)
        return MinCovDet(random_state=0).fit(rows).mahalanobis(rows) ** 0.5


def isolation(rows: Matrix) -> Matrix:
    """Return how few cuts isolate a row."""
    return -IsolationForest(n_estimators=100, random_state=0).fit(rows).score_samples(rows)


def features(window: Window) -> tuple[Index, Matrix]:
    """Return a row for each GPU of an inventory, silent ones included."""
    gpus = Index(
        Subject(cluster=inventory.subject.cluster, node=inventory.subject.node, gpu=gpu.uuid)
        for _, inventory in sorted(window.inventories.items())
        for gpu in inventory.gpus
    )
    asked = Rows.of_columns(gpus, _asked)
    rows, nodes = window.get("gpu", Span.RECENT), window.get("node", Span.RECENT)
    columns = [
        rows.beside(asked, it.column) / step for it, step in zip(_GAUGES, _STEPS, strict=True)
    ]
    columns += [rows.beside(asked, f"{it}_increase") / step for it, step in _TRAFFIC.items()]
    columns += [np.log1p(rows.beside(asked, f"{name}_increase")) for name in _ERRORS]
    columns += [nodes.beside(asked, f"{it}_mean") / step for it, step in _NODE.items()]
    columns += _of_ports(window, nodes, asked)
    expected = window.settings.window_seconds / window.ticks(asked)
    present = np.nan_to_num(rows.beside(asked, "samples")) / expected
    # A twentieth of the samples is lost in normal operation.
    columns.append(present / 0.05)
    return gpus, np.column_stack(columns) if len(gpus) else np.empty((0, len(columns)))


def _asked(column: str) -> Column:
    raise KeyError(column)


def _of_ports(window: Window, nodes: Rows, asked: Rows) -> list[Matrix]:
    """Return the sums over all ports of a GPU's node."""
    ports = window.get("port", Span.RECENT)
    if not len(ports) or not len(nodes):
        return [np.zeros(len(asked))] * (len(_PORT_TRAFFIC) + len(_PORT_ERRORS))
    places = ports.index.places(nodes.index)
    known = places != NOWHERE
    theirs = asked.index.places(nodes.index)

    def summed(column: str) -> Matrix:
        values = np.nan_to_num(ports.values(column))[known]
        by_node = np.bincount(places[known], values, minlength=len(nodes))
        return np.where(theirs == NOWHERE, np.nan, by_node[theirs])

    found = [summed(f"{name}_increase") / step for name, step in _PORT_TRAFFIC.items()]
    return found + [np.log1p(summed(f"{name}_increase")) for name in _PORT_ERRORS]


def differences(window: Window) -> tuple[list[Subject], Matrix]:
    """Return each working GPU's difference from the median of its job, in units of the spread of all."""
    gpus, table = features(window)
    jobs: dict[Holder, list[int]] = defaultdict(list)
    for number, subject in enumerate(gpus.subjects):
        holders = {it.holder for it in window.held(subject)}
        if len(holders) == 1 and (holder := holders.pop()).kind is HolderKind.JOB:
            jobs[holder].append(number)
    chosen: list[int] = []
    parts = []
    for holder in sorted(jobs):
        peers = np.array(jobs[holder])
        if len(peers) >= _FEWEST_PEERS:
            values = table[peers]
            measured = np.isfinite(values).any(axis=0)
            middle = np.where(measured, _median(values), 0.0)
            # A missing measurement counts as equal to the peers'; that it is missing shows in the samples.
            parts.append(np.nan_to_num(values - middle))
            chosen += jobs[holder]
    if not parts:
        return [], table[:0]
    found = np.concatenate(parts)
    spread = 1.4826 * np.median(np.abs(found), axis=0)
    return [gpus.subjects[number] for number in chosen], found / np.maximum(spread, 1.0)


def _median(values: Matrix) -> Matrix:
    """Return the median of each column over the measured values; arbitrary where there are none."""
    ordered = np.sort(values, axis=0)  # NaN comes last
    count = np.isfinite(values).sum(axis=0)
    columns = np.arange(values.shape[1])
    low, high = np.maximum(count - 1, 0) // 2, count // 2
    high = np.minimum(high, len(values) - 1)
    return (ordered[low, columns] + ordered[high, columns]) / 2.0


def named(name: str, far: float) -> str:
    """Return the name of an estimator's claims that are at least so far out."""
    return f"{name} > {far:g}"


def outliers(name: str, scores: Scores) -> Detector:
    """Return an estimator as a detector of machines; a finding for each limit that a machine exceeds.

    Limits are in median absolute deviations.
    """

    def find(window: Window) -> list[Finding]:
        gpus, rows = differences(window)
        if len(gpus) < _FEWEST_ROWS:
            return []
        # An estimator needs rows that are not all alike: this noise is well below what means anything.
        rows = np.clip(rows, -100.0, 100.0)
        rows = rows + np.random.default_rng(0).normal(0.0, 0.3, rows.shape)
        score = scores(rows)
        middle = np.median(score)
        usual = max(float(np.median(np.abs(score - middle))), 1e-9)
        worst: dict[Subject, float] = {}
        for gpu, distance in zip(gpus, (score - middle) / usual, strict=True):
            if distance > LIMITS[0]:
                node = gpu.of_node()
                worst[node] = max(float(distance), worst.get(node, 0.0))
        return [
            _finding(window, named(name, far), node, worst[node])
            for node in sorted(worst)
            for far in LIMITS
            if worst[node] > far
        ]

    return Detector(
        name=name,
        find=find,
        faults=tuple(named(name, far) + NAMING for far in LIMITS),
        needs=_NEEDS,
        reads_events=False,
        sentence=f"Outliers among the GPUs of a job, by {name}.",
        source="scikit-learn",
    )


def _finding(window: Window, name: str, node: Subject, distance: float) -> Finding:
    return Finding(
        fault=name + NAMING,
        subject=node,
        severity=Severity.WARNING,
        since=window.now,
        evidence=(Evidence(name="distance", value=f"{distance:.1f}"),),
        detector=name,
        action="",
        source="scikit-learn",
        title=f"outlier among its peers ({name})",
    )


# From merely unusual to what no healthy GPU reaches.
LIMITS = (3.0, 8.0, 20.0, 50.0, 120.0)
PEERS: Mapping[str, Sequence[Detector]] = {
    name: (outliers(name, scores),)
    for name, scores in {"Mahalanobis": mahalanobis, "IsolationForest": isolation}.items()
}
