"""Teams see their own figures first: the edition that names them to others waits for theirs."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuvigil.config import Config, ReportSettings
from gpuvigil.hub_client import Hub
from gpuvigil.model import LetterState, RecordKind, ReportRun

from .archive import letters_of
from .schedule import covered, cron_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Edition:
    """A team's edition of one span, as far as it is."""

    under_way: bool  # somebody may still get it
    sent_at: datetime | None  # when the last of those who have it got it


def held_until(
    hub: Hub, config: Config, run: ReportRun, now: datetime, look_again: timedelta
) -> datetime | None:
    """Until when a report waits for the teams', or when to look again; None: it may go out now.

    Who types `gpuvigil report send` has it at once.
    """
    settings = next(one for one in config.reports if one.name == run.name)
    lead = timedelta(hours=settings.after_teams_hours)
    typed = cron_of(settings).last(run.due_at) != run.due_at
    if settings.team or not lead or typed:
        return None
    return released(list(_editions(hub, config, settings, run, now)), lead, now, look_again)


def released(
    editions: list[Edition], lead: timedelta, now: datetime, look_again: timedelta
) -> datetime | None:
    """The same of what is known of the teams' editions; pure."""
    if any(one.under_way for one in editions):
        return now + look_again
    sent = [one.sent_at for one in editions if one.sent_at is not None]
    free_at = max(sent, default=now - lead) + lead
    return free_at if free_at > now else None


def _editions(
    hub: Hub, config: Config, settings: ReportSettings, run: ReportRun, now: datetime
) -> Iterator[Edition]:
    """Of the teams that are in this report, of the same span."""
    span, _ = covered(settings, run.due_at)
    for team in config.reports:
        if not team.team or (team.cluster and settings.cluster not in {"", team.cluster}):
            continue
        due_at = cron_of(team).last(now)
        if due_at is not None and covered(team, due_at)[0] == span:
            yield _edition(hub, ReportRun(name=team.name, due_at=due_at))


def _edition(hub: Hub, run: ReportRun) -> Edition:
    record = hub.record(RecordKind.REPORT, run.id)
    letters = letters_of(hub, run).values()
    return Edition(
        under_way=record is not None and record.due_at is not None,
        sent_at=max((one.at for one in letters if one.state is LetterState.SENT), default=None),
    )
