"""How hot a GPU is beyond what power explains: its own, and that of the others in its node.

A core is warmer than its air by its power times a resistance, and the air behind another GPU is warmer
by a share of that one's power. Both are straight lines, so that GPUs at any load tell for each slot of
one cluster's model what is usual: a resistance, an offset, and what it gets of each other slot's
warmth. What is far off counts little for the lines, and the offsets are medians: half of the nodes
may be hot.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

import numpy as np

from gpuvigil.model import Inventory, Subject
from gpuvigil.store import Aggregate, Function

from ..window.columns import (
    Codes,
    Floats,
    Mask,
    clusters,
    counted,
    divided,
    models,
    nodes,
    number,
    per_group,
    racks,
    seconds,
    together,
    whole_numbers,
)
from ..window.rows import Rows
from ..window.window import Need, Span, Window

CELSIUS = Aggregate(function=Function.MEAN, field="temperature_celsius")
WATTS = Aggregate(function=Function.MEAN, field="power_watts")
LIMIT = Aggregate(function=Function.MAX, field="power_limit_watts")
FIRST, LAST = (
    Aggregate(function=function, field="temperature_celsius")
    for function in (Function.FIRST, Function.LAST)
)
HIGHEST, LOWEST = (
    Aggregate(function=function, field="power_watts") for function in (Function.MAX, Function.MIN)
)
_INDEX = Aggregate(function=Function.MAX, field="index")
NEEDS = (
    Need(measurement="gpu", span=Span.RECENT, aggregates=(CELSIUS, WATTS)),
    Need(
        measurement="gpu",
        span=Span.STEADY,
        aggregates=(CELSIUS, WATTS, LIMIT, FIRST, LAST, HIGHEST, LOWEST, _INDEX),
    ),
)

# Air of a machine room, to which a core without power would cool down.
ROOM_CELSIUS = 25.0
# Of what a core has at less than two thirds of its limit, much is its air and what it did before: nobody
# can say what it would have at the limit.
_TELLS_TIMES = 1.5
# A heatsink shows itself under load; warm air also on a GPU that rests. Of the power limit, or watts
# where it is not told.
WORKING_SHARE, WORKING_WATTS = 0.3, 200.0
# What draws no more is a GPU that nobody uses: of the power limit, or watts where it is not told.
_AWAKE_SHARE, _AWAKE_WATTS = 0.15, 100.0
# So many of a node's GPUs must be measured, and half of them.
NODE_GPUS, _OF_NODE = 3, 0.5
# So many tell what is usual: in the same slot, and in any slot at this share of its power or more,
# beyond which the line would only be a guess.
_PEERS, _REACH = 6, 0.7
# What a mean of a minute may differ from that of the span.
_CHANGED, _CHANGED_WATTS = 0.25, 20.0
# Of a rack's other nodes so many, and of their GPUs, tell what one of its nodes has beyond it.
_OTHER_NODES, _OTHER_GPUS = 2, 3
# Racks differ for ever. So many of a model tell how far: so many times the middle one's distance is
# more than that. More than ASHRAE's allowable range (class A1, 15 to 32 °C) is too much anywhere.
_TELL_RACKS, _TIMES_APART, _ALLOWED_KELVIN = 6, 7.5, 17.0
# So long a core takes to follow: what it was before a span still warms the span's first minutes.
FOLLOWS_SECONDS = 120.0
# A mean of independent samples is off by half of their range over the root of their number, or less.
_OF_RANGE = 0.5
# Of the steady span, what must have been measured.
_COVERAGE = 0.5
# How firmly the lines hold to a resistance that is everybody's, and to no warmth from others: as so
# many watts squared of evidence. And from how many kelvins on a GPU counts for half.
_HOLD_OWN, _HOLD_OTHERS, _FAR_KELVIN = 5e5, 3e5, 1.5
# Of a kelvin per watt of its own, the most that others' power can weigh.
_MOST_OF_OTHERS = 0.5
_ROUNDS = 3
# Of what its own watts make, what those of one other GPU of the node may make, beyond what the lines say.
_DOUBT = 0.1

# What was worked out in a pass serves several questions of it.
_HEAT: "WeakKeyDictionary[Rows, tuple[Rows, object, Heat]]" = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """Per row of the steady span; NaN where nothing can be said."""

    model: Codes  # the same for the GPUs of a cluster that are held against each other
    kelvin: Floats  # above what power explains in that slot
    lately: Floats  # the same of the last minute: a mean goes on to tell of heat that is over
    sure: Floats  # the same where it is no lower bound: what its node's and rack's air is known by
    rise: Floats  # kelvins that its own power explains
    doubt: Floats  # kelvins that may be the warmth of others, where they draw unlike each other
    fits: "Mapping[int, _Fit]" = field(default_factory=dict)  # what each model was held against
    # Beyond others of its node that did the same, in two lines: over the span, and in the last minute.
    beside_mates: Floats | None = None


def heat_of(window: Window) -> Heat:
    """What every GPU has beyond what power explains, over the steady span."""
    rows, lately = window.get("gpu", Span.STEADY), window.get("gpu", Span.RECENT)
    before = _HEAT.get(rows)
    if before is None or before[0] is not lately or before[1] is not window.inventories:
        settled = _settled(window, rows, rows.values(WATTS.column))
        before = lately, window.inventories, _work_out(window, rows, settled)
        _HEAT[rows] = before
    return before[2]


def heat_at_any_load(window: Window) -> Heat:
    """The same, and of those whose power went up and down: of these with a doubt.

    The last minute says of them at most that heat is over: its few samples of power leave much open.
    """
    return window.once(_at_any_load, None)


def _at_any_load(window: Window, _: None) -> Heat:
    rows, settled = window.get("gpu", Span.STEADY), heat_of(window)
    if not len(rows):
        return settled
    known = np.isfinite(settled.kelvin)
    ragged = _work_out(window, rows, ~known, settled.fits)
    swing = rows.values(HIGHEST.column) - rows.values(LOWEST.column)
    per_watt = divided(ragged.rise, rows.values(WATTS.column))
    doubt = off_by(swing, rows.values("samples")) * per_watt
    doubt += ragged.doubt
    doubt += FOLLOWS_SECONDS * cooled(rows) / window.settings.steady_seconds
    lately = window.get("gpu", Span.RECENT).beside(rows, "samples")
    left = np.fmin(ragged.kelvin, ragged.lately + off_by(swing, lately) * per_watt)
    kelvin = np.where(known, settled.kelvin, ragged.kelvin)
    return replace(
        settled,
        kelvin=kelvin,
        sure=kelvin,
        lately=np.where(known, settled.lately, left),
        rise=np.where(known, settled.rise, ragged.rise),
        doubt=np.where(known, settled.doubt, doubt),
    )


def off_by(swing: Floats, samples: Floats) -> Floats:
    """By how much a mean of so many samples may be off, of what went up and down by so much."""
    found: Floats = _OF_RANGE * swing / np.sqrt(samples)
    return found


def cooled(rows: Rows) -> Floats:
    """Kelvins by which each core is cooler at its span's end."""
    found: Floats = np.fmax(rows.values(FIRST.column) - rows.values(LAST.column), 0.0)
    return found


