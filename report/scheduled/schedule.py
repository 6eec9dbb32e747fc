"""When a report under [[reports]] is due, and which span it covers."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from accounting.usage.model import floor
from gpuvigil.config import ReportSettings
from gpuvigil.errors import ConfigError
from gpuvigil.model.report_run import ReportRun

from ..model.calendar import Calendar, Span, days_before, recognized
from .cron import Cron, parsed


def cron_of(settings: ReportSettings) -> Cron:
    """Return the report's schedule; ConfigError names the report whose schedule is wrong."""
    try:
        return parsed(settings.cron, settings.time_zone)
    except ConfigError as error:
        raise ConfigError(f"report {settings.name!r}: {error}") from None


def planned(settings: ReportSettings, now: datetime) -> Iterator[ReportRun]:
    """Yield the run that was due last and, for a team's report, the next preview once it is due."""
    cron = cron_of(settings)
    if (last := cron.last(now)) is not None:
        yield ReportRun(name=settings.name, due_at=last)
    before, final = timedelta(hours=settings.preview_hours), cron.next(now)
    if settings.team and before and final is not None and final - before <= now:
        yield ReportRun(name=settings.name, due_at=final - before, final_at=final)


def final_of(settings: ReportSettings, run: ReportRun) -> datetime | None:
    """Return when the report of the whole span comes; None for a run that is of a whole span itself.

    An early run is, too, while the next report's span has yet to begin.
    """
    if not run.early:
        return run.final_at
    final = cron_of(settings).next(run.due_at)
    if final is None or covered(settings, final)[0][0] >= floor(run.due_at):
        return None
    return final


def so_far(settings: ReportSettings, run: ReportRun, now: datetime) -> tuple[Span, Calendar]:
    """Return the span and calendar of a run; for a preview, the part of the span that is over.

    One that somebody asked for is up to that moment, as what the command writes is: in the first quarter of
    an hour there would be nothing in it.
    """
    final = final_of(settings, run)
    (start, end), calendar = covered(settings, final or run.due_at)
    return (start, min(end, now if run.early else floor(now)) if final else end), calendar


def until(settings: ReportSettings, final_at: datetime) -> str:
    """Return the preview's note about itself."""
    at = final_at.astimezone(cron_of(settings).zone)
    return (
        f"Preliminary until {at:%A}, {at.day} {at:%B}, {at:%H:%M} ({at.tzname()}): then comes the report of the"
        " whole span, late data included. If a figure is wrong, tell your operators before then."
    )


def covered(settings: ReportSettings, due_at: datetime) -> tuple[Span, Calendar]:
    """Return the whole days before the due day, or the last whole week, month or quarter."""
    cron = cron_of(settings)
    if settings.covers:
        calendar = Calendar(covers=settings.covers, zone=cron.zone)
        return calendar.last(due_at), calendar
    end = cron.day_of(due_at)
    span = days_before(end, settings.days, cron.zone), end
    return span, recognized(span, cron.zone)
