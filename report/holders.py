"""Who had the GPU-hours, and who held GPUs that computed nothing."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from accounting.efficiency.idleness import IDLE
from accounting.usage import Share, share_percent
from accounting.usage.ownership import NOBODY_KNOWN
from gpuvigil.model import Incident, Subject

from .content import Holder, IdleSpell
from .rounding import HOUR, near, rounded, shared
from .totals import Counted

MOST_HOLDERS = 15
MOST_IDLE = 10
NOT_KNOWN = "holder not known"
_Interval = tuple[datetime, datetime]


def holders(
    usage: Counted, digits: int, idle_gpu_hours: float | None = None
) -> tuple[tuple[Holder, ...], int, Holder | None, Holder]:
    """The first 15, how many more, those together, and the total; the rows add up to the total.

    `idle_gpu_hours`: those at 0 % as the states say them, rounded with the others to their sum.
    """
    listed = list(usage.shares)
    unnamed = usage.seconds.allocated - sum(one.allocated for one in listed)
    if unnamed > 0.5:
        listed.append(_nobody(usage, listed, unnamed))
    first, rest = listed[:MOST_HOLDERS], listed[MOST_HOLDERS:]
    if len(rest) == 1:
        first, rest = listed, []
    groups = [[one] for one in first] + ([rest] if rest else [])
    hours = _on_grid([_sum(group, "allocated") for group in groups], digits)
    idle = [_sum(group, "idle") / HOUR for group in groups]
    zero_hours = near(sum(idle), digits)
    if idle_gpu_hours is not None and abs(zero_hours - idle_gpu_hours) < 1.5 * 10.0**-digits:
        zero_hours = idle_gpu_hours
    zero = shared(idle, zero_hours, digits)
    rows = [_row(group, hours[n], zero[n]) for n, group in enumerate(groups)]
    total = _row(listed, near(sum(hours), digits), near(sum(zero), digits))
    total = replace(total, used_percent=rounded(usage.used_percent))
    last = replace(rows.pop(), holder=f"{len(rest):,} more") if rest else None
    return tuple(rows), len(rest), last, replace(total, holder="all")


def _nobody(usage: Counted, listed: Sequence[Share], allocated: float) -> Share:
    seconds = usage.seconds
    return Share(
        holder=NOT_KNOWN,
        user=None,
        command=None,
        gpus=0,
        allocated=allocated,
        measured=max(seconds.measured - _sum(listed, "measured"), 0.0),
        used=max(seconds.used - _sum(listed, "used"), 0.0),
        idle=max(seconds.idle - _sum(listed, "idle"), 0.0),
    )


def _row(group: Sequence[Share], gpu_hours: float, zero: float) -> Holder:
    one = group[0] if len(group) == 1 else None
    return Holder(
        holder=_name(one) if one else "",
        user=one.user if one else None,
        command=one.command if one else None,
        gpus=(one.gpus or None) if one else None,
        gpu_hours=gpu_hours,
        used_percent=rounded(share_percent(_sum(group, "used"), _sum(group, "measured"))),
        zero_gpu_hours=zero,
    )


def _name(share: Share) -> str:
    return NOT_KNOWN if share.holder == NOBODY_KNOWN else share.holder


def _sum(shares: Iterable[Share], name: str) -> float:
    return float(sum(getattr(one, name) for one in shares))


def _on_grid(seconds: Sequence[float], digits: int) -> tuple[float, ...]:
    hours = [one / HOUR for one in seconds]
    return shared(hours, near(sum(hours), digits), digits)


def idle_spells(
    incidents: Iterable[Incident], start: datetime, end: datetime, digits: int
) -> tuple[IdleSpell, ...]:
    """What the idle rule found, clipped to the span, most GPU-hours first.

    Several incidents may speak of one GPU at one time, of it alone and of it with others of its
    holder: its time counts once, for the incident with most GPUs.
    """
    rows: list[tuple[float, IdleSpell]] = []
    for one, span, seconds in claims(incidents, start, end):
        total = sum(seconds.values())
        if total > 0:
            rows.append((total, _spell(one, span, max(seconds.values()))))
    rows.sort(key=lambda row: (-row[0], row[1].where, row[1].holder))
    amounts = _on_grid([seconds for seconds, _ in rows], digits)
    return tuple(
        replace(row, gpu_hours=amount) for (_, row), amount in zip(rows, amounts, strict=True)
    )


def claims(
    incidents: Iterable[Incident], start: datetime, end: datetime
) -> Iterator[tuple[Incident, _Interval, dict[Subject, float]]]:
    """Each incident of the idle rule, its part of the span, and the seconds of GPUs that are its own."""
    found = [one for one in incidents if one.fault == IDLE]
    found.sort(key=lambda one: (-len(idle_gpus(one)), one.since, one.id))
    taken: dict[Subject, list[_Interval]] = {}
    for one in found:
        span = max(one.since, start), min(one.resolved_at or end, end)
        yield (
            one,
            span,
            {gpu: _claim(taken.setdefault(gpu, []), span) for gpu in idle_gpus(one)},
        )


def idle_table(
    spells: Sequence[IdleSpell], digits: int
) -> tuple[tuple[IdleSpell, ...], int, IdleSpell | None, float]:
    """The first ten, how many more, those together, and the GPU-hours of all."""
    total = near(sum(one.gpu_hours for one in spells), digits)
    if len(spells) <= MOST_IDLE + 1:
        return tuple(spells), 0, None, total
    rest = spells[MOST_IDLE:]
    together = IdleSpell(
        where=f"{len(rest):,} more",
        holder="",
        user="",
        gpus=None,
        since=None,
        hours=None,
        gpu_hours=near(sum(one.gpu_hours for one in rest), digits),
        still=False,
    )
    return tuple(spells[:MOST_IDLE]), len(rest), together, total


def idle_gpus(incident: Incident) -> tuple[Subject, ...]:
    """The GPUs that an idle incident is about."""
    found: dict[Subject, None] = {}  # in their order; a job may have thousands
    for key in (incident.subject.key, *incident.members):
        try:
            subject = Subject.parse(key)
        except ValueError:
            continue
        if subject.kind == "gpu":
            found[subject] = None
    return tuple(found)


def _spell(incident: Incident, span: _Interval, seconds: float) -> IdleSpell:
    label = incident.label or incident.subject.key
    which = incident.gpus.partition("(")[2].removesuffix(")")
    return IdleSpell(
        where=f"{label} {which}" if which and incident.subject.kind == "node" else label,
        holder=", ".join(incident.impact.holders) or NOT_KNOWN,
        user=", ".join(incident.impact.users),
        gpus=len(idle_gpus(incident)),
        since=incident.since,
        hours=near(seconds / HOUR, 1),
        gpu_hours=0.0,
        still=incident.resolved_at is None or incident.resolved_at > span[1],
    )


def _claim(taken: list[_Interval], span: _Interval) -> float:
    """Seconds of `span` that nobody had taken yet; they are taken now."""
    free = [span]
    for start, end in taken:
        free = [
            piece
            for left, right in free
            for piece in ((left, min(right, start)), (max(left, end), right))
            if piece[0] < piece[1]
        ]
    taken.append(span)
    return sum((right - left).total_seconds() for left, right in free)