def at_its_limit(rows: Rows) -> Floats:
    """How warm each row's core would be at its power limit; as it is where that is not told, or where
    it draws too little to tell.
    """
    celsius = rows.values(CELSIUS.column)
    found: Floats = celsius + (celsius - ROOM_CELSIUS) * more_at_its_limit(rows)
    return found


def in_its_air_at_its_limit(rows: Rows, rise: Floats) -> Floats:
    """How warm each row's core would be at its power limit if what it has beyond its power is its air's."""
    more = np.fmax(divided(rows.values(LIMIT.column), rows.values(WATTS.column)) - 1.0, 0.0)
    found: Floats = rows.values(CELSIUS.column) + rise * np.nan_to_num(more)
    return found


def more_at_its_limit(rows: Rows) -> Floats:
    """Of each row's power, what its limit is more than that; 0 where nobody can say."""
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.fmax(rows.values(LIMIT.column) / rows.values(WATTS.column), 1.0)
    return np.where(times <= _TELLS_TIMES, times - 1.0, 0.0)


def of_other_nodes(window: Window, rows: Rows, kelvin: Floats, warm: Mask) -> Floats:
    """The middle of the rack's other nodes for each warm row; NaN where too few are measured."""
    found = np.full(len(rows), np.nan)
    if not warm.any():
        return found
    node, rack = nodes(rows), together(clusters(rows), racks(window, rows))
    told = np.isfinite(kelvin) & (racks(window, rows) != 0)
    for one in np.unique(node[warm & told]).tolist():
        here = node == one
        others = told & ~here & np.isin(rack, rack[here])
        if len(np.unique(node[others])) >= _OTHER_NODES and others.sum() >= _OTHER_GPUS:
            found[here] = np.median(kelvin[others])
    return found


