"""A silence: matching alerts are muted for a while."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ..clock import from_text, to_text
from .record import Record, RecordKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A silence of matching alerts: its author, reason and span, which may begin later, as for maintenance.

    A silence covers whatever fits its matchers, including what begins, ends or returns meanwhile.
    """

    id: str
    matchers: tuple[str, ...]  # as `gpuvigil.matching.matchers` reads them
    by: str
    reason: str
    at: datetime  # when it was written
    starts_at: datetime
    ends_at: datetime
    version: int = 1

    def holds(self, now: datetime) -> bool:
        return self.starts_at <= now < self.ends_at

    def is_over(self, now: datetime) -> bool:
        """Return whether the silence is past, or was cancelled before it began."""
        return self.ends_at <= max(now, self.starts_at)

    def ended(self, now: datetime) -> "Silence":
        """Return the next version, which ends now."""
        return replace(self, ends_at=max(now, self.starts_at), version=self.version + 1)

    def to_record(self) -> Record:
        """Return a record of kind `silence`; its subject is the word `silence`: it may be about anything."""
        body: dict[str, Any] = {
            "matchers": list(self.matchers),
            "by": self.by,
            "reason": self.reason,
            "starts_at": to_text(self.starts_at),
            "ends_at": to_text(self.ends_at),
        }
        return Record(
            kind=RecordKind.SILENCE,
            id=self.id,
            at=self.at,
            subject="silence",
            version=self.version,
            body=body,
        )

    @classmethod
    def from_record(cls, record: Record) -> "Silence":
        body = record.body
        return cls(
            id=record.id,
            matchers=tuple(str(one) for one in body["matchers"]),
            by=str(body["by"]),
            reason=str(body.get("reason") or ""),
            at=record.at,
            starts_at=from_text(body["starts_at"]),
            ends_at=from_text(body["ends_at"]),
            version=record.version,
        )
