"""How active GPUs were, step by step, of as many as serve anybody: asked for in answers that no hub refuses."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import product
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from gpuvigil.clock import EPOCH
from gpuvigil.model import Subject

from .series import Course, courses

ACTIVITY = "activity_percent"
_FIELDS = ("sm_activity_percent", "utilization_percent")
_GPU = ("cluster", "node", "uuid")
# The GPUs of so few nodes are asked for node by node, those of more by the cluster, and then so
# many steps at a time: of 100,000 GPUs these are less than what the hub gives in one answer.
_FEW_NODES = 256
_STEPS_AT_ONCE = 12


class Asked(Protocol):
    """Of a store what is asked here for means in steps."""

    def series(
        self,
        measurement: str,
        fields: Sequence[str],
        where: Mapping[str, str],
        span: tuple[datetime, datetime],
        step: timedelta,
    ) -> pa.Table:
        """See `gpuvigil.store.Store.series`."""


def activity(
    store: Asked,
    nodes: Iterable[tuple[str, str]],
    wanted: set[str],
    span: tuple[datetime, datetime],
    step: timedelta,
) -> Mapping[str, Course]:
    """`ACTIVITY` by GPU's key; the utilisation of a GPU whose multiprocessors' activity is not measured."""
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
    # Most of them serve nobody: only the others are kept.
    mine = (one.filter(pc.is_in(one["uuid"].cast(pa.string()), value_set=uuids)) for one in told)
    found: dict[str, Course] = {}
    for (cluster, node, uuid), course in courses(mine, _GPU, _FIELDS).items():
        key = Subject(cluster=cluster, node=node, gpu=uuid).key
        if key in wanted:
            name = next((one for one in _FIELDS if course.measured(one)), _FIELDS[0])
            found[key] = Course(course.at, {ACTIVITY: course.values[name]})
    return found


def pieces(
    span: tuple[datetime, datetime], step: timedelta, steps: int
) -> Iterator[tuple[datetime, datetime]]:
    """The span in pieces of at most so many steps, none of which is cut in two: a store counts them from 1970."""
    start, end = span
    cut = EPOCH + (start - EPOCH) // step * step
    while start < end:
        cut += steps * step
        yield start, min(cut, end)
        start = cut
