"""How hot a GPU is beyond what its own power and that of its node's other GPUs explain.

A core is warmer than its air by its power times a resistance, and the air behind another GPU is warmer
by a share of that one's power. Both are linear, so GPUs at any load give the usual values for each
slot of a cluster's model: a resistance, an offset, and a share of each other slot's warmth.
Outliers count little for the lines, and the offsets are medians: up to half of the nodes may be
hot.
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
    combined_codes,
    divided,
    group_count,
    models,
    nodes,
    number,
    per_group,
    racks,
    seconds,
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

# The temperature of a machine room's air, to which a core without power would cool down.
ROOM_CELSIUS = 25.0
# At less than two thirds of the power limit, much of a core's temperature comes from its air and
# earlier work, so that its temperature at the limit is unknown.
_TELLS_TIMES = 1.5
# A bad heatsink shows under load, warm air also at rest. The least load as a share of the power
# limit, or in watts where the limit is unknown.
WORKING_SHARE, WORKING_WATTS = 0.3, 200.0
# An unused GPU draws no more than this share of its power limit, or watts where the limit is
# unknown.
_AWAKE_SHARE, _AWAKE_WATTS = 0.15, 100.0
# At least this many of a node's GPUs, and half of them, must be measured.
NODE_GPUS, _OF_NODE = 3, 0.5
# At least this many peers give the usual values: in the same slot, and in any slot at this share of
# the GPU's power or more, beyond which the line would only be a guess.
_PEERS, _REACH = 6, 0.7
# No GPU draws so much.
_MOST_WATTS = 1e6
# How far the power of the last minute may differ from the span's mean.
_CHANGED, _CHANGED_WATTS = 0.25, 20.0
# At least this many other nodes of a rack, and of their GPUs, are needed to compare a node with its
# rack.
_OTHER_NODES, _OTHER_GPUS = 2, 3
# Racks differ permanently. From so many racks of a model on, so many times their median distance is
# more than that. More than ASHRAE's allowable range (class A1, 15 to 32 °C) is too much anywhere.
_TELL_RACKS, _TIMES_APART, _ALLOWED_KELVIN = 6, 7.5, 17.0
# How long a core takes to follow its power: earlier heat still warms the first minutes of a span.
FOLLOWS_SECONDS = 120.0
# A mean of independent samples is off by half of their range over the root of their number, or less.
_OF_RANGE = 0.5
# The share of the steady span that must have been measured.
_COVERAGE = 0.5
# How strongly the lines are held to a common resistance, and to no warmth from others, in watts
# squared of evidence. And how many kelvins off a GPU counts for half.
_HOLD_OWN, _HOLD_OTHERS, _FAR_KELVIN = 5e5, 3e5, 1.5
# The most that a watt of another GPU can warm, as a share of what a watt of its own does.
_MOST_OF_OTHERS = 0.5
_ROUNDS = 3
# What a watt of one other GPU of the node may add beyond the lines, as a share of its own watt's
# effect.
_DOUBT = 0.1

# A cache: several detectors of one pass need the result.
_HEAT: "WeakKeyDictionary[Rows, tuple[Rows, object, Heat]]" = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """Excess heat per row of the steady span; NaN where nothing can be said."""

    model: Codes  # the same for the GPUs of a cluster that are compared with each other
    kelvin: Floats  # above what power explains in that slot
    lately: Floats  # `kelvin` in the last minute: the span's mean still has heat that is over
    sure: Floats  # `kelvin` where it is no lower bound, from which node's and rack's air is known
    rise: Floats  # kelvins that its own power explains
    doubt: Floats  # kelvins that may be the warmth of others, where they draw unlike each other
    fits: "Mapping[int, _Fit]" = field(default_factory=dict)  # the lines of each model
    # Beyond others of its node that did the same, in two rows: over the span, and in the last
    # minute.
    beside_mates: Floats | None = None


def heat_of(window: Window) -> Heat:
    """Return every GPU's heat beyond what power explains, over the steady span."""
    rows, lately = window.get("gpu", Span.STEADY), window.get("gpu", Span.RECENT)
    before = _HEAT.get(rows)
    if before is None or before[0] is not lately or before[1] is not window.inventories:
        settled = _settled(window, rows, rows.values(WATTS.column))
        before = lately, window.inventories, _work_out(window, rows, settled)
        _HEAT[rows] = before
    return before[2]


