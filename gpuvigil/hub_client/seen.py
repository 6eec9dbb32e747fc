"""The hub as one person sees it: what they may not see never reaches who asks for them."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ..errors import HubRefused
from ..model import Record, RecordKind, Subject
from . import Answer, Changes, Hub

Records = tuple[Record, ...]


class SeenHub(Hub):
    """Asks `behind`, and gives what `shown` makes of each answer; what is written `written` may refuse.

    Work for services is claimed by no person, and requests of other shapes are not passed on.
    """

    def __init__(
        self,
        behind: Hub,
        shown: Callable[[Iterable[Record]], Records],
        written: Callable[[Iterable[Record]], Records],
        *,
        sees_tokens: bool = False,
    ) -> None:
        # It has no connection of its own, and so none of what a client is made with.
        self.behind = behind
        self._shown = shown
        self._written = written
        self._sees_tokens = sees_tokens

    def write_records(self, records: Iterable[Record]) -> int:
        """See `Hub.write_records`; HubRefused for who may not."""
        return self.behind.write_records(self._written(records))

    def records(  # noqa: PLR0913 - as `Hub.records`
        self,
        kind: RecordKind,
        *,
        parent: str | None = None,
        subject: str | None = None,
        holder: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        states: Collection[str] = (),
        limit: int = 10_000,
    ) -> Records:
        """See `Hub.records`."""
        found = self.behind.records(
            kind,
            parent=parent,
            subject=subject,
            holder=holder,
            since=since,
            until=until,
            states=states,
            limit=limit,
        )
        return self._shown(found)

    def record(self, kind: RecordKind, id_: str) -> Record | None:
        """See `Hub.record`."""
        return self._one(self.behind.record(kind, id_))

    def inventory(self, node: Subject) -> Record | None:
        """See `Hub.inventory`."""
        return self._one(self.behind.inventory(node))

    def had(self, node: Subject) -> Records:
        """See `Hub.had`."""
        return self._shown(self.behind.had(node))

    def changes(
        self, after: int, kinds: Collection[RecordKind], wait_seconds: float = 0.0
    ) -> Changes:
        """See `Hub.changes`."""
        found = self.behind.changes(after, kinds, wait_seconds)
        return Changes(records=self._shown(found.records), sequence=found.sequence)

    def claim(self, kind: RecordKind, owner: str, **_: Any) -> Records:
        """Nobody but a service works on records."""
        raise _not_for_people()

    def finish(
        self, kind: RecordKind, owner: str, ids: Sequence[str], records: Iterable[Record] = ()
    ) -> None:
        """Nobody but a service works on records."""
        raise _not_for_people()

    def telemetry(self, verb: str, question: Mapping[str, Any]) -> bytes:
        """See `Hub.telemetry`: numbers name nobody."""
        return self.behind.telemetry(verb, question)

    def status(self) -> Mapping[str, Any]:
        """See `Hub.status`: it names nodes and services."""
        return self.behind.status()

    def tokens(self) -> Mapping[str, Any]:
        """See `Hub.tokens`; HubRefused for who is no operator: they are named by people."""
        if not self._sees_tokens:
            raise _not_for_people()
        return self.behind.tokens()

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        wait_seconds: float = 0.0,
    ) -> Answer:
        """What an answer of an unknown shape says of whom nobody can know."""
        raise _not_for_people()

    def close(self) -> None:
        """The client behind is its owner's."""

    def _one(self, record: Record | None) -> Record | None:
        return next(iter(self._shown([] if record is None else [record])), None)


def _not_for_people() -> HubRefused:
    return HubRefused("this is not asked of the hub for a person", 403)
