"""What `/metrics` shows beside the rows that are sent."""

from datetime import datetime, timezone

import pytest

from collector.rows.catalogue_rows import Row
from collector.rows.info_rows import Page
from gpuvigil.metrics import DRIVER_CALL, GPU, GPU_INFO, GPU_XID, NODE_TICK, NVLINK, Measurement
from gpuvigil.model import Event, EventKind, GpuIdentity, Subject

NODE = Subject(cluster="c", node="n1")
NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)


def gpu(index: int | None) -> GpuIdentity:
    return GpuIdentity(
        uuid=f"GPU-{index}", index=index, pci_address="00000000:05:00.0", model="H100"
    )


def xid(code: int | None, uuid: str | None, count: int = 1) -> Event:
    subject = Subject(cluster="c", node="n1", gpu=uuid)
    return Event(kind=EventKind.XID, subject=subject, at=NOW, id="e", xid=code, count=count)


def of(rows: list[Row], measurement: Measurement) -> list[Row]:
    return [row for row in rows if row.measurement is measurement]


def told() -> list[Row]:
    return [Row(measurement=m, tags={}, fields={}, at=NOW) for m in (GPU, NVLINK, DRIVER_CALL)]


def test_xids_are_counted_by_gpu_and_code_also_those_that_came_too_often_to_be_told() -> None:
    page = Page(NODE, {}, links=True, calls=True)
    page.count([xid(79, "GPU-1"), xid(31, "GPU-1"), xid(31, None), xid(None, "GPU-1")])
    page.count([xid(31, "GPU-1", count=299)])
    rows = of(page.rows([], None, NOW), GPU_XID)
    assert {(r.tags["uuid"], r.tags["xid"], r.fields["xids"]) for r in rows} == {
        ("GPU-1", "79", 1),
        ("GPU-1", "31", 300),
        ("", "31", 1),
    }


def test_a_gpu_has_its_names_as_they_are_now() -> None:
    gpus = {"GPU-3": gpu(3)}
    page = Page(NODE, gpus, links=True, calls=True)
    (row,) = of(page.rows([], "570.1", NOW), GPU_INFO)
    assert row.fields == {"info": 1}
    assert (row.tags["index"], row.tags["driver_version"]) == ("3", "570.1")
    assert set(row.tags) == set(GPU_INFO.tags)
    gpus["GPU-None"] = gpu(None)
    rows = of(page.rows([], "580.2", NOW), GPU_INFO)
    assert [(r.tags["index"], r.tags["driver_version"]) for r in rows] == [
        ("3", "580.2"),
        ("", "580.2"),
    ]


@pytest.mark.parametrize("links", [False, True])
@pytest.mark.parametrize("calls", [False, True])
def test_links_and_calls_have_a_switch_each_and_the_page_says_when_it_was_made(
    links: bool, calls: bool
) -> None:
    rows = Page(NODE, {}, links=links, calls=calls).rows(told(), None, NOW)
    expected = [GPU, *[NVLINK] * links, *[DRIVER_CALL] * calls, NODE_TICK]
    assert [row.measurement for row in rows] == expected
    assert rows[-1].fields == {"last_tick_timestamp_seconds": NOW.timestamp()}
