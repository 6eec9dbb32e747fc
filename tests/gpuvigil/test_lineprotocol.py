"""Line protocol: what is written is read, and nothing written by others does harm."""

import re
from typing import Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from influxdb_client.client.write.point import Point
from influxdb_client.domain.write_precision import WritePrecision

from gpuvigil.lineprotocol import (
    ColumnBlock,
    Line,
    Precision,
    Value,
    encode,
    parse,
    parse_columns,
)
from tests.gpuvigil.lineprotocol_twin import naive_parse

INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
NAMES = (
    st.text(
        st.one_of(
            st.sampled_from(',= \\"#ix'), st.characters(exclude_categories=["Cs"], min_codepoint=32)
        ),
        min_size=1,
        max_size=12,
    )
    .map(lambda name: name.replace("\x7f", "x"))
    .filter(lambda name: not name.endswith("\\"))
)
MEASUREMENTS = NAMES.filter(lambda name: not name.startswith("#"))
VALUES: st.SearchStrategy[Value] = st.one_of(FINITE, INT64, st.booleans(), TEXTS)


@st.composite
def lines(draw: st.DrawFn) -> Line:
    return Line(
        measurement=draw(MEASUREMENTS),
        tags=tuple(sorted(draw(st.dictionaries(NAMES, NAMES, max_size=4)).items())),
        fields=tuple(draw(st.dictionaries(NAMES, VALUES, min_size=1, max_size=5)).items()),
        at_ns=draw(st.none() | INT64),
    )


def written(line: Line) -> str:
    text = encode(line.measurement, dict(line.tags), dict(line.fields), line.at_ns)
    assert text is not None
    return text


# Few names and values, so that rows share schemas, and enough oddities that any two meet.
ODD_NAMES = st.sampled_from(
    ["a", "b", "a", "b", r"a\ b", r"a\=b", r"a\,b", "\\", r"\\ ", "é", '"', "", "a=", "#", "\t"]
)
ODD_VALUES = st.one_of(
    st.sampled_from(["1", "2.5", "-1e3", "1i", "2i", "-3i", "4u", "t", "FALSE"]),
    st.sampled_from(["1", "2.5", "1i", "2i", '"x"', '"x y"', r'"\""', r'"\\"', '"', r'"\"', ""]),
    st.sampled_from(["nan", "inf", "1e999", "1_0", "+1", ".5", "5.", "1i2", "i", "-1u", "tr", "-"]),
    st.sampled_from(["9223372036854775808i", "18446744073709551615u", "\uff11"]),
)
ODD_TIMES = st.sampled_from(["", "", " 1", " 2", " -5", " ", "  3 ", " x", " 1.0", " 9" + "9" * 18])
SEPARATORS = st.sampled_from([" "] * 8 + ["", "  ", "\t"])
ENDS = st.sampled_from(["\n"] * 12 + ["\r\n", "\r\n", "\n\n", "\r", "\r\r\n", "\n#\n", "\n \n"])


@st.composite
def odd_rows(draw: st.DrawFn) -> bytes:
    tags = draw(st.lists(st.tuples(ODD_NAMES, ODD_NAMES), max_size=3))
    fields = draw(st.lists(st.tuples(ODD_NAMES, ODD_VALUES), min_size=1, max_size=3))
    head = draw(ODD_NAMES) + "".join(f",{key}={value}" for key, value in tags)
    values = ",".join(f"{key}={value}" for key, value in fields)
    return f"{head}{draw(SEPARATORS)}{values}{draw(ODD_TIMES)}{draw(ENDS)}".encode()


