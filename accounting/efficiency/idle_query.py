"""The store query for idle GPUs, and the reason that its rows give: pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuvigil.faults import FAULTS, Stops
from gpuvigil.faults.affected import affected_keys
from gpuvigil.model import Incident, Severity, Subject
from gpuvigil.silence_conditions import WAS_UP
from gpuvigil.store import Aggregate, Function

from .idle_reason import IdleContext, Idleness, Measured, idleness

# A GPU seen only in the last part of the span may be in a gap between two steps.
_SEEN_FROM = 0.2

_OF_GPUS = {
    "utilization_most_percent": Aggregate(function=Function.MAX, field="utilization_percent"),
    "memory_utilization_most_percent": Aggregate(
        function=Function.MAX, field="memory_utilization_percent"
    ),
    "processes_most": Aggregate(function=Function.MAX, field="compute_processes"),
    "memory_least_bytes": Aggregate(function=Function.MIN, field="memory_used_bytes"),
    "memory_total_bytes": Aggregate(function=Function.MAX, field="memory_total_bytes"),
    "power_watts": Aggregate(function=Function.MEAN, field="power_watts"),
    "power_least_watts": Aggregate(function=Function.MIN, field="power_watts"),
    "power_most_watts": Aggregate(function=Function.MAX, field="power_watts"),
    "power_limit_watts": Aggregate(function=Function.MAX, field="power_limit_watts"),
    "sm_activity_most_percent": Aggregate(function=Function.MAX, field="sm_activity_percent"),
}
_REASONS = Aggregate(function=Function.LAST, field="clock_event_reasons")
_COUNTED = Aggregate(function=Function.COUNT, field="utilization_percent")
ASKED = (_COUNTED, *_OF_GPUS.values(), _REASONS)
SAMPLES, MOST_USED = _COUNTED.column, _OF_GPUS["utilization_most_percent"].column
# About inference servers, over the same span.
_ANSWERED = Aggregate(function=Function.INCREASE, field="requests")
_RAN = Aggregate(function=Function.MAX, field="requests_running")
_WAITED = Aggregate(function=Function.MAX, field="requests_waiting")
_SEEN = Aggregate(function=Function.COUNT, field="requests_running")
_COUNTS = Aggregate(function=Function.COUNT, field="requests")
ASKED_OF_SERVERS = (_ANSWERED, _RAN, _WAITED, _SEEN, _COUNTS)
# A server must have been scraped for this share of its GPU's ticks.
_COVERAGE = 0.8
_REQUESTS = "inference_requests"
Row = Mapping[str, Any]


def values(asked: Mapping[str, Aggregate], row: Row) -> dict[str, Any]:
    """Return a row's values under the names of the aggregates that were asked for."""
    return {name: row[one.column] for name, one in asked.items()}


def measured(row: Row, expected: float) -> Measured:
    """Read a row of `ASKED`, with or without `with_requests`; `expected` is the expected number of samples."""
    reasons = row[_REASONS.column]
    return Measured(
        coverage=row[SAMPLES] / expected if expected else 0.0,
        clock_event_reasons=None if reasons is None else int(reasons),
        requests=row.get(_REQUESTS),
        **values(_OF_GPUS, row),
    )


def with_requests(rows: Mapping[str, Row], servers: Iterable[Row]) -> dict[str, Row]:
    """Return the rows of GPUs with the number of requests of their inference servers, where that is known.

    `servers` are rows of `ASKED_OF_SERVERS`. A server that was scraped more rarely than its GPU was measured
    may have had requests that were not seen, so it adds nothing.
    """
    found: dict[str, list[Row]] = {}
    for row in servers:
        if row["uuid"]:
            subject = Subject(cluster=row["cluster"], node=row["node"], gpu=row["uuid"])
            found.setdefault(subject.key, []).append(row)
    return {
        key: {**row, _REQUESTS: _requests(found[key], row[SAMPLES] or 0)} if key in found else row
        for key, row in rows.items()
    }


