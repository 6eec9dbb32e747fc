"""What stands is said again and again to those who forget what nobody repeats, as Alertmanager does."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from gpuvigil.errors import ConfigError
from gpuvigil.hub import Hub
from gpuvigil.lifecycle import STANDING, State
from gpuvigil.model import Incident, RecordKind, readable

from .channel import Outcome
from .courier import notices_of
from .desk import Desk
from .message import Message, message
from .notice import Notice, NoticeState

# Incidents that ended last, among which those of the last minutes are.
NEWEST_ENDED = 300


@runtime_checkable
class Upheld(Protocol):
    """A channel whose receiver forgets."""

    resend_seconds: float
    ended_for: timedelta  # how long what is over is said again

    def uphold(self, messages: Sequence[Message], now: datetime) -> Outcome:
        """Say all of these again."""


class Upholder:
    """One such channel's loop: every `resend_seconds` all that it was told of and still counts."""

    def __init__(self, name: str, upheld: Upheld, desk: Desk) -> None:
        self._name = name
        self._upheld = upheld
        self._desk = desk
        self._hub = desk.connect()

    def step(self) -> None:
        """Wait, then say it all again."""
        desk = self._desk
        if desk.clock.wait(desk.stop, self._upheld.resend_seconds):
            return
        now = desk.clock.now()
        said = [
            message(notice, now, desk.settings.external_url, runbook_url=desk.settings.runbook_url)
            for incident in _incidents(self._hub, now - self._upheld.ended_for)
            if (notice := last_told(notices_of(self._hub, incident).values(), self._name))
        ]
        if not said:
            return
        try:
            outcome = self._upheld.uphold(said, now)
        except ConfigError as error:
            desk.log.warning("not upheld", channel=self._name, error=str(error))
        else:
            desk.log.debug("upheld", channel=self._name, messages=len(said), outcome=repr(outcome))


def last_told(notices: Iterable[Notice], channel: str) -> Notice | None:
    """What the channel was surely told last of an incident."""
    told = [one for one in notices if one.channel == channel and one.state is NoticeState.SENT]
    return max(told, key=lambda one: one.order, default=None)


def _incidents(hub: Hub, since: datetime) -> list[str]:
    """Those that stand, and those that ended since then."""
    states = tuple(state.value for state in STANDING)
    standing = hub.records(RecordKind.INCIDENT, states=states)
    ended = readable(
        hub.records(RecordKind.INCIDENT, states=(State.RESOLVED.value,), limit=NEWEST_ENDED),
        Incident.from_record,
    )
    late = [one.id for one in ended if one.resolved_at is not None and one.resolved_at >= since]
    return [record.id for record in standing] + late
