"""What GPU-hours and energy cost: pure, from `[cost]` of the configuration.

A price holds for a cluster and a model from a day on. The most specific price wins, and among those the
newest that has begun. What has no price has no cost, which is None and never 0; simulated GPUs have one
only where their cluster is named (`accounting.cost.example`). A GPU that was bought costs its purchase
over the hours in which it is written off, plus its energy:
`purchase / (years * 8,766 h) + watts / 1,000 * pue * electricity`. The watts come from the configuration,
so that an hour costs the same whoever had it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise

from gpuvigil.config.pricing import CostSettings, PriceSettings
from gpuvigil.matching.matchers import Labels, fit
from gpuvigil.model import RESERVED_CLUSTERS, Incident, Inventory

HOURS_OF_A_YEAR = 8766.0  # of 365.25 days
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of an hour of one GPU."""

    per_gpu_hour: float
    owner: str
    how: str  # text: rented, or how the price is derived


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """All prices of the configuration, and the factors for energy and carbon."""

    settings: CostSettings = field(default_factory=CostSettings)

    def __bool__(self) -> bool:
        """Return whether there is any price; without one no money is shown."""
        return bool(self.settings.prices)

    @property
    def currency(self) -> str:
        return self.settings.currency

    def price(self, cluster: str, model: str | None, at: datetime) -> Price | None:
        """Return the price of a GPU of that model at that moment; None where there is none."""
        fitting = [one for one in self.settings.prices if _fits(one, cluster, model or "", at)]
        if cluster in RESERVED_CLUSTERS:
            fitting = [one for one in fitting if one.cluster == cluster]
        best = max(fitting, key=_rank, default=None)
        return None if best is None else _price(best, self.settings)

    @property
    def has_spot_prices(self) -> bool:
        """Whether the configuration says which nodes are spot nodes; otherwise their number is unknown."""
        owners = (one.owner for one in self.settings.prices)
        return bool(self.settings.spot) or any("spot" in owner.lower() for owner in owners)

    def is_spot(self, labels: Labels, price: Price | None) -> bool:
        """Return whether a node with these labels and that price is a spot node, which may be taken back any time."""
        by_name = any(fit((one,), labels) for one in self.settings.spot)
        return by_name or (price is not None and "spot" in price.owner.lower())

    def changes(self, start: datetime, end: datetime) -> tuple[datetime, ...]:
        """Return the days within a span on which a price begins."""
        days = {one.first_day for one in self.settings.prices}
        return tuple(sorted(day for day in days if day is not None and start < day < end))

    def cost(self, cluster: str, model: str | None, start: datetime, end: datetime) -> float | None:
        """Return the cost of one GPU over a span; None where any part of the span has no price."""
        edges = (start, *self.changes(start, end), end)
        parts = [
            (self.price(cluster, model, since), (until - since) / _HOUR)
            for since, until in pairwise(edges)
        ]
        if any(price is None for price, _ in parts):
            return None
        return sum(price.per_gpu_hour * hours for price, hours in parts if price is not None)

    def formatted(self, amount: float) -> str:
        """Format an amount for people: `1,240 EUR`, `3.20 EUR`."""
        return f"{amount:,.{0 if abs(amount) >= 100 else 2}f} {self.currency}"

    def site_kilowatt_hours(self, board_joules: float) -> float:
        """Return the energy of GPU boards in kWh, including what the site needs to power and cool them (PUE)."""
        return board_joules / 3.6e6 * self.settings.pue

    def carbon_kilograms(self, board_joules: float) -> float | None:
        """Return the CO2 equivalent of that energy in kg, estimated by one factor; None without a factor."""
        grams = self.settings.carbon_grams
        return None if grams is None else self.site_kilowatt_hours(board_joules) * grams / 1000.0

    def carbon_words(self, board_joules: float) -> str:
        """Return `about 412 kg CO2e (estimate: 380 g/kWh, national grid 2025; PUE 1.4)`; empty without a factor."""
        kilograms = self.carbon_kilograms(board_joules)
        if kilograms is None:
            return ""
        source = f", {self.settings.carbon_source}" if self.settings.carbon_source else ""
        digits = 0 if kilograms >= 10 else 2
        return (
            f"about {kilograms:,.{digits}f} kg CO2e (estimate: {self.settings.carbon_grams:g} g/kWh"
            f"{source}; PUE {self.settings.pue:g})"
        )


def models_of(inventories: Iterable[Inventory]) -> dict[str, str]:
    """Return the model of each GPU by its subject key."""
    return {
        replace(one.subject, gpu=gpu.uuid).key: gpu.model for one in inventories for gpu in one.gpus
    }


