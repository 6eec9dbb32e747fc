"""Bodies read together say what they say when each is read alone."""

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.clock import to_ns
from gpuvigil.lineprotocol import parse_columns
from hub.bodies.bulk_parser import read
from hub.bodies.tables import Assembly, fit
from hub.telemetry.batch import read_bodies, shifted
from hub.telemetry.body import Body, Outcome

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def a_body(text: str, precision: Any = "ns", shift_ns: int = 0) -> Body:
    return Body(
        text=text.encode("utf-8", "surrogateescape"),
        precision=precision,
        received_at=NOON,
        identity=None,
        done=lambda _: None,
        shift_ns=shift_ns,
    )


def one_by_one(bodies: Sequence[Body]) -> tuple[dict[str, pa.Table], list[Outcome]]:
    """The slow and obvious way: every body through the parser and `fit`, alone."""
    assembly, outcomes = Assembly(), []
    for body in bodies:
        blocks, refused = fit(parse_columns(body.text, body.precision), to_ns(body.received_at))
        lines = sum(len(block.numbers) for block in blocks)
        outcomes.append(Outcome(refused=tuple(refused), lines=lines))
        assembly.add(shifted(block, body.shift_ns) for block in blocks)
    return assembly.tables(), outcomes


def rows(table: pa.Table) -> list[str]:
    """What a table says, without the order of its rows and columns, and without what is null."""
    found = table.set_column(
        table.column_names.index("at"), "at", table["at"].cast(pa.int64())
    ).to_pylist()
    said = [{k: v for k, v in row.items() if v is not None} for row in found]
    return sorted(json.dumps(row, sort_keys=True) for row in said)


def assert_same(bodies: Sequence[Body]) -> None:
    tables, outcomes = read_bodies(bodies)
    expected, expected_outcomes = one_by_one(bodies)
    assert outcomes == expected_outcomes
    assert {name: rows(table) for name, table in tables.items()} == {
        name: rows(table) for name, table in expected.items()
    }
    for name, table in tables.items():
        for column in set(table.column_names) & set(expected[name].column_names):
            assert table.schema.field(column).type == expected[name].schema.field(column).type


def lines(count: int = 40, node: str = "n1") -> list[str]:
    return [
        f"gpu,cluster=c,model=NVIDIA\\ H100,node={node},uuid=GPU-{i} up=1i,power_watts={i}.25,"
        f"memory_used_bytes={2**60 + i}i,temperature_celsius={i}i 17000000000000000{i:02d}"
        for i in range(count)
    ]


def test_what_collectors_send_is_read_without_the_parser_and_says_the_same() -> None:
    found = read(["\n".join(lines()).encode()], 1, [0])
    assert (found.lines, found.rest, found.beside) == ([40], [[]], [])
    bodies = [a_body("\n".join(lines(node=f"n{i}"))) for i in range(3)]
    tables, outcomes = read_bodies(bodies)
    assert [it.lines for it in outcomes] == [40, 40, 40]
    assert tables["gpu"]["memory_used_bytes"].to_pylist()[:2] == [2**60, 2**60 + 1]
    assert set(tables["gpu"]["model"].to_pylist()) == {"NVIDIA H100"}
    assert_same(bodies)


