"""What a collector does to its spool and its memory of the node; run by the tests, recorded.

`python -m tests.power_loss.spool_program ROOT LOG`: each body of records that the spool has taken is
acknowledged.
"""

import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

from collector.agent import saved_state
from collector.spool.batches import Sender
from collector.spool.body import Body
from collector.spool.queue import Spool
from collector.spool.subscriptions import Lane
from gpuvigil.model import Event, EventKind, GpuIdentity, Subject
from tests.power_loss.recording import acknowledge

NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)
SENDER = Sender(cluster="c", node="n1", boot="b1")
ALL = (Lane.RECORDS, Lane.LIVE, Lane.BACKLOG)
RECORDS = 4


def event(number: int) -> Body:
    """A body of records with one event."""
    told = Event(
        kind=EventKind.XID,
        subject=Subject(cluster="c", node="n1"),
        at=NOW,
        id=f"event {number}",
        xid=79,
        message="gone",
    )
    return SENDER.records([told.to_record()], NOW + timedelta(seconds=number))


def gpus(number: int) -> saved_state.Remembered:
    uuids = [f"GPU-{n}" for n in range(number)]
    return saved_state.Remembered(
        gpus={
            uuid: GpuIdentity(uuid=uuid, index=0, pci_address=None, model="H100") for uuid in uuids
        }
    )


def main(root: Path, log: Path) -> None:
    spool = Spool(root, 1024 * 1024, memory_bytes=0)
    saved_state.save(root / "node.json", gpus(1))
    for number in range(RECORDS):
        spool.put(event(number))
        acknowledge(log, f"event {number}")
        spool.put(SENDER.telemetry([f"x a={number}"], NOW + timedelta(seconds=number)))
    first = spool.next(ALL)
    assert first is not None
    acknowledge(log, "sent event 0")  # by the hub
    spool.done(first)
    saved_state.save(root / "node.json", gpus(2))
    spool.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
