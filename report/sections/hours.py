"""Allocated and used over time: for the chart, by day, and by hour of the week."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, tzinfo
from typing import TypeVar
from zoneinfo import ZoneInfo

from accounting.usage import BUCKET, Bucket, Seconds, Usage, share_percent

from ..model.calendar import step_of
from ..model.content import Day, Hour, Point
from ..model.rounding import HOUR, near, rounded, shared

# The finest step that can still be told apart in the chart.
_GRAINS: tuple[tuple[timedelta, str, timedelta], ...] = (
    (timedelta(hours=12), "quarter of an hour", BUCKET),
    # With an hour more, for a month in which the clocks are set back.
    (timedelta(days=31, hours=1), "hour", timedelta(hours=1)),
)
# With less, the map of the week would show single days as if they were habits.
LEAST_FOR_WEEK = timedelta(days=3)
_Key = TypeVar("_Key")


def grain(span: timedelta) -> tuple[str, timedelta]:
    """Return the step of the chart, in words and as a length."""
    for longest, word, step in _GRAINS:
        if span <= longest:
            return word, step
    return "day", timedelta(days=1)


def points(usage: Usage, step: timedelta, zone: ZoneInfo) -> tuple[Point, ...]:
    """Return a point per step of which at least half is known; days are those of the zone."""
    found = _added(usage.buckets, lambda start: step_of(start, step, zone))
    return tuple(
        Point(at=at, allocated_percent=allocated, used_percent=used_of_known(seconds))
        for at, seconds in sorted(found.items())
        if seconds.known * 2 >= seconds.installed
        and (allocated := rounded(seconds.allocated_percent, 1)) is not None
    )


def used_of_known(seconds: Seconds) -> float | None:
    """Return used as a percentage of all known GPU-hours; None when it was not measured.

    If only a part of the allocated GPU-hours was measured, the rest is assumed to be used to the
    same share.
    """
    if seconds.measured <= 0:
        return 0.0 if seconds.known > 0 and seconds.allocated <= 0 else None
    used = seconds.used / seconds.measured * seconds.allocated
    return rounded(share_percent(used, seconds.known), 1)


def week(usage: Usage, zone: tzinfo) -> tuple[Hour, ...]:
    """Return 168 hours by the zone's clock, starting on Monday at 00."""
    found = _added(usage.buckets, lambda start: _hour(start.astimezone(zone)))
    return tuple(
        Hour(
            weekday=day,
            hour=hour,
            used_percent=rounded(used_of_known(found.get((day, hour), Seconds()))),
        )
        for day in range(7)
        for hour in range(24)
    )


def _hour(local: datetime) -> tuple[int, int]:
    return local.weekday(), local.hour


def days(usage: Usage, digits: int, lost_gpu_hours: float, zone: tzinfo) -> tuple[Day, ...]:
    """Return a row per day of the zone; its GPU-hours add up to the span's, lost ones to `lost_gpu_hours`."""
    found = sorted(
        _added(usage.buckets, lambda start: f"{start.astimezone(zone):%Y-%m-%d}").items()
    )
    allocated = _apart([one.allocated for _, one in found], digits)
    lost = [one.unavailable / HOUR for _, one in found]
    unavailable = shared(lost, lost_gpu_hours, digits)
    return tuple(
        Day(
            day=day,
            allocated_percent=rounded(seconds.allocated_percent),
            used_of_allocated_percent=rounded(share_percent(seconds.used, seconds.measured)),
            allocated_gpu_hours=None
            if seconds.unattributed > 0 and seconds.allocated <= 0
            else allocated[number],
            unavailable_gpu_hours=unavailable[number],
        )
        for number, (day, seconds) in enumerate(found)
    )


def _apart(seconds: list[float], digits: int) -> tuple[float, ...]:
    hours = [one / HOUR for one in seconds]
    return shared(hours, near(sum(hours), digits), digits)


def _added(buckets: Iterable[Bucket], key: Callable[[datetime], _Key]) -> dict[_Key, Seconds]:
    found: defaultdict[_Key, Seconds] = defaultdict(Seconds)
    for bucket in buckets:
        found[key(bucket.start)] += bucket.seconds
    return found
