"""The count of one quarter of an hour of one cluster: pure, from rows and records to a `Bucket`.

**Which GPUs are installed.** A GPU that sent a row in the quarter or in the hour before it, and every GPU
in the inventory of an expected node (`gpuvigil.model.expected_nodes`), however long it is silent. A node
leaves with the first quarter that begins after somebody retired it. An inventory younger than the quarter
counts for it only if its node sent something in the day before, or was counted for it before. A GPU that
was unknown before counts from its first minute on. A quarter that is still running ends now; in the minute
that is running or has just ended, only GPUs that have already sent count.

**A minute in which nothing at all was heard from the whole cluster** is unknown if somebody was there to
hear it (`Facts.watched_since`); before that it is absent: nobody counted.

**States.** One GPU and minute at a time, by the means of its rows; the seconds of all states add up
to the installed ones exactly. The order is that of `gpuvigil.faults.gpu_states.gpu_state`:

unknown      there is no row; it did not answer; its utilisation was not measured
unavailable  it was lost (`up` is 0), or released for maintenance; or its node was out of service,
             and nothing is known about the GPU, or nobody held it and it was at 0 %
active       its utilisation was over 0
at 0 %       for the seconds in which it was held it is idle; for the others free, or unknown when
             its processes were not measured

Apart from what is out of service, incidents are not used: what they say about a minute may be learnt
later, and a count must come out the same an hour on. So a GPU with a critical Xid counts by what it
computed.

**Lost.** Where it is known what was out of service (`Facts.out`), each unavailable second is lost to what
its node was out of service for, or else to a fault, to repair or to maintenance, as its GPU was. A node
that sent nothing for the whole quarter is absent: its time is lost to an unknown cause, and its state
stays unknown. A drained node still computes until its jobs have ended.

**Held.** Allocations give their start and end to the second. In a minute without one, a compute process
holds the GPU for the whole minute, with an unknown holder. `allocated` are the held seconds with a known
state, `measured` those of them with a utilisation, `used` that share of them.

**Holders** that hold a GPU at the same time (time slicing, MPS, several processes) get equal parts of it,
which are marked `shared`: nobody can say who used how much.

**MIG.** In a minute in which a GPU's MIG devices sent rows, each device counts by itself, by its part of
the GPU's compute slices (`slices.weight`); the rest of the GPU is free. Together they are the whole GPU,
however it is reconfigured. A device is active when it computed, idle when it is held or has a process
and computed nothing. The holder of the GPU holds those of its devices that have a process, unless an
allocation names the device itself.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpuvigil.model import Allocation, Inventory
from gpuvigil.model.expected_nodes import expected
from gpuvigil.schedulers.out_of_service import LostTo

from .amounts import Place, Seconds
from .columns import PLACES, SECONDS, Rows, places_of, table_of
from .grid import FIELDS, MINUTE, MINUTES, STILL_FIELDS, Grid, numbered, runs
from .identities import Gpus, ReportingGpus
from .memory import Memory
from .model import BUCKET, Bucket
from .out_of_service import Out, Part
from .ownership import NOBODY_KNOWN, AllocationTable, Bools, Floats, Gpu, Ints, Owner, Pieces
from .sharing import Held, Units, shares
from .slices import on_slices, slices_of, with_slices
from .spells import Stretch, idle_spell_seconds, minutes_before

# A row this recent is enough for a GPU without an inventory.
SENT_WITHIN = timedelta(hours=1)
# A row arrives a tick, a commit and a hop after the reading.
ARRIVAL = timedelta(seconds=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """The inventories, read once for any number of quarters: each node with its time and GPUs."""

    nodes: tuple[tuple[str, datetime, tuple[Gpu, ...]], ...]
    memory: Memory  # knows the models

    @classmethod
    def of(cls, inventories: Iterable[Inventory]) -> "Roster":
        """Read the inventories."""
        nodes: list[tuple[str, datetime, tuple[Gpu, ...]]] = []
        models: dict[Gpu, str] = {}
        for one in inventories:
            named = {(one.subject.node, gpu.uuid): gpu.model for gpu in one.gpus}
            models |= named
            nodes.append((one.subject.node, one.at, tuple(named)))
        return cls(nodes=tuple(nodes), memory=Memory(models, [gpus for *_, gpus in nodes]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of one cluster around the bucket that begins at `start`.

    `rows` are `Store.series` of measurement `gpu` with `FIELDS` and steps of a minute; rows of other times are
    ignored. `heard` has, by node name, when the node was last heard, whatever it sent; `retired` has when
    somebody said that it is no longer expected. `out` is what was out of service; None where nobody can say.
    """

    cluster: str
    start: datetime
    now: datetime
    rows: pa.Table
    sent: Collection[Gpu] = ()  # GPUs with a row in the hour before
    nodes_sent: Collection[str] = ()  # nodes with a row in the day before, or counted before
    last_seen: Mapping[str, datetime] = field(default_factory=dict)
    retired: Mapping[str, datetime] = field(default_factory=dict)
    listening_since: datetime | None = None  # start of the hub
    out: Out | None = field(default_factory=dict)
    inventories: Sequence[Inventory] | Roster = ()
    allocations: Sequence[Allocation] | AllocationTable = ()
    slices: pa.Table | None = None  # like `rows`, of measurement `mig`, with `SLICE_FIELDS`
    watched_since: datetime | None = None
    # For idle spells: their least length, and `rows` and `slices` of the minutes before the quarter.
    idle_after: timedelta | None = None
    before: pa.Table | None = None
    slices_before: pa.Table | None = None


