"""A verdict on trial is told in the digest, and in messages once it was right here."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from alerts.decisions.decide import decide
from alerts.delivery.dispatcher import Dispatcher, hand_out
from alerts.delivery.hub_access import Context
from alerts.delivery.self_check import SelfChecker
from alerts.messages.message import Message
from alerts.messages.self_monitoring import digest
from alerts.routing.case import ChannelProfile
from alerts.routing.notice import NoticeState, Verdict
from alerts.routing.situation import VOTES_SECONDS, Situation, SituationReader
from alerts.service import decide_transitions
from gpuvigil.clock import ManualClock
from gpuvigil.config import AlertsSettings, RouteSettings
from gpuvigil.faults.trial import STARTS_ON_TRIAL, Feedback
from gpuvigil.lifecycle import Signal
from gpuvigil.log import Log
from gpuvigil.model import Opinion, Record, RecordKind, Severity, Transition
from tests.receiver import Receiver
from tests.servers import HubProcess, QuickHub

from .examples import CHAT, NOON, REAL, an_incident, changed, opened, resolved, returned, seconds
from .month.shelf import ShelfHub, Shelves
from .process import AlertsProcess
from .test_commands import gpuvigil
from .test_dispatcher import Ear
from .test_service import Story

TRIED = sorted(STARTS_ON_TRIAL)[0]
LOWERED: dict[str, Any] = {
    "fault": TRIED,
    "subject": REAL,
    "severity": Severity.WARNING,
    "title": "Clocks lowered",
    "label": "n1",
}
PROVEN = Situation(feedback={TRIED: Feedback(3, 0)})
UNPROVEN = Situation(feedback={TRIED: Feedback(2, 0)})


@pytest.mark.parametrize(
    ("situation", "settings", "verdict"),
    [
        (UNPROVEN, AlertsSettings(), Verdict.ON_TRIAL),
        (PROVEN, AlertsSettings(), Verdict.FIRST),
        (UNPROVEN, AlertsSettings(proven=(TRIED,)), Verdict.FIRST),
        (PROVEN, AlertsSettings(proven=("none",)), Verdict.ON_TRIAL),
        (
            UNPROVEN,
            AlertsSettings(routes=(RouteSettings(receivers=("chat",), digest=True),)),
            Verdict.DIGEST,
        ),
        (UNPROVEN, AlertsSettings(routes=(RouteSettings(receivers=("ops",)),)), Verdict.NOT_ROUTED),
    ],
)
def test_a_verdict_on_trial_is_no_message(
    situation: Situation, settings: AlertsSettings, verdict: Verdict
) -> None:
    (notice,) = decide(opened(**LOWERED), [CHAT], [], NOON, settings, situation)
    assert notice.verdict is verdict


def test_what_is_critical_wakes_nobody_while_it_is_on_trial() -> None:
    pager = replace(CHAT, pager=True)
    step = opened(**{**LOWERED, "severity": Severity.CRITICAL})
    (notice,) = decide(step, [pager], [], NOON, AlertsSettings(), UNPROVEN)
    assert (notice.verdict, notice.state) == (Verdict.ON_TRIAL, NoticeState.NOT_SENT)
    assert notice.reason == (
        "on trial here: goes to the digest until it was right 3 times here and wrong at most once"
        " in 10 (2 right, 0 wrong so far)"
    )


def test_what_began_in_the_digest_stays_there_until_it_is_over() -> None:
    (began,) = decide(opened(**LOWERED), [CHAT], [], NOON, AlertsSettings(), UNPROVEN)
    (later,) = decide(changed(2, **LOWERED), [CHAT], [began], NOON, AlertsSettings(), PROVEN)
    assert later.verdict is Verdict.ON_TRIAL
    assert later.reason == "on trial here: it was when this began; the next is a message"
    (over,) = decide(resolved(3, **LOWERED), [CHAT], [began, later], NOON, AlertsSettings(), PROVEN)
    assert over.verdict is Verdict.NEVER_TOLD
    known = [began, later, over]
    (again,) = decide(returned(4, **LOWERED), [CHAT], known, NOON, AlertsSettings(), PROVEN)
    assert again.verdict is Verdict.FIRST


def test_whoever_was_told_of_it_goes_on_hearing_of_it() -> None:
    (told,) = decide(opened(**LOWERED), [CHAT], [], NOON, AlertsSettings(), PROVEN)
    told = replace(told, state=NoticeState.SENT, sent_at=NOON, due_at=None)
    (over,) = decide(resolved(2, **LOWERED), [CHAT], [told], NOON, AlertsSettings(), UNPROVEN)
    assert over.verdict is Verdict.OVER


class Site:
    """Alerts with a chat, a pager and nothing configured beside them, from day to day."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOON)
        self.hub = ShelfHub(Shelves(), self.clock)
        pager = ChannelProfile(name="pager", minimum_severity=Severity.WARNING, pager=True)
        self.ears = {one.name: Ear(one) for one in (CHAT, pager)}
        self.start()

    def start(self) -> None:
        """A process that knows nothing but what the hub keeps."""
        self._context = Context(
            connect=lambda: self.hub,
            owner="a test",
            settings=AlertsSettings(digest_at="11:00"),
            clock=self.clock,
            stop=threading.Event(),
            log=Log("alerts"),
        )
        self._dispatchers = {
            name: Dispatcher(ear, self._context) for name, ear in self.ears.items()
        }
        self._situations = SituationReader(self.hub, self._context.settings)
        self._watch = SelfChecker(self._context, list(self._dispatchers.values()))

    def comes(self, step: Transition) -> None:
        self.hub.write_records([step.to_record()])
        self.goes_on()

    def goes_on(self) -> None:
        """What was written is decided, and what is due is delivered."""
        routes = [one.channel.profile for one in self._dispatchers.values()]
        decide_transitions(self.hub, self._context, routes, self._situations)
        hand_out(self.hub, self._context, self._dispatchers)
        for dispatcher in self._dispatchers.values():
            while dispatcher.pulse()["waiting"]:
                dispatcher.step()

    def next_day(self) -> None:
        self.clock.advance(timedelta(days=1).total_seconds())
        self._watch.step()
        self.goes_on()

    def says(self, incident: str, useful: bool) -> None:
        one = an_incident(id=incident, **LOWERED)
        vote = Opinion.given(one, "ada", useful=useful, at=self.clock.now())
        self.hub.write_records([vote.to_record()])

    def heard(self, name: str) -> list[Message]:
        return self.ears[name].heard


