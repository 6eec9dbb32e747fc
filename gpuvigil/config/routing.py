"""Settings that decide where an incident's messages go, and when.

Each class's `wrong` yields what types cannot check, as in `gpuvigil.config.channels`.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..matching.matchers import Labels, fit, matcher
from .setting import setting

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d|24:00")


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSettings:
    """A route for some incidents; routes are tried in order, and the first that fits ends the search."""

    match: tuple[str, ...] = setting(
        (),
        'conditions that must all hold, such as severity="critical" or rack=~"r1.*"; empty: everything',
    )
    receivers: tuple[str, ...] = setting((), "names of the channels that are told")
    go_on: bool = setting(False, "look at the routes behind it, too")
    wait_seconds: float = setting(0.0, "the first message waits this long for what explains it")
    update_seconds: float = setting(0.0, "as alerts.update_seconds; 0: as there")
    repeat_seconds: float = setting(
        0.0, "what stays open, however severe, is told again after this long; 0: as in [alerts]"
    )
    times: tuple[str, ...] = setting((), "told only in these times, else when the next begins")
    quiet_times: tuple[str, ...] = setting((), "not told in these times, but when they end")
    escalate_to: tuple[str, ...] = setting((), "channels that are told if nobody takes it")
    escalate_seconds: float = setting(900.0, "how long somebody has to take it")
    digest: bool = setting(False, "told once a day, all together, and not one by one")

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Yield each mistake in these settings: the key, and why."""
        yield from _wrong_matchers("match", self.match)
        if not self.receivers:
            yield "", "a route needs receivers"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimesSettings:
    """Hours of a week; an end before the beginning is on the next day."""

    name: str = setting("", "what routes call it")
    days: tuple[str, ...] = setting(DAYS, "days on which it begins: mon, tue ... or mon-fri")
    begin: str = setting("00:00", "when it begins, as 08:00")
    end: str = setting("24:00", "when it ends, as 18:00")
    zone: str = setting("UTC", "the time zone, as Europe/Berlin")

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Yield each mistake in these settings: the key, and why."""
        if not self.name:
            yield "", "times need a name"
        for key in ("begin", "end"):
            if not _CLOCK.fullmatch(getattr(self, key)):
                yield key, f"{getattr(self, key)!r} is not a time of the day like 08:00"
        try:
            self.weekdays()
        except ValueError as error:
            yield "days", str(error)
        # zoneinfo takes most of a MiB, and a node has no receivers.
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # noqa: PLC0415

        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            yield "zone", f"{self.zone!r} is no time zone that this machine knows"

    def weekdays(self) -> frozenset[int]:
        """Return the weekdays as numbers, Monday is 0; ValueError names an invalid one."""
        found: set[int] = set()
        for text in self.days:
            first, _, last = text.lower().partition("-")
            if first not in DAYS or (last or first) not in DAYS:
                raise ValueError(f"{text!r} is no day, nor days like mon-fri")
            begin, end = DAYS.index(first), DAYS.index(last or first)
            found |= {day % 7 for day in range(begin, end + 1 + 7 * (end < begin))}
        return frozenset(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class InhibitSettings:
    """An inhibition: what is not notified while something else stands."""

    by: tuple[str, ...] = setting((), "matchers of what explains it")
    of: tuple[str, ...] = setting((), "matchers of what is not told meanwhile")
    same: tuple[str, ...] = setting((), "labels that both must have in common, as rack")

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Yield each mistake in these settings: the key, and why."""
        yield from _wrong_matchers("by", self.by)
        yield from _wrong_matchers("of", self.of)
        yield from _wrong_matchers("same", [f'{label}=""' for label in self.same])
        if not self.by or not self.of:
            yield "", "an inhibition needs by and of"


ENDS = ("cancel", "requeue", "hold")


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleSettings:
    """When holders of idle GPUs get a notice; the first entry that fits applies."""

    match: tuple[str, ...] = setting(
        (), 'whose, as partition="gpu", account="team-a" or owner="bot"; empty: everybody\'s'
    )
    notice_minutes: tuple[float, ...] = setting(
        (60.0, 105.0), "idle for so long: a notice each, once per job; empty: these are exempt"
    )
    days: tuple[str, ...] = setting(DAYS, "days on which notices are given, as mon-fri")
    zone: str = setting("UTC", "the time zone of these days, as Europe/Berlin")
    interactive: bool = setting(
        False, "also jobs that look interactive: a shell, a notebook, a desktop"
    )
    standby: bool = setting(
        False, "they stand by for work, as an inference replica: named so, and never written to"
    )
    busy_percent: float = setting(
        50.0, "who used this much of the GPUs, over the job's last day, is exempt"
    )

    end_minutes: float = setting(
        0.0,
        "idle for so long: a job may be ended by `gpuvigil act`, after its notices; 0 for never",
    )
    end_by: str = setting(
        "cancel", "how: cancel, requeue, or hold (requeued, and held until somebody releases it)"
    )

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Yield each mistake in these settings: the key, and why."""
        yield from _wrong_matchers("match", self.match)
        ordered = sorted(set(self.notice_minutes)) == list(self.notice_minutes)
        if not ordered or any(not 1 <= one <= 100_000 for one in self.notice_minutes):
            yield "notice_minutes", "must be minutes from 1 on, each more than the one before"
        if self.end_minutes and not max(self.notice_minutes, default=math.inf) < self.end_minutes:
            yield "end_minutes", "must be 0, or more than the last of notice_minutes"
        if self.end_by not in ENDS:
            yield "end_by", f"must be one of {', '.join(ENDS)}"
        yield from self._days().wrong()

    def weekdays(self) -> frozenset[int]:
        """Return the weekdays as numbers, Monday is 0."""
        return self._days().weekdays()

    def _days(self) -> TimesSettings:
        return TimesSettings(name="-", days=self.days, zone=self.zone)


def is_standby(settings: Iterable[IdleSettings], labels: Labels) -> bool:
    """Return whether the first of these settings that fits a holder declares it as standing by for work."""
    return next((one.standby for one in settings if fit(one.match, labels)), False)


def _wrong_matchers(key: str, texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        try:
            matcher(text)
        except ValueError as error:
            yield key, str(error)
