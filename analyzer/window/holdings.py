"""The GPUs that each holder has now, over all nodes."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from gpuvigil.model import Allocation, HolderKind, Subject

from .copied import Copied


@dataclass(frozen=True, kw_only=True)
class Holding:
    """The GPUs that one holder has now, in one cluster."""

    name: str  # "job 1042 of alice"
    gpus: frozenset[Subject] = field(default_factory=frozenset)

    @cached_property
    def nodes(self) -> frozenset[Subject]:
        """The nodes of its GPUs, cached: each of many faults that hit a large job asks for them."""
        return frozenset(gpu.of_node() for gpu in self.gpus)


def holder_key(allocation: Allocation) -> str:
    """Return a holder's unique key: a job is one in its whole cluster, any other on its node.

    The cluster is part of the key, so that simulated and real GPUs are never counted together.
    """
    spans_nodes = allocation.holder.kind is HolderKind.JOB
    place = allocation.subject.cluster if spans_nodes else allocation.subject.of_node().key
    return f"{place}|{allocation.holder}"


def name(allocation: Allocation) -> str:
    """Return a holder's name with its user, as in `job 1042 of alice`."""
    return f"{allocation.holder}" + (f" of {allocation.user}" if allocation.user else "")


class Holdings:
    """Every holder's current GPUs, kept up to date allocation by allocation.

    A large job begins and ends with very many allocations at once: changed holders are worked out
    again only when `by_holder` is called.
    """

    def __init__(self, allocations: Iterable[Allocation] = ()) -> None:
        self._gpus: dict[str, Counter[Subject]] = {}
        self._names: dict[str, str] = {}
        self._known: Copied[Holding] = Copied()
        self._changed: set[str] = set()
        for allocation in allocations:
            self.put(None, allocation)

    def put(self, before: Allocation | None, after: Allocation | None) -> None:
        """Replace an allocation: `before` is None for a new one, `after` is None to forget it."""
        for allocation, change in ((before, -1), (after, 1)):
            if allocation is None or allocation.ended_at is not None:
                continue
            key = holder_key(allocation)
            self._gpus.setdefault(key, Counter())[allocation.subject] += change
            self._names[key] = name(allocation)
            self._changed.add(key)

    def by_holder(self) -> Mapping[str, Holding]:
        """Return the holdings by `holder_key`; a copy that later allocations do not change."""
        for key in self._changed:
            gpus = frozenset(gpu for gpu, times in self._gpus[key].items() if times > 0)
            if gpus:
                self._known.put(key, Holding(name=self._names[key], gpus=gpus))
            else:
                self._known.drop(key)
                del self._gpus[key], self._names[key]
        self._changed.clear()
        return self._known.copy()
