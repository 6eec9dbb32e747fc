"""What a row of the manifest says of its files."""

from pathlib import Path

import pytest

from hub.embedded.sealed_files import Unit

FIRST, LAST = 1_000, 2_000
UNIT = Unit(
    name="u",
    measurement="gpu",
    lines=3,
    first_ns=FIRST,
    last_ns=LAST,
    first_node="a",
    last_node="b",
    level=0,
    sealed_ns=LAST,
    lines_bytes=700,
    lines_sha256="l",
    rolled_bytes=30,
    rolled_sha256="r",
    layout="x",
)


def test_it_takes_what_its_files_take() -> None:
    assert (UNIT.bytes, UNIT.without_lines().bytes) == (730, 30)


def test_without_its_lines_only_the_rollups_are_a_file() -> None:
    both = {"gpu/u.lines.parquet": (700, "l"), "gpu/u.rolled.parquet": (30, "r")}
    assert UNIT.files(Path()) == {Path(name): of for name, of in both.items()}
    assert UNIT.without_lines().files(Path()) == {Path("gpu/u.rolled.parquet"): (30, "r")}


@pytest.mark.parametrize(
    ("start", "end", "touched"),
    [
        (FIRST - 9, FIRST, False),  # a range ends before its end
        (FIRST - 9, FIRST + 1, True),
        (LAST, LAST + 9, True),
        (LAST + 1, LAST + 9, False),
    ],
)
def test_it_touches_a_range_that_one_of_its_lines_can_be_in(
    start: int, end: int, touched: bool
) -> None:
    assert UNIT.touches(start, end) is touched