def heat_at_any_load(window: Window) -> Heat:
    """Return the same, and with a doubt also the heat of GPUs whose power went up and down.

    For those the last minute can only say that heat is over: its few samples leave much open.
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
    """Return by how much a mean of `samples` may be off, if the values range over `swing`."""
    found: Floats = _OF_RANGE * swing / np.sqrt(samples)
    return found


def cooled(rows: Rows) -> Floats:
    """Return by how many kelvins each core is cooler at the end of its span."""
    found: Floats = np.fmax(rows.values(FIRST.column) - rows.values(LAST.column), 0.0)
    return found


def at_its_limit(rows: Rows) -> Floats:
    """Return each core's temperature at its power limit, in °C; the present one where that is unknown
    or the GPU draws too little to tell.
    """
    celsius = rows.values(CELSIUS.column)
    found: Floats = celsius + (celsius - ROOM_CELSIUS) * more_at_its_limit(rows)
    return found


def in_its_air_at_its_limit(rows: Rows, rise: Floats) -> Floats:
    """Return each core's temperature at its power limit, in °C, if its excess heat is its air's."""
    more = np.fmax(divided(rows.values(LIMIT.column), rows.values(WATTS.column)) - 1.0, 0.0)
    found: Floats = rows.values(CELSIUS.column) + rise * np.nan_to_num(more)
    return found


def more_at_its_limit(rows: Rows) -> Floats:
    """Return by what share of its power each row's limit exceeds that; 0 where that tells nothing."""
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.fmax(rows.values(LIMIT.column) / rows.values(WATTS.column), 1.0)
    return np.where(times <= _TELLS_TIMES, times - 1.0, 0.0)


def median_of_other_nodes(window: Window, rows: Rows, kelvin: Floats, warm: Mask) -> Floats:
    """Return the median of the rack's other nodes for each warm row; NaN if too few are measured."""
    found = np.full(len(rows), np.nan)
    if not warm.any():
        return found
    node, rack = nodes(rows), combined_codes(clusters(rows), racks(window, rows))
    told = np.isfinite(kelvin) & (racks(window, rows) != 0)
    for one in np.unique(node[warm & told]).tolist():
        here = node == one
        others = told & ~here & np.isin(rack, rack[here])
        if len(np.unique(node[others])) >= _OTHER_NODES and others.sum() >= _OTHER_GPUS:
            found[here] = np.median(kelvin[others])
    return found


def unlike_air(heat: Heat, rack: Codes, of_rack: Floats, least: float) -> Floats:
    """Return from how many kelvins on a rack's air differs more than racks of its model do, per row.

    `of_rack`: the kelvins of the rack's median GPU; `least`: the result where racks are alike.
    """
    one_each = np.zeros(len(rack), np.bool_)
    one_each[np.unique(rack, return_index=True)[1]] = True
    apart, racks_told = per_group(heat.model, np.where(one_each, np.abs(of_rack), np.nan))
    told = np.clip(_TIMES_APART * apart, least, _ALLOWED_KELVIN)
    return np.where(racks_told >= _TELL_RACKS, told, _ALLOWED_KELVIN)


def works(rows: Rows) -> Mask:
    """Tell for each row of the steady span whether it drew enough to warm its heatsink."""
    share = WORKING_SHARE * rows.values(LIMIT.column)
    enough: Mask = rows.values(WATTS.column) >= np.where(np.isnan(share), WORKING_WATTS, share)
    return enough


def comparable_in_node(rows: Rows, found: Heat) -> Mask:
    """Tell for each row whether half of its node's GPUs can be compared with peers, if it has several.

    While a job changes its pace, some of them still can and others no longer: the air of such a
    node is unknown.
    """
    node = nodes(rows)
    all_of_it = group_count(node, np.isfinite(rows.values(CELSIUS.column)))
    tell = group_count(node, np.isfinite(found.kelvin))
    told: Mask = (all_of_it < NODE_GPUS) | (tell >= np.fmax(NODE_GPUS, _OF_NODE * all_of_it))
    return told


