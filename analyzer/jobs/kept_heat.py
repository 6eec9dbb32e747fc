"""What GPUs usually are beside their peers, as records: it took days to learn, and a restart takes minutes."""

from collections.abc import Iterable, Iterator
from datetime import datetime

import numpy as np

from gpuvigil.clock import micros
from gpuvigil.model import Record, RecordKind, Subject, readable

from ..window.index import Index
from ..window.usual_heat import LEVELS, NO_USUAL_HEAT, UsualHeat

# Of a GPU: how far it is beyond its peers at each level of power, in kelvins, and the looks behind it.
_Known = tuple[Subject, list[float], list[float]]


def records(heat: UsualHeat) -> list[Record]:
    """One per node, which replaces the one before; nothing of the selftest is kept."""
    at = heat.at
    if at is None:
        return []
    nodes: dict[Subject, dict[str, list[list[float]]]] = {}
    told = zip(heat.index.subjects, heat.kelvin.round(2).tolist(), heat.looks.tolist(), strict=True)
    for gpu, kelvin, looks in told:
        if gpu.gpu is not None and not gpu.marked:
            nodes.setdefault(gpu.of_node(), {})[gpu.gpu] = [kelvin, looks]
    return [_record(node, at, gpus) for node, gpus in nodes.items()]


def _record(node: Subject, at: datetime, gpus: dict[str, list[list[float]]]) -> Record:
    return Record(
        kind=RecordKind.USUAL_HEAT,
        id=node.key,
        at=at,
        subject=node.key,
        body={"levels": LEVELS, "gpus": gpus},
        version=micros(at),
    )


def restored(kept: Iterable[Record]) -> UsualHeat:
    """What was known when they were written; what another version wrote differently is learned anew."""
    kept = list(kept)
    known = [gpu for of_node in readable(kept, _read) for gpu in of_node]
    if not known:
        return NO_USUAL_HEAT
    gpus, kelvin, looks = zip(*known, strict=True)
    return UsualHeat(
        index=Index(gpus),
        kelvin=np.array(kelvin, np.float64),
        looks=np.array(looks, np.float64),
        at=max(record.at for record in kept),
    )


def _read(record: Record) -> list[_Known]:
    """ValueError where it is of other levels of power."""
    if tuple(record.body["levels"]) != LEVELS:
        raise ValueError("other levels")
    return list(_gpus(record))


def _gpus(record: Record) -> Iterator[_Known]:
    node = Subject.parse(record.subject)
    for uuid, (kelvin, looks) in record.body["gpus"].items():
        if not len(kelvin) == len(looks) == len(LEVELS):
            raise ValueError("a number for each level")
        gpu = Subject(cluster=node.cluster, node=node.node, gpu=uuid)
        yield gpu, list(map(float, kelvin)), list(map(float, looks))
