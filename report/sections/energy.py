"""GPU energy by team: of the boards, with PUE, CO2e, and the change from the previous span."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ..inputs.facts import Facts, SpanData
from ..model.rounding import energy_kwh, near
from ..model.sheet import Cell, Column, Kind, Sheet, exact
from .waste import MOST_GROUPS, NO_NAME, Wasted

NOBODY = "not allocated"
_JOULES = 3.6e6


def energy(facts: Facts, rows: Sequence[Wasted], before: Sequence[Wasted] | None) -> Sheet | None:
    """Return a row per team, the largest first, and energy of GPUs that nobody had; None if nothing was measured."""
    seconds = facts.usage.seconds
    if seconds.powered <= 0:
        return None
    found = _by_team(rows, facts.now)
    earlier = None if before is None else _by_team(before, facts.earlier)
    if not facts.earlier.usage.seconds.powered:
        earlier = None
    teams = sorted((one for one in found if one != NOBODY), key=lambda name: (-found[name], name))
    first, rest = teams[:MOST_GROUPS], teams[MOST_GROUPS:]
    lists = [([name], name) for name in first]
    lists += [(rest, f"{len(rest):,} more")] if rest else []
    lists += [([NOBODY], NOBODY)] if found[NOBODY] > 0 else []
    columns = (
        Column(key="name", label="Team"),
        Column(key="energy_kwh", label="GPU boards", kind=Kind.ENERGY),
        Column(key="site_kwh", label=f"With PUE {_pue(facts):g}", kind=Kind.ENERGY),
        Column(key="carbon_kg", label="CO2e, estimate", kind=Kind.CARBON),
        Column(
            key="energy_change",
            label=f"GPU boards, vs {facts.before_word}",
            kind=Kind.MORE_ENERGY,
            more_is="worse",
        ),
    )
    absent = {
        *(() if _grams(facts) else ("carbon_kg",)),
        *(() if _pue(facts) > 1 else ("site_kwh",)),
    }
    return Sheet(
        key="energy",
        heading="Energy by team",
        caption=_caption(facts),
        columns=columns,
        rows=tuple(_row(name, them, found, earlier, facts) for them, name in lists),
        total=_row("all", list(found), found, earlier, facts),
    ).without(absent)


def _caption(facts: Facts) -> str:
    said = "GPU boards as measured, not hosts or switches"
    settings = facts.prices.settings
    if _grams(facts):
        source = f", {settings.carbon_source}" if settings.carbon_source else ""
        return f"{said}; CO2e is an estimate by one factor, {settings.carbon_grams:g} g/kWh{source}"
    return f"{said}; CO2 is not known without cost.carbon_grams"


def _row(
    name: str,
    of: Iterable[str],
    now: dict[str, float],
    before: dict[str, float] | None,
    facts: Facts,
) -> tuple[Cell, ...]:
    names = set(of)
    kwh = sum(now.get(one, 0.0) for one in names)
    change = None
    if before is not None:
        # In the total, teams that are gone count as well.
        names = set(before) | names if name == "all" else names
        old = facts.longer * sum(before.get(one, 0.0) for one in names)
        # Calculated from rounded values, as the figure at the top is.
        change = near(energy_kwh(kwh * _JOULES) - energy_kwh(old * _JOULES), 2)
    carbon = facts.prices.carbon_kilograms(kwh * _JOULES)
    return (
        name,
        energy_kwh(kwh * _JOULES),
        energy_kwh(facts.prices.site_kilowatt_hours(kwh * _JOULES) * _JOULES),
        None if carbon is None else exact(carbon),
        change,
    )


def _by_team(rows: Iterable[Wasted], past: SpanData) -> dict[str, float]:
    """Return kWh by team, including what nobody held, which is 0 in a team's own edition."""
    found: defaultdict[str, float] = defaultdict(float)
    for one in rows:
        found[one.held.account or NO_NAME["account"]] += one.held.kilowatt_hours
    held = sum(found.values())
    return {**found, NOBODY: max(past.usage.seconds.energy_joules / _JOULES - held, 0.0)}


def _pue(facts: Facts) -> float:
    return facts.prices.settings.pue


def _grams(facts: Facts) -> bool:
    return facts.prices.settings.carbon_grams is not None
