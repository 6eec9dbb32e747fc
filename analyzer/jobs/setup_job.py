"""Sees by itself what nodes run on: each change is a record, which stays when inventories do not."""

from collections.abc import Iterable, Sequence

from gpuvigil.model import UNREADABLE, Inventory, Record, RecordKind, Setup, Subject, readable


class Setups:
    """What each node runs on, as far as the hub knows it; beside the analysis, in one thread."""

    def __init__(self) -> None:
        self._newest: dict[Subject, Setup] = {}
        self._waiting: dict[str, Record] = {}

    def begin(self, setups: Iterable[Record], records: Iterable[Record]) -> None:
        """What the hub has of both; whatever was known before is forgotten."""
        self._newest, self._waiting = {}, {}
        for one in sorted(readable(setups, Setup.from_record), key=lambda it: it.at):
            self._newest[one.node] = one
        for record in records:
            self.ingest(record)

    @property
    def waiting(self) -> Sequence[Record]:
        """What was seen and is not written yet."""
        return tuple(self._waiting.values())

    def written(self, records: Iterable[Record]) -> None:
        """These are kept by the hub."""
        for record in records:
            self._waiting.pop(record.id, None)

    def ingest(self, record: Record) -> None:
        """Take in an inventory; nothing of the selftest is kept."""
        if record.kind is not RecordKind.INVENTORY or record.marked:
            return
        try:
            inventory = Inventory.from_record(record)
        except UNREADABLE:
            return  # the analysis says so
        before = self._newest.get(inventory.subject)
        if before is not None and before.at >= inventory.at:
            return
        now = Setup.of(inventory, before)
        if before is None or now.values != before.values:
            told = now.to_record()
            self._newest[now.node], self._waiting[told.id] = now, told
