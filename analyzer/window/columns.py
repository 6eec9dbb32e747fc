"""Column functions with which a rule compares every subject with its peers at once."""

import math
import re
import zlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from gpuvigil.model import Inventory, Subject

from .index import Index, Numbers, OfArrays
from .rows import Rows
from .window import Window

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# Which rows share a node or a cluster depends on nothing but the subjects.
_CODES: WeakKeyDictionary[Index, dict[object, Codes]] = WeakKeyDictionary()


def clusters(rows: Rows) -> Codes:
    """Return a code per row, the same for rows of the same cluster."""
    return _known(rows, _cluster)


def nodes(rows: Rows) -> Codes:
    """Return a code per row, the same for rows of the same node."""
    return _known(rows, _node)


def rails(rows: Rows) -> Codes:
    """Return a code per row, the same for ports of the same name in the same cluster."""
    return _known(rows, _rail)


def models(window: Window, rows: Rows) -> Codes:
    """Return a code per GPU's row, the same for GPUs of the same model; 0 if unknown."""
    return whole_numbers(window.of_inventories(rows, _model))


def stacked_memory(window: Window, rows: Rows) -> Mask:
    """Tell for each GPU's row whether its model is known to have HBM.

    No power limit lowers the clock of HBM.
    """
    has: Mask = window.of_inventories(rows, _stacked) == 1.0
    return has


def racks(window: Window, rows: Rows) -> Codes:
    """Return a code per row, the same for nodes of a rack of the same name; 0 without a rack."""
    return whole_numbers(window.of_inventories(rows, _rack))


def port_kinds(window: Window, rows: Rows) -> Codes:
    """Return a code per port's row, the same for ports of the same kind and role; 0 if unknown."""
    return whole_numbers(window.of_inventories(rows, _kind_and_role))


def fabric(window: Window, rows: Rows) -> Mask:
    """Tell for each port's row whether it is in the fabric that jobs use, by its inventory."""
    odd: Mask = port_kinds(window, rows) % 2 == 1
    return odd


def combined_codes(*codes: Codes) -> Codes:
    """Return a code per row, the same for rows that have the same code in each of `codes`."""
    return _joined(*codes) if len(codes) > 1 else codes[0]


def seconds(rows: Rows, beside: Rows | None = None) -> Floats:
    """Return the seconds from the first to the last line in each row's span.

    With `beside`, they are in the order of those rows.
    """
    order = rows if beside is None else beside
    span: Floats = (rows.beside(order, "last_at") - rows.beside(order, "first_at")) / 1e6
    return span


def divided(values: Floats, by: Floats) -> Floats:
    """Return `values / by`, NaN where `by` is not positive."""
    found: Floats = values / np.where(by > 0.0, by, np.nan)
    return found


def means_before(rows: Rows, long: Rows, columns: Iterable[str]) -> dict[str, Floats]:
    """Return each column's means over the long span without its end, which `rows` cover.

    They are in the order of `rows`; NaN where nothing is left.
    """
    every, late = long.beside(rows, "samples"), rows.values("samples")
    left = np.where(every > late, every - late, np.nan)
    return {
        column: (every * long.beside(rows, column) - late * rows.values(column)) / left
        for column in columns
    }


