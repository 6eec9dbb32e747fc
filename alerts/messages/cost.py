"""What an incident costs while it is open, in words for a message: pure, but for looking up models."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from accounting.cost.money import Prices, incident_words
from gpuvigil.hub_client import Hub
from gpuvigil.model import Incident, Inventory, RecordKind, Subject, readable

REFRESH_SECONDS = 60.0
_MOST_NODES = 100_000


class Models:
    """The models of GPUs, read by a thread of its own: no message waits for its cost."""

    def __init__(self) -> None:
        self.known: Mapping[str, str] = {}  # by the GPU's key

    def refresh(self, hub: Hub) -> None:
        """Read the models from the hub; HubError when it does not answer: the known ones stay."""
        found = hub.records(RecordKind.INVENTORY, limit=_MOST_NODES)
        self.known = models_of(readable(found, Inventory.from_record))


def cost_words(prices: Prices, incident: Incident, models: Mapping[str, str], now: datetime) -> str:
    """Return `costs 32.00 EUR/h, about 64.00 EUR of GPU time so far`, or nothing without a price.

    `models` has the model of each GPU by its subject's key.
    """
    return incident_words(prices, incident, models, now) if prices else ""


def models_of(inventories: Iterable[Inventory]) -> dict[str, str]:
    """Return the model of each GPU by its subject's key, the real ones only."""
    return {
        Subject(cluster=node.subject.cluster, node=node.subject.node, gpu=gpu.uuid).key: gpu.model
        for node in inventories
        if node.subject.real
        for gpu in node.gpus
    }