ODD_ROWS = [
    "",
    "# a comment",
    "gpu",
    "gpu up=1i",
    "gpu,node=a up=1i 5 6",
    "gpu,node=a  up=1i 5",
    " gpu,node=a up=1i 5",
    "gpu,node= up=1i 5",
    "gpu,node=a,node=b up=1i 5",
    "gpu,node=a up=1i,up=2i 5",
    "gpu,node=a up=,power_watts=1 5",
    "gpu,node=a up= 5",
    "gpu,node=a up 5",
    "gpu,=a up=1i 5",
    "gpu,a=b=c up=1i 5",
    "g=pu,node=a up=1i 5",
    "gpu,node=a up=1i,=2 5",
    "gpu,node=a up=1i, 5",
    "gpu,node=a up=1i -5",
    "gpu,node=a up=1i 5i",
    "gpu,node=a up=1i 9999999999999999999",
    "gpu,node=a up=1i 99999999999999999999999999",
    'gpu,node=a note="x y,z=1" 5',
    "gpu,node=a up=t 5",
    "gpu,node=a\\ b\\,c\\=d up=1i 5",
    "gpu,node=a\\b up=1i 5",
    "gpu,node=a\\\\\\ b up=1i 5",
    "gpu,node=a\\ up=1i 5",
    "gp\\ u,node=a up=1i 5",
    "gpu,node=ai,cluster=ii up=1i 5",
    "gpu,node=ä up=1i 5",
    "gpu,node=\udcff up=1i 5",
    "gpu,node=a up=1i 5\r",
    "\tgpu,node=a up=1i 5",
    "gpu,node=a up=1i\t5",
    "cpu,host=h busy=0.5 5",
    "gpu,node=a,rack=r up=1i,new_one=2.5,another=3i 5",
    "x" * 70_000,
    "gpu,node=" + "y" * 40_000 + " up=1i 5",
    "gpu," + ",".join(f"t{i}=1" for i in range(70)) + " up=1i 5",
]
NUMBERS = st.sampled_from(
    [
        *("0", "-0", "1", "007", "-1", "+1", "1.5", "1.", ".5", "-.5e3", "1e400", "1E-5", "1e5"),
        *("0x10", "nan", "inf", "-inf", "", "i", "--1", "1_0", "9007199254740993", "1e18", "1e19"),
        *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "true", "5u"),
        "18446744073709551615",
    ]
)
FIELDS = st.sampled_from(["up", "power_watts", "memory_used_bytes", "unheard_of"])


@st.composite
def a_row(draw: st.DrawFn) -> str:
    if draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(ODD_ROWS))
    values = [f"{draw(FIELDS)}={draw(NUMBERS)}{draw(st.sampled_from(['', 'i']))}"]
    values += draw(st.lists(st.sampled_from(["index=1i", "read_seconds=0.5"]), max_size=1))
    return f"gpu,node=n{draw(st.integers(0, 2))} {','.join(values)} {draw(st.integers(0, 9))}"


@given(
    st.lists(
        st.builds(
            lambda rows, end, precision, shift: a_body("\n".join(rows) + end, precision, shift),
            st.lists(st.one_of(a_row(), st.sampled_from(lines(20))), max_size=30),
            st.sampled_from(["", "\n", "\n\n"]),
            st.sampled_from(["ns", "s"]),
            st.sampled_from([0, -7, 10**9]),
        ),
        max_size=4,
    ),
    st.lists(NUMBERS, max_size=3),
    st.sampled_from(["", "i"]),
    FIELDS,
)
def test_bodies_of_any_rows_say_together_what_each_says_alone(
    bodies: list[Body], odd: list[str], suffix: str, name: str
) -> None:
    # So many rows of one schema that they are read as columns, some of them at fault.
    usual = ["1", "2.5" if not suffix else "2"] * 10
    many = [f"gpu,node=m {name}={value}{suffix} {i}" for i, value in enumerate(usual + odd)]
    assert_same([*bodies, a_body("\n".join(many))])


@pytest.mark.medium
def test_each_odd_row_among_many_usual_ones_is_told_as_alone() -> None:
    for row in ODD_ROWS:
        assert_same([a_body("\n".join([*lines(20), *[row] * 20, *lines(20)]))])


def test_rows_at_fault_keep_their_numbers() -> None:
    body = a_body("\n".join([*lines(20), "nonsense", *lines(3), "gpu,node=a up=2.5 5", "gpu"]))
    (outcome,) = read_bodies([a_body("\n".join(lines(30))), body])[1][1:]
    assert [it.number for it in outcome.refused] == [21, 25, 26]
    assert outcome.lines == 23


@pytest.mark.slow
def test_rows_of_as_many_schemas_are_all_kept() -> None:
    many = [f"gpu,node=a up=1i,x{i}=1i 5" for i in range(20_000)]
    (outcome,) = read_bodies([a_body("\n".join(many))])[1]
    assert outcome.lines == 20_000
