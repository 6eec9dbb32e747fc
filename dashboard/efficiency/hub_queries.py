"""What the page asks the hub: the tables that the terminal shows, made at once for all who look."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from accounting.cost.money import Prices
from gpuvigil.clock import from_text
from gpuvigil.config import Config
from gpuvigil.errors import HubRefused, StoreError, StoreUnavailable
from gpuvigil.hub_client import Hub

from ..lists import holders, inefficient, inference, inference_usage
from ..lists.fleet_now import look
from ..lists.idle_reasons import reasons
from ..lists.table import Column, Grid

# Of those who do little; servers have their peaks once a day.
WORK_SPAN, SERVING_SPAN = timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The fleet at one moment."""

    now: datetime
    idle: Grid
    inefficient: Grid
    inference: Grid
    idle_after: timedelta


def tables(hub: Hub, config: Config) -> Tables:
    """HubError or StoreError where the hub or the store does not answer.

    A table for which one of them answers that it cannot be asked like this says so in its place.
    """
    now, prices = from_text(hub.status()["now"]), Prices(settings=config.cost)
    moment = look(hub, config.analyzer)

    def idle() -> Grid:
        why = reasons(hub, config.analyzer, moment, config.alerts.idle)
        return holders.idle(moment, why, prices)

    def served() -> Grid:
        span = now - SERVING_SPAN, now
        told = inference_usage.asked(hub, (one.name for one in moment.clusters), span)
        found = inference_usage.services(moment, told, config.alerts.idle, prices)
        return inference.grid(found, span, prices)

    return Tables(
        now=now,
        idle=or_why(idle, holders.IDLE),
        inefficient=or_why(
            lambda: inefficient.look(hub, moment, (now - WORK_SPAN, now), prices),
            inefficient.COLUMNS,
        ),
        inference=or_why(served, inference.COLUMNS),
        idle_after=timedelta(seconds=config.analyzer.idle_after_seconds),
    )


def or_why(make: Callable[[], Grid], columns: Sequence[Column]) -> Grid:
    """The table, or an empty one that says why there is none; who does not answer at all raises."""
    try:
        return make()
    except StoreUnavailable:
        raise
    except (HubRefused, StoreError) as error:
        return Grid(columns=columns, rows=[], empty=f"Not known: {error}")
