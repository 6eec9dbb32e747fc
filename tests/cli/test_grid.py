"""Tables that fit, and say the same to people and to programs."""

import csv
import io
import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from dashboard.lists.table import Column, Grid, csv_text, json_text, length, text, whole

COLUMNS = (
    Column(key="name", title="NAME", flexible=True),
    Column(key="gpus", title="GPUS", show=whole, right=True),
    Column(key="for_seconds", title="FOR", show=length, right=True),
    Column(key="command", title="COMMAND", flexible=True),
)
AT = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def a_grid(*rows: tuple[object, ...], for_people: int | None = None) -> Grid:
    return Grid(columns=COLUMNS, rows=rows, for_people=for_people, head=["head"], notes=["note"])  # type: ignore[arg-type]


ROWS = st.lists(
    st.tuples(
        st.text(max_size=120) | st.none(),
        st.integers(0, 10**6) | st.none(),
        st.timedeltas(timedelta(), timedelta(days=99)) | st.none(),
        st.text(max_size=120) | st.none(),
    ),
    min_size=1,
    max_size=6,
)


@given(ROWS, st.integers(60, 200))
def test_a_table_fits_and_is_one_line_per_row(rows: list[tuple[object, ...]], width: int) -> None:
    head, space, *lines, below, note, end = text(a_grid(*rows), width).split("\n")
    assert (head, space, below, note, end) == ("head", "", "", "note", "")
    assert len(lines) == len(rows) + 1
    assert max(map(len, lines)) <= width
    assert all(line.isprintable() for line in lines)


@given(ROWS)
def test_programs_get_every_value_of_every_row(rows: list[tuple[object, ...]]) -> None:
    grid = a_grid(*rows, for_people=1)
    found = json.loads(json_text(grid))
    assert [list(one) for one in found] == [[column.key for column in COLUMNS]] * len(rows)
    assert [one["gpus"] for one in found] == [row[1] for row in rows]
    assert [one["name"] for one in found] == [row[0] for row in rows]
    lines = list(csv.reader(io.StringIO(csv_text(grid))))
    assert lines[0] == [column.key for column in COLUMNS]
    assert len(lines) == len(rows) + 1


def test_what_was_not_measured_is_no_zero_anywhere() -> None:
    grid = a_grid((None, None, None, None), ("a", 0, timedelta(), ""))
    assert text(grid, 80).splitlines()[3].split() == ["-", "-", "-", "-"]
    assert json.loads(json_text(grid))[0]["gpus"] is None
    assert csv_text(grid).splitlines()[1:] == [",,,", "a,0,0.0,"]


def test_a_spreadsheet_runs_no_name() -> None:
    assert csv_text(a_grid(("=1+1", 1, None, "-x"))).splitlines()[1] == "'=1+1,1,,'-x"


@given(ROWS)
def test_into_a_pipe_goes_everything_uncut(rows: list[tuple[object, ...]]) -> None:
    long = "word " * 60
    grid = replace(a_grid(*rows, for_people=1), head=[long], notes=[long], rows_for_people=1)
    head, space, _, *lines, below, note, end = text(grid, None).split("\n")
    assert (head, space, below, note, end) == (long.rstrip(), "", "", long.rstrip(), "")
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        name, command = ("-" if it is None else it for it in (row[0], row[3]))
        shown = "".join(ch if ch.isprintable() else "?" for ch in f"{name}\n{command}")
        first, last = shown[: len(str(name))], shown[len(str(name)) + 1 :]
        assert line.startswith(first.rstrip() if not last.strip() else first)
        assert line.endswith(last.rstrip())


def test_a_table_without_rows_says_so_into_a_pipe_too() -> None:
    assert text(a_grid(), None) == text(a_grid(), 80) == "head\nnothing\n\nnote\n"


def test_nodes_are_counted_at_a_terminal_alone() -> None:
    column = Column(key="nodes", title="NODES", short=lambda nodes: "n-1 +2")
    grid = Grid(columns=[column], rows=[("n-1 n-2 n-3",)])
    assert text(grid, 80) == "NODES\nn-1 +2\n"
    assert text(grid, None) == "NODES\nn-1 n-2 n-3\n"


def test_more_columns_are_shown_where_there_is_room() -> None:
    grid = a_grid(("a" * 30, 1, None, "b" * 40), for_people=2)
    assert "COMMAND" not in text(grid, 60)
    assert "COMMAND" in text(grid, 120)


def test_what_is_simulated_is_marked_below_a_table_for_people() -> None:
    def said(cluster: str, head: str = "") -> str:
        grid = Grid(
            columns=[Column(key="cluster", title="CLUSTER")], rows=[(cluster,)], head=[head]
        )
        return text(grid, 100)

    assert "(simulated): cluster simulated is no real hardware." in said("simulated")
    assert "(simulated)" not in said("alpha")
    assert said("simulated", "simulated (simulated): 8 GPUs").count("(simulated)") == 1


def test_into_a_pipe_go_the_columns_that_answer_and_it_says_what_the_others_are() -> None:
    """Their values are whole there, and programs have them all."""
    grid = replace(a_grid(("a", 1, timedelta(hours=1), "x" * 99)), piped=2)
    assert text(grid, None).splitlines() == [
        "head",
        "",
        "NAME  GPUS",
        "a        1",
        "",
        "note",
        "-o csv and -o json also have for_seconds, command.",
    ]
    assert "also have" not in text(replace(grid, piped=len(COLUMNS)), None)
    assert "also have" not in text(replace(grid, rows=()), None)
    assert "COMMAND" in text(grid, 200)
    assert list(json.loads(json_text(grid))[0]) == [column.key for column in COLUMNS]
