"""GPU-hours that incidents hit are counted once, and never more than there were."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuvigil.model import Impact, Severity, Subject
from report.model.content import Report
from report.sections.build import build
from tests.report.weeks import END, START, facts, gpu, incident, share, usage

DAY = timedelta(days=1)


def port(number: int) -> Subject:
    return Subject(cluster="alpha", node="n1", device=f"mlx5_{number}", port="1")


def cell(report: Report, sheet: str, row: str, column: str) -> object:
    found = report.sheet(sheet)
    assert found is not None
    at = [one.key for one in found.columns].index(column)
    return next(it[at] for it in found.rows if it[0] == row)


@pytest.mark.medium
def test_eight_ports_of_one_job_hold_up_no_more_than_the_job_held() -> None:
    week = usage([share("job 1", gpus=512)], gpus=512)
    hit = Impact(gpus=512, holders=("job 1",))
    down = [
        incident(
            "port_down",
            port(n),
            since=START,
            until=END,
            severity=Severity.WARNING,
            title="Network port is down",
            label=f"n1 mlx5_{n}",
            impact=hit,
        )
        for n in range(8)
    ]
    report = build(facts(week, incidents=down))
    most = 512 * 168.0
    assert cell(report, "losses", "behind a bad link", "gpu_hours") == (0.0, most)
    assert cell(report, "faults", "Network port is down", "gpu_hours") == most
    assert cell(report, "network", "n1 mlx5_0", "gpu_hours") == (0.0, most)
    # A day of one, a day of another that begins within it: a day and a half.
    two = [
        replace(down[0], resolved_at=START + DAY),
        replace(down[1], since=START + DAY / 2, resolved_at=START + 1.5 * DAY),
    ]
    report = build(facts(week, incidents=two))
    assert cell(report, "losses", "behind a bad link", "gpu_hours") == (0.0, 512 * 36.0)
    assert cell(report, "faults", "Network port is down", "gpu_hours") == 512 * 36.0


def test_what_another_incident_explains_is_counted_with_that_one() -> None:
    hit = Impact(gpus=4, holders=("job 1",))
    down = incident("port_down", port(0), title="Network port is down", impact=hit)
    report = build(facts(incidents=[replace(down, covered_by="f")]))
    assert cell(report, "losses", "behind a bad link", "gpu_hours") == 0.0


def test_a_broken_gpu_counts_for_as_long_as_it_is_broken_and_its_job_besides() -> None:
    """A GPU is lost for a day, and the four GPUs of its job wait; no job holds the other one."""
    hit = Impact(gpus=4, holders=("job 1",))
    lost = incident(impact=hit)
    again = replace(lost, id="again", title=lost.title)
    idle = incident(subject=gpu(5), label="n1 GPU 5", impact=Impact(gpus=1))
    report = build(facts(incidents=[lost, again, idle]))
    assert cell(report, "faults", "GPU fell off the bus", "gpu_hours") == 5 * 24.0
    gone = usage([share("job 2")])
    ended = replace(lost, impact=Impact(gpus=1, holders=("job 1",)), since=START, resolved_at=END)
    report = build(facts(gone, incidents=[ended]))
    assert cell(report, "faults", "GPU fell off the bus", "gpu_hours") == 168.0
