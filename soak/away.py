"""A hub that is away, by the clock of the wall, while everybody else runs on: what it finds after."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from collector.spool.body import decode
from gpuvigil.hub_client import Hub
from gpuvigil.model import RecordKind
from gpuvigil.store.hub import HubStore
from simulator.faults import change
from tests.hub.outage import (
    Lane,
    Outage,
    assert_nobody_was_told,
    assert_what_is_new_is_told,
    committed,
    configured,
    out_of_order,
)
from tests.polling import wait_until
from tests.receiver import Receiver
from tests.servers import HubProcess
from tests.services import commands, running


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What came of it. A body has one line of its node, so bodies and such lines are as many.

    `acknowledged` are bodies that the hub committed; `lost` of them have no line, or were numbered
    and never came; `doubled` lines have the node and time of another; `out_of_order` bodies were
    committed after a later one of their lane; `left_out` are ticks of a node without a line.
    """

    waiting: int  # bodies in the spool when the hub came back
    waiting_bytes: int
    fresh_seconds: float  # until every node had a line that was measured after the return
    oldest_live_seconds: float  # age of the oldest node's newest line from then on
    drained_seconds: float  # until no body from before the return waited any more
    acknowledged: int
    lost: int
    doubled: int
    out_of_order: int
    left_out: int


def stay_away(directory: Path, outage: Outage) -> Found:
    """Kill a hub under everybody, start it again after the outage, and look.

    AssertionError when live lines are stale for long, or people are told of what is over.
    """
    data = directory / "hub"
    with HubProcess(data, {"commit_seconds": 0.1}) as hub, Receiver() as receiver:
        begun = datetime.now(timezone.utc)
        config = configured(directory, hub, receiver, outage)
        with running(directory, config, commands("simulate", "analyze", "alert")):
            _until_every_node_is_heard(hub, outage, begun, 120.0)
            _until_the_analyzer_has_looked(hub.hub())
            hub.kill()
            start = datetime.now(timezone.utc)
            with change(directory / "faults.json") as kept:
                kept.extend(outage.past_faults(start))
            time.sleep(outage.span.total_seconds())
            waiting = list((directory / "spool").glob("*.body"))
            waiting_bytes = sum(file.stat().st_size for file in waiting)
            hub.start()
            fresh, oldest, drained = _catch_up(directory, hub, outage)
            assert_nobody_was_told(hub, receiver)
            assert_what_is_new_is_told(directory, receiver, outage)
        lines, distinct, left_out = _lines(hub, outage, begun)
        hub.stop()
    came = committed(hub)
    acknowledged = sum(len(set(numbers)) for numbers in came.values())
    return Found(
        waiting=len(waiting),
        waiting_bytes=waiting_bytes,
        fresh_seconds=round(fresh, 1),
        oldest_live_seconds=round(oldest, 1),
        drained_seconds=round(drained, 1),
        acknowledged=acknowledged,
        lost=acknowledged - distinct + _missing(came, directory / "spool"),
        doubled=lines - distinct,
        out_of_order=sum(out_of_order(lane, numbers) for lane, numbers in came.items()),
        left_out=left_out,
    )


def _until_every_node_is_heard(
    hub: HubProcess, outage: Outage, since: datetime, patience: float
) -> None:
    store = HubStore(hub.hub())
    wait_until(
        "a line of every node",
        lambda: store.latest("node", [], since).num_rows == outage.nodes,
        patience,
    )


def _until_the_analyzer_has_looked(client: Hub) -> None:
    def looked() -> bool:
        pulses = client.records(RecordKind.PULSE)
        return any(record.id == "analyzer" for record in pulses)

    wait_until("a pass of the analyzer", looked, 120.0)


def _catch_up(directory: Path, hub: HubProcess, outage: Outage) -> tuple[float, float, float]:
    """Seconds until every node was fresh, the oldest newest line after that, and until drained."""
    back, begun = datetime.now(timezone.utc), time.monotonic()
    _until_every_node_is_heard(hub, outage, back, 2 * outage.tick_seconds + 10.0)
    fresh, oldest = time.monotonic() - begun, 0.0
    store = HubStore(hub.hub())
    while _waits(directory / "spool", back):
        # What takes an hour to fill may take as long to drain, beside what is new.
        assert time.monotonic() - begun < outage.span.total_seconds() + 60.0, "it does not drain"
        newest = store.latest("node", [], back)["at"].to_pylist()
        oldest = max(oldest, (datetime.now(timezone.utc) - min(newest)).total_seconds())
        time.sleep(1.0)
    assert oldest < 3 * outage.tick_seconds, oldest
    return fresh, oldest, time.monotonic() - begun


def _waits(spool: Path, before: datetime) -> bool:
    """Whether a body waits that was measured before a time; a file's name says when."""
    bound = before.timestamp() * 1e6
    return any(int(file.name.split("-")[1]) < bound for file in spool.glob("*.body"))


def _lines(hub: HubProcess, outage: Outage, begun: datetime) -> tuple[int, int, int]:
    """Lines of nodes, how many differ in node or time, and ticks of a node that have none."""
    store, tick = HubStore(hub.hub()), timedelta(seconds=outage.tick_seconds)
    # The first lines are of the tick before the start.
    span = (begun - 2 * tick, datetime.now(timezone.utc) + tick)
    kept = store.window("node", [], *span).to_pylist()
    distinct = left_out = 0
    for row in kept:
        # Lines of a node are a tick apart.
        times = store.series("node", [], {"node": row["node"]}, span, timedelta(milliseconds=1))
        distinct += times.num_rows
        ticks = round((row["last_at"] - row["first_at"]) / tick) + 1
        left_out += ticks - times.num_rows
    return sum(row["samples"] for row in kept), distinct, left_out


def _missing(came: Mapping[Lane, Sequence[int]], spool: Path) -> int:
    """Bodies that were numbered, never came, and do not wait either."""
    known = {lane: set(numbers) for lane, numbers in came.items()}
    for lane, number in _left_in(spool):
        known.setdefault(lane, set()).add(number)
    return sum(max(numbers) - len(numbers) for numbers in known.values())


def _left_in(spool: Path) -> Iterator[tuple[Lane, int]]:
    for file in spool.glob("*.body"):
        headers = decode(file.read_bytes()).headers
        if "Gpuvigil-Sequence" in headers:
            names = ("Node", "Boot", "Lane")
            node, boot, lane = (headers[f"Gpuvigil-{name}"] for name in names)
            yield (node, boot, lane), int(headers["Gpuvigil-Sequence"])
