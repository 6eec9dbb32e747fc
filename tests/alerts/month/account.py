"""What a month's messages come to, and why there was none of everything else; sums that must be right."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from alerts.messages.self_monitoring import DIGEST, OWN
from alerts.routing.notice import POSTPONED, Kind, Notice, NoticeState, Verdict
from evaluation.judge.claims import claims
from evaluation.judge.matching import judge
from gpuvigil.config import AlertsSettings

from .fleet import Played
from .outbox import Told

# A message of each of these is the first about its incident.
FIRST = frozenset({Verdict.FIRST, Verdict.ESCALATED})
# What a notice may wait for; it is why there was no message when it never came to that.
_WAITED = POSTPONED | {Verdict.WAITS, Verdict.BACKING_OFF, Verdict.QUEUED, Verdict.REMINDER}
# These follow from another notice, which has the reason.
_FOLLOWS = frozenset({Verdict.SUPERSEDED, Verdict.NEVER_TOLD, Verdict.TAKEN})

Counts = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One channel's month; `wrong` is empty where every sum is right and nothing is told twice."""

    channel: str
    steps: int  # transitions
    messages: Counts  # that a transition made, by what each was: first, changed, over ...
    not_told: Counts  # transitions that made none, by the reason
    reminders: Counts  # what became of those: still_standing is told
    incidents: int
    most_firsts: int  # messages that are the first about one incident
    told: int  # incidents of which it heard in a message of their own
    untold: Counts  # the others, by the reason
    digests: int
    digested: int  # incidents in them, each once a day
    about_gpuvigil: int
    faults: Counts  # those that were really there, by how many first messages were about them
    split: Mapping[str, Sequence[str]]  # those of more than one: what each first message was about
    about_no_fault: Counts  # first messages that belong to none, by what they say
    wrong: Sequence[str] = field(default=())


def accounts(played: Played, told: Told, settings: AlertsSettings) -> list[Account]:
    """An account for each channel."""
    histories = _histories(told.notices)
    truths = [one for one in played.truths if not one.hidden]
    _, judged = judge(truths, claims(played.steps))
    belongs = {one.claim.id: one.truth for one in judged if one.truth is not None}
    made = []
    for channel in told.messages:
        mine = [them for them in histories if them[-1].channel == channel]
        month = _Month(channel, played, told, mine, settings)
        faults = Counter(belongs.get(one.incident) for one in month.firsts)
        strays = [one.fault for one in month.firsts if one.incident not in belongs]
        per_fault = Counter(min(faults[one.id], 3) for one in truths)
        several = [one for one in truths if faults[one.id] > 1]
        made.append(
            Account(
                channel=channel,
                steps=len(played.steps),
                messages=_counted(one.verdict.name.lower() for one in month.sent if not one.repeat),
                not_told=_counted(why(them) for them in month.silent if not them[-1].repeat),
                reminders=_counted(why(them) for them in month.about if them[-1].repeat),
                incidents=len(month.incidents),
                most_firsts=max(Counter(one.incident for one in month.firsts).values(), default=0),
                told=len(month.heard),
                untold=_counted(month.story(it) for it in month.incidents - month.heard),
                digests=len(month.digests),
                digested=sum(month.digests.values()),
                about_gpuvigil=len(month.own) - len(month.digests),
                faults={_TIMES[number]: per_fault[number] for number in sorted(_TIMES)},
                split={
                    f"{one.fault} on {one.subject.node}": [
                        it.fault for it in month.firsts if belongs.get(it.incident) == one.id
                    ]
                    for one in several
                },
                about_no_fault=_counted(strays),
                wrong=tuple(month.wrong()),
            )
        )
    return made


_TIMES = {0: "none", 1: "one", 2: "two", 3: "more"}


def why(versions: Sequence[Notice]) -> str:
    """The name of the reason for what became of a notice; of what was replaced also what it waited for."""
    last = versions[-1]
    name = last.verdict.name.lower()
    if last.state is NoticeState.DUE:
        return f"{name} when the month ended"
    waited = _waited_for(versions)
    if last.verdict is Verdict.SUPERSEDED and waited is not None:
        return f"{name} while {waited.name.lower()}"
    return name


def _waited_for(versions: Iterable[Notice]) -> Verdict | None:
    waited = [one.verdict for one in versions if one.verdict in _WAITED]
    return waited[-1] if waited else None


