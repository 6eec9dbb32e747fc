"""On premises against cloud, from the site's own prices: what these hours would have cost elsewhere."""

from collections.abc import Sequence

from gpuvigil.config import PriceSettings

from ..inputs.facts import Facts
from ..model.rounding import HOUR, rounded
from ..model.sheet import Cell, Column, Kind, Sheet, exact
from .waste import Wasted

_COLUMNS = (
    Column(key="model", label="Model"),
    Column(key="elsewhere", label="Elsewhere"),
    Column(key="held_gpu_hours", label="Allocated GPU-h", kind=Kind.HOURS),
    Column(key="own_cost", label="All of them, here", kind=Kind.MONEY),
    Column(key="other_cost", label="What was allocated, there", kind=Kind.MONEY),
    Column(key="held", label="Allocated", kind=Kind.PERCENT, bar=True),
    Column(key="break_even", label="Even from", kind=Kind.PERCENT),
)


def cloud(facts: Facts, them: Sequence[Wasted]) -> Sheet | None:
    """Return a row per bought model that another cluster's name has a rent for; None without one.

    Here all hours of the GPUs cost, held or not; elsewhere only held hours do.
    """
    usage = facts.usage
    if not usage.buckets or not facts.priced:
        return None
    models = usage.buckets[-1].models
    rows: list[tuple[Cell, ...]] = []
    for model in sorted(models):
        own = facts.prices.price(facts.cluster, model, usage.end)
        owned = sum(one.models.get(model, 0) * one.counted.total_seconds() for one in usage.buckets)
        held = sum(one.held.allocated for one in them if (one.held.model or model) == model)
        for other in _elsewhere(facts, model):
            assert other.per_gpu_hour is not None
            if own is None or not owned or own.how == "rented":
                continue
            rows.append(
                (
                    model,
                    other.owner,
                    exact(held),
                    exact(owned / HOUR * own.per_gpu_hour),
                    exact(held * other.per_gpu_hour),
                    rounded(100 * held * HOUR / owned),
                    rounded(min(100 * own.per_gpu_hour / other.per_gpu_hour, 999.0)),
                )
            )
    if not rows:
        return None
    return Sheet(
        key="cloud",
        heading="On premises against cloud",
        caption=f"In {facts.currency}; from the share allocated on that makes both cost the same, owning is cheaper",
        columns=_COLUMNS,
        rows=tuple(rows),
        currency=facts.currency,
    )


def _elsewhere(facts: Facts, model: str) -> list[PriceSettings]:
    """Return up to three rents of that model at other places, the cheapest first."""
    found = [
        one
        for one in facts.prices.settings.prices
        if one.per_gpu_hour is not None
        and one.cluster not in {"", facts.cluster}
        and one.model
        and one.model.lower() in model.lower()
    ]
    return sorted(found, key=lambda one: (one.per_gpu_hour or 0.0, one.owner))[:3]
