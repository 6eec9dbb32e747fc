"""Weeks, months and quarters in a time zone: which one a span is, and which came before; pure."""

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
# Longer than any of a kind, shorter than two of them.
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
    """ConfigError where there is none of that name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(f"{name!r} is no time zone like Europe/Berlin") from None


def midnight(day: date, zone: ZoneInfo) -> datetime:
    """When a day begins by the clock of a zone, in UTC."""
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(timezone.utc)


def days_before(end: datetime, days: int, zone: ZoneInfo) -> datetime:
    """The midnight so many days before another: a day on which the clocks change is a day, too."""
    return midnight(end.astimezone(zone).date() - timedelta(days=days), zone)


def step_of(at: datetime, step: timedelta, zone: ZoneInfo) -> datetime:
    """The begin of the step that a time lies in: of a day by the clock of a zone, else of whole steps in UTC."""
    if step == _DAY:
        return midnight(at.astimezone(zone).date(), zone)
    return EPOCH + (at - EPOCH) // step * step


def step_after(at: datetime, step: timedelta, zone: ZoneInfo) -> datetime:
    """When the step that begins at a time is over."""
    return days_before(at, -1, zone) if step == _DAY else at + step


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """How spans are cut: in weeks, months or quarters, or as long as they are; and whose days they have."""

    covers: str = ""  # one of KINDS; empty: of any length
    zone: ZoneInfo = UTC

    def start(self, at: datetime) -> datetime:
        """When the one of its kind began that a time lies in."""
        return midnight(self._first(at), self.zone)

    def end(self, at: datetime) -> datetime:
        """When that one is over."""
        return midnight(_FIRST[self.covers](self._first(at) + _BEYOND[self.covers]), self.zone)

    def whole(self, span: Span) -> bool:
        """Whether the span is exactly one of its kind."""
        return span == (self.start(span[0]), self.end(span[0]))

    def last(self, at: datetime) -> Span:
        """The last of its kind that is over."""
        end = self.start(at)
        return self.start(end - timedelta(hours=1)), end

    def before(self, span: Span) -> Span:
        """The one before; of one that is not over as much of it. Without a kind as long a time before."""
        start, end = span
        if not self.covers:
            return start - (end - start), start
        since, until = self.last(start)
        return since, until if self.whole(span) else min(since + (end - start), until)

    def starts_before(self, span: Span, most: int) -> tuple[datetime, ...]:
        """When the spans before began, the newest first."""
        found = [span[0]]
        for _ in range(most):
            at = found[-1]
            found.append(self.last(at)[0] if self.covers else at - (span[1] - span[0]))
        return tuple(found[1:])

    def name(self, span: Span) -> str:
        """`Week 47 of 2026`, `October 2026 so far`, `Q3 2026`; empty without a kind."""
        if not self.covers:
            return ""
        return f"{self._name(span[0])}{'' if self.whole(span) else ' so far'}"

    def name_before(self, span: Span) -> str:
        """What the span before is called in a sentence: `Week 46 of 2026`, `the 7 d before`."""
        length = duration(span[1] - span[0])
        if not self.covers:
            return f"the {length} before"
        name = self._name(self.before(span)[0])
        return name if self.whole(span) else f"the first {length} of {name}"

    def short_before(self, span: Span) -> str:
        """The same at the head of a column: `Week 46`."""
        if not self.covers:
            is_week = span[1] - span[0] == _WEEK
            return "last week" if is_week else self.name_before(span)
        return self._name(self.before(span)[0]).partition(" of ")[0]

    def spans(self, number: int, span: Span) -> str:
        """`8 weeks`, `4 months`, `8 times 2 d`."""
        if self.covers:
            return f"{number} {self.covers}s"
        length = span[1] - span[0]
        return f"{number} weeks" if length == _WEEK else f"{number} times {duration(length)}"

    def _name(self, at: datetime) -> str:
        return _NAMES[self.covers](self._first(at))

    def _first(self, at: datetime) -> date:
        return _FIRST[self.covers](at.astimezone(self.zone).date())


def recognized(span: Span, zone: ZoneInfo) -> Calendar:
    """A span that begins and ends as a week, a month or a quarter does is one."""
    plain = Calendar(zone=zone)
    found = (replace(plain, covers=kind) for kind in KINDS)
    return next((one for one in found if one.whole(span)), plain)


def written(kind: str, text: str, zone: ZoneInfo) -> Span:
    """The week, month or quarter that `2026-W47`, `2026-10` or `2026-Q3` names, also one to come."""
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
