"""What a Prometheus has of a span: asked metric by metric, in parts, into grids of moments.

Where two series report one GPU at one moment, the one that began later counts. This happens when a pod has started:
the series of the pod before is read on for five minutes.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np

from gpuvigil.errors import StoreError
from gpuvigil.metrics import GPU
from gpuvigil.store.exporter_names import (
    EXPORTERS,
    NVIDIA_SMI,
    Column,
    Exporter,
    holder_of,
    node_of,
)
from gpuvigil.store.promql import Tags, quoted

from ..tables import Numbers
from .asking import Asker, Labels, OutOfTime, Span, matching, whole_steps
from .questions import Question, asked, missing, names_of, presence_of

# Seconds between two values of one GPU; the finest step that keeps the rows within bounds is used.
STEPS = (60, 120, 180, 300, 600, 900, 1800, 3600)
MOST_ROWS = 1_000_000
# The interval in seconds for values that rarely change, or the step if that is longer.
_SLOW_SECONDS = 300
_BATCH_SERIES = 200
_USUAL_GPUS = 8
_UNAME = "node_uname_info"
_MOST_NAMED = 5
Holders = list[tuple[int, int, Labels]]  # first and last moment, and the labels that name a holder


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The span, the step and the series to ask for."""

    start: float  # seconds since 1970
    length: timedelta
    step: int | None = None  # None: chosen
    matchers: tuple[str, ...] = ()
    cluster: str = "site"
    most_rows: int = MOST_ROWS


@dataclass(slots=True, kw_only=True)
class TargetValues:
    """The values from one kind of target, by subject and field, in the catalogue's units."""

    exporter: Exporter
    values: dict[Tags, dict[str, Numbers]] = field(default_factory=lambda: defaultdict(dict))
    labels: dict[Tags, Labels] = field(default_factory=dict)
    holders: dict[Tags, Holders] = field(default_factory=lambda: defaultdict(list))
    rows: dict[Tags, Numbers] = field(default_factory=dict)  # where its presence has a value


@dataclass(slots=True, kw_only=True)
class CollectedMetrics:
    """Everything that was read, and what was missing."""

    fast: Span
    slow: Span
    targets: list[TargetValues]
    present_metrics: frozenset[str]  # metrics that have any series in the span
    missing: tuple[tuple[str, str], ...]  # fields, and the metric that is missing
    notes: list[str]
    nodes: Mapping[str, str]  # by the host of an instance


def collect_metrics(asker: Asker, bounds: Bounds) -> CollectedMetrics:
    """Ask for everything; StoreError when the first questions are not answered."""
    try:
        return _Gatherer(asker, bounds).all()
    except OutOfTime:
        raise StoreError(
            "the first questions took all the time that there is (--minutes)"
        ) from None


