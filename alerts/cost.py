"""What an incident costs while it stands, in words for a message: pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from gpuvigil.model import Incident, Inventory, Subject
from gpuvigil.money import Prices, incident_cost, incident_words

_HOUR = timedelta(hours=1)


def cost_words(prices: Prices, incident: Incident, models: Mapping[str, str], now: datetime) -> str:
    """`costs 32.00 EUR/h, about 128 EUR of GPU time so far`; empty where no price is known.

    `models` has the model of each GPU by its subject's key.
    """
    if not prices:
        return ""
    until_now = incident_words(prices, incident, models, now)
    if not until_now or incident.resolved_at is not None:
        return until_now
    last_hour = replace(incident, since=now - _HOUR)
    rate = incident_cost(prices, last_hour, models, now)
    return until_now if rate is None else f"costs {prices.said(rate)}/h, {until_now}"


def models_of(inventories: Iterable[Inventory]) -> dict[str, str]:
    """The model of each GPU by its subject's key, the real ones only."""
    return {
        Subject(cluster=node.subject.cluster, node=node.subject.node, gpu=gpu.uuid).key: gpu.model
        for node in inventories
        if node.subject.real
        for gpu in node.gpus
    }
