"""From what was read to what the report says."""

from gpuvigil.clock import duration
from gpuvigil.model import GpuState

from . import formatting
from .capacity import capacity
from .content import Figure, Report
from .cost import costs
from .coverage import Coverage, comparison, coverage
from .figures import figures, parts, with_changes
from .hardware import fault_counts, is_hardware, troubles
from .holders import holders, idle_spells, idle_table
from .hours import LEAST_FOR_WEEK, days, grain, points, week
from .inefficiency import underuse
from .inputs import Facts
from .method import method
from .rounding import HOUR, decimals, near
from .rule_feedback import worth
from .summary import Case, actions, verdict
from .totals import Counted, counted


def build(facts: Facts) -> Report:
    """The report of one cluster."""
    usage, before = counted(facts.usage), counted(facts.before)
    start, end = usage.start, usage.end
    cover = coverage(usage, before)
    case, compared = _case(facts, usage, before, cover)
    digits, since = case.digits, cover.counted_since or start
    hardware = [one for one in facts.incidents if is_hardware(one)]
    idle, more_idle, idle_rest, idle_hours = idle_table(case.idle, digits)
    amounts = parts(usage.seconds, digits)
    at_zero = next(one.gpu_hours for one in amounts if one.state == GpuState.IDLE.value)
    held, more, rest, total = holders(usage, digits, at_zero)
    little, little_total, scattered = underuse(facts, digits)
    worst, more_troubles = troubles(hardware, start, end)
    word, step = grain(end - since)
    return Report(
        title=_title(facts),
        span=formatting.span(start, end),
        cluster=facts.cluster,
        simulated=facts.simulated,
        start=start,
        end=end,
        made_at=facts.made_at,
        gpus=usage.gpus,
        nodes=usage.nodes,
        models=dict(usage.buckets[-1].models) if usage.buckets else {},
        digits=digits,
        verdict=verdict(case),
        rules=worth(facts.opinions, facts.incidents),
        actions=actions(case),
        figures=tuple(case.figures.values()),
        comparison=compared,
        counted_from=since,
        grain=word,
        step=step,
        points=points(usage, step),
        hours=week(usage) if end - since >= LEAST_FOR_WEEK else (),
        days=days(usage, digits, case.number("unavailable_gpu_hours")),
        parts=amounts,
        installed_gpu_hours=near(sum(one.gpu_hours or 0.0 for one in amounts), digits),
        capacity=capacity(usage.seconds, digits),
        allocated_gpu_hours=total.gpu_hours,
        holders=held,
        more_holders=more,
        holders_rest=rest,
        holders_total=total,
        idle=idle,
        more_idle=more_idle,
        idle_rest=idle_rest,
        idle_gpu_hours=idle_hours,
        underused=little,
        underused_total=little_total,
        underused_hours=len(facts.wastes),
        scattered_gpu_hours=scattered,
        faults=fault_counts(hardware, start, end),
        troubles=worst,
        more_troubles=more_troubles,
        costs=tuple(case.costs),
        currency=facts.prices.currency if case.costs or little_total.cost else "",
        method=method(facts, cover, facts.incidents, word),
    )


def _case(facts: Facts, usage: Counted, before: Counted, cover: Coverage) -> tuple[Case, str]:
    """What the verdict is about, and the sentence about the comparison."""
    digits = decimals(usage.seconds.installed / HOUR)
    hardware = [one for one in facts.incidents if is_hardware(one)]
    spells = idle_spells(facts.incidents, usage.start, usage.end, digits)
    idle_hours = near(sum(one.gpu_hours for one in spells), digits)
    now = figures(usage, cover, idle_hours, len(hardware), digits)
    shown, compared = _compared(now, facts, before, cover, digits)
    case = Case(
        costs=costs(facts, usage, digits),
        said=facts.prices.said,
        usage=usage,
        cover=cover,
        figures={one.key: one for one in shown},
        digits=digits,
        idle=spells,
        holders=holders(usage, digits)[0],
        troubles=troubles(hardware, usage.start, usage.end)[0],
    )
    return case, compared


def _title(facts: Facts) -> str:
    if not facts.cluster:
        return "GPU report"
    mark = "SIMULATED: " if facts.simulated else ""
    return f"{mark}GPU report, cluster {facts.cluster}"


def _compared(
    now: tuple[Figure, ...], facts: Facts, before: Counted, cover: Coverage, digits: int
) -> tuple[tuple[Figure, ...], str]:
    """The six numbers with their changes, where the span before is known well enough."""
    earlier = coverage(before, before)
    span = f"the {duration(before.end - before.start)} before"
    allowed, said = comparison(cover, earlier, span)
    if not allowed:
        return now, said
    return with_changes(now, _earlier(before, earlier, facts, digits)), said


def _earlier(before: Counted, cover: Coverage, facts: Facts, digits: int) -> tuple[Figure, ...]:
    """The six numbers of the span before."""
    found = facts.incidents_before
    spells = idle_spells(found, before.start, before.end, digits)
    idle = sum(one.gpu_hours for one in spells)
    return figures(before, cover, idle, sum(map(is_hardware, found)), digits)
