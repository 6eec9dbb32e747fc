"""The whole service: a real hub, a real `gpuvigil alert`, real receivers."""

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from alerts.delivery.hub_access import LEASE_SECONDS
from gpuvigil.errors import HubUnavailable
from gpuvigil.hub_client import Hub
from gpuvigil.lifecycle import Signal, State
from gpuvigil.model import Record, RecordKind, Severity, Transition
from tests.polling import wait_until
from tests.receiver import OK, RESET, SILENT, Answer, Receiver, too_many
from tests.servers import ROOT, HubProcess, QuickHub

from .examples import a_transition, an_incident
from .process import AlertsProcess

pytestmark = pytest.mark.server

# As the analyzer, which insists for as long as it takes.
PATIENCE_SECONDS = 120.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with QuickHub(tmp_path_factory.mktemp("hub")) as process:
        yield process


@pytest.fixture
def hub(server: HubProcess) -> Hub:
    return server.hub()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


class Story:
    """The life of one incident, told to the hub as the analyzer does."""

    def __init__(self, hub: Hub) -> None:
        self.id = f"i-{uuid.uuid4().hex[:8]}"
        self._hub = hub
        self._state = State.SUSPECT
        self._number = 0

    def tell(self, *signals: Signal, **changes: Any) -> None:
        """One transition per signal, in one commit; a hub that is away is waited for."""
        steps = [self._step(one, changes).to_record() for one in signals]
        wait_until("the hub takes it", lambda: self._is_taken(steps), PATIENCE_SECONDS)

    def _is_taken(self, steps: Sequence[Record]) -> bool:
        try:
            self._hub.write_records(steps)
        except HubUnavailable:  # it may have them all the same: the same again is nothing new
            return False
        return True

    def _step(self, given: Signal, changes: dict[str, Any]) -> Transition:
        states = {
            Signal.CONFIRMED: State.OPEN,
            Signal.CLEARED: State.RESOLVED,
            Signal.RETURNED: State.OPEN,
        }
        before, self._state = self._state, states.get(given, self._state)
        self._number += 1
        now = datetime.now(timezone.utc)
        return a_transition(
            self._number, given, self._state, before, at=now, **{"id": self.id, **changes}
        )

    def incident(self, **changes: Any) -> Record:
        """As it stands now."""
        return an_incident(id=self.id, state=self._state.value, **changes).to_record()

    def notices(self) -> list[Record]:
        return list(self._hub.records(RecordKind.NOTICE, parent=self.id))

    def wait_for(self, *states: str) -> list[Record]:
        """The incident's notices once they are in these states, in order."""
        wait_until(
            f"notices that are {states}, not {[one.body for one in self._sorted()]}",
            lambda: [one.body["state"] for one in self._sorted()] == list(states),
        )
        return self._sorted()

    def _sorted(self) -> list[Record]:
        plain = [one for one in self.notices() if not one.body["repeat"]]
        return sorted(plain, key=lambda one: (one.body["number"], one.id))


def name() -> str:
    """A channel of its own for each test: the hub is shared."""
    return f"chat{uuid.uuid4().hex[:6]}"


def to(receiver: Receiver, **settings: Any) -> dict[str, Any]:
    return {"url": receiver.url, **settings}


def test_fired_updated_and_resolved_reach_the_receiver_by_one_fingerprint(
    server: HubProcess, hub: Hub, receiver: Receiver, tmp_path: Path
) -> None:
    story = Story(hub)
    with AlertsProcess(server, tmp_path, **{name(): to(receiver)}):
        story.tell(Signal.CONFIRMED, severity=Severity.WARNING)
        receiver.wait_for(1)
        story.tell(Signal.CHANGED, severity=Severity.WARNING, action="Reset the GPU.")
        receiver.wait_for(2)
        story.tell(Signal.CLEARED, severity=Severity.WARNING)
        fired, updated, resolved = [one.payload for one in receiver.wait_for(3)]
        story.wait_for("sent", "sent", "sent")
    assert [p["status"] for p in (fired, updated, resolved)] == ["firing", "firing", "resolved"]
    assert len({p["alerts"][0]["fingerprint"] for p in (fired, updated, resolved)}) == 1
    assert updated["alerts"][0]["annotations"]["action"] == "Reset the GPU."


def test_a_transition_is_posted_at_once(
    server: HubProcess, hub: Hub, receiver: Receiver, tmp_path: Path
) -> None:
    delays = []
    with AlertsProcess(server, tmp_path, **{name(): to(receiver)}):
        for count in range(1, 8):
            Story(hub).tell(Signal.CONFIRMED)
            began = time.monotonic()
            delays.append(receiver.wait_for(count)[-1].monotonic - began)
    # The target is 0.3 s; a busy machine gets room, but not as much as a poll would take.
    assert sorted(delays)[3] < 1.0, delays


