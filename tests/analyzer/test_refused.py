"""What the hub refuses for good takes nothing else with it."""

import threading
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Any

from analyzer.service import Service
from gpuvigil.clock import ManualClock
from gpuvigil.config import Config
from gpuvigil.errors import HubRefused
from gpuvigil.hub_client import Changes, Hub
from gpuvigil.model import EventKind, Record, RecordKind

from .scene import NOON, event, gpu

BAD = gpu(3)


class PickyHub(Hub):
    """Hands out events once, and refuses every write that speaks of one GPU."""

    def __init__(self, events: Iterable[Record]) -> None:
        super().__init__("http://127.0.0.1:9", lambda: "")
        self._events = tuple(events)
        self.kept: list[Record] = []

    def records(self, kind: RecordKind, **_: Any) -> tuple[Record, ...]:
        return ()

    def changes(
        self, after: int, kinds: Collection[RecordKind], wait_seconds: float = 0.0
    ) -> Changes:
        return Changes(records=self._events if after == 0 else (), sequence=max(after + 1, 0))

    def write_records(self, records: Iterable[Record]) -> int:
        given = list(records)
        if any(record.subject == BAD.key for record in given):
            raise HubRefused("line 3 cannot be stored", 400, None)
        self.kept += given
        return 1


def xid(number: int, at: datetime) -> Record:
    return event(EventKind.XID, gpu(number), at, 95).to_record()


def test_one_refused_incident_costs_no_other() -> None:
    hub = PickyHub(xid(number, NOON - timedelta(seconds=1)) for number in range(1, 8))
    service = Service(Config(), lambda: hub, ManualClock(NOON), threading.Event())
    service.follow()
    service.follow()
    told = {record.subject for record in hub.kept if record.kind is RecordKind.TRANSITION}
    assert told == {gpu(number).key for number in range(1, 8)} - {BAD.key}
    assert len(hub.kept) == 2 * len(told)
