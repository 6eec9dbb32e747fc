"""Why held GPUs are idle: by their measurements over the idle span, read from the store, and open incidents."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from accounting.efficiency.idle_query import (
    ASKED,
    ASKED_OF_SERVERS,
    Excuses,
    Measurements,
    Row,
    excuses,
    why_idle,
    with_requests,
)
from accounting.efficiency.idle_reason import IDLE, Idleness
from accounting.efficiency.recent_incidents import resolved_since
from gpuvigil.config import AnalyzerSettings, IdleSettings
from gpuvigil.config.routing import is_standby
from gpuvigil.hub_client import Hub
from gpuvigil.matching.matchers import Labels
from gpuvigil.model import Allocation, GpuState, Incident, Subject
from gpuvigil.store.external import store_of

from .fleet_now import FleetNow

_DEFAULT_TICK_SECONDS = 10.0  # for a node without an inventory, as in the detectors
_Holder = tuple[str, str, str | None]  # cluster, holder, user


def reasons(
    hub: Hub,
    settings: AnalyzerSettings,
    moment: FleetNow,
    declared: Sequence[IdleSettings] = (),
) -> dict[str, Idleness]:
    """Return by key why each GPU that is idle now has been idle over the idle span.

    A GPU that computed within the span, or was not held for all of it, has no reason. `declared` are the
    site's idle policies, which say who stands by. Raises HubError or StoreError as `look` does.
    """
    length = timedelta(seconds=settings.idle_after_seconds)
    start = moment.now - length
    rows = {
        Subject(cluster=row["cluster"], node=row["node"], gpu=row["uuid"]).key: row
        for row in store_of(hub).window("gpu", ASKED, start, moment.now).to_pylist()
    }
    servers = store_of(hub).window("inference", ASKED_OF_SERVERS, start, moment.now).to_pylist()
    over = resolved_since(hub, start)
    return reasons_of(moment, with_requests(rows, servers), settings, declared, over)


def reasons_of(
    moment: FleetNow,
    rows: Mapping[str, Row],
    settings: AnalyzerSettings,
    declared: Sequence[IdleSettings] = (),
    over: Sequence[Incident] = (),
) -> dict[str, Idleness]:
    """Return the same from the span's rows by GPU key; `over` are incidents that ended within the span."""
    cells = [cell for one in moment.clusters for cell in one.cells]
    span = _span(moment, rows, settings, over)
    holders: dict[_Holder, list[Allocation]] = {}
    for cell in cells:
        for held in moment.of(cell.subject):
            holders.setdefault(_key(held), []).append(held)
    waiting = {key for key, them in holders.items() if is_standby(declared, labels_of(them))}
    found: dict[str, Idleness] = {}
    for cell in cells:
        # A GPU that was seen for only some minutes may be in a gap between two steps.
        if cell.state is not GpuState.IDLE or span.seen(cell.subject) is None:
            continue
        mine = moment.of(cell.subject)
        peers = {it.subject for held in mine for it in holders[_key(held)]} - {cell.subject}
        why = why_idle(
            cell.subject,
            sorted(peers),
            span,
            standby=bool(mine) and all(_key(held) in waiting for held in mine),
            held_since=min((held.started_at for held in mine), default=None),
        )
        if why is not None:
            found[cell.subject.key] = why
    return found


def _span(
    moment: FleetNow,
    rows: Mapping[str, Row],
    settings: AnalyzerSettings,
    over: Sequence[Incident],
) -> Measurements:
    """Return the measurements in `rows`, with the number of samples expected by each node's tick."""
    length = timedelta(seconds=settings.idle_after_seconds)
    ticks = {one.subject.key: one.tick_seconds for one in moment.inventories}
    nodes = {Subject.parse(key).of_node().key for key in rows}
    return Measurements(
        start=moment.now - length,
        end=moment.now,
        rows=rows,
        expected={
            node: length.total_seconds() / (ticks.get(node) or _DEFAULT_TICK_SECONDS)
            for node in nodes
        },
        excuses=excuses(
            (*(one.incident for one in moment.view.attention), *over), moment.now - length
        ),
        below_percent=settings.idle_below_percent,
    )


def labels_of(held: Sequence[Allocation]) -> Labels:
    """Return the labels by which a policy matches one holder's GPUs."""
    first = held[0]
    found = {
        "fault": (IDLE,),
        "cluster": (first.subject.cluster,),
        "node": tuple(dict.fromkeys(one.subject.node for one in held)),
        "owner": (first.user or "",),
        "holder": (str(first.holder),),
        "account": (first.account or "",),
        "partition": (first.partition or "",),
    }
    return {label: values for label, values in found.items() if any(values)}


def _key(held: Allocation) -> _Holder:
    return held.subject.cluster, str(held.holder), held.user


def excused(moment: FleetNow) -> Excuses:
    """Return whom the open incidents keep from computing."""
    return excuses(one.incident for one in moment.view.attention)
