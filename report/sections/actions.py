"""The three actions that would save most, and what became of the last report's."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from accounting.hardware.repeat_offenders import Offender, failures, offenders
from accounting.hardware.returns import newest
from accounting.usage import Usage
from gpuvigil.model import Incident, RmaState
from gpuvigil.numbers_in_words import counted

from ..inputs.facts import Facts, SpanData
from ..model import formatting
from ..model.content import Action, Became
from ..model.rounding import rounded
from ..model.sheet import exact, hours
from .hardware import fault_title, gpus_of, is_hardware
from .hit import held_gpus, hit
from .waste import Wasted, advice, reason

MOST = 3
# Past waste is reported from this many GPU-hours a day on, and from this share of what those jobs
# held.
LEAST_A_DAY, LEAST_SHARE = 1.0, 0.05
# An action counts as done when the waste is at most this share of what it was.
MUCH_LESS = 0.5
_DAY = 24.0
_INCIDENT, _STILL, _WASTE, _AGAIN = range(4)
# The kind, and an incident's id, a holder that is still idle, who wasted, or a node that failed
# repeatedly.
_Key = tuple[int, str, str]


def actions(facts: Facts, rows: Sequence[Wasted]) -> tuple[Action, ...]:
    """Return the top actions: on active faults, GPUs still idle, and waste that would continue."""
    return tuple(one for _, one in _candidates(facts, facts.now, rows))


def became(
    facts: Facts, before: Sequence[Wasted] | None, now: Sequence[Wasted]
) -> tuple[Became, ...]:
    """Return the last span's actions, and how far each is at the end of this span."""
    found = []
    for key, one in _candidates(facts, facts.earlier, before or ()):
        how, done = _HOW[key[0]](facts, key, before or (), now)
        found.append(Became(text=one.text, became=how, done=done, rests_on=one.rests_on))
    return tuple(found)


_Rows = Sequence[Wasted]


def _mended(facts: Facts, key: _Key, _: _Rows, __: _Rows) -> tuple[str, bool]:
    incident = next((it for it in facts.incidents if it.id == key[1]), None)
    if incident is None:
        return "Over.", True
    at = incident.resolved_at
    if at is None or at > facts.usage.end:
        return "It is still open.", False
    return f"Over since {formatting.at(at)}.", True


def _let_go(_: Facts, key: _Key, __: _Rows, now: _Rows) -> tuple[str, bool]:
    them = [it for it in now if (it.held.user, it.held.holder) == key[1:]]
    idle = sum(it.idle for it in them)
    said = f"{hours(idle)} more GPU-hours were idle." if idle else "Let go: none was idle since."
    return said, not any(it.held.still for it in them)


def _wastes_less(facts: Facts, key: _Key, before: _Rows, now: _Rows) -> tuple[str, bool]:
    earlier, later = (sum(it.hours for it in them if _who(it) == key[1:]) for them in (before, now))
    said = f"{hours(exact(later))} GPU-hours were wasted, after {hours(exact(earlier))}."
    return said, later <= MUCH_LESS * facts.longer * earlier


def _holds(facts: Facts, key: _Key, _: _Rows, __: _Rows) -> tuple[str, bool]:
    since = [it for it in failures(facts.lately) if it.node == key[1] and it.at >= facts.before.end]
    times = counted(len(since), "time")
    return (f"It failed {times} since." if since else "It has not failed since."), not since


_HOW: Mapping[int, Callable[[Facts, _Key, _Rows, _Rows], tuple[str, bool]]] = {
    _INCIDENT: _mended,
    _STILL: _let_go,
    _WASTE: _wastes_less,
    _AGAIN: _holds,
}


def _candidates(facts: Facts, past: SpanData, rows: _Rows) -> list[tuple[_Key, Action]]:
    at = past.usage.end
    found = [_mend(one, facts) for one in past.incidents if _is_open(one, at)]
    found += [_ask(one) for one in rows if _asked(one)]
    over = (*_wasted(past.usage, rows), *_failed(facts, past, rows))
    found += [one for one in over if one[1].gpu_hours_a_day >= LEAST_A_DAY]
    found.sort(key=lambda one: (-one[1].gpu_hours_a_day, one[1].text))
    return found[:MOST]


def _is_open(one: Incident, at: datetime) -> bool:
    over = one.resolved_at is not None and one.resolved_at <= at
    return is_hardware(one) and one.since <= at and not over and bool(one.action)


def _mend(one: Incident, facts: Facts) -> tuple[_Key, Action]:
    gpus = max(one.impact.gpus, len(gpus_of(one)))
    action = Action(
        text=f"{one.label or one.subject.key}, {formatting.small(one.title)}: {one.action}",
        gpu_hours_a_day=gpus * _DAY,
        cost_a_day=_worth(gpus * _DAY, facts),
        rests_on=(f"incident/{one.id}", f"faults/{fault_title(one)}"),
    )
    return (_INCIDENT, one.id, ""), action


