"""Invented prices for the simulated cluster, so that an example shows money; never used for a site's own.

A configuration with a price for the simulated cluster overrides them. They are round numbers: a
purchase of 30,000 USD for a GPU with its share of node and network, 2.5 USD per GPU-hour in a cloud.
"""

from collections.abc import Iterable

from gpuvigil.config.pricing import CostSettings, PriceSettings
from gpuvigil.model import SIMULATED_CLUSTER

from .money import Prices

EXAMPLE = CostSettings(
    currency="USD",
    electricity=0.12,
    pue=1.3,
    carbon_grams=380.0,
    carbon_source="an example",
    prices=(
        PriceSettings(
            cluster=SIMULATED_CLUSTER,
            owner="own, an example",
            purchase=30_000.0,
            years=5.0,
            watts=900.0,
        ),
        PriceSettings(
            cluster="a cloud", model="H100", owner="a cloud, an example", per_gpu_hour=2.5
        ),
    ),
)


def of_cluster(settings: CostSettings, cluster: str) -> Prices:
    """Return the site's prices; for the simulated cluster without a price there, the example's."""
    own = any(one.cluster == SIMULATED_CLUSTER for one in settings.prices)
    return Prices(settings=EXAMPLE if cluster == SIMULATED_CLUSTER and not own else settings)


def of_clusters(settings: CostSettings, clusters: Iterable[str]) -> Prices:
    """Return the prices for one table, which has one currency: the example's only if all clusters are simulated."""
    return of_cluster(settings, SIMULATED_CLUSTER if set(clusters) == {SIMULATED_CLUSTER} else "")