PLAIN_ROWS = st.one_of(
    st.sampled_from([b"g,n=1,u=a f=1,i=2i 5\n", b"g,n=2,u=b f=2.5,i=-7i 6\n"]),
    st.sampled_from([b"g,u=c,n=3 f=1e3,i=1i 7\n", b"g,n=4,u=NVIDIA\\ H200 f=1,i=0i 8\n"]),
    st.sampled_from([b"g,n=5,u=a f=1i,i=1i 9\n", b"g,n=6,u=a f=x,i=1i 9\n", b"\n"]),
    st.sampled_from([b"g,n=7,u=a f=1,i=2i\n", b"g,n=8,u=\xff f=1,i=2i 3\n", b"g,n=9 f=1,f=2 3\n"]),
)
GARBAGE = st.sampled_from([b'g s="open\n', b'still open"\n', b"\0\n", b"\xff,=\n", b"\x01\n"])
BODIES = st.lists(
    st.one_of(PLAIN_ROWS, PLAIN_ROWS, PLAIN_ROWS, odd_rows(), GARBAGE, st.binary(max_size=20)),
    max_size=40,
).map(b"".join)


@st.composite
def mutated_bodies(draw: st.DrawFn) -> bytes:
    body = bytearray("\n".join(map(written, draw(st.lists(lines(), max_size=4)))).encode())
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(body)))
        body[at : at + draw(st.integers(0, 3))] = draw(
            st.sampled_from([b"", b"\n", b'"', b"\\", b",", b"=", b" ", b"\0", b"\xff", b"1", b"i"])
        )
    return bytes(body)


def lines_of(block: ColumnBlock) -> dict[int, Line]:
    rows = {}
    for i, number in enumerate(block.numbers):
        rows[number] = Line(
            measurement=block.measurement,
            tags=tuple(zip(block.tag_keys, (c[i] for c in block.tags), strict=True)),
            fields=tuple(zip(block.field_keys, (c[i] for c in block.fields), strict=True)),
            at_ns=block.at_ns[i],
        )
    return rows


def exactly(line: Line) -> str:
    """The line with the types of its values: 1, 1.0 and True are equal in Python."""
    return repr(line)


def only(text: str | bytes, precision: Precision = "ns") -> Line:
    parsed = parse(text if isinstance(text, bytes) else text.encode(), precision)
    assert parsed.refused == []
    (line,) = parsed.lines
    return line


def reason(body: bytes) -> str:
    parsed = parse(body)
    (refusal,) = parsed.refused
    assert parsed.lines == []
    assert parse_columns(body).refused == [refusal]
    return refusal.reason


# Written and read


@pytest.mark.medium
@given(lines())
@example(Line(measurement="m\\,", tags=((" ", "=,"),), fields=(("\\x", "\\"),), at_ns=None))
def test_what_is_written_is_read_back_with_its_types(line: Line) -> None:
    assert exactly(only(written(line))) == exactly(line)


@given(st.lists(lines(), max_size=6))
def test_many_lines_are_read_back_in_order(many: list[Line]) -> None:
    parsed = parse("\n".join(map(written, many)).encode())
    assert parsed.refused == []
    assert list(map(exactly, parsed.lines)) == list(map(exactly, many))


