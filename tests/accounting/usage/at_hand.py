"""A hub at hand: its records in SQLite and its telemetry in memory, without a process or a socket."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from accounting.usage import BUCKET, Bucket, Place, Seconds
from gpuvigil.clock import ManualClock, to_ns, to_text
from gpuvigil.hub_client.tls import Trust
from gpuvigil.lineprotocol import encode
from gpuvigil.model import GpuIdentity, Inventory, Record, RecordKind, Subject
from gpuvigil.store.external import HubWithExternalStore, NodesHeardByStore
from gpuvigil.store.memory import MemoryStore
from hub.records import RecordBook
from hub.records.database import open_sqlite
from tests.alerts.month.outbox import Ledger as Due
from tests.alerts.month.outbox import SimulatedHub

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
LONG_AGO = NOON - timedelta(days=90)
MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)


class HubAtHand(HubWithExternalStore):
    """What the tests write is there at once; `nodes` are heard when a test says so."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(NOON)
        self._records = SimulatedHub(
            RecordBook(open_sqlite(folder / "records.sqlite")), self.clock, Due()
        )
        self.begin()

    def begin(self) -> None:
        """Nothing has been measured or heard yet; records stay."""
        store = MemoryStore(ManualClock(NOON + timedelta(days=9)))
        super().__init__("http://127.0.0.1:1", str, Trust(), store, NodesHeardByStore(store))
        self.started_at = NOON
        self.heard: list[tuple[str, str, datetime]] = []

    def write_records(self, records: Iterable[Record]) -> int:
        return self._records.write_records(records)

    def records(
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
    ) -> tuple[Record, ...]:
        return self._records.records(
            kind,
            parent=parent,
            subject=subject,
            holder=holder,
            since=since,
            until=until,
            states=states,
            limit=limit,
        )

    def status(self) -> Mapping[str, Any]:
        nodes = [
            {"cluster": cluster, "node": node, "received_at": to_text(at)}
            for cluster, node, at in self.heard
        ]
        return {"started_at": to_text(self.started_at), "now": to_text(NOON), "nodes": nodes}


_names = iter(range(1, 1_000_000))


@dataclass(slots=True, kw_only=True)
class Site:
    """One cluster of a hub, which no other test has seen."""

    hub: HubAtHand
    cluster: str = field(default_factory=lambda: f"c{next(_names)}")

    def sends(
        self,
        start: datetime,
        minutes: Iterable[int] = range(15),
        gpus: int = 2,
        node: str = "n1",
        busy: int = 50,
    ) -> None:
        """A row of each GPU, and of the node, at the begin of some minutes after `start`."""
        lines = []
        for minute in minutes:
            at = to_ns(start + minute * MINUTE)
            lines.append(
                encode("node", {"cluster": self.cluster, "node": node}, {"driver_answering": 1}, at)
            )
            for number in range(gpus):
                tags = {
                    "cluster": self.cluster,
                    "node": node,
                    "uuid": f"GPU-{number}",
                    "model": "H100",
                }
                values = {"up": 1, "utilization_percent": busy, "compute_processes": 1}
                lines.append(encode("gpu", tags, values, at))
        self.hub.store.write("\n".join(line for line in lines if line).encode())

    def says(self, start: datetime, minute: int = 0) -> None:
        """A row of the node, and of none of its GPUs."""
        self.sends(start, [minute], gpus=0)

    def owns(self, at: datetime = LONG_AGO, gpus: int = 2, node: str = "n1") -> None:
        """The inventory of a node."""
        identities = tuple(
            GpuIdentity(uuid=f"GPU-{n}", index=n, pci_address=None, model="H100")
            for n in range(gpus)
        )
        one = Inventory(
            subject=Subject(cluster=self.cluster, node=node),
            at=at,
            boot="b",
            tick_seconds=10.0,
            version="1",
            gpus=identities,
        )
        self.hub.write_records([one.to_record()])

    def bucket(self, start: datetime, used: float, gpus: int = 2) -> Bucket:
        """A quarter with an amount that no row here gives."""
        seconds = Seconds(installed=1800.0, active=1800.0, measured=900.0, used=used)
        return Bucket(
            cluster=self.cluster,
            start=start,
            gpus=gpus,
            nodes=1,
            seconds=seconds,
            places=(Place(node="n1", model="H100", seconds=seconds),),
            counted_at=start + BUCKET,
        )

    def recorded(self, start: datetime, used: float = 100.0, gpus: int = 2) -> None:
        """It was counted, and is in the hub's records."""
        self.hub.write_records([self.bucket(start, used, gpus).to_record()])
