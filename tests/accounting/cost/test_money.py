"""What GPU-hours cost: from prices of the configuration, and nothing without one."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.cost.example import of_cluster, of_clusters
from accounting.cost.money import Prices, incident_cost, incident_rate, incident_words, listed
from gpuvigil.config import CostSettings, PriceSettings, load
from gpuvigil.errors import ConfigError
from gpuvigil.model import (
    RESERVED_CLUSTERS,
    SIMULATED_CLUSTER,
    Impact,
    Incident,
    Severity,
    Subject,
)

NEW_YEAR = datetime(2026, 1, 1, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
H100 = "NVIDIA H100 80GB HBM3"
BOUGHT = PriceSettings(model="H100", purchase=35_064.0, years=4, watts=1_000.0)
RENTED = PriceSettings(model="H100", owner="cloud", since="2026-01-01", per_gpu_hour=3.0)
DEARER = replace(RENTED, since="2026-07-01", per_gpu_hour=4.0)


def prices(*them: PriceSettings, **more: float) -> Prices:
    settings = {"electricity": 0.2, "pue": 1.5, **more}
    return Prices(settings=CostSettings(prices=them, **settings))  # type: ignore[arg-type]


def test_a_bought_gpu_costs_its_purchase_and_what_it_draws() -> None:
    found = prices(BOUGHT).price("lab", H100, NEW_YEAR)
    assert found is not None
    assert found.per_gpu_hour == pytest.approx(1.0 + 1.0 * 1.5 * 0.2)
    assert "purchase over 4 years" in found.how


def test_what_has_no_price_has_no_cost_and_neither_has_what_is_simulated() -> None:
    of = prices(BOUGHT)
    assert of.cost("lab", "NVIDIA A100", NEW_YEAR, NEW_YEAR + HOUR) is None
    for cluster in RESERVED_CLUSTERS:
        assert of.cost(cluster, H100, NEW_YEAR, NEW_YEAR + HOUR) is None
    assert prices(RENTED).cost("lab", H100, NEW_YEAR - HOUR, NEW_YEAR + HOUR) is None
    assert not prices()


def test_the_simulated_cluster_has_invented_prices_unless_the_site_names_it() -> None:
    site = CostSettings(currency="CHF", prices=(RENTED,))
    assert of_cluster(site, "lab").currency == "CHF"
    invented = of_cluster(site, SIMULATED_CLUSTER)
    found = invented.price(SIMULATED_CLUSTER, H100, NEW_YEAR)
    assert found is not None
    assert found.owner == "own, an example"
    assert of_clusters(site, [SIMULATED_CLUSTER] * 2) == invented
    for shown in ([SIMULATED_CLUSTER, "lab"], ["lab"], []):
        assert of_clusters(site, shown).currency == "CHF"
    own = replace(site, prices=(replace(RENTED, cluster=SIMULATED_CLUSTER, since=""),))
    price = of_cluster(own, SIMULATED_CLUSTER).price(SIMULATED_CLUSTER, H100, NEW_YEAR)
    assert price is not None
    assert price.owner == RENTED.owner


def test_the_price_that_names_most_counts_and_of_those_the_newest() -> None:
    any_model = PriceSettings(per_gpu_hour=9.0, since="2026-03-01")
    spot = PriceSettings(cluster="spot", owner="cloud's spot", per_gpu_hour=1.0)
    of = prices(any_model, RENTED, DEARER, spot)
    summer = NEW_YEAR + timedelta(days=200)

    def hourly(cluster: str, model: str, at: datetime) -> float | None:
        found = of.price(cluster, model, at)
        return None if found is None else found.per_gpu_hour

    assert hourly("lab", H100, NEW_YEAR) == 3.0
    assert hourly("lab", H100, summer) == 4.0
    assert hourly("lab", "NVIDIA A100", summer) == 9.0
    assert hourly("spot", H100, summer) == 1.0


@given(st.lists(st.integers(0, 400), min_size=2, max_size=6))
def test_a_span_costs_what_its_parts_cost(days: list[int]) -> None:
    of = prices(RENTED, DEARER)
    edges = sorted(NEW_YEAR + timedelta(days=day, hours=5) for day in days)
    whole = of.cost("lab", H100, edges[0], edges[-1])
    parts = [of.cost("lab", H100, a, b) for a, b in pairwise(edges)]
    assert whole == pytest.approx(sum(part or 0.0 for part in parts))
    hours = (edges[-1] - edges[0]) / HOUR
    assert 3.0 * hours <= (whole or 0.0) <= 4.0 * hours


def test_carbon_is_an_estimate_with_its_factor() -> None:
    joules = 3.6e6 * 100
    assert prices().carbon_kilograms(joules) is None
    assert prices().carbon_words(joules) == ""
    of = prices(carbon_grams=400.0)
    assert of.carbon_kilograms(joules) == pytest.approx(60.0)
    assert of.carbon_words(joules) == "about 60 kg CO2e (estimate: 400 g/kWh; PUE 1.5)"


def idle(gpus: int, **more: object) -> Incident:
    gpu = Subject(cluster="lab", node="n1", gpu="GPU-0")
    return Incident(
        id="i",
        fingerprint="f",
        fault="gpu_idle_held",
        subject=gpu,
        severity=Severity.INFO,
        state="open",
        title="idle",
        since=NEW_YEAR,
        updated_at=NEW_YEAR,
        impact=Impact(gpus=gpus),
        members=(gpu.key,),
        **more,  # type: ignore[arg-type]
    )


def test_an_incident_costs_the_hours_of_its_own_gpus_and_by_the_hour_all_that_wait() -> None:
    of, later = prices(RENTED), NEW_YEAR + 10 * HOUR
    models = {"lab/n1/gpu/GPU-0": H100, "lab/n2/gpu/GPU-9": "NVIDIA A100"}
    assert incident_cost(of, idle(1), models, later) == 10 * 3.0
    assert incident_words(of, idle(1), models, later) == (
        "costs 3.00 EUR/h, about 30.00 EUR of GPU time so far"
    )
    # A job of 512 GPUs that began ten minutes ago has not waited since the incident's beginning.
    assert incident_rate(of, idle(512), models, later) == 512 * 3.0
    assert incident_cost(of, idle(512), models, later) == 10 * 3.0
    assert incident_words(of, idle(512), models, later) == (
        "costs 1,536 EUR/h, about 30.00 EUR of its own GPU time so far"
    )
    over = idle(1, resolved_at=NEW_YEAR + HOUR)
    assert incident_words(of, over, models, later) == "about 3.00 EUR of GPU time in all"


def test_of_a_node_its_gpus_cost_and_of_a_port_only_those_that_wait() -> None:
    of, later = prices(RENTED), NEW_YEAR + 10 * HOUR
    models = {f"lab/n1/gpu/GPU-{number}": H100 for number in range(4)}
    node = replace(idle(4), subject=Subject(cluster="lab", node="n1"), members=())
    assert incident_cost(of, node, models, later) == 4 * 10 * 3.0
    fewer = replace(node, impact=Impact(gpus=2))  # the others are not hit any more
    assert incident_cost(of, fewer, models, later) == 2 * 10 * 3.0
    port = replace(node, subject=Subject(cluster="lab", node="n1", device="mlx5_0", port="1"))
    assert incident_words(of, port, models, later) == "costs 12.00 EUR/h"


def test_without_a_price_a_model_or_a_gpu_an_incident_costs_nothing_known() -> None:
    of, later = prices(RENTED), NEW_YEAR + 10 * HOUR
    models = {"lab/n1/gpu/GPU-0": H100}
    for them, known, bill in (
        (idle(8), {}, of),
        (idle(0), models, of),
        (idle(8), models, prices()),
    ):
        assert incident_cost(bill, them, known, later) is None
        assert incident_rate(bill, them, known, later) is None
        assert incident_words(bill, them, known, later) == ""


def test_prices_are_listed_with_how_they_come_about() -> None:
    assert list(listed(prices(RENTED), "lab", [H100, "T4"], NEW_YEAR)) == [
        f"{H100}: 3.00 EUR a GPU-hour (cloud: rented)",
        "T4: no price",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[cost.prices]]\nmodel = 'H100'", "either per_gpu_hour or purchase"),
        ("[[cost.prices]]\nper_gpu_hour = 1\nsince = '1.1.26'", "line 3, cost.prices.since"),
        ("[[cost.prices]]\npurchase = 1000", "purchase and years go together"),
        ("[[cost.prices]]\npurchase = 1\nyears = 4\nwatts = 700", "is needed where"),
        ("[[cost.prices]]\nper_gpu_hour = -1", "more than 0"),
        ("[cost]\npue = 0.9", "cost.pue: must be from 1 to 5"),
    ],
)
def test_what_makes_no_price_is_said_with_its_place(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "gpuvigil.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load(file, {})


def test_prices_are_read_from_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "gpuvigil.toml"
    file.write_text(
        "[cost]\ncurrency = 'CHF'\nelectricity = 0.2\n"
        "[[cost.prices]]\nmodel = 'H100'\npurchase = 30000\nyears = 5\nwatts = 1200\n"
        "[[cost.prices]]\ncluster = 'rent'\nper_gpu_hour = 2\nsince = '2026-02-01'\n"
    )
    found = Prices(settings=load(file, {}).cost)
    assert found
    assert found.formatted(1234.5) == "1,234 CHF"
    assert found.changes(NEW_YEAR, NEW_YEAR + timedelta(days=90)) == (
        datetime(2026, 2, 1, tzinfo=timezone.utc),
    )
