"""Notes on prices and carbon, where the configuration has a price for the report's GPUs."""

from collections.abc import Iterator

from accounting.cost.money import listed

from ..inputs.facts import Facts


def cost_notes(facts: Facts) -> Iterator[str]:
    """Yield notes on prices and their origin, and on carbon, which is an estimate."""
    usage = facts.usage
    if not usage.buckets:
        return
    if facts.simulated and facts.priced:
        yield "SIMULATED prices: they are invented unless the configuration names this cluster in one."
    if facts.prices:
        models = {model for bucket in usage.buckets for model in bucket.models}
        yield from (
            f"Price: {one}." for one in listed(facts.prices, facts.cluster, models, usage.end)
        )
    carbon = facts.prices.carbon_words(usage.seconds.energy_joules)
    if carbon and usage.seconds.powered > 0:
        yield f"CO2 of the GPU boards' energy: {carbon}."
