"""Resends firing alerts to receivers that forget what is not repeated, as Alertmanager does."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from gpuvigil.hub_client import Hub
from gpuvigil.lifecycle import ACTIVE, State
from gpuvigil.model import Incident, RecordKind, readable

from ..messages.channel import Delivered, Outcome, tried
from ..messages.message import Message
from ..routing.case import Case, ChannelProfile
from ..routing.notice import Notice, NoticeState
from .dispatcher import message_of, notices_of
from .hub_access import Context

# The newest ended incidents, which include those of the last minutes.
NEWEST_ENDED = 300
MOST_ACTIVE = 100_000


@runtime_checkable
class Resending(Protocol):
    """A channel whose receiver forgets what is not repeated."""

    resend_seconds: float
    ended_for: timedelta  # how long resolved alerts are repeated

    @property
    def profile(self) -> ChannelProfile: ...

    def resend(self, messages: Sequence[Message], now: datetime) -> Outcome:
        """Send all of these again."""


class Resend:
    """One such channel's loop: every `resend_seconds` it repeats all alerts that still count."""

    def __init__(self, channel: Resending, context: Context) -> None:
        self._channel = channel
        self._context = context
        self._hub = context.connect()

    def step(self) -> None:
        """Wait, then send all of it again."""
        context, channel = self._context, self._channel
        if context.clock.wait(context.stop, channel.resend_seconds):
            return
        now, name = context.clock.now(), channel.profile.name
        found = (
            self._last_case(one, now) for one in _incidents(self._hub, now - channel.ended_for)
        )
        cases = [one for one in found if one is not None]
        if not cases:
            return
        outcome = tried(
            lambda: channel.resend(
                [message_of(one.notice, one, context, now) for one in cases], now
            )
        )
        if isinstance(outcome, Delivered):
            context.log.debug("resent", channel=name, messages=len(cases))
        else:
            context.log.warning("not resent", channel=name, error=outcome.reason)

    def _last_case(self, incident: str, now: datetime) -> Case | None:
        """Return the case of the notice last sent to the channel about an incident, or None."""
        profile = self._channel.profile
        notices = [
            one for one in notices_of(self._hub, incident).values() if one.channel == profile.name
        ]
        last = last_sent(notices)
        if last is None:
            return None
        others = tuple(one for one in notices if one is not last)
        return Case(
            notice=last, profile=profile, siblings=others, now=now, settings=self._context.settings
        )


def last_sent(notices: Iterable[Notice]) -> Notice | None:
    """Return the newest of a channel's notices of an incident that was surely sent, or None."""
    sent = [one for one in notices if one.state is NoticeState.SENT]
    return max(sent, key=lambda one: one.order, default=None)


def _incidents(hub: Hub, since: datetime) -> list[str]:
    """Return the ids of incidents that stand, and of those that ended since a time."""
    states = tuple(state.value for state in ACTIVE)
    active = hub.records(RecordKind.INCIDENT, states=states, limit=MOST_ACTIVE)
    ended = readable(
        hub.records(RecordKind.INCIDENT, states=(State.RESOLVED.value,), limit=NEWEST_ENDED),
        Incident.from_record,
    )
    late = [one.id for one in ended if one.resolved_at is not None and one.resolved_at >= since]
    return [record.id for record in active] + late
