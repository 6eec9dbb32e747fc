"""What GPUs usually are beside their peers, as records: it took days to learn, and a restart takes minutes."""

from collections.abc import Iterable, Mapping
from datetime import datetime

import numpy as np

from gpuvigil.clock import micros
from gpuvigil.model import Record, RecordKind, Subject, readable

from ..window.index import Index
from ..window.usual import Usual

# Of a GPU: how far it is beyond its peers at each level, and the looks behind it.
_Known = tuple[list[float], list[float]]
# By what was learned, by the GPU's UUID.
_OfNode = dict[str, dict[str, _Known]]


def learned_at(usual: Mapping[str, Usual]) -> datetime | None:
    """The last look at anything; None before the first."""
    return max((of.at for of in usual.values() if of.at is not None), default=None)


def records(usual: Mapping[str, Usual]) -> list[Record]:
    """One per node, which replaces the one before; nothing of the selftest is kept."""
    at = learned_at(usual)
    if at is None:
        return []
    nodes: dict[Subject, _OfNode] = {}
    for name, of in usual.items():
        told = zip(of.index.subjects, of.beyond.round(4).tolist(), of.looks.tolist(), strict=True)
        for gpu, beyond, looks in told:
            if gpu.gpu is not None and not gpu.marked:
                nodes.setdefault(gpu.of_node(), {}).setdefault(name, {})[gpu.gpu] = beyond, looks
    return [_record(node, at, body) for node, body in nodes.items()]


def _record(node: Subject, at: datetime, body: _OfNode) -> Record:
    return Record(
        kind=RecordKind.USUAL,
        id=node.key,
        at=at,
        subject=node.key,
        body=body,
        version=micros(at),
    )


def restored(kept: Iterable[Record]) -> Mapping[str, Usual]:
    """What was known when they were written; what another version wrote differently is learned anew."""
    kept = list(kept)
    found: dict[str, dict[Subject, _Known]] = {}
    for of_node in readable(kept, _read):
        for name, gpus in of_node.items():
            found.setdefault(name, {}).update(gpus)
    at = max((record.at for record in kept), default=None)
    return {name: usual for name, gpus in found.items() if (usual := _usual(gpus, at)) is not None}


def _usual(gpus: Mapping[Subject, _Known], at: datetime | None) -> Usual | None:
    """None where nodes were written with unlike levels."""
    beyond, looks = zip(*gpus.values(), strict=True)
    if len({len(one) for one in (*beyond, *looks)}) != 1:
        return None
    return Usual(
        index=Index(tuple(gpus)),
        beyond=np.array(beyond, np.float64),
        looks=np.array(looks, np.float64),
        at=at,
    )


def _read(record: Record) -> dict[str, dict[Subject, _Known]]:
    node = Subject.parse(record.subject)
    return {
        name: {
            Subject(cluster=node.cluster, node=node.node, gpu=uuid): (
                [float(number) for number in beyond],
                [float(number) for number in looks],
            )
            for uuid, (beyond, looks) in gpus.items()
        }
        for name, gpus in record.body.items()
        if gpus
    }
