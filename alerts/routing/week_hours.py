"""Quiet hours and active hours of a route, by hours of a week in their own time zone; pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime, time, timedelta, timezone
from zoneinfo import ZoneInfo

from gpuvigil.config import TimesSettings


def spans(times: TimesSettings, now: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yield begin and end of the hours from yesterday until over a week from now, in UTC."""
    zone, days = ZoneInfo(times.zone), times.weekdays()
    today = now.astimezone(zone).date()
    for offset in range(-1, 9):
        day = today + timedelta(days=offset)
        if day.weekday() not in days:
            continue
        begin, end = _clock(times.begin), _clock(times.end)
        last = day + timedelta(days=1) if end is None or end <= (begin or time()) else day
        yield (
            datetime.combine(day, begin or time(), zone).astimezone(timezone.utc),
            datetime.combine(last, end or time(), zone).astimezone(timezone.utc),
        )


def ends(several: Sequence[TimesSettings], now: datetime) -> datetime | None:
    """Return when the hours that `now` is within are over; None when it is within none."""
    found = [end for one in several for begin, end in spans(one, now) if begin <= now < end]
    return max(found, default=None)


def begins(several: Sequence[TimesSettings], now: datetime) -> datetime | None:
    """Return when the next hours begin; None when `now` is within some, or there are none at all."""
    if not several or ends(several, now) is not None:
        return None
    return min(
        (begin for one in several for begin, _ in spans(one, now) if begin > now), default=None
    )


def _clock(text: str) -> time | None:
    """Return a time of day; None for 24:00, the next day's beginning."""
    return None if text == "24:00" else time.fromisoformat(text)