def test_a_verdict_is_digested_until_it_was_right_three_times_and_then_it_is_a_message() -> None:
    site = Site()
    for number in range(3):
        site.comes(opened(id=f"i-{number}", **LOWERED))
    assert site.heard("chat") == site.heard("pager") == []
    site.next_day()
    (told,) = site.heard("chat")
    assert told.summary.startswith("Digest since 20 Nov 11:00 UTC: 3 incidents on trial")
    assert told.evidence == "on trial: " + "; ".join(["Clocks lowered, n1 (warning, 23 h)"] * 3)
    assert told.action.startswith("Rate what is on trial as useful or noise")
    assert site.heard("pager") == []

    for number in range(2):
        site.says(f"i-{number}", useful=True)
    site.clock.advance(VOTES_SECONDS)
    site.comes(opened(id="i-4", **LOWERED))
    assert len(site.heard("chat")) == 1
    site.says("i-2", useful=True)
    site.clock.advance(VOTES_SECONDS - 1)
    site.start()  # what it knows it has of the hub
    site.comes(opened(id="i-5", **LOWERED))
    assert [one.incident for one in site.heard("chat")[1:]] == ["i-5"]
    assert [one.incident for one in site.heard("pager")] == ["i-5"]

    site.says("i-5", useful=False)
    site.clock.advance(VOTES_SECONDS)
    site.comes(opened(id="i-6", **LOWERED))
    assert [one.incident for one in site.heard("pager")] == ["i-5"]


def test_a_digest_tells_what_is_on_trial_beside_what_is_information() -> None:
    way = (
        RouteSettings(match=('severity="info"',), receivers=("chat",), digest=True),
        RouteSettings(receivers=("chat",)),
    )
    steps = (opened(id="i-1", **LOWERED), opened(id="i-2", severity=Severity.INFO, title="Idle"))
    held = [
        one.to_record()
        for step in steps
        for one in decide(step, [CHAT], [], NOON, AlertsSettings(routes=way), UNPROVEN)
    ]
    told = digest("chat", held, NOON, NOON + seconds(1), [an_incident(id="i-1", **LOWERED)])
    assert told is not None
    body = told.snapshot["body"]
    assert body["title"].endswith(": 1 info incident, 1 on trial")
    assert [one["name"] for one in body["evidence"]] == ["on trial", "Idle"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with QuickHub(tmp_path_factory.mktemp("hub")) as process:
        yield process


@pytest.mark.server
def test_votes_typed_as_commands_make_it_a_message_after_a_restart(
    server: HubProcess, tmp_path: Path
) -> None:
    hub = server.hub()
    with (
        Receiver() as receiver,
        AlertsProcess(server, tmp_path, chat={"url": receiver.url}) as alerts,
    ):
        for _ in range(3):
            story = Story(hub)
            story.tell(Signal.CONFIRMED, **LOWERED)
            hub.write_records([story.incident(**LOWERED)])
            (held,) = story.wait_for("held")
            assert held.body["verdict"] == "on_trial"
            said = gpuvigil("alert", "vote", story.id, "useful", config=alerts.config)
            assert said.stdout == f"counted as useful for the rule {TRIED}\n", said.stderr
        assert alerts.stop() == 0
        alerts.start()
        Story(hub).tell(Signal.CONFIRMED, **LOWERED)
        (message,) = receiver.wait_for(1)
        unknown = gpuvigil("alert", "vote", "i-none", "noise", config=alerts.config)
    assert message.payload["status"] == "firing"
    assert "the hub knows no incident 'i-none'" in unknown.stderr
    audits: tuple[Record, ...] = hub.records(RecordKind.AUDIT)
    assert [one.body["deed"] for one in audits] == ["opinion"] * 3
    shown = gpuvigil("alert", "opinions", config=alerts.config)
    assert shown.stdout.startswith(f"{TRIED}: 0 noise, 3 useful")
    assert "on trial" not in shown.stdout
