"""Why held GPUs are idle: their idle span, asked of the store, and what stands beside them."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from gpuvigil.config import AnalyzerSettings
from gpuvigil.hub import Hub
from gpuvigil.idle_span import ASKED, MOST_USED, SAMPLES, Row, measured
from gpuvigil.idleness import Around, Idleness, idleness
from gpuvigil.model import GpuState, Subject
from gpuvigil.states import STOPPING
from gpuvigil.store.beside import store_of

from ..gpus import Cell
from .fleet import Moment


def reasons(hub: Hub, settings: AnalyzerSettings, moment: Moment) -> dict[str, Idleness]:
    """By its key, why each GPU that is idle now has been so over the idle span.

    One that computed something within it has no reason. HubError or StoreError as `look`.
    """
    length = timedelta(seconds=settings.idle_after_seconds)
    start = moment.now - length
    rows: dict[str, Row] = {}
    for row in store_of(hub).window("gpu", ASKED, start, moment.now).to_pylist():
        key = Subject(cluster=row["cluster"], node=row["node"], gpu=row["uuid"]).key
        # What was seen for minutes only may be in a gap between two steps.
        if row["first_at"] <= start + length / 5:
            rows[key] = row
    return reasons_of(moment, rows, settings)


def reasons_of(
    moment: Moment, rows: Mapping[str, Row], settings: AnalyzerSettings
) -> dict[str, Idleness]:
    """The same of the rows of the span, by the keys of their GPUs."""
    below = settings.idle_below_percent
    cells = [cell for one in moment.clusters for cell in one.cells]
    faulty = faulty_of(moment)
    holders: dict[tuple[str, str, str | None], list[str]] = {}
    for cell in cells:
        for held in moment.of(cell.subject):
            key = cell.subject.cluster, held.holder, held.user
            holders.setdefault(key, []).append(cell.subject.key)
    most = max((row[SAMPLES] for row in rows.values()), default=0)
    found: dict[str, Idleness] = {}
    for cell in cells:
        row = rows.get(cell.subject.key)
        if cell.state is GpuState.IDLE and row is not None:
            around = _around(cell, moment, holders, rows, faulty, below)
            why = idleness(measured(row, most), around, below)
            if why is not None:
                found[cell.subject.key] = why
    return found


def _around(
    cell: Cell,
    moment: Moment,
    holders: Mapping[tuple[str, str, str | None], Sequence[str]],
    rows: Mapping[str, Row],
    faulty: frozenset[str],
    below: float,
) -> Around:
    own = cell.subject.key
    peers = {
        key
        for held in moment.of(cell.subject)
        for key in holders.get((cell.subject.cluster, held.holder, held.user), ())
        if key != own
    }
    used = MOST_USED
    return Around(
        faulty=is_faulty(own, faulty),
        peers_busy=any(key in rows and (rows[key][used] or 0.0) >= below for key in peers),
        peers_faulty=any(is_faulty(key, faulty) for key in peers),
    )


def faulty_of(moment: Moment) -> frozenset[str]:
    """GPUs and nodes against which something stands that keeps programs from computing."""
    stopping = (one for one in moment.view.attention if one.incident.fault in _STOPS)
    return frozenset(key for one in stopping for key in (one.subject.key, *one.incident.members))


_STOPS = STOPPING | {"gpu_xid", "node_silent", "port_down", "gpu_hung"}


def is_faulty(gpu: str, faulty: frozenset[str]) -> bool:
    """Whether the GPU of that key, or its node, is among these."""
    return gpu in faulty or Subject.parse(gpu).of_node().key in faulty