# Reading


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((spelling, True) for spelling in ("t", "T", "true", "True", "TRUE")),
        *((spelling, False) for spelling in ("f", "F", "false", "False", "FALSE")),
        ("1", 1.0),
        ("-1.25e-3", -0.00125),
        ("1E+3", 1000.0),
        ("12i", 12),
        ("-9223372036854775808i", -(2**63)),
        ("9223372036854775807i", 2**63 - 1),
        ("0u", 0),
        ("18446744073709551615u", 2**64 - 1),
        ('""', ""),
        (r'"a\"b\\c\d, ="', 'a"b\\c\\d, ='),
        ('"two\nrows"', "two\nrows"),
        ('"two\r\nrows"', "two\r\nrows"),
    ],
)
def test_every_spelling_of_a_value_is_read(text: str, value: Value) -> None:
    line = only(f"m f={text} 5")
    assert exactly(line) == exactly(Line(measurement="m", tags=(), fields=(("f", value),), at_ns=5))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"m", "ends in the measurement"),
        (b",t=1 f=1", "no measurement"),
        (b"m,t=1", "ends after the tags"),
        (b"m,t f=1", "tag 't' has no value"),
        (b"m,t= f=1", "tag 't' has no value"),
        (b"m,=x f=1", "a tag has no key"),
        (b"m, f=1", "a tag has no key"),
        (b"m,t=x=y f=1", "'=y f=1' after the tags"),
        (b"m,t=1,t=2 f=1", "tag 't' is given twice"),
        (b"m f", "field 'f' has no value"),
        (b"m f=", "field 'f' has no value"),
        (b"m f=1,", "a field has no key"),
        (b"m =1", "a field has no key"),
        (b"m f=nan", "field 'f': 'nan' is not a number"),
        (b"m f=-inf", "field 'f': '-inf' is not a number"),
        (b"m f=1_0", "field 'f': '1_0' is not a number"),
        (b"m f=1e999", "field 'f': '1e999' is out of range"),
        (b"m f=1_0i", "field 'f': '1_0' is not an integer"),
        (b"m f=9223372036854775808i", "field 'f': '9223372036854775808' is out of range"),
        (b"m f=18446744073709551616u", "field 'f': '18446744073709551616' is out of range"),
        (b"m f=-1u", "field 'f': '-1' is out of range"),
        (b"m f=-9223372036854775809i", "field 'f': '-9223372036854775809' is out of range"),
        (b"m f=1 -9223372036854775809", "time: '-9223372036854775809' is out of range"),
        (b"m f=\xef\xbc\x91", r"field 'f': '\uff11' is not a number"),
        (b'm f="x', "a quoted string is not closed"),
        (b'm f="x"y', "'y' after the fields"),
        (b"m f=1 x", "time: 'x' is not an integer"),
        (b"m f=1 5 6", "'6' after the time"),
        (b"m f=1 9223372036854775808", "time: '9223372036854775808' is out of range"),
        (b"m,t=\xff f=1", "not UTF-8"),
        (b"m,t=\xed\xa0\x80 f=1", "not UTF-8"),
        (b'm f="\0"', "holds a NUL"),
    ],
)
def test_a_refusal_says_what_is_wrong(body: bytes, said: str) -> None:
    assert reason(body) == said


def test_a_line_may_have_64_tags_and_no_more() -> None:
    most = ",".join(f"t{i}=x" for i in range(64))
    assert len(only(f"m,{most} f=1").tags) == 64
    assert reason(f"m,{most},more=x f=1".encode()) == "more than 64 tags"


def test_a_line_may_have_65536_bytes_and_no_more() -> None:
    assert reason(b"m f=1" + b" " * 65_532) == "longer than 65536 bytes"
    assert only(b"m f=1" + b" " * 65_531).fields == (("f", 1.0),)


@pytest.mark.parametrize(
    "line", ["m,t=éé f=1", 'm f="é\n\né"', 'm f="abcdef\n"', 'm f="\n" 5', "m,t=\U0001f600 f=1"]
)
@pytest.mark.parametrize("before", ["", "a f=1\n"])
@pytest.mark.parametrize("after", ["", "\nb f=2", '\nb f="\n"'])
def test_a_line_may_be_so_long_in_bytes_and_no_longer(line: str, before: str, after: str) -> None:
    body, length = f"{before}{line}{after}".encode(), len(line.encode())
    many = 1 + bool(before) + bool(after)
    assert len(parse(body, max_line_bytes=length).lines) == many
    number = 1 + before.count("\n")
    refused = parse(body, max_line_bytes=length - 1).refused
    assert (refused[0].number, refused[0].reason) == (number, f"longer than {length - 1} bytes")
    for most in (length, length - 1):
        found = parse_columns(body, max_line_bytes=most)
        assert found.refused == parse(body, max_line_bytes=most).refused
        assert sum(len(it.numbers) for it in found.tables) == len(
            parse(body, max_line_bytes=most).lines
        )


def test_a_string_is_looked_for_one_sign_beyond_what_a_line_may_have() -> None:
    line = b'm f="1234\n67890"'
    for less, said in (
        (1, f"longer than {len(line) - 1} bytes"),
        (2, "a quoted string is not closed"),
    ):
        refused = parse(line, max_line_bytes=len(line) - less).refused
        assert (refused[0].number, refused[0].reason) == (1, said)


