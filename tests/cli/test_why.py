"""What is told of a rack's silence belongs to the jobs of the nodes that fell silent, and to nobody else's."""

from dataclasses import replace

import pytest

from accounting.job_ending import EndCause, Ending, verdict
from cli.tables.why import COLUMNS, grid
from dashboard.lists.one_job import KnownJob, of_nodes
from dashboard.lists.table import Grid, json_text, text
from gpuvigil.model import Holder, Incident, Severity, Subject
from tests.dashboard.scene import LONG_AGO, NOON, allocation, gpu, incident, node

FIRST, SECOND, THIRD, FOURTH = (node(f"n-{n}", "prod") for n in range(1, 5))


def of_rack(*silent: Subject) -> Incident:
    """As the analyzer writes it: about the rack's first node, which is among the members in any case."""
    members = {FIRST.key, *(one.key for one in silent), *(gpu(0, one).key for one in silent)}
    whole = incident("node_silent", FIRST, Severity.WARNING, label="rack a")
    return replace(whole, members=tuple(sorted(members)))


def why(told: Incident, *nodes: Subject) -> EndCause:
    gpus = frozenset(gpu(0, one).key for one in nodes)
    ended = Ending(state="FAILED", ended_at=NOON, exit_code="1:0", gpus=gpus, nodes=2)
    assert told.since == LONG_AGO
    return verdict(ended, [], of_nodes([told, told], nodes)).why


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ((SECOND, FOURTH), EndCause.NODE),
        ((FOURTH, THIRD), EndCause.NODE),
        ((FIRST, FOURTH), EndCause.PROGRAM),  # the first node lives, and stands for its rack
        ((FOURTH,), EndCause.PROGRAM),
    ],
)
def test_a_racks_silence_ends_the_jobs_of_the_nodes_that_fell_silent(
    nodes: tuple[Subject, ...], said: EndCause
) -> None:
    assert why(of_rack(SECOND, THIRD), *nodes) is said


def test_it_is_told_once_and_of_the_jobs_own_node() -> None:
    (found,) = of_nodes([of_rack(SECOND, THIRD)] * 2, (SECOND, THIRD, FOURTH))
    assert found.subject == SECOND
    (found,) = of_nodes([of_rack(FIRST, SECOND, THIRD)], (FIRST,))
    assert found.subject == FIRST
    own = incident("gpu_lost", gpu(0, FOURTH), Severity.CRITICAL)
    assert of_nodes([own], (FOURTH,)) == [own]
    assert of_nodes([own], (THIRD,)) == []


def test_of_a_job_that_runs_it_says_what_stands_on_its_nodes() -> None:
    held = (allocation(gpu(0, FIRST), "job 7", "ann"),)
    told = KnownJob(holder=Holder.parse("job 7"), cluster="prod", job=None, allocations=held)
    lost = incident("gpu_lost", gpu(0, FIRST), Severity.CRITICAL)
    running = verdict(told.ending, ())
    said = text(grid(told, running, [lost]), 80)
    assert said.startswith("job 7 of ann has not ended: it is running.")
    assert "gpu_lost" in said
    known = grid(told, running, [lost], {gpu(0, FIRST).gpu or "": 3})
    assert "  n-1 GPU 3 " in text(known, 80)
    assert f"n-1 {gpu(0, FIRST).gpu}" in json_text(known)
    calm = text(grid(told, running), 80)
    assert calm.splitlines()[-1] == "Its nodes have no open incident."
    assert "before its end" not in said + calm


def test_its_numbers_have_the_digits_that_matter() -> None:
    values = {"confidence": 0.6011979166666667, "pace_percent": 97.62, "at_risk_gpu_hours": 7.644}
    columns = [one for one in COLUMNS if one.key in values]
    shown = text(Grid(columns=columns, rows=[[values[one.key] for one in columns]]), None)
    assert shown.split()[-4:] == ["0.60", "98", "%", "7.6"]


def test_in_a_pipe_what_is_of_the_job_is_said_once_and_nothing_is_left_out() -> None:
    held = (allocation(gpu(0, FIRST), "job 7", "ann"),)
    told = KnownJob(holder=Holder.parse("job 7"), cluster="prod", job=None, allocations=held)
    lost = [incident("gpu_lost", gpu(n, FIRST), Severity.CRITICAL) for n in range(2)]
    whole = grid(told, verdict(told.ending, ()), lost)
    said = text(whole, None)
    lines = said.splitlines()
    table = lines[lines.index("") + 1 :]
    assert table[0].split("  ")[0].strip() == "AT"
    assert table[0].endswith("SPEAKS FOR")
    assert [line for line in lines if line.startswith("JOB ")] == ["JOB      job 7"]
    assert "USER     ann" in lines
    for row in whole.rows:
        for column, value in zip(whole.columns, row, strict=True):
            assert value is None or column.show(value) in said
    assert "BOUND BY" not in said  # it is not known
    assert "JOB " not in text(whole, 300)
    assert '"job": "job 7"' in json_text(whole)
