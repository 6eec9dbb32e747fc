"""What the GPU-hours of a report cost, where the configuration has a price for them."""

from collections.abc import Iterator
from datetime import timedelta

from accounting.cost.by_use import spent
from accounting.cost.money import listed, models_of

from .content import Cost
from .holders import claims
from .inputs import Facts
from .rounding import HOUR, near
from .totals import Counted


def costs(facts: Facts, usage: Counted, digits: int) -> tuple[Cost, ...]:
    """Of what was held, of that what was at 0 %, and of that what the idle rule found."""
    found: list[Cost] = []
    for key, label, amount in (
        ("held", "held", "allocated"),
        ("zero", "held, at 0 %", "idle"),
    ):
        one = spent(usage.buckets, facts.prices, amount)
        if one is not None:
            found.append(_cost(key, label, one.gpu_hours, one.cost, digits))
    hours, cost = _idle(facts, usage)
    if found and hours:
        found.append(_cost("idle", "idle and held (the idle rule)", hours, cost, digits))
    return tuple(found)


def cost_notes(facts: Facts) -> Iterator[str]:
    """The prices and how they come about, and carbon, which is an estimate."""
    usage = facts.usage
    if facts.simulated or not usage.buckets:
        return
    if facts.prices:
        models = {model for bucket in usage.buckets for model in bucket.models}
        yield from (
            f"Price: {one}." for one in listed(facts.prices, facts.cluster, models, usage.end)
        )
    carbon = facts.prices.carbon_words(usage.seconds.energy_joules)
    if carbon and usage.seconds.powered > 0:
        yield f"CO2 of the GPU boards' energy: {carbon}."


def _idle(facts: Facts, usage: Counted) -> tuple[float, float]:
    """GPU-hours by the idle rule that have a price, and what they cost."""
    models = models_of(facts.inventories) if facts.prices else {}
    hours, total = 0.0, 0.0
    for _, (since, _), seconds in claims(facts.incidents, usage.start, usage.end):
        for gpu, of_gpu in seconds.items() if facts.prices else ():
            until = since + timedelta(seconds=of_gpu)
            cost = facts.prices.cost(facts.cluster, models.get(gpu.key), since, until)
            if cost is not None:
                hours += of_gpu / HOUR
                total += cost
    return hours, total


def _cost(key: str, label: str, hours: float, cost: float, digits: int) -> Cost:
    return Cost(key=key, label=label, gpu_hours=near(hours, digits), cost=near(cost, 2))
