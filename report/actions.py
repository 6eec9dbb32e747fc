"""Three things to do, by what they would save, and what became of those of the span before."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from gpuvigil.model import Incident

from . import formatting
from .content import Action, Became
from .hardware import fault_title, gpus_of, is_hardware
from .inputs import Facts
from .rounding import rounded
from .sheet import exact, hours
from .waste import Wasted

MOST = 3
_DAY = 24.0
_Key = tuple[str, str]  # "incident" and its id, or a holder's user and name


def actions(facts: Facts, rows: Sequence[Wasted]) -> tuple[Action, ...]:
    """What to do now: faults that stand, and GPUs that are idle still."""
    return tuple(one for _, one in _candidates(facts, facts.incidents, rows, facts.usage.end))


def became(
    facts: Facts, before: Sequence[Wasted] | None, now: Sequence[Wasted]
) -> tuple[Became, ...]:
    """The three of the span before, and how far each is at the end of this one."""
    end = facts.usage.end
    found = []
    for key, one in _candidates(facts, facts.earlier.incidents, before or (), facts.before.end):
        incident = next((it for it in facts.incidents if ("incident", it.id) == key), None)
        if key[0] == "incident":
            stands = incident is not None and (
                incident.resolved_at is None or incident.resolved_at > end
            )
            at = None if incident is None else incident.resolved_at
            how = (
                "It still stands."
                if stands
                else f"Over since {formatting.at(at)}."
                if at
                else "Over."
            )
        else:
            them = [it for it in now if (it.held.user, it.held.holder) == key]
            idle = sum(it.idle for it in them)
            stands = any(it.held.still for it in them)
            how = (
                f"{hours(idle)} more GPU-hours were idle."
                if idle
                else "Let go: none was idle since."
            )
        found.append(Became(text=one.text, became=how, done=not stands, rests_on=one.rests_on))
    return tuple(found)


def _candidates(
    facts: Facts, incidents: Iterable[Incident], rows: Iterable[Wasted], at: datetime
) -> list[tuple[_Key, Action]]:
    found = [_mend(one, facts) for one in incidents if _stands(one, at)]
    found += [_ask(one) for one in rows if one.held.still and one.held.is_one and one.idle > 0]
    found.sort(key=lambda one: (-one[1].gpu_hours_a_day, one[1].text))
    return found[:MOST]


def _stands(one: Incident, at: datetime) -> bool:
    over = one.resolved_at is not None and one.resolved_at <= at
    return is_hardware(one) and one.since <= at and not over and bool(one.action)


def _mend(one: Incident, facts: Facts) -> tuple[_Key, Action]:
    gpus = max(one.impact.gpus, len(gpus_of(one)))
    rates = [facts.prices.price(facts.cluster, model, facts.usage.end) for model in _models(facts)]
    priced = [rate.per_gpu_hour for rate in rates if rate is not None]
    action = Action(
        text=f"{one.label or one.subject.key}, {formatting.small(one.title)}: {one.action}",
        gpu_hours_a_day=gpus * _DAY,
        cost_a_day=rounded(gpus * _DAY * sum(priced) / len(priced), 2) if priced else None,
        rests_on=(f"incident/{one.id}", f"faults/{fault_title(one)}"),
    )
    return ("incident", one.id), action


def _models(facts: Facts) -> Iterable[str]:
    return facts.usage.buckets[-1].models if facts.usage.buckets else ()


def _ask(one: Wasted) -> tuple[_Key, Action]:
    held = one.held
    who = held.user or held.holder
    which = f" ({held.holder})" if held.user else ""
    gpus = formatting.counted(held.still, "GPU")
    action = Action(
        text=f"Ask {who}{which} whether {gpus} can be let go: {hours(exact(one.idle))} GPU-hours idle so far.",
        gpu_hours_a_day=held.still * _DAY,
        cost_a_day=None if held.price is None else rounded(held.still * _DAY * held.price, 2),
        rests_on=(f"jobs/{held.holder}",),
    )
    return (held.user, held.holder), action
