"""What all pages of this process share, for Streamlit's scripts, filtered by what the person may see."""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import streamlit as st

from accounting.people.names import Names
from accounting.people.records_view import Pseudonyms, RecordsView
from accounting.people.roles import Person
from gpuvigil.clock import Clock, ManualClock, SystemClock
from gpuvigil.config import Config

from . import freshness
from .change_feed import ChangeFeed
from .past import PastSnapshot, RequestedMoment, query_cache_of, requested_moment
from .questions import CachedAnswer, QueryCache
from .seen import PersonQueryCache, PersonSnapshot, PersonView
from .snapshot import Snapshot

# So many people's own views are kept; others are made again when they look.
MOST_KEPT = 256
# So many moments of the past are kept, the least recently used is dropped first.
MOST_MOMENTS = 8
AT = "at"  # the address parameter for the moment to look at
SIGNED_OUT = "You are signed out. Reload the page to sign in."


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """Sign-in of people: `asker` returns who draws the current page, None if nobody is signed in."""

    asker: Callable[[], Person | None]
    pseudonyms: Pseudonyms | None = None
    names: Names = field(default_factory=Names)
    key: bytes = field(default_factory=partial(secrets.token_bytes, 32))  # hashes pods' numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The view of the fleet, and the cached answers that only some pages need."""

    snapshot: Snapshot
    questions: QueryCache
    config: Config
    changes: ChangeFeed = field(default_factory=lambda: ChangeFeed(SystemClock()))
    # The last day's usage of each cluster as its chart had it, so that the strip waits for no answer.
    days: dict[str, Any] = field(default_factory=dict)
    people: People | None = None
    person: Person | None = None  # who asks; None if nobody signs in by name
    at: datetime | None = None  # the moment of the past that is shown; None: now

    @property
    def clock(self) -> Clock:
        """The clock to draw by; it stands still at a moment of the past."""
        return SystemClock() if self.at is None else ManualClock(self.at)

    @property
    def may_change(self) -> bool:
        """Whether this person may acknowledge, silence and answer; nobody may in the past."""
        return self.at is None and self.may_answer

    @property
    def may_answer(self) -> bool:
        """Whether this person has the right to change anything."""
        return self.person is None or self.person.is_operator

    @property
    def sees_all_jobs(self) -> bool:
        """Whether this person sees all jobs, so that sums are over all of them."""
        return self.person is None or self.person.role.sees_rows_of_others

    @property
    def own_name(self) -> str:
        """The signed-in person's name for what they write; empty if they must give a name."""
        return "" if self.person is None else self.person.name


_installed: list[Shared] = []
_lock = threading.Lock()
# What pages draw from: by moment of the past, and by person and moment.
_moments: OrderedDict[datetime, Shared] = OrderedDict()
_seen: OrderedDict[Hashable, Shared] = OrderedDict()


def install(shared: Shared) -> None:
    """Install what pages draw from."""
    with _lock:
        _installed[:] = [shared]
        _moments.clear()
        _seen.clear()


def asked_moment() -> RequestedMoment:
    """Return the moment that the address asks for: one of the past, or now."""
    (found,) = _installed
    kept = timedelta(days=found.config.hub.records_days)
    return requested_moment(st.query_params.get(AT, ""), SystemClock().now(), kept)


def shared() -> Shared:
    """Return what pages draw from, at the address's moment and without what the person may not see."""
    (found,) = _installed
    at = asked_moment().at
    if at is not None:
        found = _then(found, at)
    if found.people is None:
        return found
    person = found.people.asker()
    if person is None:
        st.error(SIGNED_OUT)
        st.stop()
    return _seen_by(found, found.people, person)


def _then(now: Shared, at: datetime) -> Shared:
    """Return the fleet at that moment, and drop moments that nobody looked at lately."""
    with _lock:
        if at not in _moments:
            questions = query_cache_of(now.questions, at)
            _moments[at] = replace(
                now,
                at=at,
                questions=questions,
                snapshot=PastSnapshot(questions, now.config, at),
                changes=ChangeFeed(ManualClock(at)),
                days={},
            )
            while len(_moments) > MOST_MOMENTS:
                gone, old = _moments.popitem(last=False)
                old.questions.close()
                for key in [key for key, one in _seen.items() if one.at == gone]:
                    del _seen[key]
        _moments.move_to_end(at)
        return _moments[at]


def _seen_by(found: Shared, people: People, person: Person) -> Shared:
    sight = RecordsView(
        person=person, names=people.names, pseudonyms=people.pseudonyms, key=people.key
    )
    key = person.name, person.way, sight.rights, found.at
    with _lock:
        if key not in _seen:
            _seen[key] = _made(found, sight)
            while len(_seen) > MOST_KEPT:
                _seen.popitem(last=False)
        _seen.move_to_end(key)
        return _seen[key]


def _made(found: Shared, sight: RecordsView) -> Shared:
    eyes = PersonView(sight, SystemClock())
    questions = PersonQueryCache(found.questions, eyes)
    if sight.is_whole:
        return replace(found, questions=questions, person=sight.person)
    return replace(
        found,
        snapshot=PersonSnapshot(found.snapshot, eyes),
        questions=questions,
        changes=ChangeFeed(found.clock),
        days={},
        person=sight.person,
    )


def current() -> Snapshot:
    """Return the snapshot that pages draw from."""
    return shared().snapshot


def outdated(what: str, said: CachedAnswer) -> list[str]:
    """See `freshness.outdated`."""
    return freshness.outdated(what, said, current().silence())


def unanswered(what: str, error: Exception) -> str:
    """See `freshness.unanswered`."""
    return freshness.unanswered(what, error)


def refresh_seconds() -> float:
    """Return how often an open page refreshes, in seconds."""
    return current().refresh_seconds