def test_a_receiver_that_asks_for_time_gets_it(
    server: HubProcess, hub: Hub, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answer(too_many(2), OK)
    story = Story(hub)
    with AlertsProcess(server, tmp_path, **{name(): to(receiver)}):
        story.tell(Signal.CONFIRMED)
        first, second = receiver.wait_for(2)
        (notice,) = story.wait_for("sent")
    assert second.monotonic - first.monotonic >= 2.0
    assert first.payload["alerts"][0]["fingerprint"] == second.payload["alerts"][0]["fingerprint"]
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]
    assert notice.body["attempts"] == 2


def test_a_receiver_that_fails_is_tried_again(
    server: HubProcess, hub: Hub, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answer(Answer(500), OK)
    story = Story(hub)
    with AlertsProcess(server, tmp_path, **{name(): to(receiver)}):
        story.tell(Signal.CONFIRMED)
        receiver.wait_for_accepted(1)
        (notice,) = story.wait_for("sent")
    assert notice.body["attempts"] == 2


def test_a_message_that_is_refused_is_set_aside_with_its_reason(
    server: HubProcess, hub: Hub, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answer(Answer(400))
    story = Story(hub)
    with AlertsProcess(server, tmp_path, **{name(): to(receiver)}):
        story.tell(Signal.CONFIRMED)
        (notice,) = story.wait_for("dead")
    assert "127.0.0.1 answered 400" in notice.body["reason"]
    assert len(receiver.received()) == 1


def test_a_hanging_receiver_does_not_delay_another(
    server: HubProcess, hub: Hub, receiver: Receiver, tmp_path: Path
) -> None:
    with Receiver() as hanging:
        hanging.answer(SILENT)
        channels = {name(): to(hanging), name(): to(receiver)}
        with AlertsProcess(server, tmp_path, **channels) as alerts:
            for count in range(1, 4):
                Story(hub).tell(Signal.CONFIRMED)
                # Less than the other receiver's time-out.
                receiver.wait_for(count, timeout_seconds=8.0)
            hanging.wait_for(1)
            began = time.monotonic()
            assert alerts.stop() == 0
            assert time.monotonic() - began < 8.0


def test_alerts_that_is_killed_in_the_middle_delivers_after_its_restart(
    server: HubProcess, hub: Hub, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answer(SILENT, OK)
    story = Story(hub)
    with AlertsProcess(server, tmp_path, **{name(): to(receiver, timeout_seconds=0.3)}) as alerts:
        story.tell(Signal.CONFIRMED)
        receiver.wait_for(1)
        alerts.kill()
        assert [one.body["state"] for one in story.notices()] == ["due"]
        alerts.start()
        first, second = receiver.wait_for(2)
        story.wait_for("sent")
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]


def test_alerts_that_is_killed_while_it_waits_takes_no_work_with_it(
    server: HubProcess, hub: Hub, receiver: Receiver, tmp_path: Path
) -> None:
    with AlertsProcess(server, tmp_path, **{name(): to(receiver)}) as alerts:
        alerts.kill()
        Story(hub).tell(Signal.CONFIRMED)
        alerts.start()
        receiver.wait_for(1, timeout_seconds=LEASE_SECONDS - 3.0)


def test_what_another_process_claimed_and_never_finished_is_done_after_its_lease(
    server: HubProcess, hub: Hub, receiver: Receiver, tmp_path: Path
) -> None:
    story = Story(hub)
    story.tell(Signal.CONFIRMED)
    began = time.monotonic()
    assert hub.claim(RecordKind.TRANSITION, "killed", lease_seconds=1.5)
    with AlertsProcess(server, tmp_path, **{name(): to(receiver)}):
        (got,) = receiver.wait_for(1)
        story.wait_for("sent")
    assert got.monotonic - began >= 1.5


def test_the_end_is_told_although_the_sender_of_the_beginning_was_killed(
    server: HubProcess, hub: Hub, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answer(SILENT, OK)
    story = Story(hub)
    with AlertsProcess(server, tmp_path, **{name(): to(receiver, timeout_seconds=0.3)}) as alerts:
        story.tell(Signal.CONFIRMED)
        receiver.wait_for(1)
        alerts.kill()
        story.tell(Signal.CLEARED)
        alerts.start()
        got = receiver.wait_for(2)
        story.wait_for("superseded", "sent")
    assert [one.payload["status"] for one in got] == ["firing", "resolved"]


def test_a_hub_that_is_killed_in_the_middle_costs_nothing_and_nothing_comes_twice(
    receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answer(Answer(after_seconds=1.0))
    with QuickHub(tmp_path / "hub") as server:
        story = Story(server.hub())
        with AlertsProcess(server, tmp_path, **{name(): to(receiver)}):
            story.tell(Signal.CONFIRMED)
            receiver.wait_for(1)
            server.kill()
            time.sleep(1.2)  # the receiver answers while the hub is away
            server.start()
            story.wait_for("sent")
            Story(server.hub()).tell(Signal.CONFIRMED)
            assert len(receiver.wait_for_accepted(2)) == 2


def test_a_backlog_is_told_as_its_newest_state(
    server: HubProcess, hub: Hub, receiver: Receiver, tmp_path: Path
) -> None:
    story, over = Story(hub), Story(hub)
    story.tell(Signal.CONFIRMED, *[Signal.CHANGED] * 5)
    story.tell(Signal.CHANGED, action="This is the newest.")
    over.tell(Signal.CONFIRMED, Signal.CHANGED, Signal.CLEARED)
    with AlertsProcess(server, tmp_path, **{name(): to(receiver)}):
        story.wait_for(*["superseded"] * 6, "sent")
        *_, last = over.wait_for("superseded", "superseded", "held")
    (got,) = receiver.received()
    assert got.payload["alerts"][0]["annotations"]["action"] == "This is the newest."
    assert last.body["verdict"] == "never_told"


def test_two_alerts_processes_share_the_work_and_tell_everything_once(
    server: HubProcess, hub: Hub, receiver: Receiver, tmp_path: Path
) -> None:
    channel = name()
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
    stories = [Story(hub) for _ in range(20)]
    with (
        AlertsProcess(server, tmp_path / "a", **{channel: to(receiver)}),
        AlertsProcess(server, tmp_path / "b", **{channel: to(receiver)}),
    ):
        for story in stories:
            story.tell(Signal.CONFIRMED)
        receiver.wait_for(20)
        for story in stories:
            story.wait_for("sent")
    keys = [one.headers["Idempotency-Key"] for one in receiver.received()]
    assert sorted(keys) == sorted(set(keys))


def test_without_a_channel_the_page_can_still_say_why_nobody_was_told(
    server: HubProcess, hub: Hub, tmp_path: Path
) -> None:
    story = Story(hub)
    with AlertsProcess(server, tmp_path):
        story.tell(Signal.CONFIRMED)
        (notice,) = story.wait_for("held")
    assert notice.body["verdict"] == "no_channel"
    assert notice.body["reason"] == "no channel is configured"


def test_decisions_that_are_too_large_for_one_body_are_kept_in_several(
    receiver: Receiver, tmp_path: Path
) -> None:
    with QuickHub(tmp_path / "hub", {"body_bytes": 60_000}) as server:
        stories = [Story(server.hub()) for _ in range(12)]
        members = tuple(f"lab/n{number:03d}/gpu/GPU-{number}" for number in range(500))
        for story in stories:
            story.tell(Signal.CONFIRMED, members=members)
        with AlertsProcess(server, tmp_path, **{name(): to(receiver)}):
            assert len(receiver.wait_for_accepted(12, 60.0)) == 12
            for story in stories:
                story.wait_for("sent")


def test_a_transition_that_cannot_be_read_holds_up_nobody(
    server: HubProcess, hub: Hub, receiver: Receiver, tmp_path: Path
) -> None:
    story, broken = Story(hub), Story(hub)
    now = datetime.now(timezone.utc)
    odd = Record(
        kind=RecordKind.TRANSITION,
        id=f"{broken.id}:1",
        at=now,
        subject="lab/n1",
        parent=broken.id,
        due_at=now,
        body={"number": "one", "to_state": "exploded"},
    )
    hub.write_records([odd])
    story.tell(Signal.CONFIRMED)
    with AlertsProcess(server, tmp_path, **{name(): to(receiver)}):
        receiver.wait_for(1)
        (notice,) = broken.wait_for("held")
    assert notice.body["verdict"] == "unreadable"


def test_a_notice_of_another_version_holds_up_nobody(
    server: HubProcess, hub: Hub, receiver: Receiver, tmp_path: Path
) -> None:
    story, now = Story(hub), datetime.now(timezone.utc)
    odd: dict[str, Any] = {
        "kind": RecordKind.NOTICE,
        "at": now,
        "subject": "lab/n1",
        "parent": story.id,
    }
    told = Record(id=f"{story.id}:other:0", body={"channel": "other", "state": "new"}, **odd)
    due = Record(id=f"{story.id}:gone:0", body={"channel": "gone"}, due_at=now, **odd)
    hub.write_records([told, due])
    story.tell(Signal.CONFIRMED)
    with AlertsProcess(server, tmp_path, **{name(): to(receiver)}):
        receiver.wait_for(1)


def test_the_pulse_says_how_the_channels_do(
    server: HubProcess, hub: Hub, receiver: Receiver, tmp_path: Path
) -> None:
    channel = name()
    other = tmp_path / "other"
    other.mkdir()

    def pulses() -> list[Record]:
        found = hub.records(RecordKind.PULSE, subject="alerts")
        return [p for p in found if [one["name"] for one in p.body["channels"]] == [channel]]

    with (
        AlertsProcess(server, tmp_path, **{channel: to(receiver)}),
        AlertsProcess(server, other, **{channel: to(receiver)}),
    ):
        wait_until("a pulse of each process", lambda: len(pulses()) == 2)


@pytest.mark.parametrize("kind", ["webhooks", "slack"])
def test_the_url_of_a_receiver_is_not_in_the_log(
    server: HubProcess, hub: Hub, receiver: Receiver, tmp_path: Path, kind: str
) -> None:
    receiver.answer(Answer(500, body=b"no /hook/s3cret"), Answer(400, body=b"/hook/s3cret"))
    story = Story(hub)
    secret = {"list": kind, "url": f"{receiver.url}/s3cret"}
    with AlertsProcess(server, tmp_path, **{name(): secret}) as alerts:
        story.tell(Signal.CONFIRMED)
        story.wait_for("dead")
        assert "answered 500" in alerts.said
        assert "s3cret" not in alerts.said
    assert "s3cret" not in str([one.body for one in story.notices()])


def test_a_slack_channel_is_told_that_it_began_and_that_it_is_over(
    server: HubProcess, hub: Hub, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answer(Answer(body=b"ok"))
    story = Story(hub)
    with AlertsProcess(server, tmp_path, **{name(): to(receiver, list="slack")}):
        story.tell(Signal.CONFIRMED)
        receiver.wait_for(1)
        story.tell(Signal.CLEARED)
        fired, resolved = [one.payload for one in receiver.wait_for(2)]
        story.wait_for("sent", "sent")
    title = "GPU fell off the bus: sim-003 GPU 5"
    assert fired["text"].startswith(f"[simulated] {title} (critical). Impact: ")
    assert resolved["text"].startswith("[simulated] Resolved after ")
    assert title in resolved["text"]


def test_a_slack_channel_gets_one_message_a_second(
    server: HubProcess, hub: Hub, receiver: Receiver, tmp_path: Path
) -> None:
    with AlertsProcess(server, tmp_path, **{name(): to(receiver, list="slack")}):
        for _ in range(3):
            Story(hub).tell(Signal.CONFIRMED)
        came = [one.monotonic for one in receiver.wait_for(3)]
    assert all(later - earlier >= 0.99 for earlier, later in pairwise(came))


def test_what_is_critical_goes_before_what_is_not(
    server: HubProcess, hub: Hub, receiver: Receiver, tmp_path: Path
) -> None:
    slow = to(receiver, list="slack", minimum_severity="info")
    severities = [*[Severity.INFO] * 3, Severity.WARNING, Severity.CRITICAL]
    receiver.answer(Answer(after_seconds=1.0))
    with AlertsProcess(server, tmp_path, **{name(): slow}):
        for severity in severities:
            Story(hub).tell(Signal.CONFIRMED, severity=severity, title=severity.value)
        got = [one.payload["text"].split(":")[0] for one in receiver.wait_for(5)]
    # The first may have left before the others came.
    assert got[1:3] == ["[simulated] critical", "[simulated] warning"]


@pytest.mark.parametrize("trouble", [Answer(404, body=b"no_service"), SILENT, RESET, too_many(600)])
def test_a_slack_channel_in_trouble_costs_a_webhook_nothing(
    server: HubProcess, hub: Hub, receiver: Receiver, tmp_path: Path, trouble: Answer
) -> None:
    story = Story(hub)
    with Receiver() as failing:
        failing.answer(trouble)
        channels = {
            name(): to(failing, list="slack", timeout_seconds=0.5),
            name(): to(receiver),
        }
        with AlertsProcess(server, tmp_path, **channels):
            story.tell(Signal.CONFIRMED)
            receiver.wait_for(1)
            failing.wait_for(1)
            story.tell(Signal.CLEARED)
            got = receiver.wait_for(2)
    assert [one.payload["status"] for one in got] == ["firing", "resolved"]


def test_a_slack_channel_that_is_mended_is_told_what_stands_then(
    server: HubProcess, hub: Hub, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answer(Answer(404, body=b"no_service"), Answer(body=b"ok"))
    story = Story(hub)
    with AlertsProcess(server, tmp_path, **{name(): to(receiver, list="slack")}) as alerts:
        story.tell(Signal.CONFIRMED)
        receiver.wait_for_accepted(1)
        story.wait_for("sent")
        assert "no_service: the webhook is gone" in alerts.said


def test_a_wrong_configuration_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    config = tmp_path / "alerts.toml"
    config.write_text("[hub]\nurl = 'http://127.0.0.1:1'\n", encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-m", "gpuvigil", "alert", "--config", str(config)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 2
    assert "hub.service_token_file" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
