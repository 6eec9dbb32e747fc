"""The cost of GPU-hours held at 0 %: pure, from usage and prices."""

from collections import defaultdict
from collections.abc import Iterable

from ..usage import Bucket
from .money import Prices

_HOUR = 3600.0


def idle_sentence(buckets: Iterable[Bucket], prices: Prices) -> str:
    """Return `412 GPU-hours allocated at 0 % = 824 EUR`; empty without a price."""
    hours: defaultdict[str | None, float]
    total, cost = 0.0, 0.0
    for bucket in buckets if prices else ():
        hours = defaultdict(float)
        for share in bucket.shares:
            hours[share.model] += share.idle / _HOUR
        for model, number in hours.items():
            price = prices.price(bucket.cluster, model, bucket.start)
            if price is not None:
                total += number
                cost += number * price.per_gpu_hour
    return (
        f"{total:,.1f} GPU-hours allocated at 0 % = {prices.formatted(cost)}" if total > 0 else ""
    )
