"""What the writer makes of values, and what it refuses to write."""

import math
from collections.abc import Mapping
from enum import IntEnum

import pytest

from gpuvigil.lineprotocol import LineTemplate, Value, encode
from gpuvigil.lineprotocol.writer import fields_text


def test_what_was_not_measured_is_absent() -> None:
    fields = {"a": None, "b": math.nan, "c": math.inf, "d": -math.inf, "e": 0.0, "f": 0}
    assert encode("gpu", {"node": ""}, fields, 7) == "gpu e=0.0,f=0i 7"


def test_a_line_without_a_measured_field_is_no_line() -> None:
    assert encode("gpu", {}, {"a": None, "b": math.nan}, 7) is None


def test_tags_are_written_sorted_and_the_template_writes_the_same() -> None:
    tags = {"node": "n 1", "gpu": "0"}
    line = encode("gpu", tags, {"power_watts": 71.5, "ok": True}, 12)
    assert line == r"gpu,gpu=0,node=n\ 1 power_watts=71.5,ok=true 12"
    assert LineTemplate("gpu", tags).line({"power_watts": 71.5, "ok": True}, 12) == line


def test_subclasses_of_numbers_are_written_as_numbers() -> None:
    class Loud(float):
        def __repr__(self) -> str:
            return "loud"

    class Code(IntEnum):
        XID = 79
        FIRST, LAST = -(2**63), 2**63 - 1
        BEFORE, AFTER = -(2**63) - 1, 2**63

    assert (
        encode("m", {}, {"a": Loud(1.5), "b": Code.XID, "c": Loud("nan")}, None) == "m a=1.5,b=79i"
    )
    fields = {"a": Code.FIRST, "b": Code.LAST}
    assert encode("m", {}, fields, None) == f"m a={-(2**63)}i,b={2**63 - 1}i"
    for code in (Code.BEFORE, Code.AFTER):
        with pytest.raises(ValueError, match="outside int64"):
            encode("m", {}, {"a": code}, None)


def test_integers_are_written_up_to_the_ends_of_int64() -> None:
    assert encode("m", {}, {"a": -(2**63), "b": 2**63 - 1}, None) == (
        "m a=-9223372036854775808i,b=9223372036854775807i"
    )


def test_a_template_appends_further_fields_that_are_written_already() -> None:
    template = LineTemplate("m", {"t": "x"})
    assert template.line({"a": 1}, 5, fields_text({"b": True})) == "m,t=x a=1i,b=true 5"
    assert template.line({}, 5, "b=1i") == "m,t=x b=1i 5"
    assert template.line({"a": 1}, None) == "m,t=x a=1i"
    assert template.line({"a": None}, 5, fields_text({"b": None})) is None


@pytest.mark.parametrize(
    ("measurement", "tags", "fields", "at_ns"),
    [
        ("", {}, {"a": 1}, None),
        ("#m", {}, {"a": 1}, None),
        ("m\n", {}, {"a": 1}, None),
        ("m\\", {}, {"a": 1}, None),
        ("m", {"": "x"}, {"a": 1}, None),
        ("m", {"t\n": "x"}, {"a": 1}, None),
        ("m", {"t": "x\n"}, {"a": 1}, None),
        ("m", {"t": "x\\"}, {"a": 1}, None),
        ("m", {"t\\": "x"}, {"a": 1}, None),
        ("m", {"t": "\udc80"}, {"a": 1}, None),
        ("m", {}, {"": 1}, None),
        ("m", {}, {"a\r": 1}, None),
        ("m", {}, {"a\\": 1}, None),
        ("m", {}, {"a": "\0"}, None),
        ("m", {}, {"a": "\udc80"}, None),
        ("m", {}, {"a": 2**63}, None),
        ("m", {}, {"a": -(2**63) - 1}, None),
        ("m", {}, {"a": 1}, 2**63),
    ],
)
def test_what_line_protocol_cannot_say_is_an_error(
    measurement: str, tags: Mapping[str, str], fields: Mapping[str, Value], at_ns: int | None
) -> None:
    with pytest.raises(ValueError, match=r".{10}"):
        encode(measurement, tags, fields, at_ns)


@pytest.mark.parametrize("at_ns", [-(2**63), 2**63 - 1])
def test_the_first_and_the_last_time_of_int64_are_written_and_those_beside_are_not(
    at_ns: int,
) -> None:
    assert encode("m", {}, {"x": 1}, at_ns) == f"m x=1i {at_ns}"
    with pytest.raises(ValueError, match="outside int64"):
        encode("m", {}, {"x": 1}, at_ns + (1 if at_ns > 0 else -1))
