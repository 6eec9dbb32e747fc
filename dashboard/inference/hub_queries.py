"""The query of the inference page: who serves now, and each model's last day, made once for all sessions."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from accounting.cost.money import Prices
from gpuvigil.clock import from_text
from gpuvigil.config import Config
from gpuvigil.hub_client import Hub

from ..data.snapshot import Snapshot
from ..lists import inference, inference_usage, serving
from ..lists.fleet_now import on_pages
from ..lists.inference_usage import InferenceTelemetry
from ..lists.table import Grid, or_why

# A day, since the load of servers peaks daily.
SPAN = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables of one moment."""

    now: datetime
    serving: Grid  # by holder
    models: Grid


def tables(hub: Hub, snapshot: Snapshot, config: Config) -> Tables:
    """Return the tables; HubError or StoreError if the hub or the store does not answer."""
    now, prices = from_text(hub.status()["now"]), Prices(settings=config.cost)
    moment, span = on_pages(hub, snapshot, config.analyzer), (now - SPAN, now)
    answered: list[InferenceTelemetry] = []

    def models() -> Grid:
        telemetry = inference_usage.query_telemetry(
            hub, (one.name for one in moment.clusters), span
        )
        answered.append(telemetry)
        found = inference_usage.services(moment, telemetry, config.alerts.idle, prices)
        return inference.grid(found, span, prices)

    by_model = or_why(models, inference.COLUMNS)
    gpus = {key for telemetry in answered for key in telemetry.serving_gpus}
    return Tables(now=now, serving=serving.grid(moment, gpus), models=by_model)
