"""What all pages of this process share, for the scripts that Streamlit runs, as whoever asks may see it."""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import streamlit as st

from accounting.people.names import Names
from accounting.people.roles import Person
from accounting.people.sight import Pseudonyms, Sight
from gpuvigil.clock import SystemClock
from gpuvigil.config import Config

from . import freshness
from .change_feed import ChangeFeed
from .questions import Questions, Said
from .seen import Eyes, SeenQuestions, SeenSnapshot
from .snapshot import Snapshot

# Views are kept for so many who see different things; who looks again gets one made anew.
MOST_KEPT = 256
SIGNED_OUT = "You are signed out. Reload the page to sign in."


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """Who may ask, where people sign in: `asker` says who draws a page now, None who nobody knows."""

    asker: Callable[[], Person | None]
    pseudonyms: Pseudonyms | None = None
    names: Names = field(default_factory=Names)
    key: bytes = field(default_factory=partial(secrets.token_bytes, 32))  # of pods' numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """One view of the fleet, and answers to what only some pages ask."""

    snapshot: Snapshot
    questions: Questions
    config: Config
    changes: ChangeFeed = field(default_factory=lambda: ChangeFeed(SystemClock()))
    # The day of each cluster as its chart last had it: the strip waits for no answer.
    days: dict[str, Any] = field(default_factory=dict)
    people: People | None = None
    person: Person | None = None  # who asks; None where nobody signs in by name

    @property
    def may_change(self) -> bool:
        """Whether who asks may acknowledge, silence and answer."""
        return self.person is None or self.person.is_operator

    @property
    def sees_all_jobs(self) -> bool:
        """Whether sums over jobs are of all of them."""
        return self.person is None or self.person.role.sees_rows_of_others

    @property
    def own_name(self) -> str:
        """Whose word it is that is written; empty for who has to say it."""
        return "" if self.person is None else self.person.name


_installed: list[Shared] = []
_lock = threading.Lock()
_seen: OrderedDict[Hashable, Shared] = OrderedDict()


def install(shared: Shared) -> None:
    """Make this what pages draw from."""
    with _lock:
        _installed[:] = [shared]
        _seen.clear()


def shared() -> Shared:
    """What pages draw from, without what is not for whoever asks."""
    (found,) = _installed
    if found.people is None:
        return found
    person = found.people.asker()
    if person is None:
        st.error(SIGNED_OUT)
        st.stop()
    return _seen_by(found, found.people, person)


def _seen_by(found: Shared, people: People, person: Person) -> Shared:
    sight = Sight(person=person, names=people.names, pseudonyms=people.pseudonyms, key=people.key)
    key = person.name, person.way, sight.rights
    with _lock:
        if key not in _seen:
            _seen[key] = _made(found, sight)
            while len(_seen) > MOST_KEPT:
                _seen.popitem(last=False)
        _seen.move_to_end(key)
        return _seen[key]


def _made(found: Shared, sight: Sight) -> Shared:
    eyes = Eyes(sight, SystemClock())
    questions = SeenQuestions(found.questions, eyes)
    if sight.is_whole:
        return replace(found, questions=questions, person=sight.person)
    return replace(
        found,
        snapshot=SeenSnapshot(found.snapshot, eyes),
        questions=questions,
        changes=ChangeFeed(SystemClock()),
        days={},
        person=sight.person,
    )


def current() -> Snapshot:
    """The snapshot that pages draw from."""
    return shared().snapshot


def outdated(what: str, said: Said) -> list[str]:
    """See `contact.outdated`."""
    return freshness.outdated(what, said, current().silence())


def refresh_seconds() -> float:
    """How often an open page renews itself."""
    return current().refresh_seconds
