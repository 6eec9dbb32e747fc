"""The known names of people, so that they can be removed from sentences; threads may share it."""

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpuvigil.model import Record, RecordKind

_MOST = 200_000
_SHORTEST_PART = 3
# `ns/ada-0`, `ada@uni.edu`, `ada.lovelace`, `ada_l`, `ada`: the whole word first, then its parts.
_WORD = re.compile(r"\w+(?:[^\w\s,;()\[\]{}\"'=]+\w+)*")
_PARTS = (
    _WORD,
    re.compile(r"\w+(?:[.@-]+\w+)*"),
    re.compile(r"\w+(?:[.-]+\w+)*"),
    re.compile(r"\w+"),
    re.compile(r"[^\W_]+"),
)
_NUMBER = re.compile(r"[\d.]+")
# The keys under which records name people, and their pods.
PEOPLE_KEYS = frozenset({"user", "users", "by", "who", "to", "acknowledged_by", "person"})
POD_KEYS = frozenset({"pod", "pods"})
Owner = tuple[str | None, str | None]  # user, account


class Names:
    """The names read so far: users, pods, and the owners of each holder."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._spaced: set[str] = set()  # names of several words
        self._owners: dict[tuple[str, str], frozenset[Owner]] = {}
        self._active: set[str] = set()  # incidents that are not resolved
        self._teams: dict[str, frozenset[str]] = {}  # accounts that each user has used
        self.version = 0

    def learn(self, records: Iterable[Record]) -> None:
        """Take the names from these records."""
        found: set[str] = set()
        owners: dict[tuple[str, str], set[Owner]] = {}
        for record in records:
            gather(record.body, found)
            if record.kind is RecordKind.INCIDENT:
                self._follow(record)
            if record.kind in {RecordKind.ALLOCATION, RecordKind.JOB}:
                key, owner = _owned(record)
                owners.setdefault(key, set()).add(owner)
        self._keep(found, owners)

    def _follow(self, incident: Record) -> None:
        with self._lock:
            if incident.body.get("resolved_at"):
                self._active.discard(incident.id)
            elif len(self._active) < _MOST:
                self._active.add(incident.id)

    def is_active(self, incident: str | None) -> bool:
        """Return whether this is an incident that was not resolved when last read."""
        return incident in self._active

    def add(self, *names: str) -> None:
        """Add these names."""
        self._keep(set(names), {})

    def _keep(self, found: set[str], owners: Mapping[tuple[str, str], set[Owner]]) -> None:
        with self._lock:
            fresh = {name.casefold() for name in found if _can_be_found(name)} - self._known
            if fresh and len(self._known) < _MOST:
                self._known |= fresh
                self._spaced |= {name for name in fresh if not _WORD.fullmatch(name)}
                self.version += 1
            for key, values in owners.items():
                if len(self._owners) >= _MOST:
                    self._owners.clear()
                self._owners[key] = self._owners.get(key, frozenset()) | values
                for user, account in values:
                    if user is not None and account is not None:
                        name = user.casefold()
                        self._teams[name] = self._teams.get(name, frozenset()) | {account}

    def owners(self, cluster: str, holder: str) -> frozenset[Owner]:
        """Return the owners of a holder as far as records name them; a process number may have several."""
        return self._owners.get((cluster, holder), frozenset())

    def teams(self, user: str) -> frozenset[str]:
        """Return the accounts of that user's jobs."""
        return self._teams.get(user.casefold(), frozenset())

    def without(self, text: str, shown: Callable[[str], str], more: Iterable[str] = ()) -> str:
        """Return the sentence with every name as `shown` gives it; `more` are further names it may hold."""
        more = set(more)
        for name in sorted(one for one in more if not _can_be_found(one)):
            text = re.sub(
                rf"(\b(?:of|user) ){re.escape(name)}(?!\w|\.\d)",
                lambda found: found[1] + shown(found[0][len(found[1]) :]),
                text,
                flags=re.I,
            )
        extra = {name.casefold() for name in more if _can_be_found(name)}
        return replaced(text, shown, extra, self._known, self._spaced)

    def __contains__(self, name: str) -> bool:
        return name.casefold() in self._known


def replaced(
    text: str,
    shown: Callable[[str], str],
    extra: set[str],
    known: set[str] | frozenset[str] = frozenset(),
    spaced: Iterable[str] = (),
) -> str:
    """Return `text` with the names of `extra` and `known` as `shown` gives them."""
    for name in sorted({*spaced, *(one for one in extra if not _WORD.fullmatch(one))}, key=len):
        if name in text.casefold():
            text = re.sub(re.escape(name), lambda found: shown(found.group()), text, flags=re.I)

    def single(found: "re.Match[str]") -> str:
        word = found.group()
        name = word.casefold()
        return shown(word) if name in known or name in extra else word

    for part in _PARTS:
        text = part.sub(single, text)
    return text


def gather(value: Any, found: set[str], key: str = "") -> None:
    """Collect every name under a key for names, at any depth."""
    if isinstance(value, Mapping):
        of_cause = value.get("kind") in _CAUSES
        for name, item in value.items():
            if not (of_cause and name == "by"):
                gather(item, found, str(name))
    elif isinstance(value, list | tuple):
        for item in value:
            gather(item, found, key)
    elif isinstance(value, str) and value:
        found |= _named(key, value)


def _named(key: str, value: str) -> set[str]:
    if key in PEOPLE_KEYS:
        # The parts of `ada.lovelace@uni.edu` may each stand alone in a sentence.
        parts = value.partition("@")[0].split(".")
        return {value, *(part for part in parts if len(part) >= _SHORTEST_PART)}
    if key in POD_KEYS:
        return {value}
    of_pod = key in {"holder", "holders"} and value.startswith("pod ")
    return {value[4:]} if of_pod else set()


# A cause's `by` is not a person (`gpuvigil.model.cause`).
_CAUSES = frozenset({"ended", "covered_by", "uncovered"})


def _owned(record: Record) -> tuple[tuple[str, str], Owner]:
    body = record.body
    holder = body.get("holder") if record.kind is RecordKind.ALLOCATION else record.parent
    cluster = record.subject.partition("/")[0]
    return (cluster, str(holder)), (body.get("user"), body.get("account"))


def _can_be_found(name: str) -> bool:
    """Return whether a name can be searched for: a bare number would be found in every measured value.

    A numeric user name is replaced by `without` only after `of` and `user`, where the record has it.
    """
    return len(name) > 1 and _NUMBER.fullmatch(name) is None
