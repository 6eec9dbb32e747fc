"""What a week of a site sends: messages and pages as alerts sends them, by what they are about."""

from datetime import timedelta
from typing import Any

import pytest

from alerts.routing.notice import Verdict
from evaluation.accuracy_page.page import page
from evaluation.accuracy_page.week import Load, section
from evaluation.baselines import OURS
from evaluation.fleets import WEEK_DAYS, WEEK_FAULTS, WEEK_NODES, site_week
from evaluation.judge.tally import Tally
from evaluation.plays import WEEK, for_tuning, newest
from evaluation.run import _chosen, _wanted, _week
from evaluation.site_week.account import account
from evaluation.site_week.sending import CHAT, PAGER, sent
from gpuvigil.faults.trial import STARTS_ON_TRIAL
from gpuvigil.model import Severity
from simulator.fleet import FaultOrder, FleetSettings, Truth, build
from tests.alerts.examples import GPU, NOON, changed, opened, resolved

HOUR = timedelta(hours=1)
END = NOON + 24 * HOUR


def over_after(hours: float, **changes: Any) -> list[Any]:
    return [opened(**changes), resolved(at=NOON + hours * HOUR, **changes)]


def test_a_critical_incident_is_one_page_and_repeated_in_the_chat() -> None:
    found = sent(over_after(5.0), END)
    verdicts = [Verdict.FIRST, Verdict.STILL_STANDING, Verdict.OVER]
    for channel in (CHAT, PAGER):
        assert [one.verdict for one in found[channel].messages] == verdicts
        times = [one.sent_at for one in found[channel].messages]
        assert times == [NOON, NOON + 4 * HOUR, NOON + 5 * HOUR]
    assert [one.sent_at for one in found[PAGER].pages] == [NOON]
    assert found[CHAT].digests == 0


def test_what_comes_after_the_end_is_not_counted() -> None:
    found = sent(over_after(5.0), NOON + 3 * HOUR)
    assert [one.verdict for one in found[CHAT].messages] == [Verdict.FIRST]


def test_a_warning_pages_nobody_and_a_note_is_no_message() -> None:
    found = sent(over_after(1.0, severity=Severity.WARNING), END)
    assert (len(found[CHAT].messages), len(found[PAGER].messages)) == (2, 0)
    assert not sent(over_after(1.0, severity=Severity.INFO), END)[CHAT].messages


def test_a_changed_title_is_a_message_and_a_changed_impact_is_none() -> None:
    steps = [opened(), changed(at=NOON + HOUR), changed(3, at=NOON + 2 * HOUR, title="Its cause")]
    verdicts = [one.verdict for one in sent(steps, NOON + 3 * HOUR)[CHAT].messages]
    assert verdicts == [Verdict.FIRST, Verdict.EXPLAINED]


def test_what_is_on_trial_is_in_one_digest_a_day() -> None:
    fault = min(STARTS_ON_TRIAL)
    steps = [
        step
        for number, begin in enumerate((0.0, 1.0, 21.0))
        for step in (
            opened(
                id=f"i-{number}", fault=fault, at=NOON + begin * HOUR, severity=Severity.WARNING
            ),
        )
    ]
    found = sent(steps, END + 24 * HOUR)
    assert not found[CHAT].messages
    # Noon and one o'clock are of one day, from eight to eight; nine the next morning is of another.
    assert found[CHAT].digests == 2


def test_messages_are_counted_by_what_they_are_about() -> None:
    elsewhere: dict[str, Any] = {"id": "i-2", "subject": GPU.of_node(), "fault": "gpu_idle_held"}
    nothing: dict[str, Any] = {"id": "i-3", "subject": GPU.of_node(), "at": NOON + 10 * HOUR}
    steps = [*over_after(1.0), opened(**elsewhere), opened(**nothing)]
    found = account([truth()], steps, NOON + 11 * HOUR)
    assert found["faults"] == 1
    chat = found[CHAT]
    assert (chat["fault"], chat["use"], chat["nothing"], chat["incidents"]) == (2, 2, 1, 3)
    assert chat["per_fault"] == [2]
    pages = found[PAGER]
    assert (pages["fault"], pages["use"], pages["nothing"]) == (1, 1, 1)