def unlike_air(heat: Heat, rack: Codes, of_rack: Floats, least: float) -> Floats:
    """Kelvins from which on the air of each row's rack is no longer as racks of its model differ.

    `of_rack`: what the middle GPU of its rack has; `least`: the result where racks are alike.
    """
    one_each = np.zeros(len(rack), np.bool_)
    one_each[np.unique(rack, return_index=True)[1]] = True
    apart, racks_told = per_group(heat.model, np.where(one_each, np.abs(of_rack), np.nan))
    told = np.clip(_TIMES_APART * apart, least, _ALLOWED_KELVIN)
    return np.where(racks_told >= _TELL_RACKS, told, _ALLOWED_KELVIN)


def works(rows: Rows) -> Mask:
    """Of each row of the steady span whether it drew enough to warm its heatsink."""
    share = WORKING_SHARE * rows.values(LIMIT.column)
    enough: Mask = rows.values(WATTS.column) >= np.where(np.isnan(share), WORKING_WATTS, share)
    return enough


def told_by_their_nodes(rows: Rows, found: Heat) -> Mask:
    """Of each row whether half of its node's GPUs can be held against peers, where it has several.

    While a job changes its pace some of them still can and others no longer: what the air of such a
    node is nobody knows.
    """
    node = nodes(rows)
    all_of_it = counted(node, np.isfinite(rows.values(CELSIUS.column)))
    tell = counted(node, np.isfinite(found.kelvin))
    told: Mask = (all_of_it < NODE_GPUS) | (tell >= np.fmax(NODE_GPUS, _OF_NODE * all_of_it))
    return told


def is_awake(rows: Rows) -> Mask:
    """Of each row whether it draws more than a GPU that nobody uses."""
    share = _AWAKE_SHARE * rows.values(LIMIT.column)
    awake: Mask = rows.values(WATTS.column) >= np.where(np.isnan(share), _AWAKE_WATTS, share)
    return awake


def _work_out(
    window: Window, rows: Rows, tells: Mask, fits: "Mapping[int, _Fit] | None" = None
) -> Heat:
    """Of the rows that tell; by the lines of `fits` where a model has them for all of its slots."""
    celsius, watts = rows.values(CELSIUS.column), rows.values(WATTS.column)
    covered = seconds(rows) >= _COVERAGE * window.settings.steady_seconds
    read = covered & (watts > 0.0) & np.isfinite(celsius)
    known = read & tells
    slot, model = window.once(_slots, rows), window.once(_boards, rows)
    kelvin, rise = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    others, working = window.once(_of_others, rows), works(rows)
    made: dict[int, _Fit] = {}
    for one in np.unique(model[known]).tolist():
        alike = np.flatnonzero(known & (model == one))
        fit = None if fits is None else fits.get(one)
        if fit is None or not fit.has(slot[alike]):
            among = alike if fits is None else np.flatnonzero(read & (model == one))
            among = among[np.bincount(slot[among])[slot[among]] >= _PEERS]
            if not len(among):
                continue
            made[one], kelvin[among] = _fit(
                celsius[among], watts[among], others[among], slot[among], working[among]
            )
            rise[among] = made[one].rise(watts[among], slot[among])
            continue
        kelvin[alike] = fit.beyond(celsius[alike], watts[alike], others[alike], slot[alike])
        rise[alike] = fit.rise(watts[alike], slot[alike])
    return Heat(
        model=model,
        kelvin=kelvin,
        sure=kelvin,
        lately=_lately(window, rows, kelvin, rise),
        rise=rise,
        doubt=doubt_of_others(window, rows, rise),
        fits=made,
    )


def doubt_of_others(window: Window, rows: Rows, rise: Floats) -> Floats:
    """Kelvins that may be the warmth of a node's other GPUs, where they draw unlike each other."""
    watts = rows.values(WATTS.column)
    found: Floats = _DOUBT * divided(rise, watts) * window.once(_unlike, rows)
    return found


