"""NVLinks and MIG devices of a GPU, as its page tells of them."""

from datetime import timedelta
from pathlib import Path

import pytest

from dashboard.device.parts import Parts, drawn, parts
from gpuvigil.clock import SystemClock, to_ns
from gpuvigil.metrics import NVLINK
from gpuvigil.model import Subject
from gpuvigil.store.hub import HubStore
from tests.servers import QuickHub

GPU = Subject(cluster="c", node="n1", gpu="GPU-1")
LINK = "nvlink,cluster=c,node=n1,uuid={uuid},model=H100,link={link} up={up}i,crc_errors={crc}i {at}"
SLICE = (
    "mig,cluster=c,node=n1,uuid=GPU-1,mig=MIG-1,profile=1g.10gb"
    " memory_used_bytes=1073741824i,memory_total_bytes=10737418240i {at}"
)


def test_a_gpu_that_tells_of_neither_has_no_tables() -> None:
    assert drawn(Parts(links=(), slices=())) == ""


def test_how_full_a_link_is_comes_from_what_it_carried_between_its_lines() -> None:
    now = SystemClock().now()
    counted = {"receive_bytes": 0, "transmit_bytes": 0, "raw_receive_bytes": 0}
    none = dict.fromkeys(metric.name for metric in NVLINK.metrics)
    old = {**none, **counted, "link": "0", "up": 1, "at": now - timedelta(seconds=100)}
    full = 25_000_000_000 * 100
    new = {
        **none,
        **counted,
        "link": "0",
        "up": 1,
        "version": 6,
        "speed_bits_per_second": 200_000_000_000,
        "receive_bytes": full // 2,
        "raw_receive_bytes": 3 * full // 4,
        "at": now,
    }
    text = drawn(Parts(links=(new,), slices=(), before={"0": old}))
    assert "<td>200 Gb/s (NVLink 4)</td><td>12.50, 0.00 GB/s</td><td>75 %</td>" in text
    # One line alone says how much, and not how fast.
    assert "<td>–</td><td>–</td>" in drawn(Parts(links=(new,), slices=(), before={"0": new}))


@pytest.mark.server
def test_the_last_word_of_each_link_counts_and_a_slice_that_is_gone_is_not_shown(
    tmp_path: Path,
) -> None:
    now = SystemClock().now()
    tick = timedelta(seconds=10)
    lines = [
        LINK.format(uuid="GPU-1", link=10, up=1, crc=0, at=to_ns(now - 60 * tick)),
        LINK.format(uuid="GPU-1", link=2, up=1, crc=0, at=to_ns(now - 60 * tick)),
        LINK.format(uuid="GPU-1", link=2, up=0, crc=7, at=to_ns(now - tick)),
        LINK.format(uuid="GPU-2", link=3, up=1, crc=0, at=to_ns(now - tick)),
        SLICE.format(at=to_ns(now - tick)),
    ]
    with QuickHub(tmp_path / "hub") as hub:
        HubStore(hub.hub()).write("\n".join(lines).encode())
        found = parts(hub.hub(), GPU, now, 3 * tick)
        later = parts(hub.hub(), GPU, now + timedelta(minutes=30), 3 * tick)
    assert [(line["link"], line["up"]) for line in found.links] == [("2", 0), ("10", 1)]
    text = drawn(found)
    assert "1 of 2 up" in text
    assert "<td>2</td><td>down</td><td>–</td><td>–</td><td>–</td><td>7 CRC</td>" in text
    assert "<td>10</td><td>up</td><td>–</td><td>–</td><td>–</td><td>none</td>" in text
    dashes = "<td>–</td>" * 5
    assert f"<td>MIG-1</td><td>1g.10gb</td>{dashes}<td>1.0 of 10.0 GiB</td><td>–</td>" in text
    assert len(later.links) == 2
    assert later.slices == ()