def per_group(codes: Codes, values: Numbers) -> tuple[Floats, Floats]:
    """Return for each row its group's median and how many of the group were measured.

    `values`: a number for each row, or several arrays of such numbers, which cost little more.
    """
    groups = _grouped(codes)
    cells = np.full((*values.shape[:-1], groups.room), np.nan)
    cells[..., groups.cells] = values
    measured = ~np.isnan(cells)
    sizes = np.add.reduceat(measured, groups.begins, axis=-1, dtype=np.int64)
    for some, wide in groups.alike:
        begin = groups.begins[some.start]
        block = cells[..., begin : begin + (some.stop - some.start) * wide]
        # Sorting puts NaN, values that were not measured, last.
        block.reshape(*values.shape[:-1], -1, wide).sort(axis=-1)
    # Where each array begins among all cells.
    arrays = np.arange(math.prod(values.shape[:-1])).reshape(*values.shape[:-1], 1)
    ahead = groups.room * arrays + groups.begins
    low, high = (cells.take(ahead + it) for it in ((np.maximum(sizes, 1) - 1) // 2, sizes // 2))
    medians = (low + high) / 2.0
    return medians[..., groups.of_row], sizes.astype(np.float64)[..., groups.of_row]


def group_maximum(codes: Codes, values: Numbers) -> Floats:
    """Return for each row the highest value of its group; NaN where none was measured."""
    groups = _grouped(codes)
    highest: Any = np.full(groups.number, -np.inf)
    np.fmax.at(highest, groups.of_row, values)
    highest[np.isinf(highest)] = np.nan
    found: Floats = highest[groups.of_row]
    return found


def group_count(codes: Codes, mask: Mask) -> Floats:
    """Return for each row how many of its group are in the mask."""
    groups = _grouped(codes)
    counts = np.bincount(groups.of_row[mask], minlength=groups.number).astype(np.float64)
    found: Floats = counts[groups.of_row]
    return found


def _whole(values: Floats) -> Codes:
    return _for_good(np.nan_to_num(values).astype(np.int64))


def _join(*codes: Codes) -> Codes:
    joined = codes[0]
    for more in codes[1:]:
        _, small = np.unique(more, return_inverse=True)
        joined = joined * (int(small.max(initial=0)) + 1) + small
    return _for_good(joined)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Groups:
    """Groups of rows, with a cell for each row so that a group's rows lie side by side.

    Groups of about the same size are neighbours, each with as many cells as the largest of them:
    so they are sorted at once, and no more than half of the cells stay empty.
    """

    of_row: Numbers  # the group of each row, counted from 0
    number: int
    cells: Numbers  # the cell of each row
    begins: Numbers  # the first cell of each group
    room: int  # how many cells there are
    alike: Sequence[tuple[slice, int]]  # groups of about one size, and how many cells each has

    @classmethod
    def of(cls, codes: Codes) -> "_Groups":
        order = codes.argsort(kind="stable")
        first = _firsts(codes[order])
        sizes = np.append(first, len(codes))[1:] - first
        by_size = sizes.argsort(kind="stable")
        rank, wide = by_size.argsort(), sizes[by_size]
        # `some`: where sizes reach the next power of two; between two of these no group has twice
        # as many rows as another.
        some = _firsts(np.frexp(wide)[1])
        ends = np.append(some, len(wide))[1:]
        wide = np.repeat(wide[ends - 1], ends - some)
        begins = wide.cumsum() - wide
        of_row, cells = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64)
        of_row[order] = np.repeat(rank, sizes)
        cells[order] = np.repeat(begins[rank] - first, sizes) + np.arange(len(codes))
        return cls(
            of_row=of_row,
            number=len(first),
            cells=cells,
            begins=begins,
            room=int(wide.sum()),
            alike=[
                (slice(begin, end), int(wide[begin]))
                for begin, end in zip(some.tolist(), ends.tolist(), strict=True)
            ],
        )


def _firsts(ordered: Numbers) -> Numbers:
    """Return the first position of each number in a sorted array."""
    return np.flatnonzero(np.append(len(ordered) > 0, ordered[1:] != ordered[:-1]))


def _for_good(codes: Codes) -> Codes:
    codes.flags.writeable = False
    return codes


# Rules ask for the same groups many times in each pass, and groups change only when a record does.
whole_numbers: OfArrays[Codes] = OfArrays(_whole)
_joined: OfArrays[Codes] = OfArrays(_join)
_grouped: OfArrays[_Groups] = OfArrays(_Groups.of)


def _known(rows: Rows, of: Callable[[Subject], Hashable]) -> Codes:
    if not len(rows):
        return np.empty(0, np.int64)
    codes = _CODES.setdefault(rows.index, {})
    if of not in codes:
        codes[of] = _for_good(_coded(map(of, rows.subjects)))
    return codes[of]


def _coded(names: Any) -> Codes:
    every = list(names)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(every))}
    return np.fromiter(map(numbers.__getitem__, every), np.int64, len(every))


def _model(subject: Subject, inventory: Inventory | None) -> float:
    gpus = () if inventory is None else inventory.gpus
    return next((float(number(gpu.model)) for gpu in gpus if gpu.uuid == subject.gpu), np.nan)


# By NVIDIA's data sheets; the A10, A16, A40, L4, L40 and RTX have GDDR, the GB10 LPDDR.
_HBM = re.compile(r"\b(?:P100|V100|A30|A100|A800|H20|H100|H200|H800|G?B[123]00|GH200)\b")


def _stacked(subject: Subject, inventory: Inventory | None) -> float:
    gpus = () if inventory is None else inventory.gpus
    model = next((gpu.model for gpu in gpus if gpu.uuid == subject.gpu), None)
    return float(bool(model and _HBM.search(model)))


def _rack(_: Subject, inventory: Inventory | None) -> float:
    return np.nan if inventory is None or not inventory.rack else float(number(inventory.rack))


def _kind_and_role(subject: Subject, inventory: Inventory | None) -> float:
    """Return a number for a port's kind and role, odd for the fabric; NaN if unknown."""
    for port in () if inventory is None else inventory.ports:
        if (port.device, port.port) == (subject.device, subject.port):
            is_fabric = inventory is not None and port.role == inventory.fabric_role
            return 2.0 * number(f"{port.kind}|{port.role}") + is_fabric
    return np.nan


def number(name: str) -> int:
    """Return a number for a name, the same in every process; float64 holds its double exactly."""
    return zlib.crc32(name.encode())


def _cluster(subject: Subject) -> Hashable:
    return subject.cluster


def _node(subject: Subject) -> Hashable:
    return subject.cluster, subject.node


def _rail(subject: Subject) -> Hashable:
    return subject.cluster, subject.device, subject.port
