"""A recording of a Prometheus judged by the product's own rules: incidents, usage and report."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accounting.usage import BUCKET, Bucket, Usage
from accounting.usage.count import SENT_WITHIN, Facts, Roster, count
from accounting.usage.grid import FIELDS, MINUTE
from accounting.usage.model import floor
from accounting.usage.ownership import AllocationTable, Gpu
from gpuvigil.clock import EPOCH, micros
from gpuvigil.config import AnalyzerSettings
from gpuvigil.lifecycle import ACTIVE, State
from gpuvigil.model import Incident, Record

from ..recordings.recording import HOUR, Recording
from ..replay import Replay

# The shortest interval between passes over the fleet: nothing new comes in between.
_PASS_SECONDS = 300.0
_LEAST_VALUES = 3  # in every span that a rule reads
_TAGS = ("cluster", "node", "uuid", "model")


def settings_for(step: float, base: AnalyzerSettings | None = None) -> AnalyzerSettings:
    """Return settings whose spans are each long enough for a few values that are `step` seconds apart."""
    given = base or AnalyzerSettings()
    tick = max(_PASS_SECONDS, step)

    def long(seconds: float, values: int = _LEAST_VALUES) -> float:
        return math.ceil(max(seconds, values * step) / tick) * tick

    return replace(
        given,
        tick_seconds=tick,
        window_seconds=long(given.window_seconds, 1),
        steady_seconds=long(given.steady_seconds),
        trend_seconds=long(given.trend_seconds),
        idle_after_seconds=long(given.idle_after_seconds),
        underused_after_seconds=long(given.underused_after_seconds),
        port_flap_window_seconds=long(given.port_flap_window_seconds),
    )


def incidents_of(
    recording: Recording,
    settings: AnalyzerSettings,
    tell: Callable[[float], None] = lambda share: None,
) -> tuple[Incident, ...]:
    """Return every incident that ever stood, in its last state."""
    tick = timedelta(seconds=settings.tick_seconds)
    # A pass is at whole ticks; an hour of a recording is a whole number of ticks for any step up to an hour.
    start = EPOCH + (recording.start - EPOCH) // HOUR * HOUR
    whole = replace(recording, start=start, end=EPOCH + -(-(recording.end - EPOCH) // tick) * tick)
    replay = Replay(settings, ahead=HOUR)
    for gap in whole.gaps:
        replay.hub_away(*gap)
    for block in whole.blocks():
        replay.feed(block)
        tell((block.end - whole.start) / (whole.end - whole.start))
    stood, newest = set(), {}
    for one in sorted(replay.transitions, key=lambda it: (it.at, it.incident, it.number)):
        newest[one.incident] = Incident.from_record(Record.from_json(one.snapshot))
        if State(one.to_state) in ACTIVE:
            stood.add(one.incident)
    return tuple(incident for name, incident in newest.items() if name in stood)


def usage_of(recording: Recording, cluster: str, step: float) -> Usage:
    """Return the usage of one cluster, counted bucket after bucket."""
    table = recording.tables["gpu"]
    rows = _minutes(table.filter(pc.equal(table["cluster"], cluster)), step)
    start, end = _span(rows)
    buckets = tuple(_Count(recording, cluster, rows, start, end).buckets())
    return Usage(cluster=cluster, start=floor(start), end=end, buckets=buckets)


def _minutes(table: pa.Table, step: float) -> pa.Table:
    """Return the rows with each value repeated for the minutes since the one before, sorted by quarters."""
    times = max(round(step / 60.0), 1)
    numbers = np.repeat(np.arange(len(table)), times)
    back = np.tile(np.arange(times, 0, -1), len(table)) * 60_000_000
    at = table["at"].cast(pa.int64()).to_numpy()[numbers] - back
    columns = {name: table[name].take(pa.array(numbers)) for name in _TAGS}
    columns["at"] = pa.array(at // 60_000_000 * 60_000_000, pa.timestamp("us", "UTC"))
    for name in FIELDS:
        found = table[name] if name in table.column_names else pa.nulls(len(table), pa.float64())
        columns[name] = found.cast(pa.float64()).take(pa.array(numbers))
    quarter = at // (BUCKET // timedelta(microseconds=1))
    whole = pa.table({**columns, "quarter": pa.array(quarter)})
    keys = [("quarter", "ascending"), *((tag, "ascending") for tag in _TAGS), ("at", "ascending")]
    return whole.sort_by(keys)


def _span(rows: pa.Table) -> tuple[datetime, datetime]:
    return pc.min(rows["at"]).as_py(), pc.max(rows["at"]).as_py() + MINUTE


@dataclass(slots=True)
class _Count:
    recording: Recording
    cluster: str
    rows: pa.Table
    start: datetime
    end: datetime

    def buckets(self) -> Iterator[Bucket]:
        """Yield the quarters, one after the other, each counted with what is known from those before."""
        quarters = self.rows["quarter"].to_numpy()
        own = [it for it in self.recording.inventories if it.subject.cluster == self.cluster]
        roster = Roster.of(own)
        held = [it for it in self.recording.allocations if it.subject.cluster == self.cluster]
        book = AllocationTable.of(held)
        heard: dict[str, datetime] = {}
        lately: list[tuple[datetime, frozenset[Gpu]]] = []
        at = floor(self.start)
        while at < self.end:
            number = micros(at) // (BUCKET // timedelta(microseconds=1))
            first, last = np.searchsorted(quarters, [number, number + 1]).tolist()
            rows = self.rows.slice(first, last - first)
            lately = [it for it in lately if it[0] >= at - SENT_WITHIN]
            bucket = count(
                Facts(
                    cluster=self.cluster,
                    start=at,
                    now=self.end,
                    rows=rows,
                    sent=frozenset[Gpu]().union(*(gpus for _, gpus in lately)),
                    nodes_sent=frozenset(heard),
                    last_seen=heard,
                    out=None,
                    inventories=roster,
                    allocations=book,
                    watched_since=self.start,
                )
            )
            if bucket is not None:
                yield bucket
            sent = frozenset(_gpus(rows))
            lately.append((at, sent))
            heard |= dict.fromkeys((node for node, _ in sent), at)
            at += BUCKET


def _gpus(rows: pa.Table) -> Sequence[Gpu]:
    pairs = rows.select(["node", "uuid"]).group_by(["node", "uuid"]).aggregate([])
    return list(zip(pairs["node"].to_pylist(), pairs["uuid"].to_pylist(), strict=True))
