"""A message says what an incident costs, where somebody has said what a GPU costs."""

from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from accounting.cost.money import Prices
from alerts.messages.cost import Models, cost_words, models_of
from alerts.messages.message import message
from alerts.routing.notice import Kind, draft
from gpuvigil.config.pricing import CostSettings, PriceSettings
from gpuvigil.errors import HubUnavailable
from gpuvigil.model import GpuIdentity, Impact, Inventory, Subject
from tests.servers import QuickHub

from .examples import GPU, NOON, REAL, an_incident, opened, resolved

PRICES = Prices(settings=CostSettings(prices=(PriceSettings(per_gpu_hour=4.0),)))
MODELS = {REAL.key: "NVIDIA H100 80GB HBM3"}
LATER = NOON + timedelta(hours=2)
EIGHT = Impact(gpus=8, holders=("job 1234",), users=("alice",), accounts=("physics",))


def test_what_stands_costs_by_the_hour_and_what_is_over_in_all() -> None:
    incident = an_incident(subject=REAL, impact=EIGHT)
    said = cost_words(PRICES, incident, MODELS, LATER)
    assert said == "costs 32.00 EUR/h, about 8.00 EUR of its own GPU time so far"
    over = an_incident(subject=REAL, impact=EIGHT, resolved_at=LATER)
    assert cost_words(PRICES, over, MODELS, LATER) == "about 8.00 EUR of its own GPU time in all"


def test_without_a_price_a_model_or_a_real_gpu_nothing_is_said() -> None:
    incident = an_incident(subject=REAL, impact=EIGHT)
    assert cost_words(Prices(settings=CostSettings()), incident, MODELS, LATER) == ""
    assert cost_words(PRICES, incident, {}, LATER) == ""
    assert cost_words(PRICES, an_incident(impact=EIGHT), {GPU.key: "H100"}, LATER) == ""


def test_it_stands_between_who_is_hit_and_on_whose_account() -> None:
    step = opened(subject=REAL, impact=EIGHT)
    notice = draft(step, "chat", NOON)
    said = message(notice, LATER, "http://x", cost="costs 32.00 EUR/h")
    assert said.impact == (
        "8 GPUs blocked; allocated to job 1234 (alice); costs 32.00 EUR/h; account physics"
    )
    end = draft(resolved(subject=REAL, impact=EIGHT), "chat", NOON)
    assert end.kind is Kind.RESOLVED
    assert message(end, LATER, "http://x", cost="x").impact.startswith("until then: 8 GPUs")


@pytest.mark.server
def test_models_are_looked_at_beside_the_messages_which_go_without_them(tmp_path: Path) -> None:
    models = Models()
    gpu = GpuIdentity(uuid="GPU-1", index=0, pci_address=None, model="H100")
    node = Inventory(
        subject=REAL.of_node(), at=NOON, boot="b", tick_seconds=10.0, version="1", gpus=(gpu,)
    )
    with QuickHub(tmp_path) as process, closing(process.hub()) as hub:
        hub.write_records([node.to_record()])
        models.refresh(hub)
    with closing(process.hub()) as away, pytest.raises(HubUnavailable):
        models.refresh(away)
    assert models.known == {REAL.key: "H100"}  # what was known is still told


def test_models_are_those_of_real_inventories() -> None:
    def of(cluster: str) -> Inventory:
        one = GpuIdentity(uuid="GPU-1", index=0, pci_address=None, model="H100")
        subject = Subject(cluster=cluster, node="n1")
        return Inventory(
            subject=subject, at=NOON, boot="b", tick_seconds=10.0, version="1", gpus=(one,)
        )

    assert models_of([of("lab"), of("simulated")]) == {REAL.key: "H100"}