def test_a_refusal_quotes_forty_characters_and_of_more_the_first() -> None:
    assert reason(b"m f=" + b"x" * 40) == f"field 'f': '{'x' * 40}' is not a number"
    for more in (1, 10_000):
        body = b"m f=" + b"x" * (40 + more)
        assert reason(body) == f"field 'f': '{'x' * 39}\\u2026' is not a number"


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\r\r\n"])
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("m f=1 5 6", "'6' after the time"),
        ("m", "ends in the measurement"),
        ('m s="a\nb"c', "'c' after the fields"),
    ],
)
def test_a_refusal_quotes_no_more_than_the_row(line: str, said: str, end: str) -> None:
    refused = parse(f"{line}{end}".encode()).refused
    assert (refused[0].number, refused[0].reason) == (1, said)


def test_of_a_field_named_twice_the_last_value_holds() -> None:
    assert only("m a=1,b=2,a=3i").fields == (("a", 3), ("b", 2.0))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_blank_rows_and_comments_are_skipped_but_counted(end: str) -> None:
    rows = ["", "# said", "  ", "m f=1", "  # said", "m f=bad", "\t", "m f=2 3", 'm f="x"', ""]
    parsed = parse(end.join(rows).encode())
    assert [line.fields for line in parsed.lines] == [(("f", 1.0),), (("f", 2.0),), (("f", "x"),)]
    assert [refusal.number for refusal in parsed.refused] == [6]
    columns = parse_columns(end.join(rows).encode())
    assert [block.numbers for block in columns.tables] == [[9], [4, 8]]


def test_numbers_count_the_rows_of_a_quoted_string() -> None:
    parsed = parse(b'm s="1\n2\n3" 1\nm f=bad\nm f=1\n')
    assert [refusal.number for refusal in parsed.refused] == [2 + 2]
    assert len(parsed.lines) == 2


def test_a_string_that_never_closes_costs_its_own_row_only() -> None:
    parsed = parse(b'm s="open\nm f=1\nm s="closed"\nm f=2')
    assert [refusal.number for refusal in parsed.refused] == [1]
    assert [line.fields[0][1] for line in parsed.lines] == [1.0, "closed", 2.0]


@pytest.mark.parametrize("precision", ["ns", "us", "ms", "s"])
def test_times_are_scaled_and_their_range_is_that_of_the_nanoseconds(precision: Precision) -> None:
    scale = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}[precision]
    latest = (2**63 - 1) // scale
    assert only(f"m f=1 {latest}", precision).at_ns == latest * scale
    assert only(f"m f=1 {-latest}", precision).at_ns == -latest * scale
    body = f"m f=1 {latest + 1}\nm f=2 {latest}".encode()
    assert [refusal.number for refusal in parse(body, precision).refused] == [1]
    (block,) = parse_columns(body, precision).tables
    assert block.at_ns == [latest * scale]


# The twins agree


@given(BODIES | mutated_bodies(), st.sampled_from(["ns", "us", "ms", "s"]))
@example(b"m f=1\nm, f=2\nm,a f=1\n", "ns")
@example(b"m,a=b,c f=1\nm,a=b=c,d=e f=1\nm,a,b=c,d=e f=1\nm f,1=g=2\n", "ns")
@example(b"m,a=b=c=d f=1\nm,a=b,c=d f=1\nm=a=b f=1\nm\\=a f=1\n\tm f=1\n", "ns")
@example(b"m f=1\nm f=1 5\nm f=2\nm i=1i\nm i=2\nm i=3i\n", "ns")
@example(b'm s="a\nm f="\nm f=1\nm s="b\n"\n', "ns")
def test_both_parsers_agree_with_the_naive_one(
    body: bytes, precision: Literal["ns", "us", "ms", "s"]
) -> None:
    good, refused = naive_parse(body, precision)
    parsed = parse(body, precision)
    assert list(map(exactly, parsed.lines)) == [exactly(line) for _, line in good]
    assert [refusal.number for refusal in parsed.refused] == refused
    columns = parse_columns(body, precision)
    rows = {k: exactly(v) for block in columns.tables for k, v in lines_of(block).items()}
    assert rows == {number: exactly(line) for number, line in good}
    assert columns.refused == parsed.refused


