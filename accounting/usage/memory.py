"""A cache between consecutive quarters of one cluster.

Consecutive quarters mostly have the same GPUs, and handling ten thousand names takes as long as all their
measurements: so the last result is kept while the arguments stay the same.
"""

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic, TypeVar

import pyarrow as pa

from .identities import Gpus, ReportingGpus
from .ownership import Gpu
from .slices import Devices

_Question = TypeVar("_Question")
_Answer = TypeVar("_Answer")


class Last(Generic[_Question, _Answer]):
    """A pure function that keeps its last result for as long as its argument is the same."""

    def __init__(
        self,
        work: Callable[[_Question], _Answer],
        same: Callable[[_Question, _Question], bool],
    ) -> None:
        self._work = work
        self._same = same
        self._known: tuple[_Question, _Answer] | None = None

    def __call__(self, question: _Question) -> _Answer:
        known = self._known
        if known is None or not self._same(known[0], question):
            known = self._known = question, self._work(question)
        return known[1]


class Memory:
    """The values kept from quarter to quarter of one cluster."""

    def __init__(self, models: Mapping[Gpu, str], nodes: Sequence[Collection[Gpu]]) -> None:
        """Keep `models`, as inventories name them, and `nodes`, the GPUs of each inventory."""
        self._models = models
        self._nodes = nodes
        self.whole: Last[ReportingGpus, frozenset[int]] = Last(self._whole, operator.is_)
        self.sending: Last[pa.Table, ReportingGpus] = Last(ReportingGpus.of, _same_heads)
        self._gpus: Last[tuple[ReportingGpus, Sequence[Gpu]], Gpus] = Last(
            self._installed, _same_gpus
        )
        self.devices: Last[tuple[pa.Table, Gpus], Devices] = Last(Devices.of, _same_devices)

    def gpus(self, sending: ReportingGpus, silent: Sequence[Gpu]) -> Gpus:
        """Return the sending GPUs, followed by the silent ones."""
        return self._gpus((sending, tuple(silent)))

    def _whole(self, sending: ReportingGpus) -> frozenset[int]:
        """Return the numbers of the inventories whose GPUs all send."""
        return frozenset(
            number for number, gpus in enumerate(self._nodes) if sending.every.issuperset(gpus)
        )

    def _installed(self, question: tuple[ReportingGpus, Sequence[Gpu]]) -> Gpus:
        sending, silent = question
        told = self._models.get
        return Gpus(
            keys=(*sending.keys, *silent),
            models=(
                *(
                    told(key) or said
                    for key, said in zip(sending.keys, sending.models, strict=True)
                ),
                *(told(key) or "" for key in silent),
            ),
        )


def _same_heads(before: pa.Table, now: pa.Table) -> bool:
    return bool(before.equals(now))


def _same_gpus(
    before: tuple[ReportingGpus, Sequence[Gpu]], now: tuple[ReportingGpus, Sequence[Gpu]]
) -> bool:
    return before[0] is now[0] and before[1] == now[1]


def _same_devices(before: tuple[pa.Table, Gpus], now: tuple[pa.Table, Gpus]) -> bool:
    return before[1] is now[1] and bool(before[0].equals(now[0]))
