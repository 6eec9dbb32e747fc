"""How a person's acknowledgement of an incident changes the book. Nothing here does I/O."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from gpuvigil.lifecycle import TRANSITIONS, Signal
from gpuvigil.model import Acknowledgement, Record, Transition

from .book import Book, Entry, signalled

# Names and notes come from a text field and end up in messages and logs.
_LONGEST_NAME, _LONGEST_NOTE = 80, 500
# After one of these signals the incident must be acknowledged anew.
_BEGINS = frozenset({Signal.CONFIRMED.value, Signal.RETURNED.value, Signal.FLAPPED.value})


def acknowledge(
    book: Book, acknowledgement: Acknowledgement, now: datetime
) -> tuple[Book, tuple[Transition, ...]]:
    """Return the book after somebody acknowledged an incident, and the transition that this makes.

    There is no transition for an incident that is acknowledged already (the record is then only a
    note), over or unknown, or when the same record arrives a second time.
    """
    found = entry_of(book, acknowledgement.incident)
    if found is None or acknowledgement.id in found[1].acknowledgements:
        return book, ()
    key, before = found
    heard = replace(before, acknowledgements=before.acknowledgements | {acknowledgement.id})
    made: list[Transition] = []
    if (heard.state, Signal.ACKNOWLEDGED) in TRANSITIONS:
        by, note = (
            line(acknowledgement.by, _LONGEST_NAME) or "somebody",
            line(acknowledgement.note, _LONGEST_NOTE),
        )
        said = replace(heard.incident, acknowledged_by=by)
        reason = f"acknowledged by {by}" + (f": {note}" if note else "")
        heard, made = signalled(heard, said, Signal.ACKNOWLEDGED, now, reason)
    return Book(entries={**book.entries, key: heard}), tuple(made)


def entry_of(book: Book, incident: str) -> tuple[str, Entry] | None:
    """Return an incident's fingerprint and entry; None when the book does not have it."""
    return next((it for it in book.entries.items() if it[1].incident.id == incident), None)


def pending(
    acknowledgements: Iterable[Record], transitions: Iterable[Record]
) -> tuple[Record, ...]:
    """Return an incident's acknowledgements since it last began or came back, oldest first.

    The order is that of the hub's commits, so that no two clocks are compared.
    """
    begun = [t.sequence or 0 for t in transitions if _begins(t.body)]
    since = max(begun, default=0)
    fresh = [one for one in acknowledgements if (one.sequence or 0) > since]
    return tuple(sorted(fresh, key=lambda one: one.sequence or 0))


def line(text: str, most: int) -> str:
    """Return a text as one printable line of at most `most` characters."""
    printable = "".join(ch if ch.isprintable() else " " for ch in text[: 4 * most])
    one = " ".join(printable.split())
    return one if len(one) <= most else one[: most - 1] + "…"


def _begins(body: Mapping[str, object]) -> bool:
    return body.get("signal") in _BEGINS
