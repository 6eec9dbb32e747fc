"""When a report is due: five fields as in crontab(5), by the clock of a time zone; pure.

A time that the clock skips when summer time begins is later by as much as the clock skips; one that
occurs twice when summer time ends counts once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from gpuvigil.errors import ConfigError

from ..model.calendar import midnight, zone_of

_DAYS = {
    name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))
}
_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
_FIELDS: tuple[tuple[str, int, int, Mapping[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _DAYS),
)
# 29 February is at most eight years away.
_FARTHEST = timedelta(days=3_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """A schedule, as `parsed` reads it."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # Sunday is 0
    either: bool  # both day fields are given, so a day that fits either one counts
    zone: ZoneInfo

    def last(self, now: datetime) -> datetime | None:
        """Return the newest due time at or before `now`; None when there is none."""
        return next((at for at in self._on_days(now, -1) if at <= now), None)

    def next(self, now: datetime) -> datetime | None:
        """Return the first due time after `now`; None when there is none."""
        return next((at for at in self._on_days(now, 1) if at > now), None)

    def day_of(self, at: datetime) -> datetime:
        """Return the midnight that begins the day of `at`, by the zone's clock."""
        return midnight(at.astimezone(self.zone).date(), self.zone)

    def _on_days(self, now: datetime, step: int) -> Iterator[datetime]:
        day = now.astimezone(self.zone).date()
        for number in range(_FARTHEST.days):
            that = day + timedelta(days=step * number)
            if not self._fits(that.month, that.day, that.isoweekday() % 7):
                continue
            times = [(hour, minute) for hour in self.hours for minute in self.minutes]
            for hour, minute in times if step > 0 else reversed(times):
                local = datetime(that.year, that.month, that.day, hour, minute, tzinfo=self.zone)
                yield local.astimezone(timezone.utc)

    def _fits(self, month: int, day: int, weekday: int) -> bool:
        both = day in self.days, weekday in self.weekdays
        return month in self.months and (any(both) if self.either else all(both))


def parsed(text: str, time_zone: str) -> Cron:
    """Parse the five fields; ConfigError says which one is wrong."""
    words = text.lower().split()
    if len(words) != len(_FIELDS):
        raise ConfigError(f"{text!r} has not five fields like '0 7 * * 1'")
    zone = zone_of(time_zone)
    sets = [frozenset(_numbers(word, *field)) for word, field in zip(words, _FIELDS, strict=True)]
    return Cron(
        minutes=tuple(sorted(sets[0])),
        hours=tuple(sorted(sets[1])),
        days=sets[2],
        months=sets[3],
        weekdays=frozenset(number % 7 for number in sets[4]),
        either="*" not in {words[2][0], words[4][0]},
        zone=zone,
    )


def _numbers(word: str, name: str, low: int, high: int, names: Mapping[str, int]) -> Iterator[int]:
    for part in word.split(","):
        span, _, every = part.partition("/")
        first, _, last = span.partition("-")
        start = low if first == "*" else _number(first, name, low, high, names)
        end = high if first == "*" or (every and not last) else start
        end = _number(last, name, start, high, names) if last else end
        yield from range(start, end + 1, _number(every, name, 1, high, {}) if every else 1)


def _number(text: str, name: str, low: int, high: int, names: Mapping[str, int]) -> int:
    number = names.get(text, int(text) if text.isascii() and text.isdecimal() else -1)
    if not low <= number <= high:
        raise ConfigError(f"{text!r} is no {name} from {low} to {high}")
    return number