def incident_rate(
    prices: Prices, incident: Incident, models: Mapping[str, str], now: datetime
) -> float | None:
    """Return the current hourly cost of all GPUs that an incident keeps from working, its holders' included.

    `models` has the model of each GPU by subject key; the mean price of the incident's own GPUs in it is
    applied to all affected GPUs. None if any of these has no price, or if no GPU is affected.
    """
    found = [
        prices.price(incident.subject.cluster, models[key], now) for key in _own(incident, models)
    ]
    hourly = [one.per_gpu_hour for one in found if one is not None]
    if not hourly or len(hourly) < len(found) or not incident.impact.gpus:
        return None
    return sum(hourly) / len(hourly) * incident.impact.gpus


def incident_cost(
    prices: Prices, incident: Incident, models: Mapping[str, str], now: datetime
) -> float | None:
    """Return the cost of an incident's own GPUs from its beginning until now, or its end; `models` as above.

    The other GPUs of a holder are left out, since no incident says since when they wait, and a job may
    have begun long after it. Of GPUs that came and went, as many count as are affected now. None if any of
    its own GPUs has no price, and if it has none, as an incident of a port.
    """
    if incident.subject.kind == "port":
        return None
    until = min(incident.resolved_at or now, now)
    costs = [
        prices.cost(incident.subject.cluster, models[key], incident.since, until)
        for key in _own(incident, models)
        if until > incident.since
    ]
    priced = [one for one in costs if one is not None]
    if not priced or len(priced) < len(costs) or not incident.impact.gpus:
        return None
    return sum(priced) / len(priced) * min(len(priced), incident.impact.gpus)


def incident_words(
    prices: Prices, incident: Incident, models: Mapping[str, str], now: datetime
) -> str:
    """Return `costs 32.00 EUR/h, about 8.00 EUR of its own GPU time so far`; empty where neither is known."""
    rate = incident_rate(prices, incident, models, now)
    cost = incident_cost(prices, incident, models, now)
    said = []
    if rate is not None and incident.resolved_at is None:
        said.append(f"costs {prices.formatted(rate)}/h")
    if cost is not None:
        whose = "its own " if incident.impact.gpus > len(_own(incident, models)) else ""
        ending = "in all" if incident.resolved_at is not None else "so far"
        said.append(f"about {prices.formatted(cost)} of {whose}GPU time {ending}")
    return ", ".join(said)


def listed(prices: Prices, cluster: str, models: Iterable[str], at: datetime) -> Iterator[str]:
    """Yield a sentence for each model: its hourly price and how that is derived."""
    for model in sorted(set(models)):
        found = prices.price(cluster, model, at)
        name = model or "a GPU of unknown model"
        if found is None:
            yield f"{name}: no price"
        else:
            yield f"{name}: {found.per_gpu_hour:,.2f} {prices.currency} a GPU-hour ({found.owner}: {found.how})"


def _fits(one: PriceSettings, cluster: str, model: str, at: datetime) -> bool:
    begins = one.first_day
    return (
        one.cluster in {"", cluster}
        and one.model.lower() in model.lower()
        and (begins is None or begins <= at)
    )


def _rank(one: PriceSettings) -> tuple[bool, int, float]:
    begins = one.first_day
    return bool(one.cluster), len(one.model), -1.0 if begins is None else begins.timestamp()


def _price(one: PriceSettings, settings: CostSettings) -> Price:
    if one.per_gpu_hour is not None:
        return Price(per_gpu_hour=one.per_gpu_hour, owner=one.owner, how="rented")
    assert one.purchase is not None
    assert one.years is not None
    written_off = one.purchase / (one.years * HOURS_OF_A_YEAR)
    how = f"purchase over {one.years:g} years"
    if one.watts is None or settings.electricity is None:
        return Price(per_gpu_hour=written_off, owner=one.owner, how=how)
    power = one.watts / 1000.0 * settings.pue * settings.electricity
    how += f", {one.watts:g} W at PUE {settings.pue:g} and {settings.electricity:g} {settings.currency}/kWh"
    return Price(per_gpu_hour=written_off + power, owner=one.owner, how=how)


def _own(incident: Incident, models: Mapping[str, str]) -> list[str]:
    """Return the GPUs in `models` that the incident names, or else those of its node."""
    named = [key for key in sorted({incident.subject.key, *incident.members}) if key in models]
    return named or [key for key in models if key.startswith(f"{incident.subject.of_node().key}/")]