def is_awake(rows: Rows) -> Mask:
    """Tell for each row whether it draws more than an unused GPU."""
    share = _AWAKE_SHARE * rows.values(LIMIT.column)
    awake: Mask = rows.values(WATTS.column) >= np.where(np.isnan(share), _AWAKE_WATTS, share)
    return awake


def _work_out(
    window: Window, rows: Rows, tells: Mask, fits: "Mapping[int, _Fit] | None" = None
) -> Heat:
    """Return the heat of rows in `tells`, by lines from `fits` if a model has them for all slots."""
    celsius, watts = rows.values(CELSIUS.column), rows.values(WATTS.column)
    covered = seconds(rows) >= _COVERAGE * window.settings.steady_seconds
    read = covered & (watts > 0.0) & np.isfinite(celsius)
    known = read & tells
    slot, model, node = window.once(_slots, rows), window.once(_boards, rows), nodes(rows)
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
                *(celsius[among], watts[among], others[among], slot[among]),
                node[among],
                working[among],
            )
            rise[among] = made[one].rise(watts[among], slot[among])
            continue
        kelvin[alike] = fit.beyond(
            celsius[alike], watts[alike], others[alike], slot[alike], node[alike]
        )
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
    """Return the kelvins that may come from a node's other GPUs, where they draw unlike each other."""
    watts = rows.values(WATTS.column)
    found: Floats = _DOUBT * divided(rise, watts) * window.once(_unlike, rows)
    return found


def _slots(window: Window, rows: Rows) -> Codes:
    """Return per row the GPU's slot on its board, else its NVML index, from 1 on; 0 if unknown.

    NVML's order is not that of the slots, and differs between hosts of one model.
    """
    index = np.nan_to_num(rows.values(_INDEX.column), nan=-1.0).astype(np.int64) + 1
    slot = whole_numbers(window.of_inventories(rows, _slot))
    return np.where(slot > 0, slot, index)


def _boards(window: Window, rows: Rows) -> Codes:
    """Return a code per row, the same for the GPUs of one board and model in a cluster."""
    board = whole_numbers(window.of_inventories(rows, _board))
    return combined_codes(clusters(rows), models(window, rows), board)


def _addresses(inventory: Inventory | None) -> list[str]:
    """Return the sorted PCI addresses of a node's GPUs, none if one is unknown.

    Leading zeros are dropped, as domains come in four digits or in eight.
    """
    gpus = () if inventory is None else inventory.gpus
    known = [gpu.pci_address.lower().lstrip("0") for gpu in gpus if gpu.pci_address]
    return sorted(known) if len(known) == len(gpus) else []


def _slot(subject: Subject, inventory: Inventory | None) -> float:
    gpus = () if inventory is None else inventory.gpus
    address = next((gpu.pci_address for gpu in gpus if gpu.uuid == subject.gpu), None)
    known = _addresses(inventory)
    return known.index(address.lower().lstrip("0")) + 1.0 if address and known else np.nan


def _board(_: Subject, inventory: Inventory | None) -> float:
    """Return a number for the slots' addresses: boards with other addresses are no peers."""
    known = _addresses(inventory)
    return float(number(" ".join(known))) if known else np.nan


def _unlike(_: Window, rows: Rows) -> Floats:
    """Return per row the standard deviation of its node's GPUs' power, in watts."""
    node, watts = nodes(rows), rows.values(WATTS.column)
    read = np.isfinite(watts)
    count = np.fmax(np.bincount(node, read.astype(np.float64)), 1.0)
    middle = np.bincount(node, np.nan_to_num(watts)) / count
    off = np.where(read, watts - middle[node], 0.0)
    found: Floats = np.sqrt(np.bincount(node, off**2) / count)[node]
    return found


def _lately(window: Window, rows: Rows, kelvin: Floats, rise: Floats) -> Floats:
    """Return the kelvins beyond what power explains in the last minute."""
    lately = window.get("gpu", Span.RECENT)
    celsius, watts = rows.values(CELSIUS.column), rows.values(WATTS.column)
    warmer = lately.beside(rows, CELSIUS.column) - celsius
    explained = rise / watts * (lately.beside(rows, WATTS.column) - watts)
    found: Floats = kelvin + warmer - explained
    return found


