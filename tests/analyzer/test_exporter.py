"""The analyzer's `/metrics`: what is open and who holds what, in bounded numbers and without a person's name."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from analyzer.exporter import MOST_HOLDERS, MOST_INCIDENTS, Passes, exposition
from gpuvigil.faults import FAULTS
from gpuvigil.model import (
    SELFTEST_CLUSTER,
    Allocation,
    Incident,
    OutOfService,
    Severity,
    Subject,
)
from gpuvigil.model.holder import Holder, job_holder, pod_holder, process_holder

from .scene import NOON

INCIDENT = Incident(
    id="1",
    fingerprint="f",
    fault="gpu_lost",
    subject=Subject(cluster="c", node="n1", gpu="GPU-1"),
    severity=Severity.CRITICAL,
    state="open",
    title="",
    since=NOON,
    updated_at=NOON,
)


def held(holder: Holder, number: int = 1, cluster: str = "c") -> Allocation:
    return Allocation(
        subject=Subject(cluster=cluster, node="n1", gpu=f"GPU-{number}"),
        holder=holder,
        user="ada",
        command="train.py",
        started_at=NOON,
        account="physics",
    )


def shown(
    active: Iterable[Incident] = (),
    holders: Iterable[Allocation] | None = (),
    passes: Passes = Passes(),  # noqa: B008 - frozen
) -> dict[str, list[tuple[dict[str, str], float]]]:
    text = exposition(active, holders, passes)
    assert "ada" not in text
    return {
        family.name: [(dict(it.labels), it.value) for it in family.samples]
        for family in text_string_to_metric_families(text)
    }


def named(fault: str) -> dict[str, str]:
    return {"fault": fault, "title": FAULTS[fault].title}


def test_incidents_are_counted_by_node_fault_and_severity() -> None:
    out = OutOfService("DRAIN", "drained: fan")
    other = replace(INCIDENT, fault="gpu_hot", severity=Severity.WARNING, out_of_service=out)
    marked = replace(INCIDENT, subject=Subject(cluster=SELFTEST_CLUSTER, node="n9"))
    older = replace(INCIDENT, fault="of_before", severity=Severity.WARNING)  # in no table any more
    found = shown([INCIDENT, INCIDENT, other, marked, older])
    node = {"cluster": "c", "node": "n1"}
    assert found["gpuvigil_incidents"] == [
        ({**node, **named("gpu_lost"), "severity": "critical", "held": "no"}, 2),
        ({**node, **named("gpu_hot"), "severity": "warning", "held": "yes"}, 1),
        (
            {
                **node,
                "fault": "of_before",
                "title": "of_before",
                "severity": "warning",
                "held": "no",
            },
            1,
        ),
    ]
    assert found["gpuvigil_incidents_not_shown"] == [({}, 0)]


@pytest.mark.parametrize(("count", "hidden"), [(MOST_INCIDENTS, 0), (MOST_INCIDENTS + 1, 1)])
def test_an_outage_shows_so_many_series_and_the_most_severe_first(count: int, hidden: int) -> None:
    info = replace(INCIDENT, severity=Severity.INFO)
    many = [
        replace(info, subject=Subject(cluster="c", node=f"n{number}"))
        for number in range(count - 1)
    ]
    found = shown([*many, INCIDENT])
    assert len(found["gpuvigil_incidents"]) == MOST_INCIDENTS
    assert found["gpuvigil_incidents"][0][0]["severity"] == "critical"
    assert found["gpuvigil_incidents_not_shown"] == [({}, hidden)]


def test_jobs_and_pods_are_named_and_processes_are_not() -> None:
    alike = [held(process_holder(4711), 3), held(process_holder(4712), 3)]
    marked = held(job_holder(9), 4, SELFTEST_CLUSTER)
    found = shown([], [held(job_holder(17)), held(pod_holder("train/llama-0"), 2), *alike, marked])
    assert [it["holder"] for it, _ in found["gpuvigil_gpu_held"]] == [
        "job 17",
        "pod train/llama-0",
        "process",
    ]
    assert found["gpuvigil_gpu_held"][0][0]["account"] == "physics"
    assert "gpuvigil_gpu_held" not in shown([], None)


@pytest.mark.medium
def test_holders_are_bounded_too() -> None:
    many = [held(job_holder(number), number) for number in range(MOST_HOLDERS + 1)]
    assert len(shown([], many)["gpuvigil_gpu_held"]) == MOST_HOLDERS
    assert len(shown([], many[1:])["gpuvigil_gpu_held"]) == MOST_HOLDERS


def test_passes_are_told_from_the_first_one_on() -> None:
    assert shown()["gpuvigil_analyzer_last_pass_timestamp_seconds"] == []
    found = shown(passes=Passes(count=3, seconds=0.6, last_at=1_800_000_000.0, failing=1))
    assert found["gpuvigil_analyzer_passes"] == [({}, 3)]
    assert found["gpuvigil_analyzer_pass_seconds"] == [({}, 0.6)]
    assert found["gpuvigil_analyzer_last_pass_timestamp_seconds"] == [({}, 1_800_000_000.0)]
    assert found["gpuvigil_analyzer_failing_detectors"] == [({}, 1)]
