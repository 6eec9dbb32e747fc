"""The hub as one person may see it: hidden records never reach whoever asks for them."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ..errors import HubRefused
from ..model import Record, RecordKind, Subject
from . import Answer, Changes, Hub

Records = tuple[Record, ...]


class FilteredHub(Hub):
    """A client that filters the answers of `behind` by `shown`; `written` may refuse records to be written.

    People cannot claim work meant for services, and requests of other shapes are not passed on.
    """

    def __init__(
        self,
        behind: Hub,
        shown: Callable[[Iterable[Record]], Records],
        written: Callable[[Iterable[Record]], Records],
        *,
        sees_tokens: bool = False,
    ) -> None:
        # There is no connection of its own, so nothing that `Hub.__init__` sets up is needed.
        self.behind = behind
        self._shown = shown
        self._written = written
        self._sees_tokens = sees_tokens

    def write_records(self, records: Iterable[Record]) -> int:
        """See `Hub.write_records`; raise HubRefused for a person who may not write."""
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
        """Refuse: only services claim records."""
        raise _not_for_people()

    def finish(
        self, kind: RecordKind, owner: str, ids: Sequence[str], records: Iterable[Record] = ()
    ) -> None:
        """Refuse: only services finish records."""
        raise _not_for_people()

    def telemetry(self, verb: str, question: Mapping[str, Any]) -> bytes:
        """See `Hub.telemetry`; telemetry names no person and is not filtered."""
        return self.behind.telemetry(verb, question)

    def status(self) -> Mapping[str, Any]:
        """See `Hub.status`; it names nodes and services only and is not filtered."""
        return self.behind.status()

    def tokens(self) -> Mapping[str, Any]:
        """See `Hub.tokens`; raise HubRefused for non-operators, since tokens are named by people."""
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
        """Refuse: an answer of unknown shape cannot be filtered."""
        raise _not_for_people()

    def close(self) -> None:
        """Do nothing: the client behind belongs to its owner."""

    def _one(self, record: Record | None) -> Record | None:
        return next(iter(self._shown([] if record is None else [record])), None)


def _not_for_people() -> HubRefused:
    return HubRefused("this is not asked of the hub for a person", 403)
