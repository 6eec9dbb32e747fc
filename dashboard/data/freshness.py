"""How long an answer of the hub is overdue: a page is stale while a request is pending, not only after."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuvigil.clock import duration, moment
from gpuvigil.model.reporting import ARRIVAL
from gpuvigil.numbers_in_words import capitalized

from ..fleet import overdue_nodes, silent_nodes
from ..model.facts import Facts
from .questions import AnswerPending, CachedAnswer

# How long nodes may take to send again after the hub was away: a collector retries every 5 s.
GRACE_SECONDS = 20.0
# An answer that is older than the hub's silence by no more than this is of the same time [ours].
SAME_SECONDS = 60.0


class RequestHealth:
    """The state of one thread's requests to the hub; times are monotonic seconds."""

    def __init__(self, now: float, patience_seconds: float) -> None:
        self.since = now  # time of the last good answer, or of the first request
        self.answers = False  # whether there ever was a good answer
        self.error: str | None = None
        self.who = "the hub"  # the source of the error: the hub, or the store if telemetry is kept elsewhere
        self._asked_since = now
        self._patience_seconds = patience_seconds

    def answered(self, now: float) -> None:
        self.since, self.answers, self.error = now, True, None

    def failed(self, why: str, who: str = "the hub") -> None:
        self.error, self.who = why, who

    def asked_anew(self, now: float) -> None:
        """Restart the count after a pause without requests: nothing was due, and old errors may be gone."""
        self._asked_since, self.error = now, None

    def is_late(self, now: float) -> bool:
        return self.error is not None or self.owed_seconds(now) > self._patience_seconds

    def owed_seconds(self, now: float) -> float:
        """Return for how many seconds a good answer has been due."""
        return now - max(self.since, self._asked_since)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """An outage of the hub, or of the store beside it."""

    why: str
    seconds: float
    answered_before: bool
    who: str = "the hub"

    def text(self, now: datetime) -> str:
        """Return a text for people; `now` is the hub's clock if known, else this machine's."""
        span = timedelta(seconds=self.seconds)
        if not self.answered_before:
            return f"No answer from {self.who} yet, for {duration(span)}. {self.why}".rstrip()
        return (
            f"No answer from {self.who} for {duration(span)}, since {moment(now - span)}:"
            f" everything below is as it was then. {self.why}"
        ).rstrip()


def trouble(lines: Iterable[RequestHealth], now: float) -> Trouble | None:
    """Return the outage of the line that waits longest; None while every line is answered in time."""
    late = [line for line in lines if line.is_late(now)]
    if not late:
        return None
    longest = min(late, key=lambda line: line.since)
    why = next((line.error for line in late if line.error), "")
    return Trouble(
        why=why, seconds=now - longest.since, answered_before=longest.answers, who=longest.who
    )


def outdated(what: str, said: CachedAnswer, silent_seconds: float | None) -> list[str]:
    """Return a line that says how old an answer is, and why; none for a fresh answer.

    None either if the page already says that the hub has been silent for `silent_seconds`, and the answer
    is hardly older than that.
    """
    if not said.error:
        return []
    if silent_seconds is not None and said.age_seconds - silent_seconds <= SAME_SECONDS:
        return []
    age = duration(timedelta(seconds=said.age_seconds))
    about = capitalized(what)
    return [f"{about} as it was {age} ago: {said.error.rstrip('.')}."]


class Loading(str):
    """A line for an answer that is still loading: nothing is wrong."""

    __slots__ = ()


def unanswered(what: str, error: Exception) -> str:
    """Return why nothing is shown, such as "Usage is not known: ..."; `Loading` until the answer is late."""
    return Loading("Loading …") if isinstance(error, AnswerPending) else f"{what}: {error}"


class CatchUp:
    """The time after the hub was away until its nodes have sent again, in monotonic seconds."""

    def __init__(self) -> None:
        self._back_at: float | None = None
        self._away_from: datetime | None = None  # by the hub's clock

    def missing(self, before: Facts, after: Facts, now: float, owed_seconds: float | None) -> int:
        """Return how many nodes are silent in `after` only because the hub was away.

        `owed_seconds`: how long this answer was overdue; None if it came in time. The result is 0 if the
        hub was not away, if no node is silent because of that, or once `GRACE_SECONDS` are over.
        """
        if self._back_at is not None and now - self._back_at > GRACE_SECONDS:
            self._back_at = None
        if self._back_at is None and owed_seconds is not None:
            self._away_from = after.now - timedelta(seconds=owed_seconds)
            self._back_at = now if _hub_was_away(after, self._away_from) else None
        if self._back_at is None or self._away_from is None:
            return 0
        missing = silent_nodes(after) - silent_nodes(before)
        # Nodes that were overdue before the outage are silent for another reason.
        missing -= overdue_nodes(after, self._away_from)
        if not missing:
            self._back_at = None
        return len(missing)


def _hub_was_away(after: Facts, since: datetime) -> bool:
    """Return whether the hub was away, and not only slow: a slow hub still receives what nodes send."""
    if after.listening_since is not None and after.listening_since >= since:
        return True
    # Data near either end may have come just before the outage or just after it.
    return not any(since + ARRIVAL < at < after.now - ARRIVAL for at in after.last_seen.values())
