"""A quarter of an hour of a small cluster, put together for the count."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from accounting.usage import Bucket
from accounting.usage.count import Facts, count
from accounting.usage.grid import FIELDS
from accounting.usage.out_of_service import Part
from accounting.usage.ownership import AllocationTable
from gpuvigil.model import Allocation, GpuIdentity, Holder, Inventory, Subject
from gpuvigil.schedulers.out_of_service import LostTo

START = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
END = START + timedelta(minutes=15)
LATER = END + timedelta(minutes=2)
ALL: Mapping[LostTo, tuple[Part, ...]] = {to: (Part(to),) for to in LostTo}
BUSY: Mapping[str, float | None] = {
    "up": 1.0,
    "utilization_percent": 80.0,
    "compute_processes": 1.0,
    "power_watts": 500.0,
}
STILL = {**BUSY, "utilization_percent": 0.0}
FREE = {**STILL, "compute_processes": 0.0}
LOST: Mapping[str, float | None] = {"up": 0.0, "unmeasured_reason": 3.0}
_TAGS = ("cluster", "node", "uuid", "model")
_SCHEMA = pa.schema(
    [*((tag, pa.string()) for tag in _TAGS), ("at", pa.timestamp("us", "UTC"))]
    + [(name, pa.float64()) for name in FIELDS]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """The means of a GPU in one minute."""

    number: int
    fields: Mapping[str, float | None] = field(default_factory=lambda: BUSY)
    gpu: int = 0
    node: str = "n1"


def minutes(
    fields: Mapping[str, float | None] = BUSY,
    numbers: Iterable[int] = range(15),
    gpu: int = 0,
    node: str = "n1",
) -> tuple[Minute, ...]:
    return tuple(Minute(number=n, fields=fields, gpu=gpu, node=node) for n in numbers)


def table(cells: Iterable[Minute], start: datetime = START) -> pa.Table:
    """As `Store.series` gives it."""
    rows: list[dict[str, Any]] = [
        {
            "cluster": "c",
            "node": cell.node,
            "uuid": f"GPU-{cell.gpu}",
            "model": "H100",
            "at": start + timedelta(minutes=cell.number),
            **cell.fields,
        }
        for cell in cells
    ]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def subject(gpu: int = 0, node: str = "n1") -> Subject:
    return Subject(cluster="c", node=node, gpu=f"GPU-{gpu}")


def held(
    begin: float,
    end: float | None,
    holder: str = "job 1",
    user: str | None = "ann",
    gpu: int = 0,
    start: datetime = START,
    command: str | None = "train",
) -> Allocation:
    """From minute to minute of the quarter; they may lie outside it."""
    return Allocation(
        subject=subject(gpu),
        holder=Holder.parse(holder),
        user=user,
        command=command,
        started_at=start + timedelta(minutes=begin),
        ended_at=None if end is None else start + timedelta(minutes=end),
    )


def inventory(gpus: int, at: datetime, node: str = "n1") -> Inventory:
    return Inventory(
        subject=Subject(cluster="c", node=node),
        at=at,
        boot="b",
        tick_seconds=10.0,
        version="1",
        gpus=tuple(
            GpuIdentity(uuid=f"GPU-{n}", index=n, pci_address=None, model="H100")
            for n in range(gpus)
        ),
    )


def counted(
    cells: Sequence[Minute], allocations: Sequence[Allocation] | AllocationTable = (), **more: Any
) -> Bucket | None:
    """The bucket of GPUs that were all there before it began."""
    sent = {(cell.node, f"GPU-{cell.gpu}") for cell in cells}
    given: dict[str, Any] = {
        "cluster": "c",
        "start": START,
        "now": LATER,
        "rows": table(cells),
        "sent": sent,
        "allocations": allocations,
        "watched_since": START - timedelta(days=1),
        **more,
    }
    return count(Facts(**given))


def bucket(cells: Sequence[Minute], *allocations: Allocation, **more: Any) -> Bucket:
    found = counted(cells, allocations, **more)
    assert found is not None
    return found


@st.composite
def parts_of_quarter(draw: st.DrawFn) -> tuple[Part, ...]:
    """All of it mostly, else one or two parts, in order and not over each other."""
    if draw(st.booleans()):
        return ALL[draw(st.sampled_from(LostTo))]
    times = sorted(draw(st.sets(st.integers(0, 900), min_size=2, max_size=4)))
    return tuple(
        Part(draw(st.sampled_from(LostTo)), float(since), float(until))
        for since, until in zip(times[::2], times[1::2], strict=False)
    )
