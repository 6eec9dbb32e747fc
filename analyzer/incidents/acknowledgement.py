"""A person takes an incident: what that changes in the book. Nothing here reads or writes."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from gpuvigil.lifecycle import TRANSITIONS, Signal
from gpuvigil.model import Acknowledgement, Record, Transition

from .book import Book, Entry, signalled

# They end up in messages and logs, and come from a text field.
_LONGEST_NAME, _LONGEST_NOTE = 80, 500
# After one of these the incident must be taken anew.
_BEGINS = frozenset({Signal.CONFIRMED.value, Signal.RETURNED.value, Signal.FLAPPED.value})


def acknowledge(
    book: Book, taken: Acknowledgement, now: datetime
) -> tuple[Book, tuple[Transition, ...]]:
    """The book once somebody took an incident, and the step that this was.

    No step: on an incident that is taken already, where it is a note only, on one that is over or
    unknown, and on the second arrival of the same record.
    """
    found = entry_of(book, taken.incident)
    if found is None or taken.id in found[1].acknowledgements:
        return book, ()
    key, before = found
    heard = replace(before, acknowledgements=before.acknowledgements | {taken.id})
    made: list[Transition] = []
    if (heard.state, Signal.ACKNOWLEDGED) in TRANSITIONS:
        by, note = line(taken.by, _LONGEST_NAME) or "somebody", line(taken.note, _LONGEST_NOTE)
        said = replace(heard.incident, acknowledged_by=by)
        reason = f"acknowledged by {by}" + (f": {note}" if note else "")
        heard, made = signalled(heard, said, Signal.ACKNOWLEDGED, now, reason)
    return Book(entries={**book.entries, key: heard}), tuple(made)


def entry_of(book: Book, incident: str) -> tuple[str, Entry] | None:
    """The entry of an incident, and its fingerprint; None when the book has none."""
    return next((it for it in book.entries.items() if it[1].incident.id == incident), None)


def pending(
    acknowledgements: Iterable[Record], transitions: Iterable[Record]
) -> tuple[Record, ...]:
    """Those of one incident that were written since it began or came back last, oldest first.

    The hub's commits say which came first: no two clocks are held against each other.
    """
    begun = [t.sequence or 0 for t in transitions if _begins(t.body)]
    since = max(begun, default=0)
    fresh = [one for one in acknowledgements if (one.sequence or 0) > since]
    return tuple(sorted(fresh, key=lambda one: one.sequence or 0))


def line(text: str, most: int) -> str:
    """One printable line of at most `most` characters."""
    printable = "".join(ch if ch.isprintable() else " " for ch in text[: 4 * most])
    one = " ".join(printable.split())
    return one if len(one) <= most else one[: most - 1] + "…"


def _begins(body: Mapping[str, object]) -> bool:
    return body.get("signal") in _BEGINS
