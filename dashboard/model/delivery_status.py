"""The delivery status of messages: per incident for each channel, and the channels that fail."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuvigil.clock import duration, from_text, moment
from gpuvigil.model import Record
from gpuvigil.numbers_in_words import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryStatus:
    """The delivery status of one channel."""

    channel: str
    text: str  # "sent 4 s ago", "not sent: below the channel's minimum severity"
    sent: bool


def delivery_statuses(
    notices: Iterable[Record], now: datetime, *, over: bool = False
) -> tuple[DeliveryStatus, ...]:
    """Return the last status of each channel, channels with a sent message first.

    A reopened incident is announced again, so notices up to its last end no longer count. `over`: the
    incident is over now, so the notices of its last end count as well.
    """
    everything = sorted(notices, key=_order)
    ends = sorted({_number(one) for one in everything if _is_end(one)})
    before = ends[:-1] if over else ends
    spell = [one for one in everything if _number(one) > max(before, default=-1)]
    channels: dict[str, list[Record]] = {}
    for notice in spell:
        channels.setdefault(str(notice.body.get("channel") or ""), []).append(notice)
    nobody = channels.pop("", [])
    told = [_status(channel, said, now) for channel, said in channels.items()]
    told.sort(key=lambda one: (not one.sent, one.channel))
    # If no channel was ever configured, only the pipeline page says so. If the last one was removed
    # since, that is news for those who were told before.
    if nobody and told and all(_order(nobody[-1]) > _order(it[-1]) for it in channels.values()):
        name = "its last change was not sent"
        told.append(DeliveryStatus(channel=name, text=_reason(nobody[-1]), sent=False))
    return tuple(told)


def _status(channel: str, notices: Sequence[Record], now: datetime) -> DeliveryStatus:
    """Return a channel's status: a sent message counts more than a later reminder that was not, but a failure is added."""
    sent = [one for one in notices if one.body.get("state") == "sent"]
    last = notices[-1]
    if not sent:
        # A message that is still due counts more than a later one that is not sent.
        waiting = [one for one in notices if one.body.get("state") == "due"]
        return DeliveryStatus(channel=channel, text=_unsent((waiting or [last])[-1]), sent=False)
    text = ", ".join(_sent(one, now) for one in _last_sent(sent))
    if _order(last) > _order(sent[-1]) and (is_failing(last) or last.body.get("state") == "dead"):
        text += f"; then {_unsent(last)}"
    return DeliveryStatus(channel=channel, text=text, sent=True)


def _last_sent(sent: Sequence[Record]) -> list[Record]:
    """Return the last sent notice of the incident and the last sent notice of its end."""
    active = [one for one in sent if not _is_end(one)]
    return [*active[-1:], *[one for one in sent if _is_end(one)][-1:]]


def _sent(notice: Record, now: datetime) -> str:
    what = "its end sent" if _is_end(notice) else "sent"
    return f"{what} {duration(now - (_time(notice, 'sent_at') or notice.at))} ago"


def _unsent(notice: Record) -> str:
    what = "its end " if _is_end(notice) else ""
    if notice.body.get("state") == "due":
        tries = int(notice.body.get("attempts") or 0)
        said = f"{what}not sent yet: {_reason(notice)}"
        # A reason that comes from an attempt already has the count.
        return said + (
            f", {tries} {'try' if tries == 1 else 'tries'}" if tries and "tried" not in said else ""
        )
    if notice.body.get("state") == "dead":
        return f"{what}could not be sent: {_reason(notice)}"
    return f"not sent: {_reason(notice)}"


def failing_channels(notices: Iterable[Record], now: datetime) -> tuple[str, ...]:
    """Return a line for each channel whose messages wait because its receiver fails."""
    waiting: dict[str, list[Record]] = {}
    for notice in notices:
        if is_failing(notice):
            waiting.setdefault(str(notice.body.get("channel") or ""), []).append(notice)
    return tuple(_failing(channel, waiting[channel], now) for channel in sorted(waiting))


def is_failing(notice: Record) -> bool:
    """Return whether a notice waits because its receiver failed, and not only for its time."""
    body = notice.body
    waits = body.get("state") == "due"  # checked first, as only few of thousands wait
    return waits and bool(body.get("verdict") == "backing_off" or body.get("last_error"))


def _failing(channel: str, notices: Sequence[Record], now: datetime) -> str:
    since = min(_time(one, "first_due_at") or one.at for one in notices)
    errors = [str(one.body["last_error"]) for one in notices if one.body.get("last_error")]
    error = f", last error: {errors[-1]}" if errors else ""
    waiting = [one.due_at for one in notices if one.due_at and not one.body.get("in_flight")]
    due = min(waiting, default=now)
    again = "tried again now" if due <= now else f"next try {moment(due)}"
    return f"Channel {channel}: {counted(len(notices), 'message')} waiting since {moment(since)}{error}; {again}."


def _number(notice: Record) -> int:
    """Return the number of the transition that the notice is about."""
    return int(notice.body.get("number") or 0)


def _order(notice: Record) -> tuple[int, int, datetime]:
    return _number(notice), int(notice.body.get("repeat") or 0), notice.at


def _is_end(notice: Record) -> bool:
    return notice.body.get("kind") == "resolved"


def _reason(notice: Record) -> str:
    return str(notice.body.get("reason") or "")


def _time(notice: Record, key: str) -> datetime | None:
    try:
        return from_text(str(notice.body.get(key)))
    except ValueError:
        return None
