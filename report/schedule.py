"""When a report under [[reports]] is due, and of which span it is."""

from datetime import datetime

from gpuvigil.config import ReportSettings
from gpuvigil.errors import ConfigError

from .calendar import Calendar, Span, days_before, recognized
from .cron import Cron, parsed


def cron_of(settings: ReportSettings) -> Cron:
    """ConfigError names the report whose schedule is wrong."""
    try:
        return parsed(settings.cron, settings.time_zone)
    except ConfigError as error:
        raise ConfigError(f"report {settings.name!r}: {error}") from None


def covered(settings: ReportSettings, due_at: datetime) -> tuple[Span, Calendar]:
    """The whole days before the day on which it is due, or the last whole week, month or quarter."""
    cron = cron_of(settings)
    if settings.covers:
        calendar = Calendar(covers=settings.covers, zone=cron.zone)
        return calendar.last(due_at), calendar
    end = cron.day_of(due_at)
    span = days_before(end, settings.days, cron.zone), end
    return span, recognized(span, cron.zone)
