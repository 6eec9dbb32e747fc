"""The count of one quarter of an hour of one cluster: pure, from rows and records to a `Bucket`.

**Who is installed.** A GPU that sent a row in the quarter or in the hour before it, and every GPU
of the inventory of a node that was heard no longer than a day before the quarter's end (a simulated
one: ten minutes). An inventory that is younger than the quarter counts for it only when its node
sent something in the day before. A GPU that nobody knew before counts from its first minute on. The
quarter that is still running ends now; of the minute that is still running, or has just ended, only
GPUs count that have sent already.

**A minute of which nothing at all was heard from the whole cluster** is unknown when somebody was
there to hear it (`Facts.watched_since`); before that it is absent: nobody counted.

**States.** One GPU and minute at a time, by the means of its rows; the seconds of all states add up
to the installed ones exactly. The order is that of `gpuvigil.states.gpu_state`:
unknown      there is no row; it did not answer; its utilisation was not measured
unavailable  it was lost (`up` is 0), or released for maintenance
active       its utilisation was over 0
at 0 %       for the seconds in which it was held it is idle; for the others free, or unknown when
             its processes were not measured
Other than there, incidents are not asked: what they say about a minute may be learnt later, and a
count must come out the same an hour on. So a GPU with a critical Xid counts by what it computed.

**Held.** Allocations say to the second from when to when. In a minute with none, a compute process
holds the GPU for the whole minute; its holder is not known. `allocated` are the held seconds whose
state is known, `measured` those of them with a utilisation, `used` that share of them.
**Holders** that hold a GPU at the same time have equal parts of it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..clock import EPOCH
from ..model import SIMULATED_CLUSTER, Allocation, Inventory, Unmeasured
from .holding import NOBODY_KNOWN, Floats, Gpu, Ints, Owner, Pieces, pieces
from .model import BUCKET, Bucket, Seconds, Share
from .sharing import Held, shares

MINUTE = timedelta(minutes=1)
MINUTES = BUCKET // MINUTE
FIELDS = ("up", "utilization_percent", "compute_processes", "power_watts", "unmeasured_reason")

# What a GPU sent so long ago speaks for it without an inventory.
SENT_WITHIN = timedelta(hours=1)
# A node that left is installed for a day; a simulated one was played by a process that has ended.
LEFT_AFTER = timedelta(hours=24)
SIMULATED_LEFT_AFTER = timedelta(minutes=10)
# A row arrives a tick, a commit and a hop after it was read.
ARRIVAL = timedelta(seconds=15)

# What a GPU that is not up says of itself, when it is known to be of no use.
_UNAVAILABLE = (Unmeasured.LOST, Unmeasured.RELEASED_FOR_MAINTENANCE)

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of one cluster around the bucket that begins at `start`.

    `rows`: `Store.series` of measurement `gpu` with `FIELDS` and steps of a minute; rows of other
    times are left out. `heard`: by node's name, when it was last heard, whatever it sent.
    """

    cluster: str
    start: datetime
    now: datetime
    rows: pa.Table
    sent: Collection[Gpu] = ()  # GPUs with a row in the hour before
    nodes_sent: Collection[str] = ()  # nodes with a row in the day before
    heard: Mapping[str, datetime] = field(default_factory=dict)
    inventories: Sequence[Inventory] = ()
    allocations: Sequence[Allocation] = ()
    watched_since: datetime | None = None


def count(facts: Facts) -> Bucket | None:
    """The bucket, ordered by holder; None when nothing was installed in it that anybody counted."""
    end = min(facts.start + BUCKET, facts.now)
    rows = _of_span(facts.rows, facts.start, end)
    keys, of_row = _keys(rows)
    sending = len(keys)
    fleet = _Fleet(facts, end, keys)
    grid = _Grid(rows, of_row, facts.start, len(fleet.keys))
    width = _widths(facts, fleet, grid, sending)
    present = width.sum(axis=1) > 0
    if not present.any():
        return None
    numbers = {key: number for number, key in enumerate(fleet.keys)}
    held = pieces(facts.allocations, numbers, facts.start, end)
    seconds, who = _amounts(width, grid, held)
    here = [key for key, there in zip(fleet.keys, present, strict=True) if there]
    return Bucket(
        cluster=facts.cluster,
        start=facts.start,
        gpus=len(here),
        nodes=len({node for node, _ in here}),
        seconds=seconds,
        shares=who,
        models=fleet.models(_models_told(rows, of_row, sending), present),
        counted_at=facts.now,
        watched_since=facts.watched_since,
    )


