"""Events with stable ids, however often they are sent."""

from dataclasses import dataclass, field
from datetime import datetime

from gpuvigil.model import Event, EventKind, Subject


@dataclass(slots=True, kw_only=True)
class EventMaker:
    """Makes the events of one run of a collector, and gives them their ids."""

    node: Subject
    boot: str
    _counts: dict[tuple[EventKind, str], int] = field(default_factory=dict)

    def make(
        self,
        kind: EventKind,
        subject: Subject,
        at: datetime,
        message: str,
        xid: int | None = None,
    ) -> Event:
        """Return the next event of this kind on this subject."""
        key = (kind, subject.key)
        self._counts[key] = count = self._counts.get(key, 0) + 1
        return Event(
            kind=kind,
            subject=subject,
            at=at,
            id=f"{self.node.key}|{self.boot}|{kind.value}|{subject.key}|{count}",
            xid=xid,
            message=message,
        )
