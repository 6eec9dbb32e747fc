"""The message history of an incident: each decision per channel, with its named reason."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuvigil.clock import duration, from_text, moment
from gpuvigil.model import Incident, Record
from gpuvigil.numbers_in_words import counted

from ..model.delivery_status import delivery_statuses

# The words for the state of a notice.
_STATES = {
    "sent": "sent",
    "held": "not sent",
    "superseded": "replaced",
    "due": "pending",
    "dead": "given up",
}
NOBODY = "not sent"
_NO_CHANNEL = "no_channel"  # the verdict if no channel was configured
_ALERTS = "alerts"  # the service whose pulse lists the configured channels
_KINDS = {"fired": "firing", "updated": "update", "resolved": "resolved"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One decision to send, or not to send, a message about a transition to a channel."""

    id: str
    at: datetime  # when it was sent, or else decided
    number: int  # of the transition that it is about
    step: str  # the transition, as "open to resolved"
    about: str  # the kind of message, as "firing"
    state: str  # as `NoticeState` is stored; also the style class
    word: str
    reason: str
    verdict: str  # the name of the reason, as docs/alerts.md lists it
    details: tuple[str, ...]  # attempts, last error, time of the next try
    lines: tuple[str, ...]  # the message's text, from what was known then


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """The history of one channel, newest first."""

    name: str
    summary: str
    messages: tuple[Message, ...]


def configured(pulses: Iterable[Record]) -> tuple[str, ...] | None:
    """Return the channels that the alerts service now has; None if it has never reported."""
    told = [one for one in pulses if one.subject == _ALERTS]
    last = max(told, key=lambda one: one.at, default=None)
    said = None if last is None else last.body.get("channels")
    if not isinstance(said, list):
        return None
    return tuple(str(one.get("name")) for one in said if isinstance(one, Mapping))


def channels(
    notices: Iterable[Record],
    now: datetime,
    *,
    over: bool,
    there: tuple[str, ...] | None = None,
) -> tuple[Channel, ...]:
    """Return the history per channel, newest first. `there`: the channels of now, None if not known."""
    everything = tuple(notices)
    last = {one.channel: one.text for one in delivery_statuses(everything, now, over=over)}
    found: dict[str, list[Record]] = {}
    for notice in everything:
        found.setdefault(str(notice.body.get("channel") or NOBODY), []).append(notice)
    return tuple(
        _history(name, found[name], last, there, now)
        for name in sorted(found, key=lambda it: (it == NOBODY, it))
    )


def _history(
    name: str,
    notices: Sequence[Record],
    last: Mapping[str, str],
    there: tuple[str, ...] | None,
    now: datetime,
) -> Channel:
    messages = _messages(notices, now)
    summary = last[name] if name in last else messages[0].reason
    if messages[0].verdict == _NO_CHANNEL and there != ():
        # Say when that was, as a reader may wonder which channel was missing.
        summary = f"no channel was configured at {moment(messages[0].at)}"
        summary += f"; now: {', '.join(there)}" if there else ""
    return Channel(name=name, summary=summary, messages=messages)


def _messages(notices: Sequence[Record], now: datetime) -> tuple[Message, ...]:
    ordered = sorted(notices, key=lambda one: (*_order(one), one.at), reverse=True)
    return tuple(_message(one, now) for one in ordered)


def _order(notice: Record) -> tuple[int, int]:
    return _whole(notice.body, "number"), _whole(notice.body, "repeat")


def _message(notice: Record, now: datetime) -> Message:
    body = notice.body
    state = str(body.get("state") or "")
    moving = state == "due" and bool(body.get("in_flight"))
    repeat = _whole(body, "repeat")
    step = f"{body.get('from_state') or '?'} to {body.get('to_state') or '?'}"
    return Message(
        id=notice.id,
        at=_time(body, "sent_at") or notice.at,
        number=_whole(body, "number"),
        step=f"reminder {repeat}" if repeat else step,
        about="reminder" if repeat and state == "due" else _KINDS.get(str(body.get("kind")), ""),
        state=state,
        word="on its way" if moving else _STATES.get(state, state or "unknown"),
        reason=str(body.get("reason") or "no reason was recorded"),
        verdict=str(body.get("verdict") or ""),
        details=tuple(_details(notice, state, now)),
        lines=_message_lines(body.get("snapshot")),
    )


def _details(notice: Record, state: str, now: datetime) -> list[str]:
    body = notice.body
    attempts = _whole(body, "attempts")
    # A reason that comes from an attempt already has the count and the error.
    reason, error = str(body.get("reason") or ""), str(body.get("last_error") or "")
    said = [counted(attempts, "attempt")] if attempts and "tried" not in reason else []
    if error and error not in reason:
        said.append(f"last error: {error}")
    if body.get("perhaps_told") and state != "sent":
        said.append("an attempt may have reached the receiver all the same")
    if state == "due" and notice.due_at is not None and not body.get("in_flight"):
        left = notice.due_at - now
        soon = "now" if left.total_seconds() <= 0 else f"in {duration(left)}"
        said.append(f"due {moment(notice.due_at)}, {soon}")
    return said


def _message_lines(snapshot: object) -> tuple[str, ...]:
    """Return the lines of the message, from the incident as it was then; empty if unreadable."""
    try:
        incident = Incident.from_record(Record.from_json(snapshot))  # type: ignore[arg-type]
    except (AttributeError, KeyError, TypeError, ValueError):
        return ()
    evidence = [item.text for item in incident.evidence if not item.detail]
    lines = (
        f"{incident.severity.value}: {incident.title}",
        incident.label or incident.subject.key,
        incident.impact.text,
        *evidence,
        f"Do now: {incident.action}" if incident.action else "",
    )
    return tuple(line for line in lines if line)


def _whole(body: Mapping[str, Any], key: str) -> int:
    try:
        return int(body.get(key) or 0)
    except (TypeError, ValueError):
        return 0


def _time(body: Mapping[str, Any], key: str) -> datetime | None:
    try:
        return from_text(str(body.get(key)))
    except ValueError:
        return None
