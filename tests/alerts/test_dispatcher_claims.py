"""What a dispatcher has in hand is always the newest that was claimed."""

import threading
from dataclasses import replace
from datetime import timedelta

from alerts.decisions.decide import decide
from alerts.delivery.dispatcher import Dispatcher
from alerts.delivery.hub_access import LEASE_SECONDS, Context
from alerts.messages.channel import Delivered, Outcome, Pace
from alerts.messages.message import Message
from alerts.routing.notice import Notice, NoticeState
from gpuvigil.clock import ManualClock
from gpuvigil.log import Log
from gpuvigil.model import RecordKind

from .examples import CHAT, NOON, SETTINGS, opened
from .month.shelf import ShelfHub, Shelves


class Chat:
    """A channel that writes down what it is given."""

    profile, timeout_seconds, pace = CHAT, 10.0, Pace()

    def __init__(self) -> None:
        self.told: list[str] = []

    def deliver(self, message: Message) -> Outcome:
        self.told.append(message.notice)
        return Delivered()

    def close(self) -> None:
        """There is nothing to close."""


def test_what_went_on_elsewhere_and_is_claimed_anew_goes_out_at_once() -> None:
    """A lease ended, another process put it back, and it came here again: nobody waits for its end."""
    clock = ManualClock(NOON)
    hub = ShelfHub(Shelves(), clock)
    context = Context(
        connect=lambda: hub,
        owner="a",
        settings=SETTINGS,
        clock=clock,
        stop=threading.Event(),
        log=Log("alerts"),
    )
    chat = Chat()
    dispatcher = Dispatcher(chat, context)

    def claimed() -> None:
        (record,) = hub.claim(RecordKind.NOTICE, "a", lease_seconds=LEASE_SECONDS)
        assert dispatcher.accept(record)

    (notice,) = decide(opened(), [CHAT], [], NOON, SETTINGS)
    hub.write_records([notice.to_record()])
    claimed()
    clock.advance(LEASE_SECONDS + 1.0)
    again = replace(notice.next(), due_at=clock.now() - timedelta(seconds=1))
    hub.write_records([again.to_record()])
    claimed()
    dispatcher.step()
    assert chat.told == [notice.id]
    (kept,) = (Notice.from_record(one) for one in hub.records(RecordKind.NOTICE, states=["sent"]))
    assert (kept.id, kept.state) == (notice.id, NoticeState.SENT)