def _slots(window: Window, rows: Rows) -> Codes:
    """A number per row: which of its board's slots the GPU is in, else NVML's index, from 1 on; else 0.

    NVML's order is not that of the slots, and differs between hosts of one model.
    """
    index = np.nan_to_num(rows.values(_INDEX.column), nan=-1.0).astype(np.int64) + 1
    slot = whole_numbers(window.of_inventories(rows, _slot))
    return np.where(slot > 0, slot, index)


def _boards(window: Window, rows: Rows) -> Codes:
    """The same number for the GPUs of one board and model in a cluster."""
    board = whole_numbers(window.of_inventories(rows, _board))
    return together(clusters(rows), models(window, rows), board)


def _addresses(inventory: Inventory | None) -> list[str]:
    """Of its GPUs in order; nothing where one is not known. Domains come in four digits or in eight."""
    gpus = () if inventory is None else inventory.gpus
    known = [gpu.pci_address.lower().lstrip("0") for gpu in gpus if gpu.pci_address]
    return sorted(known) if len(known) == len(gpus) else []


def _slot(subject: Subject, inventory: Inventory | None) -> float:
    gpus = () if inventory is None else inventory.gpus
    address = next((gpu.pci_address for gpu in gpus if gpu.uuid == subject.gpu), None)
    known = _addresses(inventory)
    return known.index(address.lower().lstrip("0")) + 1.0 if address and known else np.nan


def _board(_: Subject, inventory: Inventory | None) -> float:
    """A number for where a node's slots are: boards with others are no peers."""
    known = _addresses(inventory)
    return float(number(" ".join(known))) if known else np.nan


def _unlike(_: Window, rows: Rows) -> Floats:
    """Per row by how many watts the GPUs of its node differ, as one deviation."""
    node, watts = nodes(rows), rows.values(WATTS.column)
    read = np.isfinite(watts)
    count = np.fmax(np.bincount(node, read.astype(np.float64)), 1.0)
    middle = np.bincount(node, np.nan_to_num(watts)) / count
    off = np.where(read, watts - middle[node], 0.0)
    found: Floats = np.sqrt(np.bincount(node, off**2) / count)[node]
    return found


def _lately(window: Window, rows: Rows, kelvin: Floats, rise: Floats) -> Floats:
    """The same of the last minute."""
    lately = window.get("gpu", Span.RECENT)
    celsius, watts = rows.values(CELSIUS.column), rows.values(WATTS.column)
    warmer = lately.beside(rows, CELSIUS.column) - celsius
    explained = rise / watts * (lately.beside(rows, WATTS.column) - watts)
    found: Floats = kelvin + warmer - explained
    return found


def _settled(window: Window, rows: Rows, watts: Floats) -> Mask:
    """Of each row whether it drew lately what it drew all the time: a core follows a minute later."""
    lately = window.get("gpu", Span.RECENT).beside(rows, WATTS.column)
    settled: Mask = np.abs(lately - watts) <= np.fmax(_CHANGED_WATTS, _CHANGED * watts)
    return settled


