"""Settings of scheduled reports: what they cover, when they are made, and who gets them."""

from collections.abc import Iterator
from dataclasses import dataclass

from .setting import setting

# What a report may cover instead of a number of days.
KINDS = ("week", "month", "quarter")
PAPERS = ("a4", "letter")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSettings:
    """One scheduled report, and who gets it."""

    name: str = setting("weekly", "its name, in the archive and for `gpuvigil report send`")
    cron: str = setting(
        "0 7 * * 1", "when: minute, hour, day of month, month, day of week, as in crontab(5)"
    )
    time_zone: str = setting(
        "UTC", "whose clock that is, and whose days and weeks the report has, as Europe/Berlin"
    )
    days: int = setting(7, "how many whole days before the day on which it is made")
    covers: str = setting(
        "", "`week`, `month` or `quarter`: the last whole one, instead of `days`; empty: `days`"
    )
    cluster: str = setting("", "only this cluster; empty: every real one")
    team: str = setting("", "only what this team held, and nothing of others; empty: all")
    preview_hours: float = setting(
        24.0,
        "of a team's: how long before its time the team gets a preview, so that it sees its own figures"
        " before others do; 0: none",
    )
    paper: str = setting("a4", "what it is printed on: `a4` or `letter`")
    channel: str = setting("", "the e-mail channel under [[alerts.email]] whose server sends it")
    to: tuple[str, ...] = setting((), "addresses that get it, as HTML and PDF")
    link_to: tuple[str, ...] = setting(
        (), "channels that are told where it is, as those of Slack: it is on the page Reports"
    )

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Yield each mistake in these settings: the key, and why."""
        if not self.name or "|" in self.name:
            yield "name", f"{self.name!r} is no name"
        if self.to and not self.channel:
            yield "channel", "to needs the e-mail channel that sends it"
        if self.days < 1:
            yield "days", "must be 1 or more"
        if self.preview_hours < 0:
            yield "preview_hours", "must be 0 or more"
        if self.paper not in PAPERS:
            yield "paper", f"{self.paper!r} is none of {', '.join(PAPERS)}"
        if self.covers and self.covers not in KINDS:
            yield "covers", f"{self.covers!r} is none of {', '.join(KINDS)}"
