"""What the page asks the hub: the tables that the terminal shows, made at once for all who look."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuvigil.clock import from_text
from gpuvigil.config import Config
from gpuvigil.hub import Hub
from gpuvigil.money import Prices

from .. import serving
from ..terminal import holders, inefficient, inference
from ..terminal.fleet import look
from ..terminal.grid import Grid
from ..terminal.reasons import reasons

# Of those who do little; servers have their peaks once a day.
WORK_SPAN, SERVING_SPAN = timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The fleet at one moment."""

    now: datetime
    idle: Grid
    inefficient: Grid
    inference: Grid


def tables(hub: Hub, config: Config) -> Tables:
    """HubError or StoreError where the hub or the store does not answer."""
    now, prices = from_text(hub.status()["now"]), Prices(settings=config.cost)
    moment = look(hub, config.analyzer)
    why = reasons(hub, config.analyzer, moment, config.alerts.idle)
    span = now - SERVING_SPAN, now
    told = serving.asked(hub, (one.name for one in moment.clusters), span)
    served = serving.services(moment, told, config.alerts.idle, prices)
    return Tables(
        now=now,
        idle=holders.idle(moment, why, prices),
        inefficient=inefficient.look(hub, moment, (now - WORK_SPAN, now), prices),
        inference=inference.grid(served, span, prices),
    )
