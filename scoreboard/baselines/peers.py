"""What a library gives: outliers among the GPUs that do the same work, by scikit-learn.

Each GPU's quarter of an hour is a row of means; a job's median is taken from it, so that what is
left is how the GPU differs from its peers. All jobs' differences together, each in units of its
usual spread, go to the estimator, and a GPU whose score lies far out names its machine. They name
no cause. The method and its distance are Minder's baseline's (NSDI 25: Mahalanobis, F1 0.777
on its own data). How far is far is a guess that was not tuned: they may do better than shown.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.covariance import MinCovDet
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor

from analyzer.detector import Detector
from analyzer.window import Need, Span, Window
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import Evidence, Finding, Severity, Subject
from gpuvigil.store import Aggregate, Function

from ..names import NAMING

Matrix = Any
# A score for each row, higher is stranger.
Scores = Callable[[Matrix], Matrix]

FIELDS = (
    "utilization_percent",
    "sm_activity_percent",
    "tensor_activity_percent",
    "dram_activity_percent",
    "power_watts",
    "temperature_celsius",
    "sm_clock_hertz",
    "pcie_receive_bytes_per_second",
)
# Minder looks at 15 minutes every 8; five are the nearest that divide them.
SETTINGS = AnalyzerSettings(tick_seconds=300.0, window_seconds=900.0, clear_seconds=600.0)
_FEWEST_PEERS, _FEWEST_ROWS = 4, 16
_NEED = Need(
    measurement="gpu",
    span=Span.RECENT,
    aggregates=tuple(Aggregate(function=Function.MEAN, field=name) for name in FIELDS),
)


def mahalanobis(rows: Matrix) -> Matrix:
    """Distance from the middle of the bulk, by a robust covariance."""
    return MinCovDet(random_state=0).fit(rows).mahalanobis(rows) ** 0.5


def principal(rows: Matrix) -> Matrix:
    """What three components leave over."""
    model = PCA(n_components=3, random_state=0).fit(rows)
    return np.linalg.norm(rows - model.inverse_transform(model.transform(rows)), axis=1)


def isolation(rows: Matrix) -> Matrix:
    """How few cuts set a row apart."""
    return -IsolationForest(n_estimators=50, random_state=0).fit(rows).score_samples(rows)


def local(rows: Matrix) -> Matrix:
    """How much thinner it is around a row than around its neighbours."""
    neighbours = min(20, len(rows) - 1)
    return -LocalOutlierFactor(n_neighbors=neighbours).fit(rows).negative_outlier_factor_


def differences(window: Window) -> tuple[list[Subject], Matrix]:
    """Each working GPU's difference from the median of its job, in spreads of all of them."""
    rows = window.get("gpu", Span.RECENT)
    jobs: dict[str, list[Subject]] = defaultdict(list)
    for key, allocations in window.allocations.items():
        holders = {a.holder for a in allocations if a.ended_at is None}
        if len(holders) == 1 and (holder := holders.pop()).startswith("job "):
            jobs[holder].append(Subject.parse(key))
    gpus: list[Subject] = []
    parts = []
    for holder in sorted(jobs):
        found = [(gpu, row) for gpu in sorted(jobs[holder]) if (row := rows.get(gpu)) is not None]
        if len(found) < _FEWEST_PEERS:
            continue
        values = np.array([[row[a.column] for a in _NEED.aggregates] for _, row in found], float)
        gpus += [gpu for gpu, _ in found]
        parts.append(np.nan_to_num(values - np.nanmedian(values, axis=0)))
    if not parts:
        return [], np.empty((0, len(FIELDS)))
    table = np.concatenate(parts)
    spread = 1.4826 * np.median(np.abs(table), axis=0)
    # A field that hardly ever differs has no spread of its own.
    floor = np.maximum(table.std(axis=0), 1e-9)
    return gpus, table / np.where(spread > 0.0, spread, floor)


def outliers(name: str, scores: Scores, far: float) -> Detector:
    """An estimator as a detector of machines; `far` is in median absolute deviations."""

    def find(window: Window) -> list[Finding]:
        gpus, rows = differences(window)
        if len(gpus) < _FEWEST_ROWS:
            return []
        # An estimator needs rows that are not all alike; this is far below what any sensor tells.
        rows = np.clip(rows, -1e3, 1e3) + np.random.default_rng(0).normal(0.0, 1e-3, rows.shape)
        score = scores(rows)
        middle = np.median(score)
        usual = max(float(np.median(np.abs(score - middle))), 1e-9)
        worst: dict[Subject, float] = {}
        for gpu, distance in zip(gpus, (score - middle) / usual, strict=True):
            if distance > far:
                node = gpu.of_node()
                worst[node] = max(float(distance), worst.get(node, 0.0))
        return [_finding(window, name, node, worst[node]) for node in sorted(worst)]

    return Detector(
        name=name,
        find=find,
        faults=(name + NAMING,),
        needs=(_NEED,),
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


PEERS: Mapping[str, Sequence[Detector]] = {
    "Mahalanobis": (outliers("Mahalanobis", mahalanobis, 30.0),),
    "PCA": (outliers("PCA", principal, 30.0),),
    "IsolationForest": (outliers("IsolationForest", isolation, 8.0),),
    "LOF": (outliers("LOF", local, 30.0),),
}