def _of_others(window: Window, rows: Rows) -> Floats:
    """Per row what the other GPUs of its node draw, by slot; where one is not read, the middle of
    those that are, and 0 where there is none.
    """
    node, watts = nodes(rows), rows.values(WATTS.column)
    usual, _ = per_group(node, watts)
    names, place = np.unique(window.once(_slots, rows), return_inverse=True)
    drawn = np.zeros((int(node.max(initial=0)) + 1, len(names)))
    drawn[node, place] = np.nan_to_num(np.where(np.isnan(watts), usual, watts))
    found: Floats = drawn[node]
    found[np.arange(len(watts)), place] = 0.0
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kin:
    """GPUs of one model: a row each, and the same as a block for each slot, filled up with zeros."""

    celsius: Floats
    terms: Floats  # 1, its own power, and that of the others by slot
    slot: Codes  # 0, 1, ...
    place: Codes  # in its slot's block
    counts: Codes  # of each slot
    blocks: Floats

    @classmethod
    def of(cls, celsius: Floats, watts: Floats, others: Floats, slot: Codes) -> "_Kin":
        _, slot, counts = np.unique(slot, return_inverse=True, return_counts=True)
        terms = np.column_stack([np.ones(len(watts)), watts, others])
        begins = np.concatenate([[0], np.cumsum(counts)[:-1]])
        place = np.empty(len(slot), np.int64)
        place[np.argsort(slot, kind="stable")] = np.arange(len(slot))
        place -= begins[slot]
        blocks = np.zeros((len(counts), int(counts.max()), terms.shape[1] + 1))
        blocks[slot, place, :-1], blocks[slot, place, -1] = terms, celsius
        return cls(
            celsius=celsius, terms=terms, slot=slot, place=place, counts=counts, blocks=blocks
        )

    def beyond(self, lines: Floats) -> tuple[Floats, Floats]:
        """What is left without what a slot's line explains, and without the slot's own middle; these."""
        rest = self.celsius - np.einsum("ij,ij->i", self.terms[:, 1:], lines[self.slot, 1:])
        ordered = np.full(self.blocks.shape[:2], np.inf)
        ordered[self.slot, self.place] = rest
        ordered.sort(axis=1)
        each = np.arange(len(ordered))
        low, high = ordered[each, (self.counts - 1) // 2], ordered[each, self.counts // 2]
        middle = (low + high) / 2.0
        return rest - middle[self.slot], middle

    def fitted(self, lines: Floats, per_watt: float) -> Floats:
        """The lines anew: the further a GPU is off the old ones, the less it counts."""
        weight = np.zeros(self.blocks.shape[:2])
        weight[self.slot, self.place] = 1.0 / (1.0 + (self.beyond(lines)[0] / _FAR_KELVIN) ** 2)
        size = self.terms.shape[1]
        held, hold = np.zeros(size), np.full(size, _HOLD_OTHERS)
        held[1], hold[0], hold[1] = per_watt, 1e-6, _HOLD_OWN
        terms = self.blocks[:, :, :size]
        found = (terms * weight[:, :, None]).swapaxes(1, 2) @ self.blocks
        found[:, :, :size] += np.diag(hold)
        found[:, :, size] += hold * held
        new: Floats = np.asarray(np.linalg.solve(found[..., :size], found[..., size:])[..., 0])
        new[:, 1] = np.fmax(new[:, 1], 0.0)
        new[:, 2:] = np.clip(new[:, 2:], 0.0, _MOST_OF_OTHERS * new[:, 1:2])
        return new


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """What GPUs of one model are held against: a line for each slot."""

    slots: Codes  # in order
    lines: Floats
    middle: Floats
    watts: Floats  # in order, of those by which the lines are known

    def has(self, slot: Codes) -> bool:
        """Whether there is a line for each of these."""
        return bool(np.isin(np.flatnonzero(np.bincount(slot)), self.slots).all())

    def beyond(self, celsius: Floats, watts: Floats, others: Floats, slot: Codes) -> Floats:
        """The kelvins beyond the lines."""
        place = np.searchsorted(self.slots, slot)
        rest = celsius - np.einsum("ij,ij->i", others, self.lines[place, 2:])
        return self.told(rest - self.lines[place, 1] * watts - self.middle[place], watts)

    def told(self, kelvin: Floats, watts: Floats) -> Floats:
        """These, and NaN where too few that the lines are known by draw about as much."""
        reached = len(self.watts) - np.searchsorted(self.watts, _REACH * watts)
        return np.where(reached >= _PEERS, kelvin, np.nan)

    def rise(self, watts: Floats, slot: Codes) -> Floats:
        """The kelvins that the own power explains."""
        found: Floats = self.lines[np.searchsorted(self.slots, slot), 1] * watts
        return found


def _fit(
    celsius: Floats, watts: Floats, others: Floats, slot: Codes, working: Mask
) -> tuple[_Fit, Floats]:
    """The lines of GPUs of one model, and the kelvins that these have beyond them."""
    kin = _Kin.of(celsius, watts, others, slot)
    ratio = (celsius - ROOM_CELSIUS) / watts
    per_watt = max(float(np.median(ratio[working] if working.any() else ratio)), 0.0)
    lines = np.zeros((len(kin.blocks), kin.terms.shape[1]))
    lines[:, 1] = per_watt
    for _ in range(_ROUNDS):
        lines = kin.fitted(lines, per_watt)
        # What all slots tell of the resistance is a better beginning for each of them.
        per_watt = float(np.median(lines[:, 1]))
    kelvin, middle = kin.beyond(lines)
    fit = _Fit(
        slots=np.flatnonzero(np.bincount(slot)), lines=lines, middle=middle, watts=np.sort(watts)
    )
    return fit, fit.told(kelvin, watts)