class _Month:
    """One channel's notices, seen from several sides."""

    def __init__(
        self,
        channel: str,
        played: Played,
        told: Told,
        histories: Sequence[Sequence[Notice]],
        settings: AlertsSettings,
    ) -> None:
        self._settings = settings
        self._steps = {(step.incident, step.number) for step in played.steps}
        self.incidents = {step.incident for step in played.steps}
        self.about = [them for them in histories if them[-1].incident in self.incidents]
        self._by_incident: dict[str, list[Sequence[Notice]]] = defaultdict(list)
        for them in sorted(self.about, key=lambda them: them[-1].order):
            self._by_incident[them[-1].incident].append(them)
        self.sent = [them[-1] for them in self.about if them[-1].state is NoticeState.SENT]
        self.silent = [them for them in self.about if them[-1].state is not NoticeState.SENT]
        self.heard = {one.incident for one in self.sent}
        self.firsts = [one for one in self.sent if one.verdict in FIRST]
        self._messages = [message for _, message in told.messages[channel]]
        self.own = [one for one in self._messages if one.subject.cluster == OWN]
        self.digests = {
            one.starts_at: int(found[1])
            for one in self.own
            if one.fault == DIGEST and (found := re.search(r"(\d+) info incidents?", one.summary))
        }

    def story(self, incident: str) -> str:
        """Why the channel heard nothing of an incident: the reason of its last step that had one."""
        told = [them for them in self._by_incident[incident] if them[-1].verdict not in _FOLLOWS]
        waited = [it for them in self._by_incident[incident] if (it := _waited_for(them))]
        if told:
            return why(told[-1])
        return f"over while {waited[-1].name.lower()}" if waited else "superseded"

    def wrong(self) -> Iterator[str]:
        """Every sum that is not right, and all that was told twice."""
        decided = Counter(
            (them[-1].incident, them[-1].number) for them in self.about if not them[-1].repeat
        )
        if set(decided) != self._steps or any(count != 1 for count in decided.values()):
            yield f"{len(self._steps)} transitions have {decided.total()} decisions"
        sent = sum(not one.repeat for one in self.sent)
        silent = sum(not them[-1].repeat for them in self.silent)
        if sent + silent != len(self._steps):
            yield f"{sent} messages and {silent} reasons for {len(self._steps)} transitions"
        received = [one.notice for one in self._messages if one.subject.cluster != OWN]
        if sorted(received) != sorted(one.id for one in self.sent):
            yield f"{len(received)} messages arrived of {len(self.sent)} that were sent"
        for incident, count in Counter(one.incident for one in self.firsts).items():
            if count > 1:
                yield f"{incident}: {count} first messages"
        for incident in self.incidents:
            yield from self._untidy(incident)
        yield from self._undigested()

    def _untidy(self, incident: str) -> Iterator[str]:
        """An end that nobody began, or something said after the end that is not its return."""
        active = False
        for one in (them[-1] for them in self._by_incident[incident]):
            if one.state is not NoticeState.SENT:
                continue
            if active is (one.kind is Kind.FIRED):
                yield f"{one.id}: {one.kind.value} while it {'stands' if active else 'does not'}"
            active = one.kind is not Kind.RESOLVED

    def _undigested(self) -> Iterator[str]:
        """Days of which the digest's number is not that of the incidents that were held for it."""
        held: dict[datetime, set[str]] = defaultdict(set)
        for one in (them[-1] for them in self.silent):
            if one.verdict is Verdict.DIGEST:
                held[self._told_at(one.at)].add(one.incident)
        for day in sorted({*held, *self.digests}):
            if len(held[day]) != self.digests.get(day, 0):
                yield f"digest of {day}: {self.digests.get(day, 0)} of {len(held[day])} incidents"

    def _told_at(self, at: datetime) -> datetime:
        """When the day ends in which something was held for a digest."""
        hour, minute = map(int, self._settings.digest_at.split(":"))
        end = at.replace(hour=hour, minute=minute, second=0, microsecond=0)
        return end + timedelta(days=1) if end <= at else end


def _histories(notices: Iterable[Notice]) -> list[list[Notice]]:
    """Every notice's versions, oldest first."""
    found: dict[str, dict[int, Notice]] = defaultdict(dict)
    for one in notices:
        found[one.id][one.version] = one
    return [[them[version] for version in sorted(them)] for them in found.values()]


def _counted(names: Iterable[str]) -> dict[str, int]:
    """The most frequent first."""
    return dict(sorted(Counter(names).items(), key=lambda it: (-it[1], it[0])))