def truth() -> Truth:
    return Truth(
        id="t",
        fault="off the bus",
        subject=GPU,
        start=NOON - HOUR,
        end=NOON + 2 * HOUR,
        detectable_from=NOON - HOUR,
        cause="",
        symptoms=(),
        severity=Severity.CRITICAL,
        action="",
    )


def a_play(seed: int = 1, wrong: int = 0, notes: int = 0, **chat: int) -> dict[str, Any]:
    counts = {"warning": {"false": wrong}} if wrong else {}
    tally = Tally(node_days=1750.0, counts=counts, wrong_notes=notes)
    about = {"fault": 14, "use": 0, "nothing": 0, "incidents": 7, "per_fault": [2] * 7}
    pages = {"fault": 2, "use": 0, "nothing": 0, "incidents": 2, "per_fault": [1, 1]}
    return {
        "use": WEEK,
        "seed": seed,
        **dict.fromkeys(("commit", "detectors", "fleet", "judge"), "0123456789abcdef"),
        "cpu_seconds": 875,
        "tallies": {OURS: tally.to_json()},
        "sent": {"faults": 7, "digests": 2, CHAT: about | chat, PAGER: pages},
    }


def test_each_goal_has_its_number_its_interval_and_its_verdict() -> None:
    lines = list(section([a_play(), a_play(2, wrong=7, notes=10)]))
    rows = {row.split(" | ")[0].lstrip("| "): row for row in lines if row.count(" | ") == 2}
    # Fourteen incidents with two messages each in two weeks, and two digests a week.
    chat = rows["at most 20 chat messages a week"]
    assert chat.endswith("| 16.0 (9.7 to 25.5) | met, not certain |")
    assert rows["at most 3 pages a week"].endswith("| 2.0 (0.5 to 5.1) | met, not certain |")
    middle = rows["a median of 2 chat messages a fault"]
    assert middle.endswith("| 2, of 14 faults with messages | met |")
    critical = rows["no wrong critical in 10,000 node-days"]
    assert "| 0 in 3,500, per 1,000 below 1.05 | none, in fewer than asked for |" in critical
    warnings = rows["at most 1 wrong warning per 1,000 node-days"]
    assert warnings.endswith("| 2.0 (0.8 to 4.1), 7 | missed, not certain |")
    infos = rows["at most 20 wrong infos per 1,000 node-days"]
    assert infos.endswith("| 2.9 (1.4 to 5.3), 10 | met |")
    assert "| 2 | 7 | 14 | 0 | 0 | 2 | 2 | 0 |" in lines
    assert "0.50 s of CPU time a node-day" in "\n".join(lines)


def test_a_load_counts_what_is_about_nothing_too() -> None:
    assert Load.of([a_play(nothing=30, use=4, incidents=20)], CHAT).value == 14 + 30 + 4 + 2
    assert Load.of([a_play(nothing=30)], PAGER).value == 2


def test_the_weeks_stand_on_the_page_and_count_apart() -> None:
    assert list(section([])) == []
    plays = [a_play(), a_play(2, nothing=1)]
    assert f"## What a week of {WEEK_NODES} nodes sends" in list(page(plays))
    assert newest(plays) == []
    assert for_tuning(plays) == []
    assert list(_wanted(_chosen([WEEK, "--fleets", "2"]), "c").values()) == [[OURS]] * 2


def test_a_week_is_one_site_with_about_as_many_faults_as_were_asked_for() -> None:
    fleet = build(site_week(5))
    assert (fleet.settings.nodes, fleet.settings.days) == (WEEK_NODES, WEEK_DAYS)
    expected = WEEK_FAULTS * WEEK_NODES * WEEK_DAYS / 1000.0
    assert 1 <= len(fleet.truths()) <= 3.0 * expected


@pytest.mark.slow
def test_a_fault_is_told_in_two_messages_and_one_page() -> None:
    fault = FaultOrder(kind="off the bus", node=0, gpu=3, start_seconds=3600.0, seconds=3600.0)
    fleet = build(FleetSettings(seed=11, nodes=2, days=3 / 24, faults=(fault,), life=False))
    tallies, found = _week(fleet)
    assert [it.found for it in tallies[OURS].outcomes] == [True]
    assert found["sent"][CHAT]["per_fault"] == [2]
    assert found["sent"][PAGER]["per_fault"] == [1]
