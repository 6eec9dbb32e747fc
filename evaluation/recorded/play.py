"""A recording in blocks, through the analyzer and to the judge."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpuvigil.clock import EPOCH
from gpuvigil.metrics import NODE
from gpuvigil.model import Allocation, Event, GpuIdentity, Inventory, Subject
from gpuvigil.store.schema import latest_schema
from simulator.fleet.kinds import KINDS

from ..baselines import SETS, SETTINGS
from ..judge.claims import Claim, claims
from ..judge.matching import Outcome, judge
from ..replay import Replay
from .overlay import OVERLAYS, Injection, lay, of_subject

_HOUR = timedelta(hours=1)
_DELAY = timedelta(milliseconds=200)
_GRID = timedelta(minutes=1)
# A recording needs some time before a fault, and some with it.
SHORTEST = timedelta(minutes=20)
_LONGEST_FAULT = timedelta(hours=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of a recording; see `evaluation.replay.Telemetry`."""

    start: datetime
    end: datetime
    tables: Mapping[str, pa.Table]
    arrivals: Mapping[str, pa.Array]
    events: tuple[Event, ...] = ()
    event_arrivals: tuple[datetime, ...] = ()
    inventories: tuple[Inventory, ...] = ()
    allocations: tuple[Allocation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What was recorded, and the little that follows from it."""

    table: pa.Table
    start: datetime
    end: datetime
    tick_seconds: float
    models: Mapping[Subject, str]

    @property
    def gpus(self) -> tuple[Subject, ...]:
        """In order of their names."""
        return tuple(sorted(self.models))

    @classmethod
    def of(cls, table: pa.Table) -> "Recording":
        """ValueError when it is too short."""
        first, last = pc.min(table["at"]).as_py(), pc.max(table["at"]).as_py()
        if last - first < SHORTEST:
            minutes = (last - first).total_seconds() / 60.0
            raise ValueError(
                f"the recording is {minutes:.0f} min long; {SHORTEST.seconds // 60} are needed"
            )
        named = table.group_by(["cluster", "node", "uuid"], use_threads=False)
        models = {
            Subject(cluster=row["cluster"], node=row["node"], gpu=row["uuid"]): row["model_last"]
            for row in named.aggregate([("model", "last")]).to_pylist()
        }
        one = table["at"].cast(pa.int64()).to_numpy()[of_subject(table, min(models))]
        gaps = np.diff(np.unique(one)) / 1e6
        return cls(
            table=table,
            start=_floor(first),
            end=_floor(last) + _GRID,
            tick_seconds=float(np.median(gaps)) if len(gaps) else 10.0,
            models=models,
        )

    def injections(self, seed: int, kinds: Sequence[str] = tuple(OVERLAYS)) -> list[Injection]:
        """Each kind once, somewhere: at least a quarter of the recording before it."""
        chance = Random(seed)
        span = self.end - self.start
        found = []
        for kind in kinds:
            start = self.start + span * chance.uniform(0.25, 0.5)
            known = KINDS[kind]
            size = None
            if known.sizes:
                low, high = known.sizes[0], known.sizes[-1]
                size = low * (high / low) ** chance.random()
            found.append(
                Injection(
                    kind=kind,
                    gpu=chance.choice(self.gpus),
                    start=start,
                    end=start + min(span * 0.4, _LONGEST_FAULT),
                    magnitude=size,
                )
            )
        return found

    def blocks(self, table: pa.Table, events: Sequence[Event] = ()) -> Iterator[Block]:
        """The rows in blocks of an hour; a node is heard by the rows of its GPUs."""
        start = self.start
        while start < self.end:
            end = min(start + _HOUR, self.end)
            here = table.filter(
                pc.and_(pc.greater_equal(table["at"], start), pc.less(table["at"], end))
            )
            tables = {"gpu": here, "node": _nodes(here)}
            told = tuple(event for event in events if start <= event.at < end)
            yield Block(
                start=start,
                end=end,
                tables=tables,
                arrivals={
                    name: pc.add(it["at"].combine_chunks(), pa.scalar(_DELAY))
                    for name, it in tables.items()
                },
                events=told,
                event_arrivals=tuple(event.at + _DELAY for event in told),
                inventories=tuple(self._inventories()) if start == self.start else (),
            )
            start = end

    def _inventories(self) -> Iterator[Inventory]:
        gpus = self.gpus
        for node in sorted({gpu.of_node() for gpu in gpus}):
            own = [gpu for gpu in gpus if gpu.of_node() == node]
            yield Inventory(
                subject=node,
                at=self.start,
                boot="recorded",
                tick_seconds=self.tick_seconds,
                version="recorded",
                gpus=tuple(
                    GpuIdentity(
                        uuid=gpu.gpu or "", index=i, pci_address=None, model=self.models[gpu]
                    )
                    for i, gpu in enumerate(own)
                ),
            )


def said(recording: Recording, name: str, injection: Injection | None = None) -> list[Claim]:
    """What a set of detectors says of a recording, with or without a fault in it."""
    table, events = (recording.table, ()) if injection is None else lay(recording.table, injection)
    replay = Replay(SETTINGS.get(name), SETS[name], _HOUR)
    for block in recording.blocks(table, events):
        replay.feed(block)
    return claims(replay.transitions)


def held_against(injection: Injection, before: Sequence[Claim], after: Sequence[Claim]) -> Outcome:
    """What became of an injected fault; what was said of the recording anyhow has not found it."""
    known = {(claim.fault, claim.subject, claim.opened_at) for claim in before}
    new = [claim for claim in after if (claim.fault, claim.subject, claim.opened_at) not in known]
    (outcome,), _ = judge([injection.truth()], new)
    return outcome


def _nodes(table: pa.Table) -> pa.Table:
    counted = table.group_by(["cluster", "node", "at"], use_threads=False).aggregate(
        [("uuid", "count")]
    )
    columns = [counted[name] for name in ("cluster", "node", "at")]
    ones = pa.array([1] * len(counted), pa.int64())
    schema = latest_schema(NODE, ("driver_answering", "gpus_answering"))
    return pa.Table.from_arrays([*columns, ones, counted["uuid_count"]], schema=schema)


def _floor(at: datetime) -> datetime:
    return EPOCH + (at - EPOCH) // _GRID * _GRID
