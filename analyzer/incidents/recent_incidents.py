"""Active and recently ended incidents: work that a fault stopped need not resume as it ends."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from gpuvigil.model import Incident

from .book import Book


class RecentIncidents:
    """A memory of the incidents that ended within a span. One thread at a time."""

    def __init__(self, span: timedelta) -> None:
        self._span = span
        self._over: dict[str, Incident] = {}

    def add(self, incidents: Iterable[Incident]) -> None:
        """Remember those of the incidents that are over."""
        self._over |= {one.id: one for one in incidents if one.resolved_at is not None}

    def beside(self, book: Book, now: datetime) -> tuple[Incident, ...]:
        """Return the book's active incidents, and those that ended within the span."""
        self._over = {
            key: one
            for key, one in self._over.items()
            if one.resolved_at is not None and now - one.resolved_at <= self._span
        }
        return (*book.active(), *self._over.values())
