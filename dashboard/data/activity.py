"""The activity of chosen GPUs over time, asked for in pieces that no hub refuses as too large."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import product
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from gpuvigil.clock import EPOCH
from gpuvigil.model import Subject

from .series import TimeSeries, time_series

ACTIVITY = "activity_percent"
_FIELDS = ("sm_activity_percent", "utilization_percent")
_GPU = ("cluster", "node", "uuid")
# Up to so many nodes are asked for node by node; more are asked for by cluster and so many steps at a
# time: for 100,000 GPUs that stays below the most that the hub gives in one answer.
_FEW_NODES = 256
_STEPS_AT_ONCE = 12


class Asked(Protocol):
    """The part of a store that is used here: means per step."""

    def series(
        self,
        measurement: str,
        fields: Sequence[str],
        where: Mapping[str, str],
        span: tuple[datetime, datetime],
        step: timedelta,
    ) -> pa.Table:
        """Return means per step; see `gpuvigil.store.Store.series`."""


def activity(
    store: Asked,
    nodes: Iterable[tuple[str, str]],
    wanted: set[str],
    span: tuple[datetime, datetime],
    step: timedelta,
) -> Mapping[str, TimeSeries]:
    """Return `ACTIVITY` by GPU key: the SM activity in percent, or utilisation where that is not measured."""
    listed = sorted(nodes)
    wheres: list[dict[str, str]] = [{"cluster": c, "node": n} for c, n in listed]
    spans = [span]
    if len(listed) > _FEW_NODES:
        wheres = [{"cluster": cluster} for cluster in sorted({c for c, _ in listed})]
        spans = list(pieces(span, step, _STEPS_AT_ONCE))
    uuids = pa.array(sorted({Subject.parse(key).gpu or "" for key in wanted}), pa.string())
    told = (
        store.series("gpu", _FIELDS, where, piece, step) for where, piece in product(wheres, spans)
    )
    # Only the wanted GPUs are kept, as they are few.
    mine = (one.filter(pc.is_in(one["uuid"].cast(pa.string()), value_set=uuids)) for one in told)
    found: dict[str, TimeSeries] = {}
    for (cluster, node, uuid), course in time_series(mine, _GPU, _FIELDS).items():
        key = Subject(cluster=cluster, node=node, gpu=uuid).key
        if key in wanted:
            name = next((one for one in _FIELDS if course.measured(one)), _FIELDS[0])
            found[key] = TimeSeries(course.at, {ACTIVITY: course.values[name]})
    return found


def pieces(
    span: tuple[datetime, datetime], step: timedelta, steps: int
) -> Iterator[tuple[datetime, datetime]]:
    """Cut the span into pieces of at most so many whole steps, which a store counts from 1970."""
    start, end = span
    cut = EPOCH + (start - EPOCH) // step * step
    while start < end:
        cut += steps * step
        yield start, min(cut, end)
        start = cut
