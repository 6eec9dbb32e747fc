"""What an incident costs while it stands, in words for a message: pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from gpuvigil.model import Incident, Inventory, Subject
from gpuvigil.money import Prices, incident_words


def cost_words(prices: Prices, incident: Incident, models: Mapping[str, str], now: datetime) -> str:
    """`costs 32.00 EUR/h, about 64.00 EUR of GPU time so far`; empty where no price is known.

    `models` has the model of each GPU by its subject's key.
    """
    return incident_words(prices, incident, models, now) if prices else ""


def models_of(inventories: Iterable[Inventory]) -> dict[str, str]:
    """The model of each GPU by its subject's key, the real ones only."""
    return {
        Subject(cluster=node.subject.cluster, node=node.subject.node, gpu=gpu.uuid).key: gpu.model
        for node in inventories
        if node.subject.real
        for gpu in node.gpus
    }
