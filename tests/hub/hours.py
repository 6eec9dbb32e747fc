"""An embedded store with hours in it, and what may befall its files."""

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

from gpuvigil.clock import to_ns
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.store import Aggregate, Function
from hub.bodies.deduplication import Deduplicator
from hub.embedded import Embedded, Latest, Window
from hub.telemetry.body import Body
from hub.telemetry.committer import commit

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
GPU = MEASUREMENTS["gpu"]
LATER_NS = to_ns(NOON + 1000 * HOUR)
HOURS = 3
LINES = 50


def write(store: Embedded, hour: float, lines: int = LINES) -> None:
    """Lines of as many GPUs, a second apart, in the hour after that many hours from noon."""
    start = NOON + hour * HOUR
    text = "\n".join(
        f"gpu,cluster=c,node=n{n % 3},uuid=GPU-{n},model=H power_watts={n}.5,index={n}i"
        f" {to_ns(start + timedelta(seconds=n))}"
        for n in range(lines)
    )
    body = Body(
        text=text.encode(), precision="ns", received_at=NOON, identity=None, done=lambda _: None
    )
    (outcome,) = commit(store, Deduplicator(), [body])
    assert outcome.lines == lines


def seal(store: Embedded, hours: int) -> int:
    """Seal the hours before that many after noon."""
    return store.seal(LATER_NS, LATER_NS - to_ns(NOON + hours * HOUR))


def samples(store: Embedded, hours: int = HOURS) -> int:
    mean = Aggregate(function=Function.MEAN, field="power_watts")
    question = Window(
        measurement=GPU,
        aggregates=(mean,),
        start_ns=to_ns(NOON),
        end_ns=to_ns(NOON + hours * HOUR),
    )
    return sum(store.answer(question)["samples"].to_pylist())


def latest(store: Embedded) -> int:
    rows: int = store.answer(Latest(measurement=GPU, fields=("index",), since_ns=0)).num_rows
    return rows


def aged(store: Embedded) -> None:
    """Two sealed hours, and one that is hot."""
    for hour in range(HOURS):
        write(store, hour)
    assert seal(store, 2) == 2
    assert samples(store) == HOURS * LINES


def cut(path: Path, share: float) -> None:
    os.truncate(path, int(path.stat().st_size * share))


def garble(path: Path, share: float) -> None:
    with path.open("r+b") as file:
        file.seek(int(path.stat().st_size * share))
        file.write(b"\xa5" * 64)
