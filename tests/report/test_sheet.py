"""What of a table people are shown."""

import pytest

from report.formats.html_format import html
from report.model.sheet import Cell, Column, Kind, Sheet
from report.sections.build import build
from tests.report.weeks import facts, share, usage

COLUMNS = (
    Column(key="name", label="Team"),
    Column(key="unfilled", label="Not filled", kind=Kind.HOURS),
    Column(key="change", label="Wasted, vs last week", kind=Kind.MORE),
)


@pytest.mark.parametrize(
    ("last", "shown"),
    [((None, None), ("name", "unfilled")), ((None, 0.0), ("name", "unfilled", "change"))],
)
def test_a_change_against_nothing_is_no_column_and_what_was_not_measured_is_one(
    last: tuple[Cell, Cell], shown: tuple[str, ...]
) -> None:
    rows: tuple[tuple[Cell, ...], ...] = (("vision", None, None), ("nlp", None, last[0]))
    sheet = Sheet(
        key="teams",
        heading="",
        caption="",
        columns=COLUMNS,
        rows=rows,
        total=("all", None, last[1]),
    ).shown
    assert tuple(one.key for one in sheet.columns) == shown
    assert {len(row) for _, row in sheet.cells()} == {len(shown)}


@pytest.mark.parametrize(("project", "listed"), [("vision", False), ("chat", True)])
def test_projects_that_are_the_teams_once_more_have_no_table(project: str, listed: bool) -> None:
    held = [
        share("job 1", account="vision", project=project),
        share("job 2", "bob", account="nlp", project="nlp"),
    ]
    report = build(facts(usage(held)))
    assert report.sheet("teams") is not None
    assert (report.sheet("projects") is not None) == listed


@pytest.mark.medium
def test_a_unit_is_not_parted_and_a_rows_name_is_on_the_left() -> None:
    page = html([build(facts(usage([share(), share("job 2", "bob")])))])
    heads = [one.partition("</thead>")[0] for one in page.split("<thead>")[1:]]
    assert "GPU\u2011h" in "".join(heads)
    assert "GPU-h" not in "".join(heads)
    assert all(not one.startswith('<tr><th scope="col" class="n"') for one in heads)
