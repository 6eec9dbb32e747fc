"""Settings of what GPU-hours and energy cost; `accounting.cost.money` calculates with them."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache

from ..matching.matchers import matcher
from .setting import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSettings:
    """The price of an hour of some GPUs from a day on: rented, or bought and operated."""

    cluster: str = setting("", "cluster that it is for; empty: every one, but no simulated")
    model: str = setting("", "part of the model's name, as H100; empty: every model")
    owner: str = setting("own", "whose GPUs they are, in people's words: own, a cloud, its spot")
    since: str = setting(
        "", "first day (UTC) on which it holds, as 2026-01-01; empty: from ever on"
    )
    per_gpu_hour: float | None = setting(None, "of GPUs that are rented: what one costs an hour")
    purchase: float | None = setting(
        None, "of GPUs that were bought: what one cost with its share of node, network and room"
    )
    years: float | None = setting(None, "over how many years that is written off")
    watts: float | None = setting(
        None, "what one draws with its share of its node; with `cost.electricity` and `cost.pue`"
    )

    @property
    def first_day(self) -> datetime | None:
        """Midnight of `since`; None without a first day. ValueError when it is not a day."""
        return _day(self.since)

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Yield each mistake in these settings: the key, and why."""
        try:
            _ = self.first_day
        except ValueError:
            yield "since", f"{self.since!r} is not a day like 2026-01-01"
        if (self.per_gpu_hour is None) == (self.purchase is None):
            yield "", "a price needs either per_gpu_hour or purchase with years"
        if (self.purchase is None) != (self.years is None):
            yield "", "purchase and years go together"
        if self.watts is not None and self.purchase is None:
            yield "watts", "is for GPUs that were bought: a rent has its electricity in it"
        for key in ("per_gpu_hour", "purchase", "years", "watts"):
            value = getattr(self, key)
            if value is not None and not 0 < value < 1e9:
                yield key, "must be more than 0"


@lru_cache(maxsize=1000)
def _day(since: str) -> "datetime | None":
    if not since:
        return None
    return datetime.strptime(since, "%Y-%m-%d").replace(tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSettings:
    """What GPU-hours cost. Without a price no money is shown anywhere."""

    currency: str = setting("EUR", "currency")
    electricity: float | None = setting(None, "price of a kilowatt-hour")
    pue: float = setting(
        1.0,
        "power usage effectiveness: the site's energy divided by that of its machines, usually 1.2 to 1.6",
    )
    carbon_grams: float | None = setting(
        None, "grams of CO2 equivalent per kilowatt-hour; empty: not estimated"
    )
    carbon_source: str = setting("", "source and year of that factor, shown beside the estimate")
    spot: tuple[str, ...] = setting(
        (),
        'spot nodes, which their owner may take back at any time: any that match one of these, such as node=~"spot-.*" or partition="spot", or have a price whose owner is spot',
    )
    prices: tuple[PriceSettings, ...] = setting((), "prices, as below")

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Yield each mistake in these settings: the key, and why."""
        if not self.currency.strip():
            yield "currency", "needs a name, as EUR"
        if not 1.0 <= self.pue <= 5.0:
            yield "pue", "must be from 1 to 5"
        for text in self.spot:
            try:
                matcher(text)
            except ValueError as error:
                yield "spot", str(error)
        for key in ("electricity", "carbon_grams"):
            value = getattr(self, key)
            if value is not None and not 0 <= value < 1e5:
                yield key, "must be from 0 to 100000"
        if self.electricity is None and any(one.watts is not None for one in self.prices):
            yield "electricity", "is needed where a price has watts"
