"""What a hub does to its store; run by the tests, recorded.

`python -m tests.power_loss.store_program live|adopt ROOT LOG`: each body that was committed is
acknowledged, and each copy.
"""

import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

from gpuvigil.clock import to_ns
from hub.bodies.deduplication import Deduplicator, Identity, Lane
from hub.embedded import Embedded
from hub.telemetry.body import Body
from hub.telemetry.committer import commit
from tests.power_loss.recording import acknowledge

START = datetime(2026, 1, 30, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
LINES = 20  # of a body
NAME = "telemetry.duckdb"
LANE = Lane(cluster="c", node="n", boot="b", lane="live")


def body(number: int, hour: float) -> Body:
    """Lines of a body that nobody else has: its number is their value, a second between them."""
    start_ns = to_ns(START + hour * HOUR + timedelta(seconds=number * 60))
    lines = (
        f"gpu,cluster=c,node=n{n % 3},uuid=GPU-{n},model=H power_watts={number}"
        f" {start_ns + n * 1_000_000_000}"
        for n in range(LINES)
    )
    return Body(
        text="\n".join(lines).encode(),
        precision="ns",
        received_at=START + 100 * HOUR,
        identity=Identity(lane=LANE, sequence=number),
        done=lambda _: None,
    )


def opened(folder: Path) -> Embedded:
    return Embedded(folder / NAME, 256 * 1024 * 1024, 1)


def write(store: Embedded, number: int, hour: float) -> bool:
    """Commit a body; false when the store had it already."""
    seen = Deduplicator(10)
    seen.add(store.seen())
    (outcome,) = commit(store, seen, [body(number, hour)])
    assert outcome.error is None
    return not outcome.duplicate


# In which hour after `START` the lines of each body are.
HOURS = {1: 0.0, 2: 1.0, 3: 2.0, 4: 25.0, 5: 0.5, 6: 26.0, 7: 27.0}
NOW_NS = to_ns(START + 1000 * HOUR)


def live(root: Path, log: Path) -> None:
    """Bodies, sealed hours, a day that is joined, a late hour, a stop, a start, a copy."""
    store = opened(root)

    def add(number: int) -> None:
        write(store, number, HOURS[number])
        acknowledge(log, str(number))

    def hot_ns(hours: int) -> int:
        return NOW_NS - to_ns(START + hours * HOUR)

    for number in (1, 2, 3):
        add(number)
    assert store.seal(NOW_NS, hot_ns(2)) == 2
    add(4)
    add(5)
    assert store.seal(NOW_NS + 2 * 3_600_000_000_000, hot_ns(3) + 2 * 3_600_000_000_000)
    assert store.join(NOW_NS, hot_ns(24)) == 1
    add(6)
    store.close()
    store = opened(root)
    add(7)
    (root / "copy").mkdir()
    store.backup(root / "copy")
    acknowledge(log, "copy")
    store.close()


def adopt(root: Path, log: Path) -> None:
    """A start without the tables, which takes the sealed files in; then bodies, and a sealed hour."""
    store = opened(root)
    for number in (4, 6):
        write(store, number, HOURS[number])
        acknowledge(log, str(number))
    store.seal(NOW_NS, NOW_NS - to_ns(START + 26 * HOUR))
    write(store, 7, HOURS[7])
    acknowledge(log, "7")
    store.close()


def main() -> None:
    {"live": live, "adopt": adopt}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))


if __name__ == "__main__":
    main()
