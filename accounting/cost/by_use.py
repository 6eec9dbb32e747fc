"""What the GPU-hours of a span cost, by what became of them: pure, from usage and prices."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ..usage import Bucket
from .money import Prices

_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """GPU-hours that have a price, and what they cost."""

    gpu_hours: float
    cost: float


def spent(buckets: Iterable[Bucket], prices: Prices, amount: str) -> Spent | None:
    """Of what was held: `allocated`, or of that what was at 0 %, `idle`; None where none has a price."""
    hours: defaultdict[str | None, float]
    total, cost = 0.0, 0.0
    for bucket in buckets if prices else ():
        hours = defaultdict(float)
        for share in bucket.shares:
            hours[share.model] += getattr(share, amount) / _HOUR
        for model, number in hours.items():
            price = prices.price(bucket.cluster, model, bucket.start)
            if price is not None:
                total += number
                cost += number * price.per_gpu_hour
    return Spent(gpu_hours=total, cost=cost) if total > 0 else None


def idle_sentence(buckets: Iterable[Bucket], prices: Prices) -> str:
    """`412 GPU-hours held at 0 % = 824 EUR`; empty without a price."""
    found = spent(buckets, prices, "idle")
    if found is None:
        return ""
    return f"{found.gpu_hours:,.1f} GPU-hours held at 0 % = {prices.said(found.cost)}"
