"""The health of hub, analyzer and alerts, as they report it; pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gpuvigil.clock import from_text
from gpuvigil.model import Record

from ..model.delivery_status import is_failing

# A service may miss three passes or pulses, and may be silent at least this long.
LEAST_PATIENCE = timedelta(seconds=30)
MISSED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A damaged file of the store that was set aside."""

    at: datetime | None
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsRepair:
    """A repair of the hub's damaged records; None is not reported."""

    at: datetime | None
    file: str
    backup_at: datetime | None
    missing_since: datetime | None  # None: nothing is known to be missing
    missing_until: datetime | None
    empty: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Flood:
    """A node whose new series the hub refuses because there are too many."""

    name: str  # cluster/node; empty for lines without one
    refused_lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HubHealth:
    """The hub's own report; None is not reported by its version."""

    version: str
    started_at: datetime | None
    tables: Mapping[str, int]
    store_bytes: int | None
    store_most_bytes: int | None
    recent_bytes: int | None  # part of the store that is not in sealed files
    damaged: tuple[Damage, ...] | None
    repairs: tuple[RecordsRepair, ...] | None  # repairs of records that somebody has to check
    records_backup_at: datetime | None  # None: no backup yet, or PostgreSQL keeps the records
    dropped_lines: int | None  # oldest lines dropped from a full store since the hub started
    dropped_until: datetime | None
    floods: tuple[Flood, ...]  # largest first
    elsewhere: bool  # whether numbers are in the store of [store], not in the hub's own
    numbers_days: float | None
    rollup_days: float | None
    records_days: float | None
    queue_bodies: int | None
    queue_bytes: int | None
    queue_most_bytes: int | None
    refused_lines: int | None
    sequence: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """The last pulse of a service, from any of its processes."""

    name: str  # "analyzer", "alerts"
    at: datetime
    silent: bool
    version: str
    body: Mapping[str, Any]

    def number(self, key: str) -> float | None:
        """Return a number from the pulse; None if it has none."""
        value = self.body.get(key)
        return (
            float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
        )

    def time(self, key: str) -> datetime | None:
        """Return a time from the pulse; None if it has none."""
        return _time(self.body.get(key))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbox:
    """The messages that wait for one channel, and those that were given up."""

    channel: str
    waiting: int  # due now, or queued since its receiver takes no more at once
    later: int  # reminders and updates that wait for their time
    in_flight: int
    failing: int  # waiting because the receiver failed
    failing_since: datetime | None
    next_try: datetime | None
    last_error: str
    dead: int
    last_dead_at: datetime | None
    configured: bool | None  # None: no pulse of alerts says so
    last_sent_at: datetime | None


def hub_health(status: Mapping[str, Any], elsewhere: bool = False) -> HubHealth:
    """Return the health in the hub's status; `elsewhere` if numbers are not in its own store."""
    store, queue = status.get("store") or {}, status.get("queue") or {}
    kept, dropped = status.get("retention") or {}, store.get("dropped") or {}
    hours = kept.get("telemetry_hours")
    return HubHealth(
        version=str(status.get("version") or ""),
        started_at=_time(status.get("started_at")),
        tables=dict(store.get("tables") or {}),
        store_bytes=store.get("bytes"),
        store_most_bytes=store.get("most_bytes"),
        recent_bytes=store.get("recent_bytes"),
        damaged=_damaged(store.get("damaged")),
        repairs=_repairs((status.get("records") or {}).get("repairs")),
        records_backup_at=_time((status.get("records") or {}).get("backup_at")),
        dropped_lines=dropped.get("lines"),
        dropped_until=_time(dropped.get("until")),
        floods=_floods((status.get("series") or {}).get("floods") or ()),
        elsewhere=elsewhere,
        numbers_days=None if hours is None else hours / 24.0,
        rollup_days=kept.get("rollup_days"),
        records_days=kept.get("records_days"),
        queue_bodies=queue.get("bodies"),
        queue_bytes=queue.get("bytes"),
        queue_most_bytes=queue.get("most_bytes"),
        refused_lines=status.get("refused_lines"),
        sequence=status.get("sequence"),
    )


def _damaged(rows: Sequence[Mapping[str, Any]] | None) -> tuple[Damage, ...] | None:
    if rows is None:
        return None
    return tuple(Damage(at=_time(row.get("at")), file=str(row.get("file") or "")) for row in rows)


