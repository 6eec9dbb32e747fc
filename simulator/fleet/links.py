"""Rows of single NVLinks: hourly, and whenever a link has news, as collectors send them.

Everything is a function of time, so that no state outlives a block: the values of a link are compared
with those of the tick before. Traffic is that of the GPU, in equal parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .chance import Floats, lane, mix
from .changes import Change, Quantity, apply, within
from .topology import LINKS, Index, Topology

NEWS = ("up", "crc_errors", "replay_errors", "recovery_errors")
_HOUR = 3600.0
# NVML_NVLINK_VERSION of the generations (nvml.h), by the links of a GPU and the bandwidth of one.
_VERSIONS = {12: 5, 18: 6}
_FIFTH, _FIFTH_BYTES = 7, 50e9
# Some links have an occasional error: the worst has this many a day [chosen].
_MOST_PER_DAY = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRows:
    """The rows of links in a block, one entry per row: tick, GPU, link and fields."""

    tick: Index
    gpu: Index
    link: Index
    fields: dict[str, Index]


class Links:
    """All NVLinks of a fleet."""

    def __init__(self, topology: Topology) -> None:
        self._count = topology.model_values("links").astype(np.int64)
        self._nvidia = topology.model_values("nvidia") > 0.0
        carried = topology.model_values("link_bytes_per_second") / self._count
        self._speed = np.floor(carried * 8.0 + 0.5).astype(np.int64)
        version = np.select([self._count == n for n in _VERSIONS], list(_VERSIONS.values()), 6)
        self._version = np.where(carried >= _FIFTH_BYTES, _FIFTH, version)
        lots = mix(topology.gpu_keys, 47)
        share = lane(lots, 0) * lane(lots, 1)
        self._rate = share * share * share * share * _MOST_PER_DAY / 86400.0
        self._begun = lane(lots, 2)
        self.weakest = np.floor(lane(lots, 3) * self._count).astype(np.int64)
        self._phase = lane(mix(topology.gpu_keys, 48), 0) * _HOUR

    def usual_errors(self, seconds: Floats) -> Index:
        """Return [ticks x GPUs]: CRC errors that the weakest link of every GPU has counted by then."""
        at = np.maximum(seconds, 0.0)[:, None]
        return np.floor(at * self._rate + self._begun).astype(np.int64)

    def rows(
        self, seconds: Floats, tick_seconds: float, changes: Sequence[Change], traffic: Index
    ) -> LinkRows:
        """Return the rows of a block's ticks; `traffic` [ticks x GPUs] is the bytes of all links of a GPU."""
        mine = within(
            [c for c in changes if c.on is Quantity.LINK],
            seconds[0] - tick_seconds,
            seconds[-1] + tick_seconds,
        )
        bent = sorted({target for change in mine for target in change.targets})
        with_before = np.concatenate([seconds[:1] - tick_seconds, seconds])
        usual = self.usual_errors(with_before)
        said = self._said(mine, bent, with_before, usual)
        hourly = np.floor((with_before[:, None] + self._phase) / _HOUR)
        due = (hourly[1:] != hourly[:-1]) & self._nvidia
        due[seconds < tick_seconds] = self._nvidia  # a collector that starts reports all links
        tick, gpu = np.nonzero(due)
        counts = self._count[gpu]
        first = np.cumsum(counts) - counts
        link = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(first, counts)
        news_tick, column = np.nonzero(self._news(said))
        places = np.array(bent, dtype=np.int64)[column]
        wide = np.unique(
            np.concatenate(
                [
                    self._place(np.repeat(tick, counts), np.repeat(gpu, counts), link),
                    self._place(news_tick, places // LINKS, places % LINKS),
                    self._weakest_news(usual),
                ]
            )
        )
        return self._rows(wide, bent, said, usual, traffic)

    def _place(self, tick: Index, gpu: Index, link: Index) -> Index:
        place: Index = (tick * len(self._count) + gpu) * LINKS + link
        return place

    def _weakest_news(self, usual: Index) -> Index:
        tick, gpu = np.nonzero((usual[1:] != usual[:-1]) & self._nvidia)
        return self._place(tick, gpu, self.weakest[gpu])

    def _said(
        self, changes: Sequence[Change], bent: Sequence[int], seconds: Floats, usual: Index
    ) -> dict[str, Index]:
        """Return the values of `NEWS` fields, [1 + ticks x changed links]."""
        column = {place: i for i, place in enumerate(bent)}
        said = {name: np.zeros((len(seconds), len(bent))) for name in NEWS}
        said["up"] += 1.0
        for i, place in enumerate(bent):
            if place % LINKS == self.weakest[place // LINKS]:
                said["crc_errors"][:, i] = usual[:, place // LINKS]
        for change in changes:
            moved = replace(change, targets=tuple(column[place] for place in change.targets))
            apply(moved, said[change.name], seconds)
        return {name: values.astype(np.int64) for name, values in said.items()}

    @staticmethod
    def _news(said: dict[str, Index]) -> NDArray[np.bool_]:
        differ = [values[1:] != values[:-1] for values in said.values()]
        news: NDArray[np.bool_] = np.logical_or.reduce(differ)
        return news

    def _rows(
        self,
        wide: Index,
        bent: Sequence[int],
        said: dict[str, Index],
        usual: Index,
        traffic: Index,
    ) -> LinkRows:
        rest, link = np.divmod(wide, LINKS)
        tick, gpu = np.divmod(rest, len(self._count))
        moved = traffic[tick, gpu] // self._count[gpu]
        crc = np.where(link == self.weakest[gpu], usual[tick + 1, gpu], 0)
        fields = {
            "up": np.ones_like(link),
            "speed_bits_per_second": self._speed[gpu],
            "version": self._version[gpu],
            "receive_bytes": moved,
            "transmit_bytes": moved,
            "ecc_errors": np.zeros_like(link),
            "replay_errors": np.zeros_like(link),
            "recovery_errors": np.zeros_like(link),
            "crc_errors": crc,
        }
        place = gpu * LINKS + link
        for column, target in enumerate(bent):
            here = place == target
            for name in NEWS:
                fields[name][here] = said[name][tick[here] + 1, column]
        return LinkRows(tick=tick, gpu=gpu, link=link, fields=fields)


def dictionary(which: Index, values: Sequence[str]) -> pa.DictionaryArray:
    """Return a tag column: which of these values each row has."""
    return pa.DictionaryArray.from_arrays(pa.array(which.astype(np.int32)), pa.array(values))