def left_after(cluster: str) -> timedelta:
    """How long a node that says nothing is still installed."""
    return SIMULATED_LEFT_AFTER if cluster == SIMULATED_CLUSTER else LEFT_AFTER


def _of_span(rows: pa.Table, start: datetime, end: datetime) -> pa.Table:
    at = rows["at"]
    inside = pc.and_(
        pc.greater_equal(at, pa.scalar(start, at.type)), pc.less(at, pa.scalar(end, at.type))
    )
    return rows.filter(inside)


def _keys(rows: pa.Table) -> tuple[list[Gpu], Ints]:
    """The GPUs of rows, in order, and of each row the number of its GPU."""
    nodes = rows["node"].combine_chunks().dictionary_encode()
    uuids = rows["uuid"].combine_chunks().dictionary_encode()
    names, ids = nodes.dictionary.to_pylist(), uuids.dictionary.to_pylist()
    codes = nodes.indices.to_numpy(zero_copy_only=False).astype(np.int64) * max(len(ids), 1)
    codes += uuids.indices.to_numpy(zero_copy_only=False)
    unique, of_row = np.unique(codes, return_inverse=True)
    keys = [(names[code // len(ids)], ids[code % len(ids)]) for code in unique.tolist()]
    return keys, of_row.astype(np.int64)


class _Fleet:
    """The GPUs that are installed: first those with rows in the bucket, as they are numbered."""

    def __init__(self, facts: Facts, end: datetime, sending: Iterable[Gpu]) -> None:
        self.keys = list(sending)
        self.known_before = set(facts.sent)
        self.known_from: dict[Gpu, datetime] = {}
        self._models: dict[Gpu, str] = {}
        silent = set(facts.sent)
        heard_since = end - left_after(facts.cluster)
        for inventory in facts.inventories:
            node = inventory.subject.node
            gpus = [(node, gpu.uuid) for gpu in inventory.gpus]
            self._models |= {(node, gpu.uuid): gpu.model for gpu in inventory.gpus}
            sent_before = node in facts.nodes_sent
            if sent_before or inventory.at < facts.start:
                self.known_before.update(gpus)
            heard_at = facts.heard.get(node)
            was_there = sent_before or (heard_at is not None and heard_at >= heard_since)
            if was_there and (sent_before or inventory.at < end):
                silent.update(gpus)
                self.known_from |= dict.fromkeys(gpus, inventory.at)
        self.keys += sorted(silent.difference(self.keys))

    def models(self, told: Sequence[str], present: Bools) -> dict[str, int]:
        """How many there are of each model; one that nobody names is left out."""
        found: dict[str, int] = {}
        for number in np.nonzero(present)[0].tolist():
            row_says = told[number] if number < len(told) else ""
            model = self._models.get(self.keys[number]) or row_says
            if model:
                found[model] = found.get(model, 0) + 1
        return dict(sorted(found.items()))


def _models_told(rows: pa.Table, of_row: Ints, gpus: int) -> list[str]:
    """The model that the rows of each GPU name; of several the last by name."""
    coded = rows["model"].combine_chunks().dictionary_encode()
    names = np.array([*coded.dictionary.to_pylist(), ""], dtype=object)
    rank = np.argsort(np.argsort(names))
    best = np.full(gpus, rank[-1])
    np.maximum.at(best, of_row, rank[coded.indices.to_numpy(zero_copy_only=False)])
    return [str(name) for name in np.sort(names)[best]]


class _Grid:
    """Means per GPU (down) and minute (across), NaN where nothing was measured."""

    def __init__(self, rows: pa.Table, of_row: Ints, start: datetime, gpus: int) -> None:
        at = rows["at"].cast(pa.int64()).to_numpy()
        began = (start - EPOCH) // timedelta(microseconds=1)
        self._cells = of_row * MINUTES + (at - began) // (MINUTE // timedelta(microseconds=1))
        self._shape = (gpus, MINUTES)
        self.row = np.bincount(self._cells, minlength=gpus * MINUTES).reshape(self._shape) > 0
        self.power = self._mean(rows, "power_watts")
        up, reason = self._mean(rows, "up"), self._mean(rows, "unmeasured_reason")
        utilization = self._mean(rows, "utilization_percent")
        self.processes = self._mean(rows, "compute_processes")
        self.lost = (up < 0.5) | (np.isnan(up) & np.isin(reason, _UNAVAILABLE))
        self.measured: Bools = (up >= 0.5) & ~np.isnan(utilization)
        self.used = np.where(self.measured, np.clip(utilization, 0.0, 100.0) / 100.0, 0.0)

    def _mean(self, rows: pa.Table, name: str) -> Floats:
        values = rows[name].cast(pa.float64()).to_numpy()
        good = np.isfinite(values)
        size = self._shape[0] * self._shape[1]
        sums = np.bincount(self._cells[good], weights=values[good], minlength=size)
        counts = np.bincount(self._cells[good], minlength=size)
        means = np.full(size, np.nan)
        np.divide(sums, counts, out=means, where=counts > 0)
        return means.reshape(self._shape)


def _widths(facts: Facts, fleet: _Fleet, grid: _Grid, sending: int) -> Floats:
    """Seconds of each GPU and minute in which it was installed and somebody counted."""
    began = [facts.start + number * MINUTE for number in range(MINUTES)]
    seconds = [min(max((facts.now - at).total_seconds(), 0.0), 60.0) for at in began]
    width = np.tile(np.array(seconds), (len(fleet.keys), 1))
    running = np.array([at + MINUTE > facts.now - ARRIVAL for at in began])
    width[:, running] *= grid.row[:, running]
    watched = facts.watched_since
    unheard = np.array([watched is None or at < watched for at in began]) & ~grid.row.any(axis=0)
    width[:, unheard] = 0.0
    for number, key in enumerate(fleet.keys):
        if key not in fleet.known_before:
            first = int(grid.row[number].argmax()) if number < sending else MINUTES
            if number >= sending and key in fleet.known_from:
                first = -((facts.start - fleet.known_from[key]) // MINUTE)
            width[number, : max(first, 0)] = 0.0
    return width


def _amounts(width: Floats, grid: _Grid, held: Pieces) -> tuple[Seconds, tuple[Share, ...]]:
    parts = _overlaps(held, width)
    known_holder = np.zeros(width.shape)
    np.add.at(known_holder, held.gpu, parts)
    known_holder = np.minimum(known_holder, width)
    somebody = grid.measured & (known_holder == 0) & (grid.processes > 0)
    holding = np.where(somebody, width, known_holder)
    still = grid.measured & (grid.used == 0)
    rest = np.where(still, width - holding, 0.0)
    blind = ~somebody & np.isnan(grid.processes)
    known = grid.measured | grid.lost
    allocated = np.where(known, holding, 0.0)
    powered = grid.power >= 0
    unknown = np.where(known, 0.0, width) + np.where(blind, rest, 0.0)
    total = Seconds(
        installed=float(width.sum()),
        active=float(width[grid.measured & ~still].sum()),
        idle=float(holding[still].sum()),
        free=float(rest[~blind].sum()),
        unavailable=float(width[grid.lost].sum()),
        unknown=float(unknown.sum()),
        allocated=float(allocated.sum()),
        measured=float(holding[grid.measured].sum()),
        used=float((holding * grid.used)[grid.measured].sum()),
        powered=float(width[powered].sum()),
        energy_joules=float((width[powered] * grid.power[powered]).sum()),
    )
    unnamed = np.nonzero(somebody.any(axis=1))[0]
    everybody = Held(
        gpu=np.concatenate([held.gpu, unnamed]),
        owner=np.concatenate([held.owner, np.full(len(unnamed), len(held.owners))]),
        owners=(*held.owners, Owner(user="", holder=NOBODY_KNOWN)),
        parts=np.concatenate([parts, np.where(somebody, width, 0.0)[unnamed]]),
    )
    return total, shares(everybody, known, grid.measured, grid.used)


def _overlaps(held: Pieces, width: Floats) -> Floats:
    """Seconds of each piece in each minute, its share taken; none where its GPU does not count."""
    edges = 60.0 * np.arange(MINUTES + 1)
    late = np.maximum(held.start[:, None], edges[None, :-1])
    early = np.minimum(held.end[:, None], edges[None, 1:])
    seconds = np.clip(early - late, 0.0, 60.0) * held.share[:, None]
    return np.where(width[held.gpu] > 0, seconds, 0.0)
