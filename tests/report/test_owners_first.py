"""When the report that names teams to others may go out: a day after theirs, and not held by what never comes."""

from datetime import datetime, timedelta, timezone

import pytest

from gpuvigil.config import ReportSettings
from report.owners_first import Edition, released

NOW = datetime(2026, 11, 24, 7, tzinfo=timezone.utc)
DAY, LOOK = timedelta(hours=24), timedelta(minutes=5)
SECOND = timedelta(seconds=1)


def edition(sent: timedelta | None, *, under_way: bool = False) -> Edition:
    return Edition(under_way=under_way, sent_at=None if sent is None else NOW - sent)


@pytest.mark.parametrize(
    ("editions", "until"),
    [
        ([], None),  # nobody has an edition: it is a plain report
        ([edition(DAY - SECOND)], NOW + SECOND),
        ([edition(DAY)], None),
        ([edition(DAY + SECOND)], None),
        ([edition(2 * DAY), edition(timedelta(hours=1))], NOW + timedelta(hours=23)),
        # Somebody may still get it: nobody knows yet when a day will be over.
        ([edition(2 * DAY), edition(None, under_way=True)], NOW + LOOK),
        # Nobody got it, and nobody will any more.
        ([edition(None)], None),
    ],
)
def test_it_waits_a_day_from_the_last_team_that_has_its_own(
    editions: list[Edition], until: datetime | None
) -> None:
    assert released(editions, DAY, NOW, LOOK) == until


def test_a_day_is_the_default_and_no_time_can_be_less_than_none() -> None:
    assert ReportSettings().after_teams_hours == 24.0
    assert list(ReportSettings(after_teams_hours=0.0).wrong()) == []
    assert [key for key, _ in ReportSettings(after_teams_hours=-0.1).wrong()] == [
        "after_teams_hours"
    ]
