"""One seed goes both ways, in fast time and over the wire, and is judged alike."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from analyzer.analysis import Analysis, Reading
from analyzer.correlation.all_detectors import DETECTORS, Detector, questions
from analyzer.hub_queries import rows
from analyzer.window.rows import Rows
from analyzer.window.window import Key, Window
from evaluation.rolling_store import RollingStore
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import SIMULATED_CLUSTER, Finding, Record, RecordKind
from gpuvigil.store.hub import HubStore
from simulator.bodies import MemoryBudget, Posting
from simulator.fleet import Block, FaultOrder, FleetSettings, build
from tests.hub.talk import ask
from tests.servers import HubProcess

pytestmark = [pytest.mark.server, pytest.mark.site]

SETTINGS = AnalyzerSettings(idle_after_seconds=600.0)
MINUTES = 20


def fleet_settings() -> FleetSettings:
    """Faults of several sorts within twenty minutes, on eight nodes; a tenth of the bodies is lost."""

    def at(
        kind: str, node: int, seconds: float, gpu: int | None = None, port: int | None = None
    ) -> FaultOrder:
        return FaultOrder(
            kind=kind, node=node, gpu=gpu, port=port, start_seconds=seconds, seconds=9000.0
        )

    return FleetSettings(
        seed=3,
        nodes=8,
        days=0.25,
        missing=0.1,
        life=False,
        faults=(
            at("off the bus", 0, 300.0, gpu=3),
            at("port down", 1, 420.0, port=2),
            at("driver hang", 2, 500.0),
            at("remap failure", 3, 610.0, gpu=5),
            at("power brake", 4, 300.0),
            at("NVLink down", 5, 400.0, gpu=1),
            at("PCIe width", 6, 300.0, gpu=2),
            at("SRAM threshold", 7, 500.0, gpu=4),
        ),
    )


def late(block: Block) -> Block:
    """The same block, with what one node measured in five minutes arriving at their end."""
    since, until = block.start + timedelta(minutes=5), block.start + timedelta(minutes=10)
    arrivals = {}
    for name, table in block.tables.items():
        values = block.arrivals[name].to_pylist()
        nodes = table["node"].to_pylist()
        arrivals[name] = pa.array(
            [
                max(at, until) if node == "sim-00001" and since <= at < until else at
                for at, node in zip(values, nodes, strict=True)
            ],
            type=block.arrivals[name].type,
        )
    return replace(block, arrivals=arrivals)


def doubled(block: Block) -> Block:
    """The same block, with every body of one node in four minutes coming twice."""
    since, until = block.start + timedelta(minutes=14), block.start + timedelta(minutes=18)
    tables, arrivals = {}, {}
    for name, table in block.tables.items():
        places = [
            row
            for row, (at, node) in enumerate(
                zip(block.arrivals[name].to_pylist(), table["node"].to_pylist(), strict=True)
            )
            for _ in range(2 if node == "sim-00003" and since <= at < until else 1)
        ]
        tables[name] = table.take(pa.array(places))
        arrivals[name] = block.arrivals[name].take(pa.array(places))
        assert tables[name].num_rows > table.num_rows or name == "nvlink"
    return replace(block, tables=tables, arrivals=arrivals)


def told_once(block: Block) -> Block:
    """The same block, with one event per id: links that fail in one moment are one to the hub, which keeps
    whichever comes first."""
    both = zip(block.events, block.event_arrivals, strict=True)
    events, arrivals = zip(*{one.id: (one, at) for one, at in both}.values(), strict=True)
    return replace(block, events=events, event_arrivals=arrivals)


def judged(
    answers: Mapping[Key, Rows],
    records: Iterable[Record],
    heard: Mapping[str, datetime],
    now: datetime,
) -> list[Finding]:
    """What the detectors find in one pass."""
    found: list[Finding] = []

    def watched(detector: Detector) -> Detector:
        def find(window: Window) -> list[Finding]:
            mine = detector.find(window)
            found.extend(mine)
            return mine

        return replace(detector, find=find)

    analysis = Analysis(SETTINGS, [watched(detector) for detector in DETECTORS])
    for record in sorted(records, key=lambda record: (record.at, record.id, record.version)):
        analysis.ingest(record)
    analysis.run_pass(
        Reading(now=now, rows=answers, last_seen=heard, listening_since=now - timedelta(hours=1))
    )
    return sorted(found, key=lambda finding: (finding.fault, finding.subject))


def fast(block: Block, now: datetime) -> Mapping[Key, Rows]:
    needs = questions(DETECTORS)
    store = RollingStore(needs, SETTINGS, timedelta(seconds=10), timedelta(hours=1))
    for name, table in block.tables.items():
        store.take(name, table, np.asarray(block.arrivals[name].cast(pa.int64())))
    store.forward(now)
    return store.rows()


def slow(hub: HubProcess, now: datetime) -> Mapping[Key, Rows]:
    return rows([HubStore(hub.hub())], questions(DETECTORS), now, SETTINGS)


def send(hub: HubProcess, posted: Sequence[MemoryBudget]) -> None:
    def post(one: MemoryBudget) -> int:
        url, headers = hub.url + one.body.path, dict(one.body.headers)
        # The hub would put right a clock that is months behind its own.
        headers.pop("Gpuvigil-Sent-At", None)
        return ask(url, one.body.content, token=hub.collector_token, headers=headers).status

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(post, posted)) <= {200, 204}


def of_hub(hub: HubProcess) -> list[Record]:
    kinds = (RecordKind.INVENTORY, RecordKind.ALLOCATION, RecordKind.EVENT)
    return [record for kind in kinds for record in hub.hub().records(kind, limit=10_000)]


def test_a_fleet_is_judged_alike_in_fast_time_and_over_the_wire(tmp_path: Path) -> None:
    settings = fleet_settings()
    end = settings.start + timedelta(minutes=MINUTES)
    block = told_once(doubled(late(next(build(settings).blocks(end=end, tick_seconds=10.0)))))
    told = [one.to_record() for one in block.events]
    told += [one.to_record() for one in block.inventories]
    told += [one.to_record() for one in block.allocations]
    heard = {record.subject: end for record in told if record.kind is RecordKind.INVENTORY}
    expected = judged(fast(block, end), told, heard, end)
    found = {finding.fault for finding in expected}
    assert {"gpu_lost", "gpu_xid", "port_down", "driver_silent", "gpu_power"} <= found
    assert {"gpu_memory", "gpu_pcie", "gpu_nvlink"} <= found
    with HubProcess(tmp_path) as hub:
        posted = [one for one in Posting(SIMULATED_CLUSTER).bodies(block) if one.arrival < end]
        send(hub, posted)
        assert judged(slow(hub, end), of_hub(hub), heard, end) == expected
        # Everything once more changes nothing: the hub knows the bodies again.
        send(hub, posted[:50])
        assert judged(slow(hub, end), of_hub(hub), heard, end) == expected


def test_the_wire_carries_every_number_of_a_block() -> None:
    settings = fleet_settings()
    end = settings.start + timedelta(minutes=2)
    block = next(build(settings).blocks(end=end, tick_seconds=10.0))
    posted = Posting(SIMULATED_CLUSTER).bodies(block)
    lines = [
        line
        for one in posted
        if "write" in one.body.path
        for line in one.body.content.decode().splitlines()
    ]
    assert len(lines) == sum(table.num_rows for table in block.tables.values())
    assert [one.arrival for one in posted] == sorted(one.arrival for one in posted)
