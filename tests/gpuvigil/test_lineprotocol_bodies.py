"""Bodies of every kind of row, in every neighbourhood: both parsers say what the naive one says."""

import random
import sys
from itertools import product
from types import FrameType

import pytest

from gpuvigil.lineprotocol import ParsedColumns, Precision, parse, parse_columns
from gpuvigil.lineprotocol.parser import LineReader
from tests.gpuvigil.lineprotocol_twin import naive_parse
from tests.gpuvigil.test_lineprotocol import exactly, lines_of

# Parts of rows: plain ones, each escape, each delimiter where it does not belong, what is left empty,
# control characters that the columns' parser works with itself, CR, other letters.
HEADS = [
    *("m", "m,t=1", "m,t=1,u=2", "m,u=2,t=1", r"m\,t=1", r"m\ t,t=1", r"m\=x,t=1", r"m\\,t=1"),
    *(r"m,t=a\ b\,c\=d", r"m,t=a\ b", r"m,t=a\,b", r"m,t=a\=b", r"m,t\=u=1", r"m,t=\x\\y", "m=x"),
    *("", ",t=1", "m,", "m,t", "m,t=", "m,=1", "m,t=1,t=2", "m,t=1=2", "m,t,u=1", "m,t=1,u", "#m"),
    *(
        "\tm",
        " m",
        "m\x01n,t=1",
        "m,t=\x02",
        "m,t\x03=1",
        "m\0",
        "é,t=ü",
        'm"',
        'm,t="a"',
        "m,a,b=c",
    ),
]
FIELDS = [
    *("f=1", "f=2.5", "f=1i", "f=-2i", "f=3u", "f=t", "f=False", "f=1,g=2i", "g=2i,f=1", "f=1,f=2"),
    *('f="x"', 'f="a b,c=d"', r'f="\"\\\n"', 'f="a', 'f="a\nb"', 'a\nb"', 'f="a"b', 'f="",g=1'),
    *(r"f\ g=1", r"f\,g=1", r"f\=g=1", "f", "f=", "=1", "f=1,", ",f=1", "f=1,=2", "f==1", "f=1=2"),
    *("f=1_0", "f=nan", "f=inf", "f=1e999", "f=1e308", "f=-1u", "f=i", "f=1ii", "f=1iu", "f=u"),
    *("f=9223372036854775807i", "f=9223372036854775808i", "f=18446744073709551616u", "f=1,g"),
    *(
        "f=٣",
        "f=٣i",
        "f=+1i",
        "f=+.5e-3",
        "f=1\x00",
        "f=\x011",
        "f\x03=1",
        "f=tr",
        "f=T,g=F",
        "ü=1",
    ),
]
TIMES = [
    "",
    " 1",
    " -2",
    " ",
    "  3  ",
    " x",
    " 1.0",
    " 1 2",
    " +1",
    " ٣",
    "\r",
    " 4\r",
    " 5\r\r",
    " 6 \r",
]
ROWS = [
    f"{head}{space}{fields}{at}"
    for head, fields, at, space in product(HEADS, FIELDS, TIMES, [" "])
    if head == "m" or fields == "f=1" or (at == " 1" and head == "m,t=1")
] + ["", "\r", "# said", "m", "m\tf=1", "m  f=1", "  m f=1  7", "m,t=1\tf=1", "\x01", "m f=1\t5"]
BROKEN = [b"m,t=\xff f=1 1", b"m f=1,\xed\xa0\x80=1", b'm f="\xff"', b"\xff", b"m,t=1 f=1 \xff"]
BYTES = [row.encode() for row in ROWS] + BROKEN


def agree(body: bytes, precision: Precision = "ns") -> None:
    """Both parsers make of a body what the naive one makes."""
    good, refused = naive_parse(body, precision)
    parsed, columns = parse(body, precision), parse_columns(body, precision)
    assert list(map(exactly, parsed.lines)) == [exactly(line) for _, line in good], body
    assert [refusal.number for refusal in parsed.refused] == refused, body
    rows = {k: exactly(v) for block in columns.tables for k, v in lines_of(block).items()}
    assert rows == {number: exactly(line) for number, line in good}, body
    assert columns.refused == parsed.refused, body


@pytest.mark.medium
@pytest.mark.parametrize("part", range(4))
def test_each_row_alone_is_read_alike(part: int) -> None:
    for row in BYTES[part::4]:
        agree(row)
        agree(b"m,t=1 f=1 1\n" + row + b"\nm,t=2 f=2 2")