def _repairs(rows: Sequence[Mapping[str, Any]] | None) -> tuple[RecordsRepair, ...] | None:
    if rows is None:
        return None
    return tuple(
        RecordsRepair(
            at=_time(row.get("at")),
            file=str(row.get("file") or ""),
            backup_at=_time(row.get("backup_at")),
            missing_since=_time(row.get("missing_since")),
            missing_until=_time(row.get("missing_until")),
            empty=bool(row.get("empty")),
        )
        for row in rows
    )


def _floods(rows: Sequence[Mapping[str, Any]]) -> tuple[Flood, ...]:
    found = [
        Flood(
            name="/".join(filter(None, (row.get("cluster"), row.get("node")))),
            refused_lines=int(row.get("refused_lines") or 0),
        )
        for row in rows
    ]
    return tuple(sorted(found, key=lambda one: (-one.refused_lines, one.name)))


def pulse(pulses: Iterable[Record], service: str, now: datetime) -> Pulse | None:
    """Return the newest pulse of a service, from any of its processes; None if there never was one."""
    own = [one for one in pulses if one.id.partition(":")[0] == service]
    if not own:
        return None
    last = max(own, key=lambda one: one.at)
    tick = last.body.get("tick_seconds")
    seconds = MISSED * float(tick) if isinstance(tick, int | float) else 0.0
    return Pulse(
        name=service,
        at=last.at,
        silent=now - last.at > max(timedelta(seconds=seconds), LEAST_PATIENCE),
        version=str(last.body.get("version") or ""),
        body=last.body,
    )


def outboxes(notices: Sequence[Record], alerts: Pulse | None, now: datetime) -> tuple[Outbox, ...]:
    """Return an outbox for each channel that is configured or has messages that wait or were given up."""
    told = {str(one.get("name")): one for one in _channels(alerts)}
    own: dict[str, list[Record]] = {name: [] for name in told}
    for notice in notices:
        if notice.body.get("channel"):
            own.setdefault(str(notice.body["channel"]), []).append(notice)
    known = set(told) if alerts is not None and "channels" in alerts.body else None
    return tuple(_outbox(name, own[name], told.get(name), known, now) for name in sorted(own))


def _channels(alerts: Pulse | None) -> list[Mapping[str, Any]]:
    found = alerts.body.get("channels") if alerts is not None else None
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _outbox(
    name: str,
    notices: Sequence[Record],
    told: Mapping[str, Any] | None,
    known: set[str] | None,
    now: datetime,
) -> Outbox:
    due = [one for one in notices if one.body.get("state") == "due"]
    dead = [one for one in notices if one.body.get("state") == "dead"]
    failing = [one for one in due if is_failing(one)]
    moving = [one for one in due if one.body.get("in_flight")]
    rest = [one for one in due if one not in failing and one not in moving]
    later = [one for one in rest if _has_its_time(one, now)]
    tried = [one for one in failing if not one.body.get("in_flight") and one.due_at is not None]
    errors = [
        (one.at, str(one.body["last_error"]))
        for one in (*failing, *dead)
        if one.body.get("last_error")
    ]
    return Outbox(
        channel=name,
        waiting=len(rest) - len(later),
        later=len(later),
        in_flight=len(moving),
        failing=len(failing),
        failing_since=min((_since(one) for one in failing), default=None),
        next_try=min((one.due_at for one in tried if one.due_at is not None), default=None),
        last_error=max(errors)[1] if errors else "",
        dead=len(dead),
        last_dead_at=max((one.at for one in dead), default=None),
        configured=None if known is None else name in known,
        last_sent_at=_time((told or {}).get("last_sent_at")),
    )


def _has_its_time(notice: Record, now: datetime) -> bool:
    """Return whether a message is for later; a queued one is due now but has to wait its turn."""
    ahead = notice.due_at is not None and notice.due_at > now
    return ahead and notice.body.get("verdict") != "queued"


def _since(notice: Record) -> datetime:
    return _time(notice.body.get("first_due_at")) or notice.at


def _time(text: object) -> datetime | None:
    try:
        return from_text(text) if isinstance(text, str) else None
    except ValueError:
        return None