def count(facts: Facts) -> Bucket | None:
    """Count the bucket, ordered by holder; None when nothing was installed in it while somebody counted."""
    end = min(facts.start + BUCKET, facts.now)
    rows = _of_span(facts.rows, facts.start, end)
    heads, length = runs(rows, ("node", "uuid", "model"))
    roster = facts.inventories
    roster = roster if isinstance(roster, Roster) else Roster.of(roster)
    sending = roster.memory.sending(heads)
    fleet = _Fleet(facts, end, roster, sending)
    of_row = np.repeat(sending.of_head, length)
    grid = Grid.of(rows, of_row, facts.start, len(fleet.gpus.keys), FIELDS)
    width = _widths(facts, fleet, grid, len(sending.keys))
    present = width.sum(axis=1) > 0
    if not present.any():
        return None
    service = _Service.of(facts, end, fleet.gpus, grid)
    units = _Units.of(facts, end, fleet.gpus, roster.memory, grid, width)
    seconds = _seconds(units, service)
    of_model = np.bincount(fleet.gpus.of_model[present])
    places = _places(seconds, units, fleet.gpus, present)
    return Bucket(
        cluster=facts.cluster,
        start=facts.start,
        gpus=int(present.sum()),
        nodes=len(table_of(places, PLACES)["node"].unique()),
        seconds=_summed(seconds),
        shares=shares(units.everybody, units.known, _spells(facts, fleet.gpus, roster, units)),
        places=places,
        models={
            model: number
            for model, number in zip(fleet.gpus.model_names, of_model.tolist(), strict=False)
            if model and number
        },
        counted_at=facts.now,
        watched_since=facts.watched_since,
        out=facts.out,
        idle_after=facts.idle_after,
    )


def _of_span(rows: pa.Table, start: datetime, end: datetime) -> pa.Table:
    at = rows["at"]
    inside = pc.and_(
        pc.greater_equal(at, pa.scalar(start, at.type)), pc.less(at, pa.scalar(end, at.type))
    )
    return rows if pc.all(inside).as_py() else rows.filter(inside)


class _Fleet:
    """The installed GPUs: those with rows in the bucket come first, in their numbering."""

    def __init__(self, facts: Facts, end: datetime, roster: Roster, sending: ReportingGpus) -> None:
        self.known_from: dict[str, datetime] = {}  # by node: since its inventory
        before: list[tuple[Gpu, ...]] = []
        there: list[tuple[Gpu, ...]] = []
        there_at = _expected(facts, end, roster)
        whole = roster.memory.whole(sending)
        for number, (node, at, gpus) in enumerate(roster.nodes):
            sent_before = node in facts.nodes_sent
            if sent_before or at < facts.start:
                before.append(gpus)
            if node in there_at:
                self.known_from[node] = at
                if number not in whole:
                    there.append(gpus)
        every = sending.every
        new = every.difference(facts.sent)
        left = facts.retired.keys() - there_at
        # Nearly all GPUs that sent in the hour before have a row again.
        silent = {gpu for gpu in set(facts.sent).difference(every) if gpu[0] not in left}
        silent.update(*(set(gpus).difference(every) for gpus in there))
        self.gpus = roster.memory.gpus(sending, sorted(silent))
        unknown = {*new, *silent.difference(facts.sent)}
        if unknown:
            unknown.difference_update(*before)
        self.new = sorted(self.gpus.number[key] for key in unknown)


