"""Which incident of a recording has found which truth."""

from datetime import datetime, timedelta, timezone

import pytest

from evaluation.judge.claims import Claim, IncidentText
from evaluation.judge.fault_names import OF_USE
from evaluation.judge.matching import Verdict
from evaluation.recordings.play import judged
from gpuvigil.model import Severity, Subject
from simulator.fleet import Truth

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def truth_of(subject: Subject, cause: str) -> Truth:
    return Truth(
        id=subject.key,
        fault=cause,
        subject=subject,
        start=NOON,
        end=NOON + timedelta(hours=1),
        detectable_from=NOON,
        cause="in words",
        symptoms=(),
        severity=Severity.WARNING,
        action="",
    )


def incident_of(
    fault: str, subject: Subject, members: tuple[str, ...], severity: Severity = Severity.WARNING
) -> Claim:
    at = NOON + timedelta(minutes=10)
    return Claim(
        id=subject.key,
        fault=fault,
        subject=subject,
        severity=severity,
        texts=((at, IncidentText(title="it hangs")),),
        action="",
        spans=((at, None),),
        members=members,
        loud_from=None if severity is Severity.INFO else at,
    )


@pytest.mark.parametrize(
    ("members", "cause", "is_found"),
    [
        (("c/n2/gpu/A", "c/n1/gpu/B"), "gpu_hung", True),
        (("c/n2/gpu/A", "c/n3/gpu/B"), "gpu_hung", False),
        (("c/n2/gpu/A", "c/n1/gpu/B"), "gpu_slow", False),
        (("c/n2/gpu/A", "c/n1/gpu/B"), "", False),
    ],
)
def test_an_incident_that_lists_a_machine_and_names_the_cause_is_about_it(
    members: tuple[str, ...], cause: str, is_found: bool
) -> None:
    """A job that hangs on several nodes is told about the first of them."""
    truth = truth_of(Subject(cluster="c", node="n1"), cause)
    said = incident_of("gpu_hung", Subject(cluster="c", node="n2"), members)
    assert (judged([truth], [said]).missed == 0) is is_found


GPUS = [Subject(cluster="c", node="n1", gpu=f"GPU-{number}") for number in range(3)]


@pytest.mark.parametrize("joint", [False, True])
def test_each_gpu_of_a_truth_is_found_by_an_incident_of_its_own_or_a_joint_one(joint: bool) -> None:
    idle = next(it for it in sorted(OF_USE) if it.endswith("idle_held"))
    keys = tuple(gpu.key for gpu in GPUS)
    of_node = incident_of(idle, GPUS[0].of_node(), keys, Severity.INFO)
    of_each = [incident_of(idle, gpu, (gpu.key,), Severity.INFO) for gpu in GPUS]
    found = judged([truth_of(gpu, idle) for gpu in GPUS], [of_node] if joint else of_each)
    assert [(one.found, one.cause, one.place) for _, one in found.outcomes] == [(True,) * 3] * 3


def test_any_incident_is_right_for_a_truth_without_a_cause_but_none_of_use() -> None:
    idle = next(it for it in sorted(OF_USE) if it.endswith("idle_held"))
    hangs = incident_of("gpu_hung", GPUS[0], ())
    other = incident_of(idle, GPUS[1], (), Severity.INFO)
    elsewhere = truth_of(Subject(cluster="c", node="n2"), idle)
    found = judged([truth_of(GPUS[0], ""), elsewhere], [hangs, other])
    assert {one.claim.subject: one.verdict for one in found.judged} == {
        GPUS[0]: Verdict.RIGHT,
        GPUS[1]: Verdict.FALSE,
    }
    assert judged([truth_of(GPUS[0], "")], [other]).judged == ()
