"""GPUs by number within a quarter of an hour, and what follows from their names alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from .grid import coded, numbered
from .ownership import Gpu, Ints


@dataclass(frozen=True, eq=False, kw_only=True)
class ReportingGpus:
    """The GPUs that have rows, as the rows name them."""

    keys: tuple[Gpu, ...]
    of_head: Ints  # GPU number of each head of `grid.runs`
    models: tuple[str, ...]  # of several the last by name; "" where none is named

    @classmethod
    def of(cls, heads: pa.Table) -> "ReportingGpus":
        """Read `heads` with columns `node`, `uuid` and `model`."""
        keys, of_head = numbered(heads, "node", "uuid")
        return cls(
            keys=tuple(keys), of_head=of_head, models=_reported_models(heads, of_head, len(keys))
        )

    @cached_property
    def every(self) -> frozenset[Gpu]:
        """The keys as a set, for lookups."""
        return frozenset(self.keys)


@dataclass(frozen=True, eq=False, kw_only=True)
class Gpus:
    """The installed GPUs by number, those with rows first."""

    keys: tuple[Gpu, ...]
    models: tuple[str, ...]  # "" where unknown

    @cached_property
    def number(self) -> Mapping[Gpu, int]:
        """The number of each key."""
        return {key: number for number, key in enumerate(self.keys)}

    @cached_property
    def model_names(self) -> tuple[str, ...]:
        """The distinct model names in order."""
        return tuple(sorted(set(self.models)))

    @cached_property
    def of_model(self) -> Ints:
        """The index in `model_names` of each GPU's model."""
        number = {name: place for place, name in enumerate(self.model_names)}
        return np.array([number[model] for model in self.models], np.int64)

    @cached_property
    def nodes(self) -> tuple[list[str], Ints]:
        """The distinct nodes, and the node number of each GPU."""
        found: dict[str, int] = {}
        of_node = [found.setdefault(node, len(found)) for node, _ in self.keys]
        return list(found), np.array(of_node, np.int64)


def _reported_models(heads: pa.Table, of_head: Ints, gpus: int) -> tuple[str, ...]:
    """Return the model that each GPU's rows name; of several the last by name."""
    found, of_model = coded(heads["model"])
    names = np.array([*found, ""], dtype=object)
    rank = np.argsort(np.argsort(names))
    best = np.full(gpus, rank[-1])
    np.maximum.at(best, of_head, rank[of_model])
    return tuple(np.sort(names)[best].tolist())
