"""Sees by itself that a part was replaced: a return to the maker is over when its slot says so."""

import threading
from collections.abc import Iterable

from accounting.hardware.returns import newest, replaced_parts
from gpuvigil.model import UNREADABLE, Inventory, Record, RecordKind, Rma, RmaState, Subject


class Replacements:
    """The returns that are not over, by node; beside the analysis, for one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[Subject, dict[str, Rma]] = {}
        self._waiting: dict[str, Record] = {}

    def begin(self, steps: Iterable[Record], records: Iterable[Record]) -> None:
        """The steps and the inventories that the hub has; whatever was known before is forgotten."""
        known = [one for one in map(_rma, steps) if one is not None]
        with self._lock:
            self._open, self._waiting = {}, {}
            for one in newest(known).values():
                self._keep(one)
        for record in records:
            self.ingest(record)

    @property
    def waiting(self) -> tuple[Record, ...]:
        """What was seen and is not written yet."""
        with self._lock:
            return tuple(self._waiting.values())

    def written(self, records: Iterable[Record]) -> None:
        """These are kept by the hub."""
        with self._lock:
            for record in records:
                self._waiting.pop(record.id, None)

    def ingest(self, record: Record) -> None:
        """Take in a step, or an inventory, which may say that a part was replaced."""
        if record.kind is RecordKind.RMA:
            step = _rma(record)
            if step is not None:
                with self._lock:
                    self._keep(step)
            return
        if record.kind is not RecordKind.INVENTORY or not self._open:
            return
        try:
            inventory = Inventory.from_record(record)
        except UNREADABLE:
            return  # the analysis says so
        with self._lock:
            for one in replaced_parts(
                list(self._open.get(inventory.subject, {}).values()), inventory
            ):
                self._keep(one)
                self._waiting[one.id] = one.to_record()

    def _keep(self, step: Rma) -> None:
        of_node = self._open.setdefault(step.subject.of_node(), {})
        before = of_node.get(step.incident)
        if before is not None and before.at > step.at:
            return
        if step.state is RmaState.REPLACED:
            of_node.pop(step.incident, None)
            if not of_node:
                del self._open[step.subject.of_node()]
        else:
            of_node[step.incident] = step


def _rma(record: Record) -> Rma | None:
    try:
        return Rma.from_record(record)
    except UNREADABLE:
        return None
