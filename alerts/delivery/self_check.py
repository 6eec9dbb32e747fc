"""Checks gpuvigil itself every few seconds, and makes the digests once a day."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, time, timedelta

from gpuvigil.clock import EPOCH, from_text
from gpuvigil.errors import ConfigError
from gpuvigil.faults import FAULTS, where
from gpuvigil.hub_client import Hub
from gpuvigil.lifecycle import ACTIVE
from gpuvigil.matching.matchers import labels_of
from gpuvigil.model import Incident, Record, RecordKind, Transition, fingerprint, readable
from gpuvigil.model.selftest_nodes import without_marked

from ..messages.channel import Delivered, Outcome
from ..messages.damaged_records import PULSE, repairs
from ..messages.self_monitoring import (
    Trouble,
    analyzer_trouble,
    channel_trouble,
    collector_trouble,
    detectors_trouble,
    digest,
    digest_of,
    ended,
    is_reported,
    of_gone_channels,
    opened,
    reader_of,
    reader_trouble,
    spool_trouble,
)
from ..routing.case import ChannelProfile
from ..routing.notice import NoticeState
from ..routing.route import resolve_route
from ..routing.situation import SituationReader
from .batches import all_of
from .dispatcher import Dispatcher
from .hub_access import Context

CHECK_SECONDS = 5.0
_LOSES_DATA = where(lambda row: row.loses_data)
# The hub's status names every node: for a large fleet it is long.
STATUS_SECONDS = 60.0
# Looks that are further apart mean that the hub, or this process, was away.
AWAY_SECONDS = 30.0
# When this process starts, this much of the time that a part may be silent counts as over.
STARTING_SECONDS = 30.0
# What was decided before a digest's hour may be written a little after it.
WRITTEN_SECONDS = 60.0
# Most active incidents that are read.
MOST_ACTIVE = 100_000
# Most machines that read the schedulers of one cluster.
MOST_ASKING = 100
# Records of switches and of equipment are many, and the newest speaks for all.
_READ = ((RecordKind.SCHEDULER, MOST_ASKING), (RecordKind.SWITCH, 1), (RecordKind.EQUIPMENT, 1))


def drops_data(one: Incident) -> bool:
    """Return whether an incident says that a collector drops measurements, covers one that does, or began as one."""
    told = tuple(f": {FAULTS[fault].title}" for fault in _LOSES_DATA)
    if one.fault in _LOSES_DATA or any(it.endswith(told) for it in one.covers):
        return True
    return one.fingerprint in {fingerprint(fault, one.subject) for fault in _LOSES_DATA}


class SelfChecker:
    """One process's checks of all parts of gpuvigil, its own channels included."""

    def __init__(self, context: Context, dispatchers: Sequence[Dispatcher]) -> None:
        self._context = context
        self._dispatchers = dispatchers
        self._hub = context.connect()
        self._situations = SituationReader(self._hub, context.settings)
        self._digested: dict[str, datetime] = {}  # by channel, until when
        self._nodes: Sequence[Mapping[str, object]] = ()
        self._full: Sequence[str] = ()
        self._repairs_version: int | None = None  # of the pulse that was looked at
        self._status_read_at = self._cleared = self._counted = self._asked = float("-inf")
        self._stepped_at: datetime | None = None
        self._listens_since = EPOCH
        self.well_at: datetime | None = None  # when all was well last, as seen from here

    def step(self) -> None:
        """Look, record what has changed, and wait."""
        context = self._context
        now = context.clock.now()
        pulses = {one.id: one for one in self._hub.records(RecordKind.PULSE)}
        nodes, listening = self._node_status(), self._listening(now)
        shared = {
            "analyzer": analyzer_trouble(pulses.get("analyzer"), now, listening),
            "collectors": collector_trouble(nodes, now, listening),
        }
        steps: list[Transition | None] = [
            self._change(name, trouble, now)
            for name, trouble in shared.items()
            # One message of a silence is enough: the analyzer may have reported it.
            if not (
                name == "collectors" and trouble and is_reported(nodes, self._active_incidents())
            )
        ]
        # The dead man's switch is still called: what the other detectors find is told.
        steps.append(self._change("detectors", detectors_trouble(pulses.get("analyzer")), now))
        steps.append(self._change("spools", spool_trouble(self._full_spools(), len(nodes)), now))
        steps += self._of_readers(nodes, now, listening)
        steps += self._of_records(pulses.get(PULSE), now)
        steps += [self._of_channel(one.pulse(), now) for one in self._dispatchers]
        steps += self._of_gone_channels(pulses.values(), now)
        day = last_day(context.settings.digest_at, now)
        digests = {name: self._digest(name, *day) for name in self._undigested(day[1])}
        steps += digests.values()
        records = [one.to_record() for one in steps if one is not None]
        if records:
            self._hub.write_records(records)
        self._repairs_version = pulses[PULSE].version if PULSE in pulses else None
        self._digested.update(dict.fromkeys(digests, day[1]))
        if not any(shared.values()):
            self.well_at = now
        context.clock.wait(context.stop, CHECK_SECONDS)

    def _of_readers(
        self, nodes: Iterable[Mapping[str, object]], now: datetime, listening: datetime
    ) -> Iterator[Transition | None]:
        """Check once a minute, for each cluster, that its schedulers and switches are still read."""
        if self._context.clock.monotonic() - self._asked < STATUS_SECONDS:
            return
        self._asked = self._context.clock.monotonic()
        for cluster in sorted({str(node["cluster"]) for node in nodes}):
            newest: dict[str, Record] = {}
            for kind, most in _READ:
                for told in self._hub.records(kind, subject=cluster, limit=most):
                    known = newest.setdefault(reader_of(told), told)
                    newest[reader_of(told)] = max(known, told, key=lambda it: it.at)
            for reader, last in newest.items():
                trouble = reader_trouble(last, now, listening)
                yield self._change(f"{reader}-{cluster}", trouble, now)

    def _node_status(self) -> Sequence[Mapping[str, object]]:
        """Return the nodes, with when the hub heard of each; at most a minute old."""
        now = self._context.clock.monotonic()
        if now - self._status_read_at >= STATUS_SECONDS:
            self._nodes, self._status_read_at = without_marked(self._hub.status())["nodes"], now
        return self._nodes

    def _full_spools(self) -> Sequence[str]:
        """Return the nodes whose collectors drop measurements; read once a minute."""
        now = self._context.clock.monotonic()
        if now - self._counted >= STATUS_SECONDS:
            full = {
                one.subject.node
                for one in self._active_incidents()
                if drops_data(one) and one.subject.real
            }
            self._full, self._counted = sorted(full), now
        return self._full

    def _listening(self, now: datetime) -> datetime:
        """Return since when this process would have seen what others send to the hub.

        After an hour without the hub all that it knows is an hour old, which is nobody's fault; and
        when everything is started at once, alerts looks before the others have reported anything.
        """
        if self._stepped_at is None:
            self._listens_since = now - timedelta(seconds=STARTING_SECONDS)
        elif now - self._stepped_at > timedelta(seconds=AWAY_SECONDS):
            self._listens_since = now
        self._stepped_at = now
        return self._listens_since

    def _change(self, name: str, trouble: Trouble | None, now: datetime) -> Transition | None:
        before = last_step(self._hub, f"self-{name}")
        return ended(before, now) if trouble is None else opened(trouble, before, now)

    def _of_records(self, pulse: Record | None, now: datetime) -> Sequence[Transition | None]:
        """Report repairs of the hub's records when its pulse tells of a new or an ended one."""
        if pulse is None or pulse.version == self._repairs_version:
            return []
        return [self._change(name, trouble, now) for name, trouble in repairs(pulse)]

    def _of_channel(self, pulse: dict[str, object], now: datetime) -> Transition | None:
        """Report a channel's trouble; it ends once this process has delivered through it since."""
        trouble, name = channel_trouble(pulse), f"channel-{pulse['name']}"
        before = last_step(self._hub, f"self-{name}")
        if trouble is not None:
            return opened(trouble, before, now)
        sent_at = pulse.get("last_sent_at")
        again = before is not None and sent_at and from_text(str(sent_at)) > before.at
        return ended(before, now) if again else None

    def _of_gone_channels(self, pulses: Iterable[Record], now: datetime) -> Sequence[Transition]:
        """End the troubles of channels that are no longer configured; once a minute."""
        at = self._context.clock.monotonic()
        if at - self._cleared < STATUS_SECONDS:
            return []
        names = {one.channel.profile.name for one in self._dispatchers}
        gone = sorted(channels_of(pulses) - names)
        steps = [last_step(self._hub, f"self-channel-{name}") for name in gone]
        self._cleared = at
        return of_gone_channels([one for one in steps if one is not None], names, now)

    def _undigested(self, end: datetime) -> list[str]:
        """Return the channels whose digest until `end` was not sent, as far as is known here."""
        profiles = [one.channel.profile for one in self._dispatchers]
        return [
            name for name in digesting(self._context, profiles) if self._digested.get(name) != end
        ]

    def _digest(self, channel: str, begin: datetime, end: datetime) -> Transition | None:
        """Return a channel's digest of a day, unless it was sent or there is nothing for it."""
        if last_step(self._hub, digest_of(channel, begin)) is not None:
            return None
        day = all_of(self._hub, RecordKind.NOTICE, (NoticeState.NOT_SENT.value,), begin, end)
        left = [one for one in day if one.body.get("channel") == channel]
        return digest(channel, left, begin, end, self._active_for(channel)) if left else None

    def _active_for(self, channel: str) -> list[Incident]:
        """Return the active incidents that a route sends to the channel, and so to its readers."""
        settings = self._context.settings
        racks = self._situations.read(self._context.clock.monotonic()).racks
        return [
            one
            for one in self._active_incidents()
            if resolve_route(settings, labels_of(one, racks), channel) is not None
        ]

    def _active_incidents(self) -> list[Incident]:
        states = tuple(state.value for state in ACTIVE)
        found = self._hub.records(RecordKind.INCIDENT, states=states, limit=MOST_ACTIVE)
        return list(readable(found, Incident.from_record))


