"""Rows of single links: when they are sent, and what `/metrics` shows meanwhile."""

from datetime import timedelta

from collector.rows.catalogue_rows import Row
from collector.rows.monotone_counters import MonotoneCounters
from collector.rows.nvlink_rows import LinkBook
from collector.samples.field_values import Values
from gpuvigil.clock import EPOCH

TAGS = {"cluster": "c", "node": "n", "uuid": "GPU-1", "model": "H100"}
MINUTE = timedelta(minutes=1)


def link(**values: int) -> Values:
    return {"up": 1, "speed_bits_per_second": 10, "crc_errors": 0, "receive_bytes": 0, **values}


def numbers(rows: tuple[Row, ...]) -> list[str]:
    return [row.tags["link"] for row in rows]


def test_a_link_is_told_when_it_is_new_and_then_when_it_changes() -> None:
    book = LinkBook(MonotoneCounters())
    assert numbers(book.update(TAGS, {0: link(), 1: link()}, EPOCH)) == ["0", "1"]
    # Traffic alone is no news: it is summed in the GPU's own row.
    assert book.update(TAGS, {0: link(receive_bytes=9), 1: link()}, EPOCH + MINUTE) == ()
    assert numbers(book.update(TAGS, {0: link(), 1: link(up=0)}, EPOCH + 2 * MINUTE)) == ["1"]
    assert numbers(book.update(TAGS, {0: link(crc_errors=1), 1: link(up=0)}, EPOCH)) == ["0"]


def test_every_link_is_told_once_an_hour() -> None:
    book = LinkBook(MonotoneCounters())
    told = [
        len(book.update(TAGS, {0: link(), 1: link()}, EPOCH + minutes * MINUTE))
        for minutes in range(181)
    ]
    assert [minutes for minutes, rows in enumerate(told) if rows] == [0, 60, 120, 180]


def test_a_clock_that_is_set_back_silences_no_link() -> None:
    book = LinkBook(MonotoneCounters())
    book.update(TAGS, {0: link()}, EPOCH + 180 * MINUTE)
    assert numbers(book.update(TAGS, {0: link()}, EPOCH + 121 * MINUTE)) == []
    assert numbers(book.update(TAGS, {0: link()}, EPOCH + 120 * MINUTE)) == ["0"]


def test_each_gpu_has_links_of_its_own() -> None:
    book = LinkBook(MonotoneCounters())
    book.update(TAGS, {0: link()}, EPOCH)
    assert numbers(book.update({**TAGS, "uuid": "GPU-2"}, {0: link()}, EPOCH)) == ["0"]
    assert book.shown("GPU-3") == ()


def test_the_newest_of_every_link_is_shown_told_or_not() -> None:
    book = LinkBook(MonotoneCounters())
    book.update(TAGS, {0: link(), 1: link()}, EPOCH)
    book.update(TAGS, {0: link(receive_bytes=7), 1: link()}, EPOCH + MINUTE)
    assert [row.fields["receive_bytes"] for row in book.shown("GPU-1")] == [7, 0]


def test_a_links_counters_go_on_over_a_reset() -> None:
    book = LinkBook(MonotoneCounters())
    book.update(TAGS, {0: link(crc_errors=5)}, EPOCH)
    (row,) = book.update(TAGS, {0: link(crc_errors=2)}, EPOCH + MINUTE)
    assert row.fields["crc_errors"] == 7
    assert row.line() is not None
