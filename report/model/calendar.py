"""Weeks, months and quarters in a time zone: recognising spans, and finding earlier ones; pure."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from gpuvigil.clock import EPOCH, duration
from gpuvigil.config.reporting import KINDS
from gpuvigil.errors import ConfigError

Span = tuple[datetime, datetime]
UTC = ZoneInfo("UTC")
_DAY, _WEEK = timedelta(days=1), timedelta(days=7)
# Added to a start, this reaches the next span of the kind, and not the one after it.
_BEYOND = {"week": timedelta(days=7), "month": timedelta(days=31), "quarter": timedelta(days=92)}
_FIRST: Mapping[str, Callable[[date], date]] = {
    "week": lambda day: day - timedelta(days=day.weekday()),
    "month": lambda day: day.replace(day=1),
    "quarter": lambda day: day.replace(month=day.month - (day.month - 1) % 3, day=1),
}
_NAMES: Mapping[str, Callable[[date], str]] = {
    "week": lambda day: "Week {0.week} of {0.year}".format(day.isocalendar()),
    "month": lambda day: f"{day:%B %Y}",
    "quarter": lambda day: f"Q{(day.month + 2) // 3} {day.year}",
}
_WRITTEN = {"week": "2026-W47", "month": "2026-10", "quarter": "2026-Q3"}


def zone_of(name: str) -> ZoneInfo:
    """Return the time zone of that name; raise ConfigError when there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(f"{name!r} is no time zone like Europe/Berlin") from None


def midnight(day: date, zone: ZoneInfo) -> datetime:
    """Return the start of a day in a time zone, as a UTC time."""
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(timezone.utc)


def days_before(end: datetime, days: int, zone: ZoneInfo) -> datetime:
    """Return the midnight so many days before `end`; a day on which the clocks change is one day, too."""
    return midnight(end.astimezone(zone).date() - timedelta(days=days), zone)


def step_of(at: datetime, step: timedelta, zone: ZoneInfo) -> datetime:
    """Return the start of the step that contains `at`: a day in the zone, otherwise whole steps in UTC."""
    if step == _DAY:
        return midnight(at.astimezone(zone).date(), zone)
    return EPOCH + (at - EPOCH) // step * step


def step_after(at: datetime, step: timedelta, zone: ZoneInfo) -> datetime:
    """Return the end of the step that starts at `at`."""
    return days_before(at, -1, zone) if step == _DAY else at + step


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """The division of time into weeks, months or quarters, or spans of any length, and the days' time zone."""

    covers: str = ""  # one of KINDS; empty: of any length
    zone: ZoneInfo = UTC

    def start(self, at: datetime) -> datetime:
        """Return the start of the week, month or quarter that contains `at`."""
        return midnight(self._first(at), self.zone)

    def end(self, at: datetime) -> datetime:
        """Return the end of the week, month or quarter that contains `at`."""
        return midnight(_FIRST[self.covers](self._first(at) + _BEYOND[self.covers]), self.zone)

    def whole(self, span: Span) -> bool:
        """Return whether the span is exactly one week, month or quarter."""
        return span == (self.start(span[0]), self.end(span[0]))

    def last(self, at: datetime) -> Span:
        """Return the last whole week, month or quarter before `at`."""
        end = self.start(at)
        return self.start(end - timedelta(hours=1)), end

    def before(self, span: Span) -> Span:
        """Return the previous span; for an unfinished one, as much of the previous one.

        Without a kind, it is the span of the same length before.
        """
        start, end = span
        if not self.covers:
            return start - (end - start), start
        since, until = self.last(start)
        return since, until if self.whole(span) else min(since + (end - start), until)

    def starts_before(self, span: Span, most: int) -> tuple[datetime, ...]:
        """Return the starts of up to `most` previous spans, the newest first."""
        found = [span[0]]
        for _ in range(most):
            at = found[-1]
            found.append(self.last(at)[0] if self.covers else at - (span[1] - span[0]))
        return tuple(found[1:])

    def name(self, span: Span) -> str:
        """Return `Week 47 of 2026`, `October 2026 so far`, `Q3 2026`; "" without a kind."""
        if not self.covers:
            return ""
        return f"{self._name(span[0])}{'' if self.whole(span) else ' so far'}"

    def name_before(self, span: Span) -> str:
        """Return the previous span's name for a sentence: `Week 46 of 2026`, `the 7 d before`."""
        length = duration(span[1] - span[0])
        if not self.covers:
            return f"the {length} before"
        name = self._name(self.before(span)[0])
        return name if self.whole(span) else f"the first {length} of {name}"

    def short_before(self, span: Span) -> str:
        """Return the previous span's name for a column head: `Week 46`."""
        if not self.covers:
            is_week = span[1] - span[0] == _WEEK
            return "last week" if is_week else self.name_before(span)
        return self._name(self.before(span)[0]).partition(" of ")[0]

    def spans(self, number: int, span: Span) -> str:
        """Return a number of spans in words: `8 weeks`, `4 months`, `8 times 2 d`."""
        if self.covers:
            return f"{number} {self.covers}s"
        length = span[1] - span[0]
        return f"{number} weeks" if length == _WEEK else f"{number} times {duration(length)}"

    def _name(self, at: datetime) -> str:
        return _NAMES[self.covers](self._first(at))

    def _first(self, at: datetime) -> date:
        return _FIRST[self.covers](at.astimezone(self.zone).date())


def recognized(span: Span, zone: ZoneInfo) -> Calendar:
    """Return the calendar of a span: it is a week, month or quarter if it starts and ends like one."""
    plain = Calendar(zone=zone)
    found = (replace(plain, covers=kind) for kind in KINDS)
    return next((one for one in found if one.whole(span)), plain)


def written(kind: str, text: str, zone: ZoneInfo) -> Span:
    """Return the week, month or quarter named by `2026-W47`, `2026-10` or `2026-Q3`, even a future one."""
    calendar = Calendar(covers=kind, zone=zone)
    try:
        day = _day(kind, text)
    except ValueError:
        raise ConfigError(f"--{kind} {text!r} is no {kind}: write {_WRITTEN[kind]}") from None
    start = midnight(day, zone)
    return start, calendar.end(start)


def _day(kind: str, text: str) -> date:
    marks = {"week": "-W", "month": "-", "quarter": "-Q"}
    found = re.fullmatch(rf"(\d{{4}}){marks[kind]}(\d{{1,2}})", text.strip().upper())
    if found is None:
        raise ValueError(text)
    year, number = map(int, found.groups())
    if kind == "week":
        return date.fromisocalendar(year, number, 1)
    return date(year, number if kind == "month" else 3 * number - 2, 1)
