"""The list of jobs, as trees of elements."""

from collections.abc import Iterable, Mapping, Sequence

from accounting.cost.money import Prices
from gpuvigil.model import SIMULATED_CLUSTER, with_kind
from gpuvigil.numbers_in_words import counted
from gpuvigil.web import page_links

from ..layout.job_links import of_cell
from ..layout.tree import Node, each, el, wide
from ..lists.job_board import Board
from ..lists.job_list import grid, missing, sorted_rows
from ..lists.job_losses import Reliability, cause_grid, lost_within, sentence, size_grid
from ..lists.table import Column, Grid, Value
from .filters import LONGEST_TEXT, Filters

MOST_ROWS = 100
_NOTE = (
    "Bound, pace and activity cover the last 5 minutes; pace is in percent of the hour before."
    " At risk is what was computed since the last checkpoint, for jobs that report theirs."
)
_DASH = "–"
_SIMULATED = el("span", "SIMULATED: no real hardware", class_="badge simulated")
# The page's column titles, which are longer than a terminal's, by column key.
_RUN = {
    "job": "Job",
    "held_up_by": "Held up by",
    # A phone's screen shows no more columns than up to here.
    "bound": "Bound by",
    "user": "User",
    "gpus": "GPUs",
    "said": "Because",
    "ran_for_seconds": "For",
    "pace_percent": "Pace",
    "step_seconds": "Step, s",
    "sm_activity_percent": "SM activity",
    "checkpoint_age_seconds": "Checkpoint age",
    "at_risk_gpu_hours": "GPU-hours at risk",
    "cost": "Cost",
    "incidents": "Incidents",
    "partition": "Partition",
    "name": "Name",
}
# Style classes of columns: short texts stay on one line, a command is cut.
_SHAPES = {
    "job": "whole",
    "held_up_by": "reason",
    "bound": "whole reason",
    "user": "whole",
    "said": "because",
    "state": "whole",
    "name": "cut",
}
_OVER = {
    "job": "Job",
    "user": "User",
    "state": "State",
    "gpus": "GPUs",
    "ran_for_seconds": "Ran for",
    "ended_at": "Ended",
    "exit_code": "Exit code",
    "partition": "Partition",
    "name": "Name",
}


def page(found: Board, asked: Filters, prices: Prices) -> Sequence[Node]:
    """Return what is held up, then running jobs, recently ended jobs, and what failures cost."""
    running = grid(found.running, (), found.now, prices)
    over, less = grid((), found.over, found.now, prices), missing(found.over_from)
    return each(
        (
            _held_up(found),
            _search(asked),
            _jobs("Running", running, _RUN, asked, "No job is running.", _NOTE),
            _jobs("Ended in the last day", over, _OVER, asked, "None ended.", less),
            *map(_reliability, found.reliability),
        )
    )


def _held_up(found: Board) -> Node:
    """Return how many of the jobs incidents hold up."""
    held = [job for job in found.running if job.holds_up is not None]
    many = counted(len(found.running), "job")
    if not held:
        said = f"No incident holds up any of {many}." if found.running else "No job is running."
        said = "No incident holds up the one running job." if len(found.running) == 1 else said
        kind = "story-head good" if all(job.is_known for job in found.running) else "story-head"
        return el("section", el("h2", said), _unheard(found), class_=kind, key="answer")
    gpus = sum(len(job.gpus) for job in held)
    worst = next(job.holds_up for job in held)
    return el(
        "section",
        el("h2", f"Incidents hold up {len(held):,} of {many}, with {counted(gpus, 'GPU')}."),
        _unheard(found),
        class_=f"story-head {worst.severity.value if worst else 'good'}",
        key="answer",
    )


def _unheard(found: Board) -> Node | None:
    """Return a line on jobs with silent nodes, which are not counted as held up; None without any."""
    silent = [job for job in found.running if job.holds_up is None and not job.is_known]
    if not silent:
        return None
    said = (
        f"{counted(len(silent), 'job')} with {counted(sum(len(job.gpus) for job in silent), 'GPU')}"
    )
    nodes = "a silent node" if len(silent) == 1 else "silent nodes"
    return el(
        "p",
        f"{said} on {nodes}: whether {'it runs' if len(silent) == 1 else 'they run'} is not known.",
    )


def _search(asked: Filters) -> Node:
    kept = {name: value for name, value in asked.given.items() if name != "q"}
    return el(
        "form",
        *(el("input", type="hidden", name=name, value=value) for name, value in kept.items()),
        el(
            "input",
            type="search",
            name="q",
            value=asked.q,
            maxlength=str(LONGEST_TEXT),
            placeholder="Job, user, node, partition, bound",
            aria_label="Text in jobs",
        ),
        el("button", "Filter", type="submit"),
        el("a", "Clear", href=page_links.JOBS, class_="chip") if asked.given else None,
        action=page_links.JOBS,
        class_="search",
        key="search",
    )


