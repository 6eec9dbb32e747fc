"""The query of the efficiency page: the terminal's tables, made once for all sessions."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from accounting.cost.money import Prices
from gpuvigil.clock import from_text
from gpuvigil.config import Config
from gpuvigil.hub_client import Hub

from ..data.snapshot import Snapshot
from ..lists import holders, inefficient
from ..lists.fleet_now import on_pages
from ..lists.idle_reasons import reasons
from ..lists.table import Grid, or_why

WORK_SPAN = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables of one moment."""

    now: datetime
    idle: Grid
    inefficient: Grid
    idle_after: timedelta


def tables(hub: Hub, snapshot: Snapshot, config: Config) -> Tables:
    """Return the tables; HubError or StoreError if the hub or the store does not answer.

    If one of them refuses the query for a table, that table says so in place of its rows.
    """
    now, prices = from_text(hub.status()["now"]), Prices(settings=config.cost)
    moment = on_pages(hub, snapshot, config.analyzer)

    def idle() -> Grid:
        why = reasons(hub, config.analyzer, moment, config.alerts.idle)
        return holders.idle(moment, why, prices)

    return Tables(
        now=now,
        idle=or_why(idle, holders.IDLE),
        inefficient=or_why(
            lambda: inefficient.fetch(hub, moment, (now - WORK_SPAN, now), prices),
            inefficient.COLUMNS,
        ),
        idle_after=timedelta(seconds=config.analyzer.idle_after_seconds),
    )