def _settled(window: Window, rows: Rows, watts: Floats) -> Mask:
    """Tell for each row whether it drew lately what it drew all the time: a core follows a minute later."""
    lately = window.get("gpu", Span.RECENT).beside(rows, WATTS.column)
    settled: Mask = np.abs(lately - watts) <= np.fmax(_CHANGED_WATTS, _CHANGED * watts)
    return settled


def _of_others(window: Window, rows: Rows) -> Floats:
    """Return per row the power of its node's other GPUs by slot: the median of those measured if one
    is not, and 0 for an empty slot.
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
    """GPUs of one model: one row each, and the same rows as a block per slot, padded with zeros."""

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
        """Return what the lines and the slots' medians leave unexplained, and these medians."""
        rest = self.celsius - np.einsum("ij,ij->i", self.terms[:, 1:], lines[self.slot, 1:])
        ordered = np.full(self.blocks.shape[:2], np.inf)
        ordered[self.slot, self.place] = rest
        ordered.sort(axis=1)
        each = np.arange(len(ordered))
        low, high = ordered[each, (self.counts - 1) // 2], ordered[each, self.counts // 2]
        middle = (low + high) / 2.0
        return rest - middle[self.slot], middle

    def fitted(self, lines: Floats, per_watt: float) -> Floats:
        """Return the lines fitted anew: the further a GPU is off the old ones, the less it counts."""
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
    """The lines that GPUs of one model are compared with, one per slot."""

    slots: Codes  # in order
    lines: Floats
    middle: Floats
    watts: Floats  # sorted, of the GPUs that the lines were fitted to
    by_node: Floats  # the same as `_place(node, watts)`, sorted

    def has(self, slot: Codes) -> bool:
        """Tell whether there is a line for each of these slots."""
        return bool(np.isin(np.flatnonzero(np.bincount(slot)), self.slots).all())

    def beyond(
        self, celsius: Floats, watts: Floats, others: Floats, slot: Codes, node: Codes
    ) -> Floats:
        """Return the kelvins beyond the lines."""
        place = np.searchsorted(self.slots, slot)
        rest = celsius - np.einsum("ij,ij->i", others, self.lines[place, 2:])
        return self.where_comparable(
            rest - self.lines[place, 1] * watts - self.middle[place], watts, node
        )

    def where_comparable(self, kelvin: Floats, watts: Floats, node: Codes) -> Floats:
        """Return `kelvin`, with NaN where too few fitted GPUs of other nodes draw about as much."""
        least = _REACH * watts
        reached = len(self.watts) - np.searchsorted(self.watts, least)
        own = np.searchsorted(self.by_node, _place(node, _MOST_WATTS))
        own -= np.searchsorted(self.by_node, _place(node, least))
        return np.where(reached - own >= _PEERS, kelvin, np.nan)

    def rise(self, watts: Floats, slot: Codes) -> Floats:
        """Return the kelvins that a GPU's own power explains."""
        found: Floats = self.lines[np.searchsorted(self.slots, slot), 1] * watts
        return found


def _place(node: Codes, watts: Floats | float) -> Floats:
    """Return numbers by which GPUs are sorted by node, and in a node by power."""
    found: Floats = np.asarray(node * _MOST_WATTS + watts, np.float64)
    return found


def _fit(
    celsius: Floats, watts: Floats, others: Floats, slot: Codes, node: Codes, working: Mask
) -> tuple[_Fit, Floats]:
    """Return the lines of GPUs of one model, and the GPUs' kelvins beyond them."""
    kin = _Kin.of(celsius, watts, others, slot)
    ratio = (celsius - ROOM_CELSIUS) / watts
    per_watt = max(float(np.median(ratio[working] if working.any() else ratio)), 0.0)
    lines = np.zeros((len(kin.blocks), kin.terms.shape[1]))
    lines[:, 1] = per_watt
    for _ in range(_ROUNDS):
        lines = kin.fitted(lines, per_watt)
        # The median resistance of all slots is a better start for each of them.
        per_watt = float(np.median(lines[:, 1]))
    kelvin, middle = kin.beyond(lines)
    fit = _Fit(
        slots=np.flatnonzero(np.bincount(slot)),
        lines=lines,
        middle=middle,
        watts=np.sort(watts),
        by_node=np.sort(_place(node, watts)),
    )
    return fit, fit.where_comparable(kelvin, watts, node)