@given(BODIES)
def test_a_block_is_one_schema_in_order_with_columns_of_one_type(body: bytes) -> None:
    blocks = parse_columns(body).tables
    schemas = {(b.measurement, b.tag_keys, b.field_keys, b.field_types) for b in blocks}
    assert len(schemas) == len(blocks)
    for block in blocks:
        assert block.numbers == sorted(block.numbers)
        assert list(block.tag_keys) == sorted(block.tag_keys)
        for kind, column in zip(block.field_types, block.fields, strict=True):
            assert {type(value) for value in column} == {kind}


@pytest.mark.medium
@pytest.mark.parametrize("bad", [0, 7, 499, 998, 999])
def test_one_bad_value_among_a_thousand_costs_one_line(bad: int) -> None:
    rows = [f"g,n=n{i} f={i}.5,i={i}i,b=t {i}" for i in range(1000)]
    for was, now in (("i=", "i=x"), ("f=", "f=x"), ("b=t", "b=2"), (f"n=n{bad}", "n=")):
        changed = list(rows)
        changed[bad] = rows[bad].replace(was, now)
        columns = parse_columns("\n".join(changed).encode())
        parsed = parse("\n".join(changed).encode())
        assert columns.refused == parsed.refused
        assert sum(len(block.numbers) for block in columns.tables) == len(parsed.lines)
        assert max(len(block.numbers) for block in columns.tables) == 999


# Whatever comes


@given(st.binary(max_size=400) | mutated_bodies())
def test_no_body_makes_a_parser_raise(body: bytes) -> None:
    parsed = parse(body)
    refused = parse_columns(body).refused
    assert refused == parsed.refused
    assert all(1 <= refusal.number <= body.count(b"\n") + 1 for refusal in refused)


@given(st.binary(max_size=100).map(lambda row: re.sub(rb'[\n"]', b"", row)), st.booleans())
def test_a_bad_row_never_takes_its_neighbours_down(row: bytes, sparse: bool) -> None:
    between = b"\n\n" if sparse else b"\n"
    body = between.join([b"before f=1 1", row, b"after f=2 2"])
    names = [line.measurement for line in parse(body).lines]
    assert (names[0], names[-1]) == ("before", "after")
    last = body.count(b"\n") + 1
    numbers = {b.measurement: b.numbers for b in parse_columns(body).tables}
    assert (numbers["before"][0], numbers["after"][-1]) == (1, last)


@pytest.mark.medium
def test_each_of_many_open_strings_costs_its_own_row_only() -> None:
    body = b'm s="1\nm f=2\n' * 10_000
    parsed = parse(body)
    assert [refusal.number for refusal in parsed.refused] == list(range(1, 20_000, 2))
    assert len(parsed.lines) == 10_000
    assert parse_columns(body).refused == parsed.refused


# What the official client writes


CLIENT_TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\\\n\r\t"),
    min_size=1,
    max_size=9,
)


@given(
    st.dictionaries(CLIENT_TEXTS, CLIENT_TEXTS, max_size=3),
    st.dictionaries(
        CLIENT_TEXTS, st.one_of(FINITE, INT64, st.booleans(), TEXTS), min_size=1, max_size=4
    ),
    st.integers(min_value=0, max_value=9 * 10**15),
)
def test_what_the_official_client_writes_is_read_to_the_same_values(
    tags: dict[str, str], fields: dict[str, Value], at_us: int
) -> None:
    said = {"measurement": "gpu", "tags": tags, "fields": fields, "time": at_us}
    # The client types its precision as a class of its own and gives plain strings.
    point = Point.from_dict(said, WritePrecision.US)  # type: ignore[arg-type]
    line = only(point.to_line_protocol(), "us")
    assert dict(line.tags) == tags
    assert {k: (type(v), v) for k, v in line.fields} == {k: (type(v), v) for k, v in fields.items()}
    assert line.at_ns == at_us * 1000
