"""A week of 10,000 GPUs as usage: counted and added up, then asked.

`python -m benchmarks.usage` counts 672 quarters from one-minute rows (jobs that come and go, GPUs in
MIG, gaps), with their hours and days, keeps them in a real hub, asks every question of
`gpuvigil usage` there, and writes `benchmarks/usage.json`. It takes a few minutes. Reading the rows
from a store is not in it: `benchmarks/stores.json` has what that costs.
"""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from accounting.cost.money import Prices
from accounting.usage import BUCKET, Bucket
from accounting.usage.count import Facts, Roster, count
from accounting.usage.grid import MINUTES
from accounting.usage.ledger import DAY, HOUR, SIX_HOURS, Ledger, summed
from accounting.usage.ledger_query import answer
from accounting.usage.ownership import AllocationTable
from accounting.usage.slices import SLICE_FIELDS
from benchmarks.footprint import cpu_seconds
from benchmarks.spine import about, say
from cli.tables import usage
from gpuvigil.hub_client import Hub
from gpuvigil.model import Allocation, GpuIdentity, Inventory, Record, Subject, job_holder
from tests.servers import HubProcess

RESULT = Path(__file__).with_suffix(".json")
GPUS, PER_NODE, DAYS = 10_000, 8, 7
START = datetime(2026, 11, 9, tzinfo=timezone.utc)
JOB_HOURS = 6
IN_MIG = 400
REPEATS = 5


