"""What needs a person, first things first, and whether anybody was told."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from gpuvigil.clock import duration, from_text
from gpuvigil.model import Evidence, Incident, Record, Severity, Subject

from .words import counted

# An incident of severity one step lower must block more than this many times the GPUs to come first.
STEP = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What became of telling people through one channel."""

    channel: str
    text: str  # "sent 4 s ago", "held: less severe than the channel's minimum"
    sent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One standing incident, as the list shows it."""

    id: str
    title: str
    severity: Severity
    state: str
    simulated: bool
    subject: Subject
    label: str  # "sim-003 GPU 5"
    impact: str
    action: str
    source: str
    since: datetime
    evidence: tuple[Evidence, ...]
    covers: tuple[str, ...]
    told: tuple[Told, ...]


def attention(
    incidents: Iterable[Incident], notices: Iterable[Record], now: datetime
) -> tuple[Attention, ...]:
    """Real before simulated, then by severity times GPUs blocked, then the newest first."""
    told: dict[str, list[Record]] = {}
    for notice in notices:
        told.setdefault(notice.parent or "", []).append(notice)
    ranked = sorted(
        incidents, key=lambda one: (one.simulated, -_weight(one), -one.since.timestamp())
    )
    return tuple(_attention(one, told.get(one.id, []), now) for one in ranked)


def _weight(incident: Incident) -> float:
    worst = len(Severity) - 1 - incident.severity.rank
    return float(STEP**worst * max(incident.impact.gpus, 1))


def _attention(incident: Incident, notices: list[Record], now: datetime) -> Attention:
    return Attention(
        id=incident.id,
        title=incident.title,
        severity=incident.severity,
        state=incident.state,
        simulated=incident.simulated,
        subject=incident.subject,
        label=incident.label or incident.subject.key,
        impact=incident.impact.text or _impact(incident),
        action=incident.action,
        source=incident.source,
        since=incident.since,
        evidence=incident.evidence,
        covers=incident.covers,
        told=told_of(notices, now),
    )


def _impact(incident: Incident) -> str:
    gpus = incident.impact.gpus
    if gpus == 0:
        return "no GPU is blocked"
    return f"{counted(gpus, 'GPU')} blocked"


def told_of(notices: Iterable[Record], now: datetime) -> tuple[Told, ...]:
    """The last word of each channel; what was sent counts more than a later repetition held back.

    An incident that came back is told anew: what was said until it was over no longer counts.
    """
    everything = list(notices)
    ends = [_number(one) for one in everything if one.body.get("kind") == "resolved"]
    spell = [one for one in everything if _number(one) > max(ends, default=-1)]
    last: dict[str, Record] = {}
    for notice in sorted(spell, key=lambda one: (_is_sent(one), one.at)):
        last[str(notice.body.get("channel") or "")] = notice
    return tuple(_told(channel, last[channel], now) for channel in sorted(last))


def _told(channel: str, notice: Record, now: datetime) -> Told:
    body = notice.body
    reason = str(body.get("reason") or "")
    if _is_sent(notice):
        text = f"sent {_ago(body.get('sent_at'), notice.at, now)}"
    elif body.get("state") == "due":
        tries = int(body.get("attempts") or 0)
        text = f"not sent yet: {reason}" + (f", {tries} tries" if tries else "")
    elif body.get("state") == "dead":
        text = f"could not be sent: {reason}"
    else:
        # Without a channel there is nothing that could have been held back.
        text = f"held: {reason}" if channel else reason
    return Told(channel=channel or "nobody was told", text=text, sent=_is_sent(notice))


def _number(notice: Record) -> int:
    """Of the transition that the notice is about."""
    return int(notice.body.get("number") or 0)


def _is_sent(notice: Record) -> bool:
    return notice.body.get("state") == "sent"


def _ago(text: object, otherwise: datetime, now: datetime) -> str:
    try:
        at = from_text(str(text))
    except ValueError:
        at = otherwise
    return f"{duration(now - at)} ago"
