"""Why held GPUs are idle: their idle span, asked of the store, and what stands beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from gpuvigil.config import AnalyzerSettings, IdleSettings
from gpuvigil.hub import Hub
from gpuvigil.idle_span import (
    ASKED,
    ASKED_OF_SERVERS,
    MOST_USED,
    Row,
    measured,
    with_requests,
)
from gpuvigil.idleness import Around, Idleness, idleness
from gpuvigil.matching import Labels
from gpuvigil.model import Allocation, GpuState, Subject
from gpuvigil.routing import stands_by
from gpuvigil.store.beside import store_of
from gpuvigil.wasted import KEEPS_FROM_WORK

from ..gpus import Cell
from .fleet import Moment

IDLE = "gpu_idle_held"  # the fault of idle GPUs
_DEFAULT_TICK_SECONDS = 10.0  # of a node without an inventory, as the detectors have it
_Holder = tuple[str, str, str | None]  # cluster, holder, user


def reasons(
    hub: Hub,
    settings: AnalyzerSettings,
    moment: Moment,
    declared: Sequence[IdleSettings] = (),
) -> dict[str, Idleness]:
    """By its key, why each GPU that is idle now has been so over the idle span.

    One that computed something within it has no reason; `declared` are the site's idle policies, which
    say who stands by. HubError or StoreError as `look`.
    """
    length = timedelta(seconds=settings.idle_after_seconds)
    start = moment.now - length
    rows: dict[str, Row] = {}
    for row in store_of(hub).window("gpu", ASKED, start, moment.now).to_pylist():
        key = Subject(cluster=row["cluster"], node=row["node"], gpu=row["uuid"]).key
        # What was seen for minutes only may be in a gap between two steps.
        if row["first_at"] <= start + length / 5:
            rows[key] = row
    servers = store_of(hub).window("inference", ASKED_OF_SERVERS, start, moment.now).to_pylist()
    return reasons_of(moment, with_requests(rows, servers), settings, declared)


def reasons_of(
    moment: Moment,
    rows: Mapping[str, Row],
    settings: AnalyzerSettings,
    declared: Sequence[IdleSettings] = (),
) -> dict[str, Idleness]:
    """The same of the rows of the span, by the keys of their GPUs."""
    below = settings.idle_below_percent
    cells = [cell for one in moment.clusters for cell in one.cells]
    faulty = faulty_of(moment)
    holders: dict[_Holder, list[Allocation]] = {}
    for cell in cells:
        for held in moment.of(cell.subject):
            holders.setdefault(_key(held), []).append(held)
    waiting = {key for key, them in holders.items() if stands_by(declared, labels_of(them))}
    ticks = {one.subject.key: one.tick_seconds for one in moment.inventories if one.tick_seconds}
    found: dict[str, Idleness] = {}
    for cell in cells:
        row = rows.get(cell.subject.key)
        if cell.state is GpuState.IDLE and row is not None:
            around = _around(cell, moment, holders, rows, faulty, below)
            mine = {_key(held) for held in moment.of(cell.subject)}
            if mine and mine <= waiting:
                around = replace(around, standby=True)
            tick = ticks.get(cell.subject.of_node().key, _DEFAULT_TICK_SECONDS)
            why = idleness(measured(row, settings.idle_after_seconds / tick), around, below)
            if why is not None:
                found[cell.subject.key] = why
    return found


def _around(
    cell: Cell,
    moment: Moment,
    holders: Mapping[_Holder, Sequence[Allocation]],
    rows: Mapping[str, Row],
    faulty: frozenset[str],
    below: float,
) -> Around:
    own = cell.subject.key
    peers = {
        other.subject.key
        for held in moment.of(cell.subject)
        for other in holders.get(_key(held), ())
        if other.subject.key != own
    }
    used = MOST_USED
    return Around(
        faulty=is_faulty(own, faulty),
        peers_busy=any(key in rows and (rows[key][used] or 0.0) >= below for key in peers),
        peers_faulty=any(is_faulty(key, faulty) for key in peers),
    )


def labels_of(held: Sequence[Allocation]) -> Labels:
    """What a policy about one holder's GPUs is matched by."""
    first = held[0]
    found = {
        "fault": (IDLE,),
        "cluster": (first.subject.cluster,),
        "node": tuple(dict.fromkeys(one.subject.node for one in held)),
        "owner": (first.user or "",),
        "holder": (first.holder,),
        "account": (first.account or "",),
        "partition": (first.partition or "",),
    }
    return {label: values for label, values in found.items() if any(values)}


def _key(held: Allocation) -> _Holder:
    return held.subject.cluster, held.holder, held.user


def faulty_of(moment: Moment) -> frozenset[str]:
    """GPUs and nodes against which something stands that keeps programs from computing."""
    stopping = (one for one in moment.view.attention if one.incident.fault in KEEPS_FROM_WORK)
    return frozenset(key for one in stopping for key in (one.subject.key, *one.incident.members))


def is_faulty(gpu: str, faulty: frozenset[str]) -> bool:
    """Whether the GPU of that key, or its node, is among these."""
    return gpu in faulty or Subject.parse(gpu).of_node().key in faulty