def channels_of(pulses: Iterable[Record]) -> set[str]:
    """Return the names of the channels that some alerts process has, or had."""
    found = (one.body.get("channels") for one in pulses if one.subject == "alerts")
    listed = (channel for them in found if isinstance(them, list) for channel in them)
    return {str(one["name"]) for one in listed if isinstance(one, Mapping) and "name" in one}


def last_day(digest_at: str, now: datetime) -> tuple[datetime, datetime]:
    """Return begin and end of the last day, from digest to digest, of which everything is recorded."""
    at, written = time.fromisoformat(digest_at), now - timedelta(seconds=WRITTEN_SECONDS)
    end = written.replace(hour=at.hour, minute=at.minute, second=0, microsecond=0)
    end -= timedelta(days=1) if end > written else timedelta()
    return end - timedelta(days=1), end


def digesting(context: Context, channels: Iterable[ChannelProfile]) -> list[str]:
    """Return the channels that get a digest: by a route, or for what is on trial.

    The latter are all of `channels` but pagers, and those that write to owners only.
    """
    given = [name for one in context.settings.routes if one.digest for name in one.receivers]
    read = [one.name for one in channels if not (one.pager or one.owners_only)]
    return list(dict.fromkeys([*given, *read]))


def last_step(hub: Hub, incident: str) -> Transition | None:
    """Return the newest transition of an incident; None if there is none."""
    steps: Iterable[Transition] = readable(
        hub.records(RecordKind.TRANSITION, parent=incident), Transition.from_record
    )
    return max(steps, key=lambda one: one.number, default=None)


def call_dead_man(
    ping: Callable[[datetime], Outcome], context: Context, self_checker: SelfChecker
) -> None:
    """Call the dead man's switch if this process has lately seen that all is well, then wait."""
    now, every = context.clock.now(), context.settings.dead_man_seconds
    if self_checker.well_at is not None and now - self_checker.well_at < timedelta(seconds=30):
        try:
            outcome = ping(now)
        except ConfigError as error:
            context.log.warning("dead man not called", error=str(error))
        else:
            if not isinstance(outcome, Delivered):
                context.log.warning("dead man not called", error=outcome.reason)
        context.clock.wait(context.stop, every)
        return
    context.clock.wait(context.stop, 1.0)
