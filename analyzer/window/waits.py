"""How long nodes lately let the hub wait: some send only every few minutes, and some drop out again and again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gpuvigil.model.reporting import MIXED, are_most

# What is shorter than this is no wait, and what is longer was an outage and no habit.
_LEAST, _MOST = timedelta(seconds=20), timedelta(minutes=5)
# A wait is remembered for this long at least, and for twice as long at most.
_REMEMBERED = timedelta(hours=6)
# Who drops out: so often before within the last hour or half of it, the first time so long ago, for so
# long each, and waited for in less than so much of the time. Whoever sends seldom or with holes is waited
# for most of the time, and one disturbance is soon over.
_TIMES, _HALF, _FIRST = 2, timedelta(minutes=30), timedelta(minutes=15)
_OUT, _OF_THE_TIME = timedelta(seconds=90), 1.0 / 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """By a node's key, in seconds."""

    usual: Mapping[str, float] = field(default_factory=dict)  # its habit
    drops: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # of who drops out, each


class Waits:
    """The longest wait but one of each node, pass after pass: what happened once is no habit.

    One thread at a time.
    """

    def __init__(self) -> None:
        self._heard: Mapping[str, datetime] = {}
        self._lately: dict[str, tuple[float, ...]] = {}  # the two longest
        self._before: dict[str, tuple[float, ...]] = {}
        self._since: datetime | None = None
        self._halves = (_Half(), _Half())  # the last half hour, and the one before

    def after(
        self, heard: Mapping[str, datetime], listening_since: datetime | None, now: datetime
    ) -> Waited:
        """Of those that let it wait more than once; `heard`: when each was last, by its key.

        What the hub was away for is nobody's wait, nor what many of them had at once. Whoever drops
        out has no habit of it.
        """
        if self._since is None or now - self._since >= _REMEMBERED:
            self._before, self._lately, self._since = self._lately, {}, now
        if self._halves[0].since is None or now - self._halves[0].since >= _HALF:
            self._halves = (_Half(since=now), self._halves[0])
        waited = {key: at - self._heard.get(key, at) for key, at in heard.items()}
        waited = {key: wait for key, wait in waited.items() if wait >= _LEAST}
        if not are_most(len(waited), len(heard), MIXED):
            for key, wait in waited.items():
                if listening_since is None or self._heard[key] >= listening_since:
                    self._take(key, wait, now)
        self._heard = heard
        drops = self._drops(now)
        known = (self._lately.keys() | self._before.keys()) - drops.keys()
        both = {k: _longest(*self._lately.get(k, ()), *self._before.get(k, ())) for k in known}
        usual = {key: waits[1] for key, waits in both.items() if len(waits) > 1}
        return Waited(usual=usual, drops=drops)

    def _take(self, key: str, wait: timedelta, now: datetime) -> None:
        half, seconds = self._halves[0], wait.total_seconds()
        half.total[key] = half.total.get(key, 0.0) + seconds
        if wait >= _OUT:
            half.long.setdefault(key, []).append((now, seconds))
        if wait <= _MOST:
            self._lately[key] = _longest(*self._lately.get(key, ()), seconds)

    def _drops(self, now: datetime) -> dict[str, tuple[float, ...]]:
        lately, before = self._halves
        began = before.since or lately.since or now
        most = _OF_THE_TIME * (now - began).total_seconds()
        found = {}
        for key in lately.long.keys() | before.long.keys():
            long = [*before.long.get(key, ()), *lately.long.get(key, ())]
            total = before.total.get(key, 0.0) + lately.total.get(key, 0.0)
            if len(long) >= _TIMES and now - long[0][0] >= _FIRST and total < most:
                found[key] = tuple(seconds for _, seconds in long)
        return found


@dataclass(slots=True, kw_only=True)
class _Half:
    """Half an hour of waits, by node."""

    since: datetime | None = None
    total: dict[str, float] = field(default_factory=dict)
    long: dict[str, list[tuple[datetime, float]]] = field(default_factory=dict)


def _longest(*seconds: float) -> tuple[float, ...]:
    return tuple(sorted(seconds, reverse=True)[:2])
