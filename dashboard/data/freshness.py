"""How long the hub has owed an answer: a page is stale while a request is pending, not only after."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuvigil.clock import duration, moment
from gpuvigil.model.reporting import ARRIVAL

from ..fleet import overdue_nodes, silent_nodes
from ..model.facts import Facts
from .questions import Said, StillAsking

# How long after the hub was away its nodes may take to send again: a collector tries every 5 s.
GRACE_SECONDS = 20.0


class Line:
    """One thread's requests to the hub; times are monotonic seconds."""

    def __init__(self, now: float, patience_seconds: float) -> None:
        self.since = now  # of the last good answer, or when one began to be owed
        self.answers = False  # whether there ever was one
        self.error: str | None = None
        self.who = "the hub"  # gave the error; or the store, where telemetry is kept elsewhere
        self._asked_since = now
        self._patience_seconds = patience_seconds

    def answered(self, now: float) -> None:
        self.since, self.answers, self.error = now, True, None

    def failed(self, why: str, who: str = "the hub") -> None:
        self.error, self.who = why, who

    def asked_anew(self, now: float) -> None:
        """Nothing was asked for a while, so nothing was owed, and what failed then may be well now."""
        self._asked_since, self.error = now, None

    def is_late(self, now: float) -> bool:
        return self.error is not None or self.owed_seconds(now) > self._patience_seconds

    def owed_seconds(self, now: float) -> float:
        """For how long a good answer has been owed."""
        return now - max(self.since, self._asked_since)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """The hub does not answer, or the store beside it."""

    why: str
    seconds: float
    answered_before: bool
    who: str = "the hub"

    def text(self, now: datetime) -> str:
        """For people; `now` is the hub's clock as far as it is known, or else this machine's."""
        span = timedelta(seconds=self.seconds)
        if not self.answered_before:
            return f"No answer from {self.who} yet, for {duration(span)}. {self.why}".rstrip()
        return (
            f"No answer from {self.who} for {duration(span)}, since {moment(now - span)}:"
            f" everything below is as it was then. {self.why}"
        ).rstrip()


def trouble(lines: Iterable[Line], now: float) -> Trouble | None:
    """That of the line that waits longest; None while every line is answered in time."""
    late = [line for line in lines if line.is_late(now)]
    if not late:
        return None
    longest = min(late, key=lambda line: line.since)
    why = next((line.error for line in late if line.error), "")
    return Trouble(
        why=why, seconds=now - longest.since, answered_before=longest.answers, who=longest.who
    )


def outdated(what: str, said: Said, silence: str | None) -> list[str]:
    """A line that says since when an answer is old, and why; none where it is not.

    Nor where `silence` says of all the page since when it is old: one sentence, with one clock.
    """
    if not said.error or silence is not None:
        return []
    age = duration(timedelta(seconds=said.age_seconds))
    about = f"{what[:1].upper()}{what[1:]}"
    return [f"{about} as it was then, {age} ago: {said.error.rstrip('.')}."]


class Loading(str):
    """A line about what was just asked for: nothing is wrong."""

    __slots__ = ()


def unanswered(what: str, error: Exception) -> str:
    """Why there is nothing to show, such as "Usage is not known: ..."; only `Loading` until the answer is late."""
    return Loading("Loading …") if isinstance(error, StillAsking) else f"{what}: {error}"


class CatchUp:
    """The time after the hub was away, until its nodes have sent again; monotonic seconds."""

    def __init__(self) -> None:
        self._back_at: float | None = None
        self._away_from: datetime | None = None  # by the hub's clock

    def missing(self, before: Facts, after: Facts, now: float, owed_seconds: float | None) -> int:
        """How many nodes are silent in `after` only because the hub was away.

        `owed_seconds`: for how long it owed this answer, where that was too long. 0 when it was
        not away, when no node is silent by it, and once they have had their time.
        """
        if self._back_at is not None and now - self._back_at > GRACE_SECONDS:
            self._back_at = None
        if self._back_at is None and owed_seconds is not None:
            self._away_from = after.now - timedelta(seconds=owed_seconds)
            self._back_at = now if _heard_nobody(after, self._away_from) else None
        if self._back_at is None or self._away_from is None:
            return 0
        missing = silent_nodes(after) - silent_nodes(before)
        # What was overdue already before that is silent for a reason of its own.
        missing -= overdue_nodes(after, self._away_from)
        if not missing:
            self._back_at = None
        return len(missing)


def _heard_nobody(after: Facts, since: datetime) -> bool:
    """Whether the hub was away, and not only slow to answer: then it took what nodes sent."""
    if after.listening_since is not None and after.listening_since >= since:
        return True
    # What came at either end may have come just before it went, or as soon as it was back.
    return not any(since + ARRIVAL < at < after.now - ARRIVAL for at in after.heard.values())
