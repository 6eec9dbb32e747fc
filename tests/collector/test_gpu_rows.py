"""Slow numbers stand until they are read again; what driver calls cost is added up."""

from dataclasses import replace

from collector.samples.field_values import Values
from collector.samples.gpu_sample import CallCost, MigDevice
from collector.samples.messages import GpuTick
from gpuvigil.metrics import DRIVER_CALL, GPU, MIG, NVLINK
from gpuvigil.model import Unmeasured

from .test_gpu_history import NOW, answers, book, tick

SLOW = {"remap_pending": 1, "pcie_fatal_errors": 5}


def slow(gpu: GpuTick) -> GpuTick:
    return replace(gpu, slow=dict(SLOW))


def test_slow_numbers_are_in_every_row_until_they_are_read_again() -> None:
    gpus = book(0)
    (first,) = gpus.update(tick(slow(answers(0))), NOW, None).rows
    (second,) = gpus.update(tick(answers(0)), NOW, None).rows
    assert first.every.items() >= SLOW.items()
    assert second.every.items() >= SLOW.items()
    changed = replace(answers(0), slow={"remap_pending": 0})
    (third,) = gpus.update(tick(changed), NOW, None).rows
    assert third.every["remap_pending"] == 0
    assert "pcie_fatal_errors" not in third.every


def test_nothing_slow_is_said_of_a_gpu_that_does_not_answer_nor_of_one_that_is_back() -> None:
    gpus = book(0)
    gpus.update(tick(slow(answers(0))), NOW, None)
    lost = replace(answers(0), values=None, reason=Unmeasured.LOST)
    (gone,) = gpus.update(tick(lost), NOW, None).rows
    (back,) = gpus.update(tick(answers(0)), NOW, None).rows
    for row in (gone, back):
        assert not SLOW.keys() & row.every.keys()


def test_slow_counters_go_on_over_a_reset() -> None:
    gpus = book(0)
    gpus.update(tick(slow(answers(0))), NOW, None)
    after = replace(answers(0), slow={"pcie_fatal_errors": 1})
    (row,) = gpus.update(tick(after), NOW, None).rows
    assert row.every["pcie_fatal_errors"] == 6


def test_links_are_shown_always_and_sent_when_there_is_news() -> None:
    gpus = book(0)
    links: dict[int, Values] = {0: {"up": 1, "crc_errors": 0}, 1: {"up": 0, "crc_errors": 0}}
    news = gpus.update(tick(replace(answers(0), links=links)), NOW, None)
    assert [row.measurement for row in news.rows] == [GPU, NVLINK, NVLINK]
    # A link that is down is no GPU that does not answer.
    assert news.answering == 1
    news = gpus.update(tick(answers(0)), NOW, None)
    assert [row.measurement for row in news.rows] == [GPU]
    assert [row.measurement for row in news.shown] == [GPU, NVLINK, NVLINK]
    lost = replace(answers(0), values=None, reason=Unmeasured.LOST)
    assert [row.measurement for row in gpus.update(tick(lost), NOW, None).shown] == [GPU]
    back = gpus.update(tick(replace(answers(0), links=links)), NOW, None)
    assert [row.measurement for row in back.rows] == [GPU, NVLINK, NVLINK]


def test_every_mig_device_has_a_row_of_its_own() -> None:
    device = MigDevice(uuid="MIG-1", profile="1g.10gb", values={"memory_used_bytes": 3})
    gpus = book(0)
    news = gpus.update(tick(replace(answers(0), migs=(device,))), NOW, None)
    (row,) = [row for row in news.rows if row.measurement is MIG]
    assert (row.tags["mig"], row.tags["profile"], row.tags["uuid"]) == ("MIG-1", "1g.10gb", "GPU-0")
    assert row.line() is not None


def test_what_calls_cost_is_added_up_over_gpus_and_ticks_and_shown_only() -> None:
    gpus = book(0, 1)
    quick = {"nvmlA": CallCost(calls=2, seconds=0.5, slowest_seconds=0.3)}
    slow = {"nvmlA": CallCost(calls=1, seconds=1.0, slowest_seconds=1.0)}
    gpus.update(tick(replace(answers(0), costs=quick), answers(1)), NOW, None)
    news = gpus.update(tick(answers(0), replace(answers(1), costs=slow)), NOW, None)
    (row,) = [row for row in news.shown if row.measurement is DRIVER_CALL]
    assert row.tags["call"] == "nvmlA"
    assert row.fields == {"calls": 3, "call_seconds": 1.5, "call_slowest_seconds": 1.0}
    assert DRIVER_CALL not in [row.measurement for row in news.rows]
