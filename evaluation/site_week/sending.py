"""What alerts sends of a play: the service's own rules, on the transitions of one run.

One chat channel and one pager, as they come: without a route, with the defaults of their settings. Every message
arrives at once, and nobody acknowledges. Without a route no incident depends on another one, so each is gone through by
itself. A test compares the messages with those of the service.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta

from alerts.channels.http_post import profile_of
from alerts.decisions.attempts import attempt_ended, attempt_started
from alerts.decisions.decide import decide, judge, replaced, ruled
from alerts.messages.channel import Delivered
from alerts.routing.case import Case, ChannelProfile
from alerts.routing.notice import DIGESTED, Kind, Notice, NoticeState
from gpuvigil.config import AlertsSettings, PagerdutySettings, SlackSettings
from gpuvigil.model import Transition

CHAT, PAGER = "chat", "pager"
_SETTINGS = AlertsSettings()
# An attempt that ends at the moment at which it begins.
_AT_ONCE = 0.0


def channels() -> tuple[ChannelProfile, ChannelProfile]:
    """Return the two channels; the pager would get nothing about simulated nodes, and counts here as a real one's."""
    chat, pager = profile_of(SlackSettings(name=CHAT)), profile_of(PagerdutySettings(name=PAGER))
    return chat, replace(pager, pager=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What a channel was sent, and on which days it had a digest beside."""

    messages: tuple[Notice, ...]  # in order
    digests: int

    @property
    def pages(self) -> tuple[Notice, ...]:
        """The messages that begin an alert: an update of an open one wakes nobody, in PagerDuty's Events API v2."""
        return tuple(one for one in self.messages if one.kind is Kind.FIRED)


def sent(transitions: Iterable[Transition], end: datetime) -> dict[str, Sent]:
    """Return what each channel was sent before `end`."""
    steps: dict[str, list[Transition]] = defaultdict(list)
    for step in transitions:
        steps[step.incident].append(step)
    profiles = channels()
    notices = [one for them in steps.values() for one in _of_incident(them, profiles, end)]
    return {it.name: _sent([one for one in notices if one.channel == it.name]) for it in profiles}


def _sent(notices: Sequence[Notice]) -> Sent:
    told = [(one.sent_at, one.id, one) for one in notices if one.sent_at is not None]
    held = {_day(one.at) for one in notices if one.verdict in DIGESTED}
    return Sent(messages=tuple(one for _, _, one in sorted(told)), digests=len(held))


def _day(at: datetime) -> datetime:
    """Return the day, from digest to digest, in which something was held back."""
    digest_at = time.fromisoformat(_SETTINGS.digest_at)
    passed = timedelta(hours=digest_at.hour, minutes=digest_at.minute)
    return (at - passed).replace(hour=0, minute=0, second=0, microsecond=0)


def _of_incident(
    steps: Iterable[Transition], profiles: Sequence[ChannelProfile], end: datetime
) -> Iterator[Notice]:
    """Yield the last version of every notice about one incident."""
    coming = sorted(steps, key=lambda step: step.number, reverse=True)
    notices: dict[str, Notice] = {}
    while True:
        due = [one.due_at for one in notices.values() if one.due_at is not None]
        now = min([*due, *(step.at for step in coming[-1:])], default=end)
        if now >= end:
            break
        while coming and coming[-1].at <= now:
            known = list(notices.values())
            decided = decide(coming.pop(), profiles, known, now, _SETTINGS)
            notices.update({one.id: one for one in decided})
        for one in [it for it in notices.values() if it.due_at is not None and it.due_at <= now]:
            after = _delivered(notices[one.id], profiles, notices.values(), now)
            notices.update({it.id: it for it in after})
    yield from notices.values()


def _delivered(
    notice: Notice, profiles: Iterable[ChannelProfile], known: Iterable[Notice], now: datetime
) -> list[Notice]:
    """Return the next versions of a due notice and of those that it replaces, as a channel's worker writes them."""
    if notice.state is not NoticeState.DUE:
        return []  # replaced by one that was delivered before it
    others = [one for one in known if one.id != notice.id]
    case = Case(
        notice=notice,
        profile=next(one for one in profiles if one.name == notice.channel),
        siblings=tuple(one for one in others if one.channel == notice.channel),
        others=tuple(one for one in others if one.channel != notice.channel),
        now=now,
        settings=_SETTINGS,
    )
    ruling = judge(case)
    if not ruling.send_now:
        return [ruled(notice, ruling, now)]
    going = attempt_started(ruled(notice, ruling, now), now, _AT_ONCE)
    ended = attempt_ended(
        going,
        Delivered(),
        now,
        0.0,
        _SETTINGS,
        case.repeat_seconds,
        reminder_from=case.reminder_from(going.verdict),
        reminders=case.reminders_after(going.verdict),
    )
    return [*replaced(going, case.siblings, now), *ended]
