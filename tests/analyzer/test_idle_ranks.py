"""Which of a job's GPUs are idle while its others spin, and who is told to be waited for."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from analyzer.detectors.gpu_hung import DETECTOR, hung_jobs
from gpuvigil.model import Finding, Severity, Subject

from .scene import NOON, Scene, allocation, gpu, healthy, incident, node

SPINS: Mapping[str, Any] = {
    "utilization_percent": 100,
    "memory_utilization_percent": 0,
    "power_watts": 130.0,
    "nvlink_receive_bytes": 0,
    "pcie_receive_bytes_per_second": 0.0,
}
IDLE: Mapping[str, Any] = {**SPINS, "utilization_percent": 0, "power_watts": 90.0}


def job(
    count: int, idle: Sequence[Subject], worked: float = 210.0, fields: Mapping[str, Any] = IDLE
) -> Scene:
    """On two nodes with four GPUs each as many of one job; all spin for five minutes, but for these, which worked before."""
    gpus = [gpu(number, index) for number in (1, 2) for index in range(4)][:count]
    scene = replace(
        healthy(nodes=2, gpus=4), allocations=tuple(allocation(it, "job 7") for it in gpus)
    )
    scene = replace(scene, settings=replace(scene.settings, steady_seconds=180.0))
    for it in gpus:
        if it in idle:
            scene = scene.changed(it, {"power_watts": worked}).changed(it, fields, 240.0)
        else:
            scene = scene.changed(it, SPINS, 240.0)
    return scene


def found(scene: Scene) -> Finding:
    (it,) = hung_jobs(scene.window((DETECTOR,)))
    assert it.severity is Severity.WARNING
    return it


def test_a_job_that_spins_waits_for_its_gpu_that_is_idle() -> None:
    it = found(job(8, [gpu(2, 3)]))
    assert (it.subject, it.condition) == (gpu(2, 3), "waits_for_idle")
    assert it.title == "Job waits for a rank whose GPU is idle"
    assert (it.evidence[0].name, it.evidence[0].value) == ("idle meanwhile", "node-2 GPU 3")
    assert (it.members, it.holder) == ((), "")


def test_of_several_the_first_one_s_node_is_told() -> None:
    it = found(job(8, [gpu(1, 2), gpu(2, 3)]))
    assert (it.subject, it.holder) == (node(1), "c|job 7")
    assert set(it.members) == {gpu(n, i) for n in (1, 2) for i in range(4)}
    assert it.title == "Job waits for ranks whose GPUs are idle"


@pytest.mark.parametrize("first", [gpu(1, 0), gpu(2, 0)])
def test_the_first_of_a_node_may_save_or_evaluate_for_the_others(first: Subject) -> None:
    it = found(job(8, [first]))
    assert (it.condition, it.title) == ("", "")
    assert it.evidence[-1].value.endswith(
        "; the first of a job may save or evaluate for the others"
    )
    # So may it be of GPUs whose numbers nobody knows.
    unknown = replace(job(8, [gpu(2, 3)]), inventories=())
    assert found(unknown).condition == ""


@pytest.mark.parametrize(
    ("scene", "is_told"),
    [
        # At every look used less than 5 %.
        (job(8, [gpu(2, 3)], fields={**IDLE, "utilization_percent": 4}), True),
        (job(8, [gpu(2, 3)], fields={**IDLE, "utilization_percent": 5}), False),
        # It drew 30 % of its limit, which none does at rest.
        (job(8, [gpu(2, 3)], worked=210.0), True),
        (job(8, [gpu(2, 3)], worked=209.0), False),
        # Fewer than those that spin, or the only other one.
        (job(8, [gpu(1, 1), gpu(1, 2), gpu(1, 3)]), True),
        (job(8, [gpu(1, 1), gpu(1, 2), gpu(1, 3), gpu(2, 3)]), False),
        (job(2, [gpu(1, 1)]), True),
        (job(3, [gpu(1, 1), gpu(1, 2)]), False),
    ],
)
def test_who_is_idle_worked_before_and_is_one_of_few(scene: Scene, is_told: bool) -> None:
    it = found(scene)
    assert (it.condition == "waits_for_idle") is is_told
    assert ("idle meanwhile" in {one.name for one in it.evidence}) is is_told


def test_another_job_s_idle_gpu_is_waited_for_by_nobody() -> None:
    scene = job(8, [gpu(2, 3)])
    them = tuple(
        allocation(it.subject, "job 8") if it.subject == gpu(2, 3) else it
        for it in scene.allocations
    )
    assert found(replace(scene, allocations=them)).condition == ""
    nobodys = replace(scene, allocations=()).window((DETECTOR,))
    assert {it.condition for it in hung_jobs(nobodys)} == {""}


def test_what_stands_about_the_job_keeps_its_subject() -> None:
    """Also when nothing shows any more that the idle one worked."""
    stands = incident("gpu_hung", gpu(2, 3), condition="waits_for_idle")
    late = job(8, [gpu(2, 3)], worked=90.0)
    assert found(replace(late, recent_incidents=(stands,))).subject == gpu(2, 3)
    other = incident("gpu_hung", node(1), members=[gpu(1, 1).key])
    it = found(replace(job(8, [gpu(2, 3)]), recent_incidents=(other,)))
    assert (it.subject, it.condition) == (node(1), "")
    assert it.evidence[-1].value == "node-2 GPU 3"
    over = replace(other, resolved_at=NOON)
    assert found(replace(job(8, [gpu(2, 3)]), recent_incidents=(over,))).subject == gpu(2, 3)