def main() -> int:
    """Measure and write the result."""
    load_average = os.getloadavg()[0]
    records, rolled = rolled_up(Fleet())
    with (
        tempfile.TemporaryDirectory(prefix="gpuvigil-bench-") as name,
        HubProcess(Path(name)) as hub,
    ):
        keep(hub.hub(), records)
        asked = _asked(hub)
    result = {
        "about": {
            **{key: value for key, value in about().items() if key != "simulator_seed"},
            "command": "python -m benchmarks.usage",
            "load_average": round(load_average, 1),
            "gpus": GPUS,
            "gpus_in_mig": IN_MIG,
            "days": DAYS,
            "jobs": GPUS // PER_NODE * DAYS * 24 // JOB_HOURS,
        },
        "rollup": rolled,
        "questions": asked,
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    say(f"wrote {RESULT.name}")
    return 0


def rolled_up(fleet: "Fleet") -> tuple[list[Record], dict[str, Any]]:
    """All records of the week, and the processor time that they took."""
    cpu, clock, records = 0.0, 0.0, list[Record]()
    hours, sixes, quarters = list[Ledger](), list[Ledger](), list[Ledger]()
    for number in range(DAYS * DAY // BUCKET):
        facts = fleet.facts(START + number * BUCKET)
        began = time.process_time(), time.perf_counter()
        bucket = count(facts)
        assert isinstance(bucket, Bucket)
        records.append(bucket.to_record())
        quarters.append(Ledger.of(bucket))
        for parts, of, length in (
            (quarters, hours, HOUR),
            (hours, sixes, SIX_HOURS),
            (sixes, None, DAY),
        ):
            if parts and parts[-1].end - parts[0].start == length:
                whole = summed(parts, "c", parts[0].start, length, facts.now)
                records.append(whole.to_record())
                parts.clear()
                if of is not None:
                    of.append(whole)
        cpu += time.process_time() - began[0]
        clock += time.perf_counter() - began[1]
    size = sum(len(json.dumps(record.to_json())) for record in records)
    return records, {
        "cpu_seconds": round(cpu, 1),
        "seconds": round(clock, 1),
        "records": len(records),
        "bytes": size,
    }


class Fleet:
    """A cluster of one model whose nodes have a job each for some hours, one after another."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(7)
        nodes = [f"node{number:05d}" for number in range(GPUS // PER_NODE)]
        self._of = [nodes[gpu // PER_NODE] for gpu in range(GPUS)]
        self._uuids = [f"GPU-{gpu:08x}-1234-5678-9abc-def012345678" for gpu in range(GPUS)]
        self._nodes = nodes
        self._book = AllocationTable.of(self.allocations())
        self._roster = Roster.of(self.inventories())
        self._tags = {
            "cluster": pa.array(np.repeat(["c"], GPUS * MINUTES)),
            "node": pa.array(np.repeat(self._of, MINUTES)),
            "uuid": pa.array(np.repeat(self._uuids, MINUTES)),
            "model": pa.array(np.repeat(["NVIDIA H100 80GB HBM3"], GPUS * MINUTES)),
        }

    def allocations(self) -> Iterator[Allocation]:
        """Who had each GPU from when to when, GPU by GPU within a job."""
        length = timedelta(hours=JOB_HOURS)
        for number in range(len(self._nodes)):
            shift = timedelta(minutes=number % (JOB_HOURS * 60))
            for turn in range(DAYS * DAY // length + 1):
                began = START - shift + turn * length
                for gpu in range(PER_NODE):
                    yield Allocation(
                        subject=self._subject(number * PER_NODE + gpu),
                        holder=job_holder(number * 100 + turn),
                        user=f"user{(number + turn) % 300}",
                        command="train.py",
                        started_at=began,
                        ended_at=began + length - timedelta(minutes=20),
                        account=f"account{number % 40}",
                        partition="gpu" if number % 5 else "debug",
                    )

    def _subject(self, gpu: int) -> Subject:
        return Subject(cluster="c", node=self._of[gpu], gpu=self._uuids[gpu])

    def inventories(self) -> Iterator[Inventory]:
        """Of each node."""
        for number, node in enumerate(self._nodes):
            own = range(number * PER_NODE, (number + 1) * PER_NODE)
            yield Inventory(
                subject=Subject(cluster="c", node=node),
                at=START - DAY,
                boot="b",
                tick_seconds=10.0,
                version="1",
                gpus=tuple(
                    GpuIdentity(
                        uuid=self._uuids[gpu],
                        index=gpu % PER_NODE,
                        pci_address=None,
                        model="NVIDIA H100 80GB HBM3",
                    )
                    for gpu in own
                ),
            )

    def facts(self, start: datetime) -> Facts:
        """A quarter: a fifth of the minutes at 0 %, one row in a hundred missing."""
        size = GPUS * MINUTES
        busy = self._random.integers(1, 101, size) * (self._random.random(size) > 0.2)
        cut = np.repeat(np.arange(GPUS) < IN_MIG, MINUTES)
        at = np.datetime64(start.replace(tzinfo=None), "us") + np.tile(
            np.arange(MINUTES) * np.timedelta64(60_000_000, "us"), GPUS
        )
        rows = pa.table(
            {
                **self._tags,
                "at": pa.array(at, pa.timestamp("us", "UTC")),
                "up": np.ones(size),
                "utilization_percent": pa.array(busy.astype(float), mask=cut),
                "compute_processes": np.ones(size),
                "power_watts": 100.0 + 6.0 * busy,
                "energy_joules": self._energy(100.0 + 6.0 * busy),
                "unmeasured_reason": pa.nulls(size, pa.float64()),
            }
        )
        return Facts(
            cluster="c",
            start=start,
            now=start + BUCKET + timedelta(minutes=2),
            rows=rows.filter(pa.array(self._random.random(size) > 0.01)),
            sent=set(zip(self._of, self._uuids, strict=True)),
            nodes_sent=set(self._nodes),
            last_seen=dict.fromkeys(self._nodes, start),
            inventories=self._roster,
            allocations=self._book,
            slices=self._slices(start),
            watched_since=START - DAY,
        )

    def _energy(self, watts: Any) -> Any:
        """The counter in the middle of each minute."""
        joules = watts.reshape(GPUS, MINUTES) * 60.0
        return (joules.cumsum(axis=1) - joules / 2.0).ravel()

    def _slices(self, start: datetime) -> pa.Table:
        """Seven devices of each GPU in MIG."""
        gpus = np.repeat(np.arange(IN_MIG), 7 * MINUTES)
        numbers = np.tile(np.repeat(np.arange(7), MINUTES), IN_MIG)
        at = np.datetime64(start.replace(tzinfo=None), "us") + np.tile(
            np.arange(MINUTES) * np.timedelta64(60_000_000, "us"), IN_MIG * 7
        )
        names = np.array([f"MIG-{gpu}-{part}" for gpu in range(IN_MIG) for part in range(7)])
        size = len(gpus)
        return pa.table(
            {
                "cluster": pa.array(np.repeat(["c"], size)),
                "node": pa.array(np.array(self._of)[gpus]),
                "uuid": pa.array(np.array(self._uuids)[gpus]),
                "mig": pa.array(names[gpus * 7 + numbers]),
                "profile": pa.array(np.repeat(["1g.10gb"], size)),
                "at": pa.array(at, pa.timestamp("us", "UTC")),
                **dict.fromkeys(SLICE_FIELDS, pa.array(np.where(numbers % 3, 60.0, 0.0))),
            }
        )


def keep(hub: Hub, records: Sequence[Record]) -> None:
    """Write them, few at a time: those of usage are large."""
    for first in range(0, len(records), 20):
        hub.write_records(records[first : first + 20])


def _asked(hub: HubProcess) -> list[dict[str, Any]]:
    """The processor time of asker and hub together, and the clock's, for each question: medians."""
    client, end = hub.hub(), START + DAYS * DAY
    assert hub.process is not None
    own = [hub.process.pid]
    spans = {
        "7 days": (START, end),
        "7 days, cut anywhere": (START + 3 * BUCKET, end - 5 * BUCKET),
        "1 day": (end - DAY, end),
        "15 minutes": (end - BUCKET, end),
    }
    found = []
    for name, (start, until) in spans.items():
        for by in usage.BY:
            times = []
            for _ in range(REPEATS):
                began = time.process_time(), cpu_seconds(own), time.perf_counter()
                shape = usage.shape(by, Prices(), (start, until))
                rows = usage.grid([answer(client, "c", start, until, until, shape)], by).rows
                times.append(
                    (
                        time.process_time() - began[0] + cpu_seconds(own) - began[1],
                        time.perf_counter() - began[2],
                    )
                )
            found.append(
                {
                    "span": name,
                    "by": by,
                    "rows": len(rows),
                    "cpu_milliseconds": round(1e3 * statistics.median(it[0] for it in times), 1),
                    "milliseconds": round(1e3 * statistics.median(it[1] for it in times), 1),
                }
            )
    return found


if __name__ == "__main__":
    raise SystemExit(main())
