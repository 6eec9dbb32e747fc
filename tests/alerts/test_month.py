"""Hours of a small fleet through all of alerts, and what the account of them would not let pass."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from alerts.routing.notice import NoticeState, Verdict
from evaluation.site_week.sending import sent
from simulator.fleet import FaultOrder, FleetSettings

from .month.account import Account, accounts
from .month.fleet import Played, play
from .month.outbox import CONFIGURATIONS, Told, configuration, run

pytestmark = [pytest.mark.slow, pytest.mark.site]

HOUR = 3600.0
FAULTS = (
    FaultOrder(kind="off the bus", node=0, gpu=3, start_seconds=1.5 * HOUR, seconds=1.5 * HOUR),
    FaultOrder(kind="port down", node=2, port=1, start_seconds=1.5 * HOUR, seconds=HOUR),
    FaultOrder(kind="SBE storm", node=3, gpu=6, start_seconds=1 * HOUR, seconds=2 * HOUR),
)


@pytest.fixture(scope="module")
def played() -> Played:
    return play(FleetSettings(seed=11, nodes=4, days=4 / 24, faults=FAULTS), 120.0)


@pytest.fixture(scope="module")
def told(played: Played, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Told]:
    found = {}
    for name in CONFIGURATIONS:
        folder = tmp_path_factory.mktemp(name)
        found[name] = run(played, configuration(name, folder), folder)
    return found


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_fault_is_told_once_and_every_silence_has_its_reason(
    name: str, played: Played, told: Mapping[str, Told], tmp_path: Path
) -> None:
    found = {one.channel: one for one in _accounts(name, played, told[name], tmp_path)}
    for one in found.values():
        assert not one.wrong, one
        assert sum(one.messages.values()) + sum(one.not_told.values()) == len(played.steps)
        assert one.told + sum(one.untold.values()) == one.incidents
    assert found["pager"].messages["first"] >= 1
    at_once = len(FAULTS) if name == "shipped" else 1
    assert found["chat"].faults == {
        "none": len(FAULTS) - at_once,
        "one": at_once,
        "two": 0,
        "more": 0,
    }
    if name == "site":
        # It was night: what nobody is woken for was over by the morning.
        assert found["chat"].untold["over while out_of_hours"] >= len(FAULTS) - at_once
        assert found["chat"].digests == 1
        assert found["chat"].untold["digest"] == found["chat"].digested


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_with_records_in_memory_it_is_told_the_same(
    name: str, played: Played, told: Mapping[str, Told], tmp_path: Path
) -> None:
    again = run(played, configuration(name, tmp_path))
    assert _accounts(name, played, again, tmp_path) == _accounts(name, played, told[name], tmp_path)
    assert again.messages == told[name].messages


def test_a_play_counts_the_messages_that_alerts_sends(played: Played, tmp_path: Path) -> None:
    unsilenced = replace(played, silences=())
    service = run(unsilenced, configuration("shipped", tmp_path))
    counted = sent(played.steps, played.end)
    for channel, told in counted.items():
        before = [it.notice for at, it in service.messages[channel] if at < played.end]
        assert sorted(one.id for one in told.messages) == sorted(before)
        assert told.messages


def test_the_account_sees_what_is_told_twice_lost_or_left_out(
    played: Played, told: Mapping[str, Told], tmp_path: Path
) -> None:
    good = told["site"]
    (first, *_) = [one for one in good.notices if one.state is NoticeState.SENT]
    twice = replace(first, number=first.number + 1000, verdict=Verdict.FIRST)
    channel = str(first.channel)
    more = {**good.messages, channel: [*good.messages[channel], good.messages[channel][0]]}
    less = {
        **good.messages,
        "chat": [it for it in good.messages["chat"] if it[1].fault != "digest"],
    }
    without = [one for one in good.notices if one.id != first.id]
    for bad, sign in (
        (Told(notices=[*good.notices, twice], messages=good.messages), "2 first messages"),
        (Told(notices=without, messages=good.messages), "decisions"),
        (Told(notices=good.notices, messages=more), "messages arrived"),
        (Told(notices=good.notices, messages=less), "digest of"),
    ):
        wrong = [it for one in _accounts("site", played, bad, tmp_path) for it in one.wrong]
        assert any(sign in it for it in wrong), (sign, wrong)


def _accounts(name: str, played: Played, told: Told, folder: Path) -> Sequence[Account]:
    return accounts(played, told, configuration(name, folder))