def _expected(facts: Facts, end: datetime, roster: Roster) -> frozenset[str]:
    """Return the nodes that were not retired by the beginning of the quarter."""
    cluster = facts.cluster
    told = {(cluster, node): at for node, at, _ in roster.nodes}
    told |= {(cluster, node): at for node, at in facts.last_seen.items()}
    gone = {(cluster, node): at for node, at in facts.retired.items() if at <= facts.start}
    return frozenset(node for _, node in expected(told, gone, (), end, facts.listening_since))


def _widths(facts: Facts, fleet: _Fleet, grid: Grid, sending: int) -> Floats:
    """Return the seconds of each GPU and minute in which it was installed and somebody counted."""
    began = [facts.start + number * MINUTE for number in range(MINUTES)]
    seconds = [min(max((facts.now - at).total_seconds(), 0.0), 60.0) for at in began]
    width = np.tile(np.array(seconds), (len(fleet.gpus.keys), 1))
    running = np.array([at + MINUTE > facts.now - ARRIVAL for at in began])
    width[:, running] *= grid.row[:, running]
    watched = facts.watched_since
    unheard = np.array([watched is None or at < watched for at in began]) & ~grid.row.any(axis=0)
    width[:, unheard] = 0.0
    for number in fleet.new:
        node, _ = fleet.gpus.keys[number]
        first = int(grid.row[number].argmax()) if number < sending else MINUTES
        if number >= sending and node in fleet.known_from:
            first = -((facts.start - fleet.known_from[node]) // MINUTE)
        width[number, : max(first, 0)] = 0.0
    return width


@dataclass(frozen=True, slots=True, kw_only=True)
class _Units:
    """GPUs, then slices: their state in each minute, for how long, and who held them."""

    grid: Grid
    width: Floats  # installed seconds, weighted
    holding: Floats  # of `width`, held by anybody
    blind: Bools  # nobody can say whether a process is there
    known: Units
    everybody: Held
    devices: tuple[Gpu, ...] = ()  # names of the slices

    @classmethod
    def of(
        cls,
        facts: Facts,
        end: datetime,
        gpus: Gpus,
        memory: Memory,
        grid: Grid,
        width: Floats,
    ) -> "_Units":
        """Return the units of a quarter that ends at `end`."""
        physical = np.arange(len(gpus.keys))
        names: tuple[Gpu, ...] = ()
        book = facts.allocations
        book = book if isinstance(book, AllocationTable) else AllocationTable.of(book)
        cut_rows = None if facts.slices is None else _of_span(facts.slices, facts.start, end)
        if cut_rows is None or not cut_rows.num_rows:
            held = book.pieces(gpus.number, facts.start, end)
            parts = _overlaps(held, grid)
        else:
            heads, length = runs(cut_rows, ("node", "uuid", "mig", "profile"))
            devices = memory.devices((heads, gpus))
            slices = slices_of(cut_rows, length, devices, grid)
            grid, weights, cut = with_slices(grid, slices)
            width = np.vstack([width, width[slices.parent]])
            held, mask = on_slices(book.pieces(devices.number, facts.start, end), slices, cut)
            parts = np.where(mask, _overlaps(held, grid), 0.0) * weights[held.gpu]
            width = width * weights
            physical, names = np.concatenate([physical, slices.parent]), devices.keys
        return replace(cls._held(grid, width, held, parts, physical, gpus), devices=names)

    @classmethod
    def _held(
        cls,
        grid: Grid,
        width: Floats,
        held: Pieces,
        parts: Floats,
        physical: Ints,
        gpus: Gpus,
    ) -> "_Units":
        known_holder = np.zeros(width.shape)
        alone = np.bincount(held.gpu, minlength=len(width))[held.gpu] == 1
        known_holder[held.gpu[alone]] = parts[alone]
        np.add.at(known_holder, held.gpu[~alone], parts[~alone])
        known_holder = np.minimum(known_holder, width)
        somebody = grid.measured & (known_holder == 0) & (grid.processes > 0)
        unnamed = np.nonzero(somebody.any(axis=1))[0]
        everybody = Held(
            gpu=np.concatenate([held.gpu, unnamed]),
            owner=np.concatenate([held.owner, np.full(len(unnamed), len(held.owners))]),
            owners=(*held.owners, Owner(user="", holder=NOBODY_KNOWN)),
            parts=np.concatenate([parts, np.where(somebody, width, 0.0)[unnamed]]),
            shared=np.concatenate([held.shared, np.zeros(len(unnamed), np.bool_)]),
        )
        return cls(
            grid=grid,
            width=width,
            holding=np.where(somebody, width, known_holder),
            blind=~somebody & np.isnan(grid.processes),
            known=Units(
                known=grid.measured | grid.lost,
                measured=grid.measured,
                used=grid.used,
                power=grid.power,
                physical=physical,
                models=gpus.model_names,
                model=gpus.of_model[physical],
            ),
            everybody=everybody,
        )

    def same(self, before: "_Units") -> Ints:
        """Return each unit's number among the earlier units, -1 where it was not there."""
        gpus = len(self.width) - len(self.devices)
        number = {key: gpus + place for place, key in enumerate(before.devices)}
        return np.array([*range(gpus), *(number.get(key, -1) for key in self.devices)], np.int64)


def _spells(facts: Facts, gpus: Gpus, roster: Roster, units: _Units) -> Mapping[str, Floats] | None:
    """Return the idle spells of each row of `units.everybody`; None without an idle threshold or earlier rows."""
    if facts.idle_after is None or facts.before is None:
        return None
    minutes = minutes_before(facts.idle_after)
    since = facts.start - minutes * MINUTE
    rows = _of_span(facts.before, since, facts.start)
    keys, of_row = numbered(rows, "node", "uuid")
    of_row = np.array([gpus.number.get(key, -1) for key in keys], np.int64)[of_row]
    if (of_row < 0).any():
        rows, of_row = rows.filter(pa.array(of_row >= 0)), of_row[of_row >= 0]
    grid = Grid.of(rows, of_row, since, len(gpus.keys), STILL_FIELDS, minutes)
    then = replace(facts, start=since, slices=facts.slices_before)
    width = np.full(grid.used.shape, 60.0)
    before = _Units.of(then, facts.start, gpus, roster.memory, grid, width)
    return idle_spell_seconds(
        Stretch(held=before.everybody, units=before.known),
        Stretch(held=units.everybody, units=units.known),
        units.same(before),
        facts.idle_after,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Service:
    """The share of each minute for which each GPU was out of service."""

    judged: bool
    nodes: Mapping[LostTo, Floats]  # together with its node, by cause
    in_repair: Floats  # the GPU alone
    absent: Bools  # the node sent nothing in the quarter

    @classmethod
    def of(cls, facts: Facts, end: datetime, gpus: Gpus, grid: Grid) -> "_Service":
        """Return the service of a quarter that ends at `end`."""
        names, of_node = gpus.nodes
        sent = np.bincount(of_node, grid.row.any(axis=1), len(names)) > 0
        recent = [
            (at := facts.last_seen.get(name)) is not None and end - BUCKET <= at < end
            for name in names
        ]
        nodes, repairs = _out_minutes(facts.out or {}, names, gpus)
        return cls(
            judged=facts.out is not None,
            nodes={to: shares[of_node] for to, shares in nodes.items()},
            in_repair=repairs,
            absent=~(sent | np.array(recent, np.bool_))[of_node],
        )

    def out(self, physical: Ints) -> Floats:
        """Return the shares out of service with the node, of each unit and minute, over all causes."""
        found = np.zeros((len(physical), MINUTES))
        for shares_of_gpu in self.nodes.values():
            found += shares_of_gpu[physical]
        return found


def _out_minutes(
    out: Out, names: Sequence[str], gpus: Gpus
) -> tuple[Mapping[LostTo, Floats], Floats]:
    """Return shares of minutes: of nodes by cause, and of GPUs that are in repair alone."""
    number = {name: place for place, name in enumerate(names)}
    nodes: dict[LostTo, Floats] = {}
    repairs = np.zeros((len(gpus.keys), MINUTES))
    for (node, gpu), parts in out.items():
        for one in parts:
            if gpu and (node, gpu) in gpus.number:
                repairs[gpus.number[node, gpu]] += _shares(one)
            elif not gpu and node in number:
                of_loss = nodes.setdefault(one.to, np.zeros((len(names), MINUTES)))
                of_loss[number[node]] += _shares(one)
    return nodes, repairs


def _shares(part: Part) -> Floats:
    edges = 60.0 * np.arange(MINUTES + 1)
    both = np.minimum(edges[1:], part.until) - np.maximum(edges[:-1], part.since)
    shares_of_minutes: Floats = np.clip(both / 60.0, 0.0, 1.0)
    return shares_of_minutes


def _seconds(units: _Units, service: _Service) -> dict[str, Floats]:
    """Return the amounts of `Seconds` by unit."""
    grid, width, holding = units.grid, units.width, units.holding
    idle = units.known.at_zero
    rest = np.where(idle, width - holding, 0.0)
    known, powered = units.known.known, grid.power >= 0
    power = np.where(powered, grid.power, 0.0)
    out = service.out(units.known.physical)
    in_repair = (1.0 - out) * service.in_repair[units.known.physical]
    gone = np.where(grid.lost, 1.0, np.where(known, 0.0, out + in_repair))
    blind = units.blind * (1.0 - out)
    return {
        "installed": width.sum(axis=1),
        "active": _where(width, grid.measured & ~idle),
        "idle": _where(holding, idle),
        "free": _where(rest, ~units.blind * (1.0 - out)),
        "unavailable": _where(width, gone) + _where(rest, out),
        "unknown": _where(width, np.where(known, 0.0, 1.0 - gone)) + _where(rest, blind),
        "allocated": _where(holding, known),
        "measured": _where(holding, grid.measured),
        "used": _where(holding, grid.used),
        "powered": _where(width, powered),
        "energy_joules": _where(width, power),
        "unattributed": _where(
            width - holding, (grid.measured & units.blind) * np.where(idle, 1.0 - out, 1.0)
        ),
        **_lost(units, service, (out, in_repair), rest),
    }


def _lost(
    units: _Units, service: _Service, shares: tuple[Floats, Floats], rest: Floats
) -> dict[str, Floats]:
    """Return the lost seconds by cause; `shares` are out of service with the node, and alone in repair."""
    grid, width, physical = units.grid, units.width, units.known.physical
    found = {f"lost_{one.value}": np.zeros(len(width)) for one in LostTo}
    if not service.judged:
        return {"judged": np.zeros(len(width)), **found}
    blank, (out, in_repair) = ~units.known.known, shares
    if grid.lost.any() or blank.any() or service.nodes:
        for to, of_gpu in service.nodes.items():
            gone = np.where(grid.lost | blank, width, 0.0) + rest
            found[f"lost_{to.value}"] += _where(gone, of_gpu[physical])
        found["lost_repair"] += _where(width, np.where(grid.lost | blank, in_repair, 0.0))
        own = np.where(grid.lost, width * (1.0 - out - in_repair), 0.0)
        found["lost_maintenance"] += _where(own, grid.released)
        found["lost_fault"] += _where(own, ~grid.released)
        absent = service.absent[physical][:, None]
        found["lost_unknown"] += _where(width, (absent & blank) * (1.0 - out - in_repair))
    return {"judged": width.sum(axis=1), **found}


def _where(values: Floats, weights: Bools | Floats) -> Floats:
    """Return the weighted sum of each unit over its minutes."""
    found: Floats = np.einsum("ij,ij->i", values, weights)
    return found


def _summed(seconds: Mapping[str, Floats]) -> Seconds:
    return Seconds(**{name: float(values.sum()) for name, values in seconds.items()})


def _places(
    seconds: Mapping[str, Floats], units: _Units, gpus: Gpus, present: Bools
) -> Sequence[Place]:
    """Return the amounts by node and model, ordered."""
    models = gpus.model_names
    names, of_node = gpus.nodes
    code = of_node * len(models) + gpus.of_model
    at = np.nonzero(np.bincount(code[present]))[0]
    place = np.searchsorted(at, code)
    there = place < len(at)
    there[there] = at[place[there]] == code[there]
    of = np.where(there, place, len(at))[units.known.physical]
    sums = {name: np.bincount(of, values) for name, values in seconds.items()}
    labels = [(names[one // len(models)], models[one % len(models)]) for one in at.tolist()]
    order = sorted(range(len(at)), key=labels.__getitem__)
    columns: dict[str, Any] = {
        "node": [labels[n][0] for n in order],
        "model": [labels[n][1] for n in order],
        **{name: sums[name][: len(at)][order] for name in SECONDS},
    }
    return Rows(pa.table(columns, PLACES), places_of)


def _overlaps(held: Pieces, grid: Grid) -> Floats:
    """Return the seconds of each piece in each minute, times its share."""
    edges = 60.0 * np.arange(grid.used.shape[1] + 1)
    # Most pieces cover the whole quarter.
    some = held.end - held.start < edges[-1]
    late = np.maximum(held.start[some, None], edges[None, :-1])
    early = np.minimum(held.end[some, None], edges[None, 1:])
    seconds = np.full((len(some), len(edges) - 1), 60.0)
    seconds[some] = np.clip(early - late, 0.0, 60.0)
    seconds *= held.share[:, None]
    return seconds
