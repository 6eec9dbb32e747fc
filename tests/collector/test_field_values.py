"""Field values as NVML lays them out: decoded, and summed over links."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.samples.field_values import Field, decode, decode_value, latencies

FORMATS = {0: "=d", 1: "=I4x", 2: "=Q", 3: "=Q", 4: "=q", 5: "=i4x"}


def entry(number: int, scope: int, kind: int, code: int, value: bytes) -> bytes:
    return struct.pack("=IIqqII", number, scope, 0, 0, kind, code) + value


@given(data=st.data(), kind=st.sampled_from(sorted(FORMATS)))
def test_a_value_is_what_its_type_says(data: st.DataObject, kind: int) -> None:
    numbers = {
        0: st.floats(allow_nan=False),
        1: st.integers(0, 2**32 - 1),
        2: st.integers(0, 2**64 - 1),
        3: st.integers(0, 2**64 - 1),
        4: st.integers(-(2**63), 2**63 - 1),
        5: st.integers(-(2**31), 2**31 - 1),
    }
    value = data.draw(numbers[kind])
    (raw,) = struct.unpack("=Q", struct.pack(FORMATS[kind], value))
    assert decode_value(kind, raw) == value


@given(garbage=st.binary(max_size=400))
def test_no_content_of_a_buffer_is_too_much(garbage: bytes) -> None:
    whole = garbage[: len(garbage) // 40 * 40]
    found = decode(memoryview(whole))
    assert len(found.values) + len(found.unsupported) <= len(whole) // 40


def test_a_failed_entry_costs_no_other() -> None:
    buffer = (
        entry(186, 0, 1, 0, struct.pack("=I4x", 72000))
        + entry(82, 0, 1, 3, bytes(8))
        + entry(190, 0, 1, 10, bytes(8))
        + entry(83, 0, 3, 0, b"\xff" * 8)
    )
    found = decode(memoryview(buffer))
    assert found.values == {(186, 0): 72000}
    # A time-out passes; only what the driver does not know is left out for good.
    assert found.unsupported == {(82, 0)}
    assert found.failure == 10


def test_the_drivers_latencies_are_told_by_field() -> None:
    def timed(number: int, scope: int, microseconds: int, code: int = 0) -> bytes:
        return struct.pack("=IIqqIIQ", number, scope, 0, microseconds, 1, code, 7)

    buffer = timed(165, 0, 10) + timed(165, 1, 30) + timed(82, 0, 5, code=3) + timed(83, 0, -1)
    count, seconds, slowest = latencies(memoryview(buffer))[165]
    assert (count, round(seconds, 9), round(slowest, 9)) == (2, 40e-6, 30e-6)
    # What failed was not read, and a negative time is none.
    assert latencies(memoryview(buffer)).keys() == {165}


def test_a_field_in_whole_units_stays_a_whole_number() -> None:
    assert Field("x", times=1024).value(3) == 3072
    assert isinstance(Field("x", times=1024).value(3), int)
    assert Field("x", per=1000).value(412_503) == 412.503


def test_an_unfinished_buffer_is_an_error() -> None:
    with pytest.raises(struct.error):
        decode(memoryview(bytes(41)))