def _requests(rows: Sequence[Row], samples: float) -> float | None:
    """Return the requests of all servers on one GPU; None where there may have been unseen ones."""
    names = (_ANSWERED.column, _RAN.column, _WAITED.column)
    some = sum(max((row[name] or 0.0 for name in names), default=0.0) for row in rows)
    if some > 0:
        return some
    asked = min(max(row[_SEEN.column] or 0, row[_COUNTS.column] or 0) for row in rows)
    return 0.0 if samples and asked >= _COVERAGE * samples else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Excuses:
    """What incidents excuse: keys of broken GPUs and nodes, nodes cut off from others, nodes without storage."""

    broken: frozenset[str] = frozenset()
    cut_off: frozenset[str] = frozenset()
    stuck: frozenset[str] = frozenset()

    def cover(self, gpu: Subject, *, spread: bool = False) -> bool:
        """Return whether a GPU is excused; `spread` says that its holder has GPUs on several nodes."""
        node = gpu.of_node().key
        return gpu.key in self.broken or node in self.broken or (spread and node in self.cut_off)

    def hold_up(self, holder: Sequence[Subject]) -> bool:
        """Return whether a fault keeps the holder of these GPUs from computing, or makes it wait."""
        spread = is_spread(holder)
        return any(
            self.cover(gpu, spread=spread) or gpu.of_node().key in self.stuck for gpu in holder
        )


NONE = Excuses()


def is_spread(gpus: Iterable[Subject]) -> bool:
    """Return whether the GPUs are on several nodes."""
    return len({gpu.of_node() for gpu in gpus}) > 1


def excuses(incidents: Iterable[Incident], since: datetime | None = None) -> Excuses:
    """Return the excuses of incidents that stand or ended after `since`: a job stopped by a fault may stay stopped.

    Any critical fault excuses, whether it stops work or only slows it: nobody is blamed in doubt.
    """
    broken: set[str] = set()
    cut_off: set[str] = set()
    stuck: set[str] = set()
    for one in incidents:
        if one.resolved_at is not None and (since is None or one.resolved_at <= since):
            continue
        if one.resolved_at is not None and one.condition in WAS_UP:
            continue  # only the numbers were missing
        stops = FAULTS[one.fault].stops if one.fault in FAULTS else Stops.NOBODY
        if stops is Stops.SPREAD:
            cut_off |= _nodes_of(one)
        elif stops is Stops.STORAGE and one.severity is not Severity.INFO:
            stuck |= _nodes_of(one)
        elif stops is Stops.HOLDER or one.severity is Severity.CRITICAL:
            broken.update(affected_keys(one))
    return Excuses(broken=frozenset(broken), cut_off=frozenset(cut_off), stuck=frozenset(stuck))


def _nodes_of(one: Incident) -> set[str]:
    return {Subject.parse(key).of_node().key for key in affected_keys(one)}


def held_up(one: Incident, alone: Collection[str] = ()) -> tuple[str, ...]:
    """Return the holders that an incident excuses for the time in which it stood.

    `alone` are holders known to be on one node. Which nodes all other holders have is not known, so a node
    that is cut off excuses them.
    """
    found = excuses((one,), since=one.since)
    if found.broken or found.stuck:
        return one.impact.holders
    return tuple(it for it in one.impact.holders if it not in alone) if found.cut_off else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """The rows of `ASKED` over a span by GPU key, and the excuses at its end.

    `expected` is the number of samples that a GPU should have, by node key; each node has its own tick.
    """

    start: datetime
    end: datetime
    rows: Mapping[str, Row]
    expected: Mapping[str, float]
    excuses: Excuses = NONE
    below_percent: float = 1.0

    def seen(self, gpu: Subject) -> Row | None:
        """Return the row of a GPU that was there for most of the span; None otherwise."""
        row = self.rows.get(gpu.key)
        begun_by = self.start + (self.end - self.start) * _SEEN_FROM
        return row if row is not None and row["first_at"] <= begun_by else None

    def busy(self, gpu: Subject) -> bool:
        row = self.rows.get(gpu.key)
        return row is not None and (row[MOST_USED] or 0.0) >= self.below_percent


def why_idle(
    gpu: Subject,
    peers: Sequence[Subject],
    span: Measurements,
    *,
    standby: bool = False,
    held_since: datetime | None = None,
) -> Idleness | None:
    """Return why a held GPU is idle; None if it computed, or was not its holder's for the whole span.

    `peers` are the other GPUs of its holder. Idle time before the holder had the GPU may be somebody else's.
    """
    if held_since is not None and held_since > span.start:
        return None
    spread = is_spread((gpu, *peers))
    around = IdleContext(
        faulty=span.excuses.cover(gpu, spread=spread),
        peers_busy=any(span.busy(one) for one in peers),
        peers_faulty=any(span.excuses.cover(one, spread=spread) for one in peers),
        waits_for_data=any(one.of_node().key in span.excuses.stuck for one in (gpu, *peers)),
        standby=standby,
    )
    row = span.seen(gpu)
    if row is None:
        return Idleness.FAULTY if around.faulty else Idleness.NO_DATA
    samples = span.expected[gpu.of_node().key]
    return idleness(measured(row, samples), around, span.below_percent)
