"""A small cluster that has told a real hub of a past."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from accounting.usage import BUCKET
from gpuvigil.clock import to_ns, to_text
from gpuvigil.hub_client import Hub
from gpuvigil.lineprotocol import Value, encode
from gpuvigil.model import Allocation, GpuIdentity, Holder, Inventory, Subject

GPUS = 2
_sequence = iter(range(1, 1_000_000))


def gpu(index: int, cluster: str = "c") -> Subject:
    return Subject(cluster=cluster, node="n1", gpu=f"GPU-{index}")


def tell(hub: Hub, start: datetime, end: datetime, cluster: str = "c", percent: int = 50) -> None:
    """Rows of both GPUs every half minute, in one body of their node's backlog: it tells the past."""
    lines = []
    at = start
    while at < end:
        for index in range(GPUS):
            tags = {"cluster": cluster, "node": "n1", "uuid": f"GPU-{index}", "model": "H100"}
            busy = percent if index == 0 else 0
            fields: dict[str, Value | None] = {"up": 1, "utilization_percent": busy}
            fields |= {"compute_processes": 1 - index, "power_watts": 400.0}
            lines.append(encode("gpu", tags, fields, to_ns(at)))
        lines.append(
            encode("node", {"cluster": cluster, "node": "n1"}, {"driver_answering": 1}, to_ns(at))
        )
        at += timedelta(seconds=30)
    headers = {
        "Gpuvigil-Cluster": cluster,
        "Gpuvigil-Node": "n1",
        "Gpuvigil-Boot": "b",
        "Gpuvigil-Lane": "backlog",
        "Gpuvigil-Sequence": str(next(_sequence)),
        "Gpuvigil-Sent-At": to_text(end),
        "Gpuvigil-Version": "1",
    }
    body = "\n".join(line for line in lines if line).encode()
    hub.request("POST", "/api/v2/write?precision=ns", body, headers)


def own(hub: Hub, at: datetime, cluster: str = "c", jobs: Iterable[str] = ("job 1",)) -> None:
    """The inventory of the node, and who has held its first GPU since then."""
    inventory = Inventory(
        subject=Subject(cluster=cluster, node="n1"),
        at=at,
        boot="b",
        tick_seconds=10.0,
        version="1",
        gpus=tuple(
            GpuIdentity(uuid=f"GPU-{n}", index=n, pci_address=None, model="H100")
            for n in range(GPUS)
        ),
    )
    held = [
        Allocation(
            subject=gpu(0, cluster),
            holder=Holder.parse(job),
            user="ann",
            command="train",
            started_at=at,
        )
        for job in jobs
    ]
    hub.write_records([inventory.to_record(), *(one.to_record() for one in held)])


def quarters(start: datetime, count: int) -> list[datetime]:
    return [start + number * BUCKET for number in range(count)]
