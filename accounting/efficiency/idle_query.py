"""The question to the store about idle GPUs, and the reason that its rows give: pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuvigil.faults import FAULTS, Stops
from gpuvigil.faults.affected import struck
from gpuvigil.model import Incident, Severity, Subject
from gpuvigil.silence_conditions import WAS_UP
from gpuvigil.store import Aggregate, Function

from .idle_reason import Around, Idleness, Measured, idleness

# A GPU that was seen for the last part of the span only may be in a gap between two steps.
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
# Of inference servers, over the same span.
_ANSWERED = Aggregate(function=Function.INCREASE, field="requests")
_RAN = Aggregate(function=Function.MAX, field="requests_running")
_WAITED = Aggregate(function=Function.MAX, field="requests_waiting")
_SEEN = Aggregate(function=Function.COUNT, field="requests_running")
_COUNTS = Aggregate(function=Function.COUNT, field="requests")
ASKED_OF_SERVERS = (_ANSWERED, _RAN, _WAITED, _SEEN, _COUNTS)
# Its server was asked for this much of the ticks in which its GPU was.
_COVERAGE = 0.8
_REQUESTS = "inference_requests"
Row = Mapping[str, Any]


def values(asked: Mapping[str, Aggregate], row: Row) -> dict[str, Any]:
    """What a row says, under the names of those who ask."""
    return {name: row[one.column] for name, one in asked.items()}


def measured(row: Row, expected: float) -> Measured:
    """A row of `ASKED`, `with_requests` or without; `expected` is how many samples there should be."""
    reasons = row[_REASONS.column]
    return Measured(
        coverage=row[SAMPLES] / expected if expected else 0.0,
        clock_event_reasons=None if reasons is None else int(reasons),
        requests=row.get(_REQUESTS),
        **values(_OF_GPUS, row),
    )


def with_requests(rows: Mapping[str, Row], servers: Iterable[Row]) -> dict[str, Row]:
    """Rows of GPUs with how many requests their inference servers had, as far as that is known.

    `servers` are those of `ASKED_OF_SERVERS`. Of one that was asked more rarely than its GPU was
    measured it is not known that it had none.
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
    """Of all servers on one GPU; one request is enough to know that there were some."""
    names = (_ANSWERED.column, _RAN.column, _WAITED.column)
    some = sum(max((row[name] or 0.0 for name in names), default=0.0) for row in rows)
    if some > 0:
        return some
    asked = min(max(row[_SEEN.column] or 0, row[_COUNTS.column] or 0) for row in rows)
    return 0.0 if samples and asked >= _COVERAGE * samples else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Excuses:
    """Keys of the GPUs and nodes whose faults keep programs from computing, of nodes cut off from others, or without their storage."""

    broken: frozenset[str] = frozenset()
    cut_off: frozenset[str] = frozenset()
    stuck: frozenset[str] = frozenset()

    def cover(self, gpu: Subject, *, spread: bool = False) -> bool:
        """Whether they excuse a GPU; `spread`: its holder has GPUs on several nodes."""
        node = gpu.of_node().key
        return gpu.key in self.broken or node in self.broken or (spread and node in self.cut_off)

    def hold_up(self, holder: Sequence[Subject]) -> bool:
        """Whether they keep a holder of these GPUs from computing, or let it wait."""
        spread = is_spread(holder)
        return any(
            self.cover(gpu, spread=spread) or gpu.of_node().key in self.stuck for gpu in holder
        )


NONE = Excuses()


def is_spread(gpus: Iterable[Subject]) -> bool:
    """Whether they are on several nodes."""
    return len({gpu.of_node() for gpu in gpus}) > 1


def excuses(incidents: Iterable[Incident], since: datetime | None = None) -> Excuses:
    """Of incidents that stand, or ended since then: who stopped over a fault need not go on when it ends."""
    broken: set[str] = set()
    cut_off: set[str] = set()
    stuck: set[str] = set()
    for one in incidents:
        if one.resolved_at is not None and (since is None or one.resolved_at <= since):
            continue
        if one.resolved_at is not None and one.condition in WAS_UP:
            continue  # only the numbers were away
        stops = FAULTS[one.fault].stops if one.fault in FAULTS else Stops.NOBODY
        if stops is Stops.SPREAD:
            cut_off |= _nodes_of(one)
        elif stops is Stops.STORAGE and one.severity is not Severity.INFO:
            stuck |= _nodes_of(one)
        elif stops is Stops.HOLDER or one.severity is Severity.CRITICAL:
            broken.update(struck(one))
    return Excuses(broken=frozenset(broken), cut_off=frozenset(cut_off), stuck=frozenset(stuck))


def _nodes_of(one: Incident) -> set[str]:
    return {Subject.parse(key).of_node().key for key in struck(one)}


def held_up(one: Incident, alone: Collection[str] = ()) -> tuple[str, ...]:
    """Holders that an incident kept from computing while it stood.

    `alone`: those that are known to be on one node. Of all others it is not known which nodes they have, so
    that a node that is cut off excuses them.
    """
    found = excuses((one,), since=one.since)
    if found.broken or found.stuck:
        return one.impact.holders
    return tuple(it for it in one.impact.holders if it not in alone) if found.cut_off else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """A span as it was measured, and what stood at its end: `rows` of `ASKED` by a GPU's key.

    `expected`: how many samples of a GPU there should be, by its node's key; each node has a rhythm of its own.
    """

    start: datetime
    end: datetime
    rows: Mapping[str, Row]
    expected: Mapping[str, float]
    excuses: Excuses = NONE
    below_percent: float = 1.0

    def seen(self, gpu: Subject) -> Row | None:
        """The row of a GPU that was there for most of the span; None when there is none."""
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
    """Why a held GPU is idle; None when it computed something, or was not its holder's for the whole span.

    `peers`: the others of its holder. Whoever had it before may have left it idle.
    """
    if held_since is not None and held_since > span.start:
        return None
    spread = is_spread((gpu, *peers))
    around = Around(
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