def _jobs(
    title: str, table: Grid, names: Mapping[str, str], asked: Filters, empty: str, note: str = ""
) -> Node:
    rows = sorted_rows(table, asked.sort, down=asked.order != "up", text=asked.q)
    left = len(rows) - MOST_ROWS
    said = f"{len(rows):,} of {len(table.rows):,}" if asked.q else f"{len(rows):,}"
    simulated = table.simulated
    return el(
        "section",
        el(
            "h2",
            title,
            el("small", said if table.rows else ""),
            *([" ", _SIMULATED] if simulated else []),
        ),
        wide(_table(table, names, rows[:MOST_ROWS], asked), title)
        if rows
        else el("p", "No matching job." if table.rows else empty, class_="empty"),
        el("p", f"{left:,} more: narrow the filter, or run gpuvigil jobs", class_="sub")
        if left > 0
        else None,
        el("p", note, class_="sub") if note and rows else None,
        key=title,
    )


def _table(
    table: Grid, names: Mapping[str, str], rows: Sequence[Sequence[Value]], asked: Filters
) -> Node:
    """Return a table of the named columns in their order, without empty ones."""
    places = {column.key: place for place, column in enumerate(table.columns)}
    shown = [
        key for key in names if key in places and any(row[places[key]] is not None for row in rows)
    ]
    columns = {key: table.columns[places[key]] for key in shown}
    head = (_head(key, names[key], columns[key], asked) for key in shown)
    lines = (
        el("tr", *(_cell(key, columns[key], row, places) for key in shown), key=_name(row, places))
        for row in rows
    )
    return el("table", el("thead", el("tr", *head)), el("tbody", *lines), class_="jobs")


def _head(key: str, name: str, column: Column, asked: Filters) -> Node:
    """Return a column's head, which sorts by the column on a click."""
    money = f", {column.title.removeprefix('COST ')}" if key == "cost" else ""
    sorts = {"": "descending", "up": "ascending"}.get(asked.order) if asked.sort == key else None
    return el(
        "th",
        el("a", f"{name}{money}", href=asked.by(key).href),
        scope="col",
        class_="number" if column.right else None,
        aria_sort=sorts,
    )


def _name(row: Sequence[Value], places: Mapping[str, int]) -> str:
    return f"{row[places['cluster']]} {row[places['job']]} {row[places['started_at']]}"


def _cell(key: str, column: Column, row: Sequence[Value], places: Mapping[str, int]) -> Node:
    value = row[places[key]]
    kind = "number" if column.right else _SHAPES.get(key)
    if value is None:
        return el("td", _DASH, class_=kind)
    href = _href(key, row, places)
    text = column.show(value)
    cut = text if kind == "cut" else None
    return el("td", el("a", text, href=href) if href else text, class_=kind, title=cut)


def _href(key: str, row: Sequence[Value], places: Mapping[str, int]) -> str:
    """Return the page that a cell links to: that of what it names, or of the incident; "" for none."""
    if key == "held_up_by":
        incident = row[places["incident"]]
        return page_links.incident_page(str(incident)) if incident else ""
    return of_cell(key, row[places[key]], str(row[places["cluster"]]))


def _reliability(found: Reliability) -> Node:
    """Return how often failures end jobs of a cluster, how often to write checkpoints, and what was lost."""
    sizes, causes = size_grid(found), cause_grid(found)
    simulated = found.cluster == SIMULATED_CLUSTER
    return el(
        "section",
        el(
            "h2",
            f"Failures and checkpoints of {with_kind('cluster', found.cluster)}",
            *([" ", _SIMULATED] if simulated else []),
        ),
        el("p", sentence(found)),
        el("p", f"GPU-hours lost: {lost_within(found)}.", class_="sub")
        if found.lost_from
        else None,
        el(
            "div",
            wide(_small(sizes), "Failures by the size of a job") if sizes.rows else None,
            wide(_small(causes), "What failures cost") if causes.rows else None,
            class_="side",
        ),
        el("p", causes.empty, class_="empty") if not causes.rows else None,
        key=f"failures {found.cluster}",
    )


def _small(table: Grid) -> Node:
    head = (
        el("th", _titled(column.title), scope="col", class_="number" if column.right else None)
        for column in table.columns
    )
    return el("table", el("thead", el("tr", *head)), el("tbody", *_lines(table)), class_="small")


def _titled(title: str) -> str:
    """Return a terminal title such as `NODES OF A JOB` in a page's upper and lower case."""
    return title[:1] + title[1:].lower().replace("(ettr)", "(ETTR)").replace("gpu", "GPU")


def _lines(table: Grid) -> Iterable[Node]:
    for row in table.rows:
        cells = (
            el(
                "td",
                _DASH if value is None else column.show(value),
                class_="number" if column.right else None,
            )
            for column, value in zip(table.columns, row, strict=True)
        )
        yield el("tr", *cells)
