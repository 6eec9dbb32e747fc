"""Which events page nobody because they came late."""

from datetime import datetime, timedelta, timezone

import pytest

from analyzer.incidents.late_events import Arrival, absence, is_late
from gpuvigil.clock import to_text

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
LIMIT = timedelta(seconds=120)


def minutes(number: float) -> datetime:
    return NOON + timedelta(minutes=number)


@pytest.mark.parametrize(("happened", "late"), [(-10, True), (-3, True), (-1, False), (0, False)])
def test_while_we_listen_what_comes_long_after_it_happened_is_late(
    happened: float, late: bool
) -> None:
    arrival = Arrival(at=NOON, before=minutes(-0.1))
    assert is_late(minutes(happened), arrival, LIMIT) is late


@pytest.mark.parametrize("happened", [-70, -30, -3, 0])
def test_after_a_gap_nothing_is_late_that_may_have_been_in_time(happened: float) -> None:
    assert not is_late(minutes(happened), Arrival(at=NOON, before=minutes(-60)), LIMIT)


@pytest.mark.parametrize(
    ("happened", "late"), [(-70, False), (-60, False), (-58, True), (-13, True), (-11, False)]
)
def test_after_a_hubs_absence_is_late_what_it_could_not_be_told_for_too_long(
    happened: float, late: bool
) -> None:
    """It was away from 59 minutes ago to 10 minutes ago."""
    arrival = Arrival(at=NOON, before=minutes(-60), away=(minutes(-59), minutes(-10)))
    assert is_late(minutes(happened), arrival, LIMIT) is late


def test_a_hub_that_was_started_since_it_was_lost_was_away_and_clocks_may_differ() -> None:
    ahead = timedelta(hours=3)

    def status(started: float) -> dict[str, str]:
        return {"now": to_text(NOON + ahead), "started_at": to_text(minutes(started) + ahead)}

    assert absence(status(-10), NOON, minutes(-59)) == (minutes(-59), minutes(-10))
    assert absence(status(-61), NOON, minutes(-59)) is None
    assert absence(status(-10), NOON, None) is None
