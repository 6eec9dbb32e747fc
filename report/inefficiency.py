"""Who was busy and got little out of their GPUs over the span, and what that came to."""

from collections import defaultdict
from collections.abc import Sequence

from accounting.cost.money import Prices
from accounting.efficiency.inefficient_hours import Waste, WasteHour

from .content import Underuse
from .inputs import Facts
from .rounding import near, shared

MOST = 10
_Key = tuple[str, str, str]  # holder, user, advice


def underuse(facts: Facts, digits: int) -> tuple[tuple[Underuse, ...], Underuse, float]:
    """The first ten, the rest as one row, all together, and GPU-hours of free GPUs that lay scattered."""
    found: defaultdict[_Key, list[tuple[Waste, float | None]]] = defaultdict(list)
    for hour in facts.wastes:
        for one in hour.wastes:
            key = one.holder, one.user or "", one.advice
            found[key].append((one, _cost(facts.prices, hour, one)))
    ranked = sorted(found.items(), key=lambda one: (-_hours(one[1]), one[0]))
    groups = [(key, them) for key, them in ranked[:MOST]]
    rest = ranked[MOST:]
    if len(rest) == 1:
        groups, rest = ranked, []
    if rest:
        groups.append(((f"{len(rest):,} more", "", ""), [one for _, them in rest for one in them]))
    every = [one for _, them in ranked for one in them]
    total = near(_hours(every), digits)
    hours = shared([_hours(them) for _, them in groups], total, digits)
    rows = tuple(_row(key, them, amount) for (key, them), amount in zip(groups, hours, strict=True))
    scattered = near(float(sum(hour.scattered_gpus for hour in facts.wastes)), digits)
    return rows, _row(("all", "", ""), every, total), scattered


def _row(key: _Key, them: Sequence[tuple[Waste, float | None]], hours: float) -> Underuse:
    holder, user, advice = key
    costs = [cost for _, cost in them if cost is not None]
    return Underuse(
        holder=holder,
        user=user,
        advice=advice,
        gpus=max(one.gpus for one, _ in them) if advice else None,
        gpu_hours=hours,
        cost=near(sum(costs), 2) if costs and len(costs) == len(them) else None,
    )


def _hours(them: Sequence[tuple[Waste, float | None]]) -> float:
    return sum(one.gpu_hours for one, _ in them)


def _cost(prices: Prices, hour: WasteHour, one: Waste) -> float | None:
    found = prices.price(hour.cluster, one.model, hour.start)
    return None if found is None else found.per_gpu_hour * one.gpu_hours
