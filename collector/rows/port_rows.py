"""Rows of a node's ports with monotone counters, and events when a port changes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gpuvigil.metrics import PORT, Kind
from gpuvigil.model import Event, EventKind, PortIdentity, Subject

from ..sensors.ports import PortReading
from .catalogue_rows import Number, Row
from .events import EventMaker
from .monotone_counters import MonotoneCounters

_COUNTERS = frozenset(metric.name for metric in PORT.metrics if metric.kind is Kind.COUNTER)
_Key = tuple[str, str]
_WAITS_MOST, _WAITS_SPAN = 5, timedelta(minutes=5)


class PortBook:
    """Keeps track of every port that was ever up, even when its device has gone from sysfs."""

    def __init__(
        self, events: EventMaker, known: dict[_Key, PortIdentity], counters: MonotoneCounters
    ) -> None:
        """Set up; `known` and `counters` are kept up to date for saving."""
        self._events = events
        self._known = known
        self._counters = counters
        self._down: set[_Key] = set()
        self._updated = False
        self._waits: set[tuple[_Key, str]] = set()
        self._waits_reported: list[datetime] = []
        self._readings: dict[_Key, PortReading] = {}

    def restore(self, ports: Iterable[PortIdentity]) -> None:
        """Take over the ports that the hub knows of this node."""
        for port in ports:
            key = (port.device, port.port)
            known = self._known.setdefault(key, port)
            at_switch = known if known.switch else port
            self._known[key] = replace(
                known,
                was_up=known.was_up or port.was_up,
                switch=at_switch.switch,
                switch_port=at_switch.switch_port,
            )

    def update(self, readings: Sequence[PortReading], now: datetime) -> tuple[list[Event], bool]:
        """Return the events since the last look, and whether the node's ports have changed."""
        before = _lasting(self._known)
        self._readings = {(r.identity.device, r.identity.port): r for r in readings}
        for key, reading in self._readings.items():
            self._known[key] = _merged(self._known.get(key), reading)
        events = [e for key in self._known if (e := self._note(key, now)) is not None]
        self._updated = True
        return events, before != _lasting(self._known) or self._waits_for_others(now)

    def _waits_for_others(self, now: datetime) -> bool:
        """Return whether the ports wait for others than last reported, which varies with traffic.

        A change is reported at once, and a few times in a row, but no more often within some
        minutes.
        """
        waits = {(key, it) for key, port in self._known.items() for it in port.waits_for}
        self._waits_reported = [at for at in self._waits_reported if now - at < _WAITS_SPAN]
        if waits == self._waits or len(self._waits_reported) >= _WAITS_MOST:
            return False
        self._waits = waits
        self._waits_reported.append(now)
        return True

    def rows(self, at: datetime) -> list[Row]:
        """Return a row per port: its last reading, or that it is gone."""
        return [self._row(key, identity, at) for key, identity in self._known.items()]

    def _note(self, key: _Key, now: datetime) -> Event | None:
        """Return the event for a port that went down or came up; else None.

        A port that never was up is unprovisioned. A port that is down at the first look makes no
        event: every start of this process would repeat it, which would look like flapping; its row
        says that it is down. Nor does a port that somebody has switched off on this node.
        """
        identity, up = self._known[key], self._up(key)
        subject = self._subject(key)
        if up is False and identity.was_up and key not in self._down:
            self._down.add(key)
            reading = self._readings.get(key)
            if not self._updated or (reading is not None and reading.values.get("enabled") == 0):
                return None
            if reading is not None:
                return self._events.make(EventKind.PORT_DOWN, subject, now, "link is down")
            text = "port has gone from the system"
            return replace(self._events.make(EventKind.PORT_DOWN, subject, now, text), gone=True)
        if up is True and key in self._down:
            self._down.discard(key)
            return self._events.make(EventKind.PORT_UP, subject, now, "link is up")
        return None

    def _up(self, key: _Key) -> bool | None:
        reading = self._readings.get(key)
        return False if reading is None else reading.up

    def _row(self, key: _Key, identity: PortIdentity, at: datetime) -> Row:
        fields: dict[str, Number | None] = {"up": 0}
        reading = self._readings.get(key)
        if reading is not None:
            fields = dict(reading.values)
            for metric in _COUNTERS & fields.keys():
                fields[metric] = self._count(key, metric, reading)
        node = self._events.node
        tags = {
            "cluster": node.cluster,
            "node": node.node,
            "device": identity.device,
            "port": identity.port,
            "kind": identity.kind,
            "role": identity.role,
        }
        return Row(measurement=PORT, tags=tags, fields=fields, at=at)

    def _count(self, key: _Key, metric: str, reading: PortReading) -> Number | None:
        """Return the counter's value, never less than before; None while it is full."""
        raw, most = reading.values[metric], reading.stays_at.get(metric)
        since_seen = metric in reading.since_seen
        name = f"{key[0]} {key[1]} {'since-seen ' if since_seen else ''}{metric}"
        if most is not None and self._counters.is_full(name, raw, most):
            return None
        wraps_at = reading.wraps_at.get(metric)
        return self._counters.update(name, raw, from_zero=since_seen, wraps_at=wraps_at)[0]

    def _subject(self, key: _Key) -> Subject:
        return replace(self._events.node, device=key[0], port=key[1])


def _lasting(known: Mapping[_Key, PortIdentity]) -> dict[_Key, PortIdentity]:
    """Return the ports without what they do at the moment."""
    return {key: replace(port, waits_for=()) for key, port in known.items()}


def _merged(known: PortIdentity | None, reading: PortReading) -> PortIdentity:
    """Return what is known of a port now.

    A management port keeps that role: a route that goes away, as it does when the link is down,
    must not make another port of it.
    """
    identity = reading.identity
    if known is None or known.kind != identity.kind:
        return replace(identity, was_up=reading.up is True)
    role = "management" if known.role == "management" else identity.role
    return replace(
        identity,
        role=role,
        was_up=known.was_up or reading.up is True,
        switch=known.switch,
        switch_port=known.switch_port,
    )
