"""Sends active incidents to a channel that was added after they began.

The channel may be the first, one more, or have another name: earlier decisions were made without
it. A process keeps its channels, so this is checked once after each start; from then on every step
is decided for all channels. The ordinary rules apply, and see what an earlier start sent to the
channel.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from gpuvigil.hub_client import Hub
from gpuvigil.lifecycle import ACTIVE, State
from gpuvigil.model import Incident, RecordKind, Transition, readable

from ..decisions.attempts import requeued
from ..decisions.decide import decide
from ..messages.self_monitoring import OWN, is_digest
from ..routing.case import ChannelProfile
from ..routing.notice import Notice, NoticeState, Verdict
from ..routing.situation import SituationReader
from .dispatcher import notices_of
from .hub_access import Context

# More incidents than can stand, and than steps of gpuvigil's own are kept.
_MOST = 100_000


def decided_last(notices: Iterable[Notice]) -> int | None:
    """Return the number of the newest step that was decided; None when none was."""
    return max((one.number for one in notices), default=None)


def newcomers(
    notices: Collection[Notice], profiles: Sequence[ChannelProfile]
) -> list[ChannelProfile]:
    """Return the channels for which the newest decided step was not decided.

    A step that is not decided at all will be, for every channel, by whoever claims it.
    """
    newest = decided_last(notices)
    there = {one.channel for one in notices if one.number == newest}
    return [] if newest is None else [one for one in profiles if one.name not in there]


def left_behind(
    notices: Collection[Notice], profiles: Sequence[ChannelProfile]
) -> list[ChannelProfile]:
    """Return those of the new channels that have a due notice of an incident that is over.

    An attempt was cut off, and the end was decided while the channel was not configured.
    """
    waiting = {one.channel for one in notices if one.state is NoticeState.DUE}
    return [one for one in newcomers(notices, profiles) if one.name in waiting]


def due_again(
    notices: Collection[Notice], profiles: Sequence[ChannelProfile], now: datetime
) -> list[Notice]:
    """Return notices that came due while their channel, now there again, was not configured."""
    last = [
        max(mine, key=lambda one: one.order)
        for profile in profiles
        if (mine := [one for one in notices if one.channel == profile.name])
    ]
    newest = decided_last(notices)
    return [
        replace(requeued(one, now), verdict=Verdict.QUEUED, reason="its channel is there again")
        for one in last
        if one.verdict is Verdict.CHANNEL_GONE and one.number == newest
    ]


def notify_new_channels(
    hub: Hub, context: Context, profiles: Sequence[ChannelProfile], situations: SituationReader
) -> None:
    """Decide active incidents for new channels, most severe first, and ended ones still due."""
    active = _active_ids(hub)
    for incident in [*active, *_still_due(hub, active)]:
        if context.stop.is_set():
            return
        notices = list(notices_of(hub, incident).values())
        now = context.clock.now()
        is_active = incident in active
        decided = due_again(notices, profiles, now) if is_active else []
        new = newcomers(notices, profiles) if is_active else left_behind(notices, profiles)
        step = _step(hub, incident, decided_last(notices)) if new else None
        if step is not None:
            situation = situations.read(context.clock.monotonic())
            decided += decide(step, new, notices, now, context.settings, situation)
        if decided and context.keep(hub, decided):
            channels = ", ".join(sorted({str(one.channel) for one in decided}))
            context.log.info("stood before its channel", incident=incident, channels=channels)


def _step(hub: Hub, incident: str, number: int | None) -> Transition | None:
    record = hub.record(RecordKind.TRANSITION, f"{incident}:{number}")
    return next(readable([record] if record else [], Transition.from_record), None)


def _active_ids(hub: Hub) -> dict[str, None]:
    """Return the ids of gpuvigil's active troubles and active incidents, most severe first."""
    states = tuple(state.value for state in ACTIVE)
    found = hub.records(RecordKind.INCIDENT, states=states, limit=_MOST)
    incidents = sorted(readable(found, Incident.from_record), key=lambda one: one.severity.rank)
    return dict.fromkeys([*_self_monitoring_ids(hub), *(one.id for one in incidents)])


def _still_due(hub: Hub, active: Collection[str]) -> list[str]:
    """Return the ids of incidents that are over and have a notice still due."""
    due = hub.records(RecordKind.NOTICE, states=(NoticeState.DUE.value,), limit=_MOST)
    ids = dict.fromkeys(one.incident for one in readable(due, Notice.from_record))
    return [id_ for id_ in ids if id_ not in active and not is_digest(id_)]


def _self_monitoring_ids(hub: Hub) -> list[str]:
    """Return gpuvigil's own active troubles; not digests, each of one day and channel."""
    steps: Iterable[Transition] = readable(
        hub.records(RecordKind.TRANSITION, subject=OWN, limit=_MOST), Transition.from_record
    )
    newest = {one.incident: one for one in sorted(steps, key=lambda one: one.number)}
    return [
        id_
        for id_, one in newest.items()
        if one.to_state == State.OPEN.value and not is_digest(id_)
    ]
