"""How much hotter a GPU became than others of its node that did the same work, its mates.

Ranks of one job pause and go on together, and one exporter reads a node's GPUs at the same moments.
Few samples, late cores, fans and air leave the same uncertainty for all GPUs with the same mean
power, before and now. So a GPU whose power goes up and down is known far better beside its mates
than alone, and how far they differ among themselves tells how well.
"""

from dataclasses import dataclass

import numpy as np

from ..window.columns import Codes, Floats, Mask

# Mean powers are alike within this share, or so many watts: an H100 warms by some 0.06 K for one.
_ALIKE, _ALIKE_WATTS = 0.04, 10.0
# At least this many mates are needed, and half of the node's other GPUs: independent work may be
# alike by chance.
_MATES, _OF_OTHERS = 3, 0.5


def beyond_mates(
    node: Codes, model: Codes, then: Floats, now: Floats, kelvin: Floats, lately: Floats
) -> Floats:
    """Return by how many kelvins each row became hotter than any of its mates; NaN with too few mates.

    The first row of the result is over the span, less the range of the mates; the second is in the
    last minute. `then` and `now`: mean watts. `kelvin` and `lately`: what power does not explain.
    """
    table = _Table.of(node)
    told = np.isfinite(kelvin) & np.isfinite(lately)
    mates = table.mates(model, then, now, told)
    over, minute = table.block(kelvin), table.block(lately)
    highest, lowest = _extremes(over, mates)
    beyond = over - highest - (highest - lowest)
    found = np.stack([beyond, minute - _extremes(minute, mates)[0]])
    return table.rows(np.where(table.enough(mates, told), found, np.nan))


def middle_of_mates(node: Codes, model: Codes, watts: Floats, celsius: Floats) -> Floats:
    """Return the median temperature of each row's mates, in °C; NaN with too few mates."""
    table = _Table.of(node)
    told = np.isfinite(celsius)
    mates = table.mates(model, watts, watts, told)
    values = np.where(mates, table.block(celsius)[:, None, :], np.inf)
    values.sort(axis=2)
    count = mates.sum(axis=2)[:, :, None]
    low, high = np.fmax(count - 1, 0) // 2, np.fmin(count // 2, max(values.shape[2] - 1, 0))
    middle = np.take_along_axis(values, low, 2) + np.take_along_axis(values, high, 2)
    found = np.where(table.enough(mates, told), middle[:, :, 0] / 2.0, np.nan)
    middles: Floats = table.rows(found[None])[0]
    return middles


@dataclass(frozen=True, slots=True)
class _Table:
    """A table with a line for each node and a column for each of its GPUs."""

    place: tuple[Codes, Codes]
    shape: tuple[int, int]

    @classmethod
    def of(cls, node: Codes) -> "_Table":
        _, line, counts = np.unique(node, return_inverse=True, return_counts=True)
        order = np.argsort(line, kind="stable")
        begins = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
        column = np.empty(len(node), np.int64)
        column[order] = np.arange(len(node)) - begins[line[order]]
        return cls((line, column), (len(counts), int(counts.max(initial=0))))

    def block(self, values: Floats) -> Floats:
        found = np.full(self.shape, np.nan)
        found[self.place] = values
        return found

    def rows(self, blocks: Floats) -> Floats:
        """Return each block's values in the order of the rows."""
        found: Floats = blocks[:, self.place[0], self.place[1]]
        return found

    def mates(self, model: Codes, then: Floats, now: Floats, told: Mask) -> Mask:
        """Tell for each GPU which others of its node are measured and drew the same power."""
        kind, tells = self.block(model.astype(np.float64)), self.block(told.astype(np.float64))
        mates = _close(self.block(then)) & _close(self.block(now))
        mates &= (kind[:, :, None] == kind[:, None, :]) & (tells[:, None, :] == 1.0)
        mates &= ~np.eye(self.shape[1], dtype=np.bool_)[None]
        return mates

    def enough(self, mates: Mask, told: Mask) -> Mask:
        """Tell for each GPU whether it has enough mates."""
        others = np.nan_to_num(self.block(told.astype(np.float64)))
        count, among = mates.sum(axis=2), others.sum(axis=1)[:, None] - others
        found: Mask = (count >= _MATES) & (count >= _OF_OTHERS * among)
        return found


def _close(watts: Floats) -> Mask:
    one, other = watts[:, :, None], watts[:, None, :]
    close: Mask = np.abs(one - other) <= np.fmax(_ALIKE_WATTS, _ALIKE * np.fmin(one, other))
    return close


def _extremes(values: Floats, mates: Mask) -> tuple[Floats, Floats]:
    """Return the highest and the lowest value of each one's mates; NaN where it has none."""
    of = np.broadcast_to(values[:, None, :], mates.shape)
    none = ~mates.any(axis=2)
    highest = np.where(none, np.nan, np.where(mates, of, -np.inf).max(axis=2, initial=-np.inf))
    lowest = np.where(none, np.nan, np.where(mates, of, np.inf).min(axis=2, initial=np.inf))
    return highest, lowest
