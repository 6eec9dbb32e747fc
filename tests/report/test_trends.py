"""How far the trend of a report goes back: eight spans of its kind, or as many as are kept, and it says so."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from gpuvigil.config import Config, HubSettings
from report.inputs.facts import Facts, read
from report.model.calendar import Calendar
from report.sections.build import build
from tests.accounting.usage.at_hand import HubAtHand
from tests.report.weeks import bucket, inventory, share

NOW = datetime(2026, 11, 28, 10, tzinfo=timezone.utc)
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
OCTOBER = datetime(2025, 10, 1, tzinfo=timezone.utc)


@pytest.fixture(name="hub")
def hub_fixture(tmp_path: Path) -> HubAtHand:
    hub = HubAtHand(tmp_path)
    hub.write_records(inventory(name).to_record() for name in ("alpha", "young"))
    return hub


def asked(hub: HubAtHand, kind: str, kept: timedelta, zone: str = "UTC") -> Facts:
    """Of the last whole span of a kind, with usage of its teams in each of the twelve before."""
    calendar = Calendar(covers=kind, zone=ZoneInfo(zone))
    span = calendar.last(NOW)
    starts = [span[0], *calendar.starts_before(span, 12)]
    hub.write_records(
        bucket(at + HOUR, [share(account="vision", used=0.1 * (n % 10))]).to_record()
        for n, at in enumerate(starts)
    )
    config = Config(hub=HubSettings(records_days=kept / timedelta(days=1)))
    (found,) = read(hub, "alpha", span, NOW, config, calendar)
    return found


@pytest.mark.medium
@pytest.mark.parametrize("kind", ["week", "month"])
def test_weeks_and_months_have_eight(hub: HubAtHand, kind: str) -> None:
    found = asked(hub, kind, timedelta(days=400))
    assert (len(found.history), found.trend_word, found.notes) == (7, f"8 {kind}s", ())
    assert all(one["account"].keys() == {"vision"} for one in found.history)


@pytest.mark.parametrize(("less", "quarters"), [(0 * SECOND, 4), (SECOND, 3)])
def test_quarters_go_as_far_back_as_they_are_kept_whole_and_the_report_says_so(
    hub: HubAtHand, less: timedelta, quarters: int
) -> None:
    found = asked(hub, "quarter", NOW - OCTOBER - less)
    assert found.trend_word == f"{quarters} quarters"
    (note,) = found.notes
    assert note.startswith(f"Trends go over {quarters} quarters: usage is kept for 42")
    assert note in build(found).method.notes


def test_a_quarter_that_is_alone_has_no_trend_and_says_why(hub: HubAtHand) -> None:
    found = asked(hub, "quarter", timedelta(days=200))
    assert found.history == ()
    (note,) = found.notes
    assert note.startswith("There are no trends: usage is kept for 200 d. With hub.records_days = ")


@pytest.mark.medium
def test_with_what_the_report_says_it_takes_there_are_eight_quarters(hub: HubAtHand) -> None:
    (note,) = asked(hub, "quarter", timedelta(days=400)).notes
    days = int(note.partition("hub.records_days = ")[2].split()[0])
    assert asked(hub, "quarter", timedelta(days=days)).trend_word == "8 quarters"
    assert asked(hub, "quarter", timedelta(days=days - 1)).trend_word == "7 quarters"


def test_what_was_never_counted_is_not_missed(hub: HubAtHand) -> None:
    whole = asked(hub, "week", timedelta(days=400))
    (young,) = read(
        hub,
        "young",
        whole.span,
        NOW,
        Config(),
        whole.calendar,
    )
    assert (young.history, young.notes) == ((), ())


def test_a_week_begins_by_the_clock_of_its_zone(hub: HubAtHand) -> None:
    berlin = asked(hub, "week", timedelta(days=400), "Europe/Berlin")
    used = [one[""][""] for one in berlin.history]
    assert used == [70.0, 60.0, 50.0, 40.0, 30.0, 20.0, 10.0]
    assert replace(berlin, history=()).trend_word == "1 weeks"
