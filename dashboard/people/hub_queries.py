"""The queries of the page of users and teams: two spans of usage, incidents and judged hours."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from accounting.cost.example import of_cluster
from accounting.cost.money import Prices
from accounting.efficiency.inefficient_hours import WasteHour
from accounting.hours_of_people import People, people
from accounting.usage.ledger_query import Answer, Shape, answer
from accounting.usage.model import BUCKET, cluster_key, floor
from accounting.usage.query import clusters
from gpuvigil.clock import from_text
from gpuvigil.config import CostSettings
from gpuvigil.hub_client import Hub
from gpuvigil.model import Incident, RecordKind, readable

_MOST = 10_000


def everybody(hub: Hub, settings: CostSettings, span: timedelta) -> Sequence[People]:
    """Return each cluster's users and teams over the last `span`, compared with the span before."""
    now = from_text(hub.status()["now"])
    return [_of(hub, name, span, now, of_cluster(settings, name)) for name in clusters(hub)]


def _of(hub: Hub, cluster: str, span: timedelta, now: datetime, prices: Prices) -> People:
    start, key = floor(now - span), cluster_key(cluster)
    incidents = hub.records(RecordKind.INCIDENT, subject=key, limit=_MOST)
    wastes = hub.records(RecordKind.WASTE, subject=key, since=start, limit=_MOST)
    counted = _counted(hub, cluster, start, now, now, prices)
    before = _counted(hub, cluster, start - span, start, now, prices)
    found = people(
        cluster,
        (start, now),
        counted.parts,
        before.parts,
        incidents=readable(incidents, Incident.from_record),
        wastes=readable(wastes, WasteHour.from_record),
        prices=prices,
    )
    began = None if before.counted_since is not None else counted.counted_since
    is_late = began is not None and began >= start + BUCKET
    return replace(found, counted_since=began) if is_late else found


def _counted(
    hub: Hub, cluster: str, start: datetime, end: datetime, now: datetime, prices: Prices
) -> Answer:
    shape = Shape(cuts=prices.changes(start, end), places=False)
    return answer(hub, cluster, start, end, now, shape)