def _worth(gpu_hours: float, facts: Facts) -> float | None:
    rate = facts.mean_rate
    return None if rate is None else rounded(gpu_hours * rate, 2)


def _asked(one: Wasted) -> bool:
    return bool(one.held.still) and one.held.is_one and one.idle > 0


def _ask(one: Wasted) -> tuple[_Key, Action]:
    held = one.held
    who = held.user or held.holder
    which = f" ({held.holder})" if held.user else ""
    gpus = counted(held.still, "GPU")
    action = Action(
        text=f"Ask {who}{which} whether {gpus} can be let go: {hours(exact(one.idle))} GPU-hours idle so far.",
        gpu_hours_a_day=held.still * _DAY,
        cost_a_day=None if held.price is None else rounded(held.still * _DAY * held.price, 2),
        rests_on=(f"jobs/{held.holder}",),
    )
    return (_STILL, held.user, held.holder), action


def _wasted(usage: Usage, rows: _Rows) -> Iterator[tuple[_Key, Action]]:
    """Yield each user's waste per day by jobs that no longer hold idle GPUs."""
    theirs: defaultdict[tuple[str, str], list[Wasted]] = defaultdict(list)
    for one in rows:
        if one.held.is_one and one.hours > 0 and not _asked(one):
            theirs[_who(one)].append(one)
    for who, them in theirs.items():
        if sum(one.hours for one in them) < LEAST_SHARE * sum(one.held.allocated for one in them):
            continue
        costs = [one.cost for one in them if one.cost is not None]
        yield (
            (_WASTE, *who),
            Action(
                text=_about(who, them),
                gpu_hours_a_day=exact(sum(one.hours for one in them) / _days(usage)),
                cost_a_day=rounded(sum(costs) / _days(usage), 2) if costs else None,
                rests_on=(f"jobs/{them[0].held.holder}", *([f"users/{who[0]}"] if who[0] else [])),
            ),
        )


def _who(one: Wasted) -> tuple[str, str]:
    """Return who can act: the user, else the holder itself when its user is unknown."""
    return one.held.user, "" if one.held.user else one.held.holder


def _about(who: tuple[str, str], them: Sequence[Wasted]) -> str:
    """Return the advice for jobs sorted by waste, the worst first."""
    worst = them[0]
    why = f"{reason(worst)} ({advice(worst)})."
    jobs = {one.held.holder for one in them}  # a job on GPUs of two models has two rows
    if len(jobs) == 1:
        start = f"Ask {who[0]} about" if who[0] else "Look at"
        return f"{start} {worst.held.holder}, which was {why}"
    total = hours(exact(sum(one.hours for one in them)))
    return f"Ask {who[0]} about {len(jobs):,} jobs that wasted {total} GPU-hours; {worst.held.holder} was {why}"


def _failed(facts: Facts, past: SpanData, rows: _Rows) -> Iterator[tuple[_Key, Action]]:
    """Yield nodes whose hardware failed repeatedly and that nobody has taken out yet; none for a team."""
    if facts.team:
        return
    span = past.usage.start, past.usage.end
    steps = newest(one for one in facts.returns if one.at < span[1])
    away = {one.subject.node for one in steps.values() if one.state is not RmaState.REPLACED}
    away |= {one.subject.node for one in past.incidents if _is_open(one, span[1])}
    worst: dict[str, Offender] = {}
    for it in offenders(failures(facts.lately), span[1]):
        if it.is_lemon and it.node not in away:
            worst.setdefault(it.node, it)
    for node, it in worst.items():
        ids = {one.incident for one in it.failures}
        them = [one for one in past.incidents if one.id in ids]
        saved = exact(hit(them, held_gpus(rows), span) / _days(past.usage))
        name = node if it.name == node else f"{node}, {it.part.value} {it.name}"
        again = counted(len(it.failures), "time")
        yield (
            (_AGAIN, node, ""),
            Action(
                text=f"Take {name} out and have it repaired: it failed {again} in 30 days.",
                gpu_hours_a_day=saved,
                cost_a_day=_worth(saved, facts),
                rests_on=(
                    f"offenders/{it.part.value}",
                    *sorted({f"faults/{fault_title(one)}" for one in them}),
                    *(f"incident/{one.id}" for one in them),
                ),
            ),
        )


def _days(usage: Usage) -> float:
    """Return the counted length of the span in days."""
    return (usage.end - usage.buckets[0].start) / timedelta(days=1) if usage.buckets else 1.0