@pytest.mark.medium
def test_rows_of_all_kinds_together_are_read_alike() -> None:
    chance = random.Random(7)
    plain = [row for row in BYTES if b'"' not in row]
    for size in (2, 9, 40, 400):
        for _ in range(800 // size):
            # Rows that open a string make the naive parser slow, so that most bodies have none.
            rows = chance.choices(BYTES if size < 40 else plain, k=size)
            agree(b"\n".join(rows))


# How much is read in full


def read_in_full(body: bytes, max_line_bytes: int = 100) -> list[int]:
    """The numbers of the rows that the columns' parser hands to the full one."""
    indexes = list[int]()

    def seen(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is LineReader.read.__code__:
            indexes.append(frame.f_locals["index"] + 1)

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        parse_columns(body, max_line_bytes=max_line_bytes)
    finally:
        sys.setprofile(before)
    return sorted(indexes)


MOST_TAGS = ",".join(f"{i}=x" for i in range(64))


@pytest.mark.parametrize(
    "row",
    [
        *("m f=1", "m f=1 5", "m f=1,g=2i,h=3u,i=t 5", "m f=F", "m,u=1,t=2 f=1", "é,t=ü ö=1 5"),
        *(r"m\ a,t=a\,b f\=g=1", "m f=1 5\r", "m,t=1 f=1\r", r"m\x,t=\y f=1"),
    ],
)
def test_what_machines_write_is_not_read_in_full(row: str) -> None:
    assert read_in_full("\n".join([row] * 20).encode()) == []


def test_up_to_the_most_tags_and_the_longest_line_nothing_is_read_in_full() -> None:
    assert read_in_full(f"m,{MOST_TAGS} f=1".encode(), 10_000) == []
    assert read_in_full(f"m,{MOST_TAGS},more=x f=1".encode(), 10_000) == [1]
    for row in ("m f=" + "1" * 96, "é f=" + "1" * 95):
        assert read_in_full(f"a f=1\n{row}\na f=1".encode()) == []
        assert read_in_full(f"a f=1\n{row}1\na f=1".encode()) == [2]


@pytest.mark.parametrize(
    "row",
    [
        *(
            b'm f="x"',
            b'm,t=" f=1',
            b"m,t=\0 f=1",
            b"m,t=\x01 f=1",
            b"m,t=\x02 f=1",
            b"m,t=\x03 f=1",
        ),
        *(b"m,t=\xff f=1", b"m f=1,f=2", b"m,t=1,t=2 f=1", b"m=1 f=1", b"#m f=1", b"\tm f=1", b""),
        *(b"m,=1 f=1", b"m,t f=1", b"m f=", b"m  f=1", b"m f=1 5 6", b"m,t= f=1", b"m f=1 x"),
    ],
)
def test_an_odd_row_is_read_in_full_and_none_beside_it(row: bytes) -> None:
    plain = [b"a,t=1 f=1.5,g=1i 5"] * 10
    assert read_in_full(b"\n".join([*plain, row, *plain])) == [11]
    assert read_in_full(b"\n".join([row, *plain] * 10)) == list(range(1, 110, 11))


@pytest.mark.parametrize(
    ("rows", "bad", "first", "last"),
    [
        (1, 1, 1, 1),
        (8, 1, 1, 8),
        (8, 8, 1, 8),
        (9, 1, 1, 4),
        (9, 9, 5, 9),
        (16, 1, 1, 8),
        (17, 17, 13, 17),
    ],
)
def test_rows_beside_a_bad_value_are_read_in_full_only_in_a_small_block(
    rows: int, bad: int, first: int, last: int
) -> None:
    body = "\n".join("m f=x" if i == bad else "m f=1" for i in range(1, rows + 1)).encode()
    assert read_in_full(body) == list(range(first, last + 1))


def test_a_string_over_many_rows_is_looked_for_once_a_row_that_opens_one() -> None:
    body = b'm s="a\n' + b"m f=1\n" * 10 + b'" 5\nm f=1'
    assert read_in_full(body) == [1]
    (block,) = [it for it in parse_columns(body).tables if it.field_keys == ("s",)]
    assert block.numbers == [1]
    assert read_in_full(body.replace(b'" 5', b"m f=1")) == [1]


def test_blocks_come_in_the_order_of_the_body_whatever_was_read_in_full() -> None:
    rows = [b"m f=1 1", b"m f=x 2", b'm f=3,s="" 3', b"m f=4 4", b"m  f=5 5", b"m f=6 6", b"m f= 7"]
    found: ParsedColumns = parse_columns(b"\n".join(rows))
    assert [(it.field_keys, it.numbers, it.at_ns) for it in found.tables] == [
        (("f", "s"), [3], [3]),
        (("f",), [1, 4, 5, 6], [1, 4, 5, 6]),
    ]
    assert [it.number for it in found.refused] == [2, 7]
