"""The six figures at the top, and where the GPU-hours went."""

from collections.abc import Sequence
from dataclasses import replace

from accounting.usage import Seconds, Usage, share_percent
from gpuvigil.model import GpuState
from gpuvigil.schedulers.out_of_service import LostTo

from ..model.content import Figure, Part
from ..model.rounding import HOUR, energy_kwh, near, rounded, shared
from .coverage import Coverage, allocated_range, used_range
from .waste import Wasted

STATES: tuple[tuple[GpuState, str, str], ...] = (
    (GpuState.ACTIVE, "computing", "utilisation over 0 % at that moment"),
    (
        GpuState.IDLE,
        "allocated, at 0 %",
        "allocated to a process or job, and nothing ran at that moment",
    ),
    (GpuState.FREE, "free", "not allocated"),
    (
        GpuState.UNAVAILABLE,
        "unavailable",
        "lost, or its node was out of service: no job could begin on it",
    ),
    (GpuState.UNKNOWN, "unknown", "no trustworthy data"),
)


def parts(seconds: Seconds, digits: int) -> tuple[Part, ...]:
    """Return the five states; GPU-hours add up to the installed ones, shares to 100 %."""
    amounts = [seconds.of(state) / HOUR for state, _, _ in STATES]
    whole = sum(amounts)
    hours = shared(amounts, near(whole, digits), digits)
    if whole > 0:
        percents: tuple[float | None, ...] = shared([100 * a / whole for a in amounts], 100.0, 1)
    else:
        percents = (None,) * len(STATES)
    blind = {state for state, _, _ in STATES if seconds.measured_of(state) is None}
    return tuple(
        Part(
            state=state.value,
            label=label,
            meaning=text,
            gpu_hours=None if state in blind else hour,
            percent=None if state in blind else percent,
        )
        for (state, label, text), hour, percent in zip(STATES, hours, percents, strict=True)
    )


def figures(
    usage: Usage, cover: Coverage, rows: Sequence[Wasted], incidents: int, digits: int
) -> tuple[Figure, ...]:
    """Return the six figures, without changes."""
    return (
        _service(usage, digits),
        _allocated(usage, cover),
        _used(usage, cover),
        _idle(usage, rows, digits),
        _incidents(usage, incidents),
        _energy(usage),
    )


def _allocated(usage: Usage, cover: Coverage) -> Figure:
    low, high = allocated_range(usage, cover) or (None, None)
    return Figure(
        key="allocated_percent",
        label="Allocated",
        unit="percent",
        value=rounded(usage.allocated_percent),
        low=low,
        high=high,
        note="of GPU-hours allocated to somebody",
    )


def _used(usage: Usage, cover: Coverage) -> Figure:
    known = None if usage.used_percent is None else used_range(usage, cover)
    low, high = known or (None, None)
    return Figure(
        key="used_of_allocated_percent",
        label="Used of allocated",
        unit="percent",
        value=rounded(usage.used_percent),
        low=low,
        high=high,
        more_is="better",
        note="mean utilisation while allocated",
    )


def _idle(usage: Usage, rows: Sequence[Wasted], digits: int) -> Figure:
    blind = usage.seconds.unattributed > 0 and usage.seconds.allocated <= 0
    low = near(sum(one.idle for one in rows), digits)
    high = near(low + sum(one.held.idle_most - one.held.idle for one in rows), digits)
    known = bool(usage.buckets) and not blind
    share = share_percent(low, usage.seconds.allocated / HOUR)
    return Figure(
        key="idle_held_gpu_hours",
        label="Allocated but idle",
        unit="GPU-hours",
        value=low if known else None,
        low=low if known and high > low else None,
        high=high if known and high > low else None,
        more_is="worse",
        note="" if not known or share is None else f"{share:.0f} % of what was allocated",
    )


def _service(usage: Usage, digits: int) -> Figure:
    """Return the share in service. It comes first: nobody can use what is not in service."""
    seconds = usage.seconds
    lost = near(sum(map(seconds.lost, LostTo)) / HOUR, digits)
    return Figure(
        key="in_service_percent",
        label="In service",
        unit="percent",
        value=rounded(seconds.in_service_percent, 1),
        more_is="better",
        note=(f"{lost:,.{digits}f} of owned GPU-h lost" if lost else "no GPU-hour lost")
        if seconds.judged > 0
        else "",
    )


def _incidents(usage: Usage, count: int) -> Figure:
    return Figure(
        key="hardware_incidents",
        label="Hardware incidents",
        unit="incidents",
        value=float(count) if usage.cluster else None,
        more_is="worse",
        note="of GPUs, nodes and ports",
    )


def _energy(usage: Usage) -> Figure:
    seconds = usage.seconds
    measured = share_percent(seconds.powered, seconds.installed)
    partly = measured is not None and 0 < measured < 99.5
    return Figure(
        key="energy_kwh",
        label="Energy of GPUs",
        unit="kWh",
        value=energy_kwh(seconds.energy_joules) if seconds.powered > 0 else None,
        note=f"measured on {measured:.0f} %" if partly else "GPU boards only",
    )


def with_changes(
    now: tuple[Figure, ...], before: tuple[Figure, ...], longer: float = 1.0
) -> tuple[Figure, ...]:
    """Return `now` with differences of the rounded values, where both are single numbers.

    `longer`: the ratio of this span's length to the previous one's, by which the previous sums are
    scaled.
    """
    return tuple(_changed(one, other, longer) for one, other in zip(now, before, strict=True))


def _changed(now: Figure, before: Figure, longer: float) -> Figure:
    if now.value is None or before.value is None or now.low is not None or before.low is not None:
        return now
    if now.unit == "percent" or longer == 1.0:
        return replace(now, change=near(now.value - before.value, 2))
    digits = 0 if now.unit == "incidents" else 2
    return replace(now, change=near(now.value - longer * before.value, digits))
