"""What users and teams had of a span, what became of it, and against the span before."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from accounting.cost.money import Prices
from accounting.efficiency.inefficient_hours import Waste, WasteHour
from accounting.hours_of_people import (
    IDLE_SHARE,
    LEAST_HOURS,
    RELEASE,
    People,
    blocked,
    change_percent,
    people,
)
from accounting.usage.amounts import Share
from accounting.usage.columns import PLACES, SHARES, table_of
from accounting.usage.ledger import Ledger
from gpuvigil.config import CostSettings, PriceSettings
from gpuvigil.model import Impact, Incident, Severity, Subject

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SPAN = (NOON - 7 * DAY, NOON)
PRICED = Prices(settings=CostSettings(currency="EUR", prices=(PriceSettings(per_gpu_hour=2.0),)))


def share(holder: str, user: str | None, held: float, idle: float = 0.0, **values: Any) -> Share:
    """In GPU-hours, half of what was measured used."""
    seconds = held * 3600.0
    given: dict[str, Any] = {
        "measured": seconds,
        "used": seconds / 2,
        "account": "vision",
        **values,
    }
    return Share(
        holder=holder,
        user=user,
        command=None,
        gpus=8,
        allocated=seconds,
        idle=idle * 3600.0,
        model="H100",
        **given,
    )


def ledger(*shares: Share, start: datetime = SPAN[0]) -> Ledger:
    return Ledger(
        cluster="lab",
        start=start,
        length=DAY,
        counted_at=NOON,
        gpus=8,
        quarters=96,
        places=PLACES.empty_table(),
        holders=table_of(shares, SHARES),
    )


def fault(since: datetime, ended: datetime | None, *holders: str, **values: Any) -> Incident:
    given: dict[str, Any] = {"severity": Severity.CRITICAL, **values}
    impact = Impact(gpus=given.pop("gpus", 8), holders=holders)
    return Incident(
        id="i",
        fingerprint="f",
        fault="any",
        subject=Subject(cluster="lab", node="n1"),
        state="open",
        title="t",
        since=since,
        updated_at=since,
        resolved_at=ended,
        impact=impact,
        **given,
    )


def judged(*wastes: Waste) -> WasteHour:
    return WasteHour(cluster="lab", start=NOON - HOUR, wastes=wastes, scattered_gpus=0)


def made(
    *shares: Share,
    before: Sequence[Ledger] = (),
    incidents: Sequence[Incident] = (),
    wastes: Sequence[WasteHour] = (),
    prices: Prices = Prices(),  # noqa: B008 - it is frozen
) -> People:
    return people(
        "lab",
        SPAN,
        [ledger(*shares)],
        before,
        incidents=incidents,
        wastes=wastes,
        prices=prices,
    )


def test_users_and_teams_are_added_up_and_those_who_held_most_come_first() -> None:
    found = made(
        share("job 1", "ann", 10.0),
        share("job 2", "ann", 5.0, account="speech"),
        share("job 3", "bob", 20.0),
        share("processes", None, 1.0, account=None),
        prices=PRICED,
    )
    assert [(it.name, it.now.held) for it in found.users] == [("bob", 20), ("ann", 15), ("", 1)]
    assert [(it.name, it.now.held) for it in found.teams] == [
        ("vision", 30),
        ("speech", 5),
        ("", 1),
    ]
    assert found.users[1].teams == ("speech", "vision")
    assert found.teams[0].users == ("ann", "bob")
    assert [it.holder for it in found.jobs] == ["job 3", "job 1", "job 2", "processes"]
    assert (found.everybody.now.used_percent, found.everybody.now.cost) == (50.0, 72.0)
    assert found.users[0].before is None  # nothing was counted then


def test_what_has_no_price_costs_nothing_that_is_known() -> None:
    assert made(share("job 1", "ann", 10.0)).users[0].now.cost is None
    unmeasured = share("job 1", "ann", 10.0, measured=0.0, used=0.0)
    assert made(unmeasured).users[0].now.used_percent is None


def test_the_span_before_is_nothing_only_where_it_was_counted() -> None:
    was = [ledger(share("job 0", "ann", 5.0, 1.0), start=SPAN[0] - 7 * DAY)]
    found = made(share("job 1", "ann", 10.0), share("job 2", "bob", 1.0), before=was)
    ann, bob = found.users
    assert ann.before is not None
    assert bob.before is not None
    assert (ann.before.held, bob.before.held) == (5.0, 0.0)
    assert change_percent(ann.now.held, ann.before.held) == 100.0
    assert change_percent(bob.now.held, bob.before.held) is None


@pytest.mark.parametrize(("hours", "is_compared"), [(0.99, False), (1.01, True)])
def test_a_tenth_of_the_hours_of_now_is_enough_to_compare_with(
    hours: float, is_compared: bool
) -> None:
    was = [ledger(share("job 0", "ann", hours), start=SPAN[0] - 7 * DAY)]
    found = made(share("job 1", "ann", 10.0), before=was)
    assert (found.everybody.before is not None) is is_compared
    assert (found.users[0].before is not None) is is_compared


@pytest.mark.parametrize(
    ("held", "idle", "text"),
    [
        (100.0, 100 * IDLE_SHARE, RELEASE),
        (100.0, 100 * IDLE_SHARE - 0.1, ""),
        (5.0, LEAST_HOURS, RELEASE),
        (5.0, LEAST_HOURS - 0.1, ""),
    ],
)
def test_idle_gpus_are_to_be_released_from_a_share_and_an_amount_on(
    held: float, idle: float, text: str
) -> None:
    assert made(share("job 1", "ann", held, idle)).users[0].help == text


def test_what_would_help_is_the_advice_on_most_hours() -> None:
    wastes = [
        judged(
            Waste("job 1", "ann", None, None, "H100", "the batch can grow", 8, 5.0),
            Waste("job 9", "eve", None, None, "H100", "ask for fewer GPUs", 8, 50.0),
        )
    ]
    found = made(share("job 1", "ann", 20.0, 4.0), wastes=wastes)
    assert (found.users[0].help, found.teams[0].help) == ("the batch can grow",) * 2
    assert [it.name for it in found.users] == ["ann"]  # who held nothing is not made up
    assert made(share("job 1", "ann", 20.0, 6.0), wastes=wastes).users[0].help == RELEASE


def test_two_incidents_about_one_job_block_it_once_and_no_longer_than_the_span() -> None:
    first = fault(NOON - 4 * HOUR, NOON - 2 * HOUR, "job 1")
    second = fault(NOON - 3 * HOUR, NOON - HOUR, "job 1", gpus=4)
    assert blocked([first, second], "lab", SPAN) == {"job 1": 24.0}
    old = fault(SPAN[0] - HOUR, SPAN[0] + HOUR, "job 1")
    assert blocked([old], "lab", SPAN) == {"job 1": 8.0}
    open_ = fault(NOON - HOUR, None, "job 1", "job 2")
    assert blocked([open_], "lab", SPAN) == {"job 1": 4.0, "job 2": 4.0}
    others = [
        replace(open_, severity=Severity.WARNING),
        replace(open_, covered_by="f"),
        replace(open_, subject=Subject(cluster="other", node="n")),
        fault(NOON - HOUR, None, "job 1", gpus=0),
    ]
    assert blocked(others, "lab", SPAN) == {}


def test_a_job_is_blocked_for_no_more_than_it_held() -> None:
    found = made(share("job 1", "ann", 3.0), incidents=[fault(NOON - HOUR, None, "job 1")])
    assert found.users[0].now.blocked == 3.0
    assert found.teams[0].now.blocked == 3.0
    assert found.everybody.now.blocked == 3.0


@pytest.mark.parametrize(
    ("key", "severity", "gpus", "idle"),
    [
        ("gpu_hung", Severity.WARNING, 8, 2.0),
        ("node_silent", Severity.WARNING, 8, 2.0),
        ("port_down", Severity.WARNING, 8, 2.0),
        ("port_down", Severity.WARNING, 1, 10.0),  # one GPU needs no other node
        ("host_fan", Severity.WARNING, 8, 10.0),
    ],
)
def test_nobody_is_blamed_for_what_a_fault_left_idle(
    key: str, severity: Severity, gpus: int, idle: float
) -> None:
    one = replace(share("job 1", "ann", 20.0, 10.0), gpus=gpus)
    stood = replace(fault(NOON - HOUR, None, "job 1", severity=severity), fault=key)
    found = made(one, incidents=[stood], prices=PRICED)
    persons = [one.now for one in (*found.users, *found.teams, found.everybody)]
    for now in (*persons, *(one.now for one in found.jobs)):
        assert (now.idle, now.idle_cost) == (idle, 2 * idle)
        assert now.blocked == 10.0 - idle
    assert found.users[0].help == RELEASE
    long = replace(stood, since=NOON - 2 * HOUR)
    assert (made(one, incidents=[long]).users[0].help == RELEASE) is (idle == 10.0)


def test_what_only_slows_a_gpu_blocks_no_hours_and_excuses_what_is_idle() -> None:
    hot = replace(fault(NOON - HOUR, None, "job 1"), fault="gpu_hot")
    (user,) = made(share("job 1", "ann", 20.0, 10.0), incidents=[hot]).users
    assert (user.now.blocked, user.now.idle) == (0.0, 2.0)
    busy = made(share("job 1", "ann", 20.0), incidents=[hot]).everybody.now
    assert (busy.blocked, busy.idle) == (0.0, 0.0)


def test_the_span_before_is_excused_as_this_one_is() -> None:
    was = [ledger(share("job 0", "ann", 20.0, 10.0), start=SPAN[0] - 7 * DAY)]
    stood = fault(SPAN[0] - HOUR, SPAN[0], "job 0")
    ann = made(share("job 1", "ann", 20.0, 4.0), before=was, incidents=[stood]).users[0]
    assert ann.before is not None
    assert (ann.now.idle, ann.before.idle) == (4.0, 2.0)


@pytest.mark.parametrize(("hours", "wasted"), [(3.0, 3.0), (12.0, 10.0)])
def test_a_job_wasted_as_much_as_its_advice_is_about_and_never_more_than_it_held(
    hours: float, wasted: float
) -> None:
    waste = Waste("job 1", "ann", None, None, "H100", "the batch can grow", 1, hours)
    (job,) = made(share("job 1", "ann", 10.0), wastes=[judged(waste)]).jobs
    assert (job.help, job.wasted) == ("the batch can grow", wasted)
    (sound,) = made(share("job 1", "ann", 10.0)).jobs
    assert (sound.help, sound.wasted) == ("", 0.0)
