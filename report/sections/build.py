"""Builds the report from the inputs."""

from collections.abc import Sequence

from gpuvigil.clock import duration

from ..inputs.facts import Facts
from ..model import formatting
from ..model.content import Report
from ..model.rounding import HOUR, decimals, near
from ..model.sheet import Sheet
from .act import act, losses
from .actions import actions, became
from .capacity import capacity
from .cloud import cloud
from .coverage import Coverage, comparison, coverage
from .energy import energy
from .figures import figures, parts, with_changes
from .hardware import is_hardware, troubles
from .hours import LEAST_FOR_WEEK, days, grain, points, week
from .method import method
from .reliability import hardware_sheets
from .rule_feedback import worth
from .summary import Case, verdict
from .waste import Wasted, groups, jobs, wasted
from .work_lost import work_lost


def build(facts: Facts) -> Report:
    """Return the report of one cluster."""
    usage, before = facts.usage, facts.before
    start, end = usage.start, usage.end
    cover = coverage(usage, before)
    rows, rows_before = wasted(facts.now, facts), wasted(facts.earlier, facts)
    case, compared = _case(facts, (rows, rows_before), cover)
    digits, since = case.digits, cover.counted_since or start
    amounts = parts(usage.seconds, digits)
    worst, more_troubles = troubles(filter(is_hardware, facts.incidents), start, end)
    word, step = grain(end - since)
    known = rows_before if before.buckets else None
    return Report(
        title=_title(facts),
        span=formatting.span(start, end, facts.calendar),
        covers=facts.calendar.covers,
        time_zone=facts.calendar.zone.key,
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
        rules=worth(facts.opinions, facts.incidents, facts.on_trial),
        actions=actions(facts, rows),
        became=became(facts, known, rows),
        figures=tuple(case.figures.values()),
        comparison=compared,
        counted_from=since,
        grain=word,
        step=step,
        points=points(usage, step, facts.calendar.zone),
        hours=week(usage, facts.calendar.zone) if end - since >= LEAST_FOR_WEEK else (),
        days=days(
            usage, digits, near(usage.seconds.unavailable / HOUR, digits), facts.calendar.zone
        ),
        parts=amounts,
        installed_gpu_hours=near(sum(one.gpu_hours or 0.0 for one in amounts), digits),
        capacity=capacity(usage.seconds, digits),
        allocated_gpu_hours=near(usage.seconds.allocated / HOUR, digits),
        sheets=_sheets(facts, rows, known) if usage.buckets else (),
        judged_hours=len(facts.now.wastes),
        scattered_gpu_hours=near(
            float(sum(hour.scattered_gpus for hour in facts.now.wastes)), digits
        ),
        troubles=worst,
        more_troubles=more_troubles,
        currency=facts.currency if facts.priced else "",
        team=facts.team,
        method=method(facts, cover, facts.incidents, word),
    )


def _sheets(
    facts: Facts, rows: Sequence[Wasted], before: Sequence[Wasted] | None
) -> tuple[Sheet, ...]:
    """Return every table, in reading order."""
    earlier = None if before is None else losses(facts.earlier, before)
    found = (
        act(losses(facts.now, rows), earlier, facts),
        *groups(rows, before, facts),
        jobs(rows, facts),
        energy(facts, rows, before),
        work_lost(facts),
        *hardware_sheets(facts, rows),
        cloud(facts, rows),
    )
    return tuple(one for one in found if one is not None)


def _case(
    facts: Facts, rows: tuple[Sequence[Wasted], Sequence[Wasted]], cover: Coverage
) -> tuple[Case, str]:
    """Return the numbers that the verdict is about, and the sentence about the comparison."""
    usage, before = facts.usage, facts.before
    digits = decimals(usage.seconds.installed / HOUR)
    now = figures(usage, cover, rows[0], sum(map(is_hardware, facts.incidents)), digits)
    earlier = coverage(before, before)
    allowed, compared = comparison(cover, earlier, facts.calendar.name_before(facts.span))
    if allowed:
        failed = sum(map(is_hardware, facts.earlier.incidents))
        now = with_changes(now, figures(before, earlier, rows[1], failed, digits), facts.longer)
        if facts.longer != 1.0:
            compared += (
                f" It had {duration(before.end - before.start)} and this span"
                f" {duration(usage.end - usage.start)}, so its sums are taken for as long a time."
            )
    case = Case(
        team=facts.team,
        said=lambda amount: f"{formatting.money(amount)} {facts.currency}",
        usage=usage,
        cover=cover,
        figures={one.key: one for one in now},
        digits=digits,
        rows=rows[0],
        troubles=troubles(filter(is_hardware, facts.incidents), usage.start, usage.end)[0],
    )
    return case, compared


def _title(facts: Facts) -> str:
    if not facts.cluster:
        return "GPU report"
    mark = "SIMULATED: " if facts.simulated else ""
    whose = f", team {facts.team}" if facts.team else ""
    return f"{mark}GPU report, cluster {facts.cluster}{whose}"