@dataclass(slots=True)
class _Gatherer:
    asker: Asker
    bounds: Bounds
    notes: list[str] = field(default_factory=list)
    nodes: dict[str, str] = field(default_factory=dict)
    hosts: dict[str, str] = field(default_factory=dict)  # each host's own name, by instance

    def all(self) -> CollectedMetrics:
        whole = whole_steps(self.bounds.start, self.bounds.length, 60)
        exporters = (NVIDIA_SMI, *EXPORTERS)
        wanted = names_of(exporters) | {_UNAME}
        selector = matching(sorted(wanted), self.bounds.matchers)
        there = frozenset(self.asker.names("__name__", [selector], whole)) & wanted
        exporters = tuple(one for one in exporters if _is_asked(one, there))
        if not any(one.measurement is GPU for one in exporters):
            raise self._without_gpus(whole)
        targets = [self._targets(one, there, whole) for one in exporters]
        both = list(zip(exporters, targets, strict=True))
        gpus = sum(sum(them.values()) for one, them in both if one.measurement is GPU)
        fast, slow = self._spans(max(gpus, 1))
        self._ask_hosts(there, fast)
        told = [self._of(one, them, there, fast, slow) for one, them in both]
        if not any(one.rows for one in told if one.exporter.measurement is GPU):
            raise self._without_whole_gpus(exporters, there, whole)
        return CollectedMetrics(
            fast=fast,
            slow=slow,
            targets=told,
            present_metrics=there,
            missing=tuple(missing(there)),
            notes=self.notes,
            nodes=self.nodes,
        )

    def _without_gpus(self, whole: Span) -> StoreError:
        """Return why nothing can be judged, with what else the server has that looks like GPUs."""
        alike = ['__name__=~"(?i).*(dcgm|nvidia|gpu).*"', *self.bounds.matchers]
        other = self.asker.names("__name__", [f"{{{','.join(alike)}}}"], whole)
        names = f"; it has {' '.join(other[:_MOST_NAMED])}" if other else ""
        return StoreError(
            "no GPU is known by dcgm-exporter's names (DCGM_FI_DEV_GPU_UTIL) or nvidia_gpu_exporter's"
            f" (nvidia_smi_utilization_gpu_ratio) in this span{names}. Names that were changed by"
            " relabelling are not known here"
        )

    def _without_whole_gpus(
        self, exporters: Sequence[Exporter], there: frozenset[str], whole: Span
    ) -> StoreError:
        """Return which metric has no series of a whole GPU, and which labels its series have."""
        (metric, *_) = (it for one in exporters if (it := presence_of(one, there)))
        found = self.asker.now(matching([metric], self.bounds.matchers), whole.last)
        labels = sorted({name for one, _ in found for name in one} - {"__name__"})
        has = f"; they have {' '.join(labels)}" if labels else ""
        return StoreError(
            f"{metric} has no series of a whole GPU in this span: gpuvigil needs the label UUID, and"
            f" takes none of a slice (GPU_I_ID){has}"
        )

    def _spans(self, gpus: int) -> tuple[Span, Span]:
        seconds = self.bounds.length.total_seconds()
        fits = (one for one in STEPS if gpus * seconds / one <= self.bounds.most_rows)
        step = self.bounds.step or next(fits, STEPS[-1])
        slow = step * max(-(-_SLOW_SECONDS // step), 1)
        # Both begin at the same moment, and the hours of the usage count are whole.
        start = -int(-self.bounds.start // max(slow, 3600)) * max(slow, 3600)
        length = timedelta(seconds=self.bounds.start + seconds - start)
        if length.total_seconds() < 3600:
            start, length = int(self.bounds.start // slow * slow), self.bounds.length
        return whole_steps(start, length, step), whole_steps(start, length, slow)

    def _targets(self, exporter: Exporter, there: frozenset[str], whole: Span) -> dict[str, int]:
        """Return how many series of a metric each instance has; "" where no series has that label."""
        metric = presence_of(exporter, there) or ""
        query = matching([metric], (*exporter.matchers, *self.bounds.matchers))
        found = dict.fromkeys(self.asker.names("instance", [query], whole), 0)
        for at in (whole.start + (whole.last - whole.start) // 2, whole.last):
            for labels, count in self.asker.now(f"count by (instance) ({query})", at):
                name = labels.get("instance", "")
                found[name] = max(found.get(name, 0), int(count))
        return {name: count or _USUAL_GPUS for name, count in (found or {"": 0}).items()}

    def _ask_hosts(self, there: frozenset[str], fast: Span) -> None:
        if _UNAME not in there:
            return
        query = matching([_UNAME], self.bounds.matchers)
        for at in (fast.start, fast.last):
            for labels, _ in self.asker.now(query, at):
                self.hosts[_host(labels)] = labels.get("nodename", "")

    def _of(
        self,
        exporter: Exporter,
        targets: Mapping[str, int],
        there: frozenset[str],
        fast: Span,
        slow: Span,
    ) -> TargetValues:
        told = TargetValues(exporter=exporter)
        of_gpus = exporter.measurement is GPU
        if not of_gpus:
            targets = {name: n for name, n in targets.items() if self._known(name)}
        for question in asked(exporter, there) if targets else ():
            self._ask_all(question, targets, fast if question.fast and of_gpus else slow, told)
        if of_gpus:
            self.nodes |= {_host(one): node_of(one) for one in told.labels.values()}
        return told

    def _ask_all(
        self, question: Question, targets: Mapping[str, int], span: Span, told: TargetValues
    ) -> None:
        """Ask a question of every target; StoreError where it leaves unknown which GPUs there are."""
        needed = question.presence and question.exporter.measurement is GPU
        done = 0
        try:
            for batch in _batches(targets):
                self._ask(question, batch, span, told)
                done += len(batch)
        except OutOfTime:
            if needed:
                raise StoreError(
                    f"the time for questions was over when {done} of {len(targets)} targets had been"
                    f" asked which GPUs they have ({question.metric}); give it more --minutes, a"
                    " shorter --last, or fewer nodes by --match"
                ) from None
            of = f"asked of {done} of {len(targets)} targets" if done else "not asked"
            self.notes.append(f"{question.metric}: {of}: the time for questions was over")
        except StoreError as error:
            if needed:
                raise
            self.notes.append(f"{question.metric}: {error}")

    def _known(self, instance: str) -> bool:
        """Return whether a host has GPUs, as far as its address or its own name shows."""
        host = _without_port(instance)
        name = self.hosts.get(host, host)
        known = set(self.nodes.values())
        if host in self.nodes or name in known:
            self.nodes.setdefault(host, name)
            return True
        return False

    def _ask(
        self, question: Question, batch: Mapping[str, int], span: Span, told: TargetValues
    ) -> None:
        matchers = [*question.exporter.matchers, *self.bounds.matchers]
        if any(batch):
            names = "|".join(re.escape(name) for name in batch)
            matchers.append(f"instance=~{quoted(names)}")
        query = matching([question.metric], matchers)
        for part in span.parts(self.asker.moments(sum(batch.values()))):
            first = (part.start - span.start) // span.step
            series = [
                (labels, at + first, values) for labels, at, values in self.asker.over(query, part)
            ]
            for labels, at, values in _in_order(series):
                self._keep(question, told, labels, at, values, span)

    def _keep(
        self,
        question: Question,
        told: TargetValues,
        labels: Labels,
        at: Numbers,
        values: Numbers,
        span: Span,
    ) -> None:
        tags = self._tags(question.exporter, labels)
        known = ~np.isnan(values)
        for name, column in question.fields:
            grid = told.values[tags].setdefault(name, np.full(span.count, np.nan))
            grid[at[known]] = _converted(column, values[known])
        if question.presence:
            told.labels.setdefault(tags, labels)
            told.rows.setdefault(tags, np.zeros(span.count, bool))[at] = True
            told.holders[tags].append((int(at[0]), int(at[-1]), labels))

    def _tags(self, exporter: Exporter, labels: Labels) -> Tags:
        cluster = labels.get("cluster") or self.bounds.cluster
        node = node_of(labels)
        if exporter.measurement is not GPU:
            node = self.nodes.get(_host(labels), node)
        return (cluster, node, *exporter.subject(labels))


def _is_asked(exporter: Exporter, there: frozenset[str]) -> bool:
    """Return whether to ask an exporter: not a fallback for nodes, nor a second exporter of GPUs."""
    if exporter.measurement is not GPU and exporter.fallback:
        return False
    if exporter.fallback and any(
        presence_of(one, there) for one in EXPORTERS if one.measurement is GPU
    ):
        return False
    return presence_of(exporter, there) is not None


def _batches(targets: Mapping[str, int]) -> Iterable[Mapping[str, int]]:
    batch: dict[str, int] = {}
    for name, series in sorted(targets.items()):
        if batch and sum(batch.values()) + series > _BATCH_SERIES:
            yield batch
            batch = {}
        batch[name] = series
    if batch:
        yield batch


def _in_order(
    series: Sequence[tuple[Labels, Numbers, Numbers]],
) -> list[tuple[Labels, Numbers, Numbers]]:
    """Return the runs without a gap in each series, those that began first before the others."""
    runs = []
    for labels, at, values in series:
        edges = np.flatnonzero(np.diff(at) > 1) + 1
        parts = zip(np.split(at, edges), np.split(values, edges), strict=True)
        runs += [(labels, times, those) for times, those in parts if len(times)]
    return sorted(runs, key=lambda run: (int(run[1][0]), -len(run[1])))


def _converted(column: Column, values: Numbers) -> Numbers:
    if column.equals is None:
        return np.asarray(values * column.times)
    return np.asarray(np.where(values == column.equals, 1.0, 0.0))


def _host(labels: Labels) -> str:
    return _without_port(labels.get("instance", ""))


def _without_port(instance: str) -> str:
    return re.sub(r":\d+$", "", instance)


def holder_codes(runs: Holders, moments: int) -> tuple[Numbers, list[Labels]]:
    """Return, at each moment, the number of the labels that count, or -1 without a row; and the labels."""
    codes = np.full(moments, -1, np.int64)
    known: dict[str, int] = {}
    found: list[Labels] = []
    for first, last, labels in sorted(runs, key=lambda run: run[0]):
        key = str(holder_of(labels))
        if key not in known:
            known[key] = len(found)
            found.append(labels)
        codes[first : last + 1] = known[key]
    return codes, found
