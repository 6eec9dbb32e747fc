"""Who is blamed for idle GPUs, and why jobs ended, held against the truth; and the committed slice."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from accounting.efficiency.idle_reason import Idleness
from accounting.job_ending import EndCause
from evaluation.holders import play
from evaluation.holders.endings import asked_at, judged, over
from evaluation.holders.page import section
from evaluation.holders.scenes import SCENES, boots, staged
from evaluation.holders.spans import Row
from evaluation.holders.truth import Right, Truth
from simulator.fleet import FaultOrder, Fleet, FleetSettings, build
from simulator.fleet.changes import Change, Operation, Quantity
from simulator.fleet.kinds import KINDS

SMALL = FleetSettings(
    seed=10,
    nodes=4,
    days=3.0 / 24.0,
    workloads=("fine-tuning", "notebook", "sweep"),
    life=False,
    faults=(
        FaultOrder(kind="off the bus", node=1, start_seconds=3600.0, seconds=5400.0, gpu=0),
        FaultOrder(kind="dead node", node=2, start_seconds=3600.0, seconds=5400.0),
    ),
)


def test_every_way_to_blame_somebody_and_every_way_not_to_has_a_scene() -> None:
    blamed = {scene.why for scene in SCENES if scene.why is not None and scene.why.blames}
    # The fleet has no inference servers that could be asked.
    assert blamed == {one for one in Idleness if one.blames} - {Idleness.NO_REQUESTS}
    assert {scene.why for scene in SCENES} >= {Idleness.STANDBY, None}


def test_one_seed_makes_the_same_scenes_and_the_fleet_itself_stays_as_it_is() -> None:
    first, second = staged(SMALL), staged(SMALL)
    assert first.scenes == second.scenes
    assert first.scenes
    assert first.changes == build(SMALL).plan.changes
    assert first.fleet.plan.changes == second.fleet.plan.changes
    assert first.fleet.plan.changes[: len(first.changes)] == first.changes


def test_what_is_true_of_a_gpu_is_what_its_job_was_made_to_do() -> None:
    scene = staged(SMALL)
    truth = Truth(scene)
    said = truth.at(3.0 * 3600.0, 1800.0)
    assert {one.right for one in said.values()} > {Right.BUSY, Right.OWN}
    for gpu, one in said.items():
        job = scene.fleet.plan.jobs[one.job]
        assert gpu in job.gpus
        made = scene.scenes.get(job.number)
        if one.right is Right.OWN and made is not None and gpu in scene.idle_gpus[job.number]:
            assert one.why is made.why
        if one.right is Right.BUSY:
            assert truth.used[-180 - 12 :, gpu].max() > 0.0 or job.start > 3600.0


def of_kind(kind: str, *workloads: str, nodes: int = 4) -> FleetSettings:
    """The same fault on each of the nodes."""
    gpu = None if KINDS[kind].target == "node" else 0
    return replace(
        SMALL,
        nodes=nodes,
        workloads=workloads,
        faults=tuple(
            FaultOrder(kind=kind, node=node, start_seconds=3600.0, seconds=5400.0, gpu=gpu)
            for node in range(nodes)
        ),
    )


def test_while_storage_does_not_answer_one_node_the_rest_of_its_job_waits_too() -> None:
    one = replace(of_kind("stale mount", "data parallel"), faults=STALE)
    scene = staged(one)
    waits = scene.changes[len(build(one).plan.changes) :]
    rest = {gpu for change in waits for gpu in change.targets}
    assert rest
    assert all(gpu // 8 != STALE[0].node for gpu in rest)
    said = Truth(scene).at(2.0 * 3600.0, 1800.0)
    assert {said[gpu].right for gpu in rest if gpu in said} == {Right.EXCUSED}


STALE = of_kind("stale mount").faults[:1]


@pytest.mark.parametrize(
    ("kind", "hangs"),
    [
        ("off the bus", True),
        ("missing since boot", True),
        ("zombie memory", False),
        ("MIG mode drift", False),
    ],
)
def test_a_job_hangs_until_its_fault_is_over_or_its_node_boots_and_none_that_is_over(
    kind: str, hangs: bool
) -> None:
    scene = staged(of_kind(kind, "fine-tuning"))
    plan = scene.fleet.plan
    jobs = [job for job in plan.jobs if job.number in scene.hanging]
    assert bool(jobs) is hangs
    for job in jobs:
        assert job.stopped == 3600.0 < job.end <= 9000.0
        assert not [*boots(plan, job)]


def test_of_a_job_that_outlives_a_boot_by_its_plan_either_is_right() -> None:
    scene = staged(SMALL)
    plan, said = scene.fleet.plan, Truth(scene).at(9000.0 + 900.0, 1800.0)
    outlived = {row for row, job in enumerate(plan.jobs) if [*boots(plan, job)]}
    rights = {row: {one.right for one in said.values() if one.job == row} for row in outlived}
    assert {Right.EDGE} in rights.values()
    assert all(found <= {Right.EDGE} for found in rights.values())


def test_a_fault_excuses_who_would_have_computed_and_may_excuse_who_would_not() -> None:
    scene = staged(of_kind("fabric manager", "fine-tuning", "notebook", nodes=8))
    rights: dict[str, set[Right]] = {"fine-tuning": set(), "notebook": set()}
    for one in Truth(scene).at(3600.0 + 2400.0, 1800.0).values():
        job = scene.fleet.plan.jobs[one.job]
        if job.number in scene.hanging:
            rights[job.workload.key].add(one.right)
    assert rights["fine-tuning"] == {Right.EXCUSED}
    assert Right.EITHER in rights["notebook"]


@pytest.mark.parametrize(("is_read", "right"), [(True, Right.BUSY), (False, Right.EDGE)])
def test_of_work_while_nobody_read_the_node_nobody_can_tell(is_read: bool, right: Right) -> None:
    quiet = replace(SMALL, faults=(), workloads=("fine-tuning",))
    scene = staged(quiet)
    plan = scene.fleet.plan
    job = next(
        job
        for job in plan.jobs
        if job.number not in scene.scenes and job.start < 6000.0 and job.end > 9000.0
    )
    work = [(Quantity.WORK, "stall", job.gpus, *span) for span in ((6500.0, 8000.0), (8010.0, 9e3))]
    if not is_read:
        work.append((Quantity.DELIVERY, "silent", (job.gpus[0] // 8,), 7990.0, 8020.0))
    changes = tuple(
        Change(on=on, name=name, targets=targets, start=start, end=end, how=Operation.SET)
        for on, name, targets, start, end in work
    )
    played = replace(plan, changes=(*plan.changes, *changes))
    said = Truth(replace(scene, fleet=Fleet(quiet, played))).at(9000.0, 1800.0)
    assert {said[gpu].right for gpu in job.gpus} == {right}


def test_of_each_job_that_ended_the_truth_is_the_plans_and_faults_are_told_from_programs() -> None:
    fleet = build(SMALL)
    ends = over(fleet, frozenset())
    by_fault = {one.name: one for one in ends if one.job.struck}
    assert by_fault["dead node"].true is EndCause.NODE
    assert by_fault["dead node"].ending.state == "NODE_FAIL"
    programs = [one for one in ends if one.true is EndCause.PROGRAM]
    assert programs
    assert all(one.ending.state == "FAILED" and not one.job.struck for one in programs)
    assert all(0.0 <= one.job.end < 3.0 * 3600.0 for one in ends)
    counted = judged(ends, [], {one.job.number: () for one in ends})
    assert counted.total() == len(ends)
    assert not any(said == "hardware" for _, said, _ in counted)
    last = max(ends, key=lambda one: one.job.end)
    assert asked_at(last, SMALL.end) <= SMALL.end


def test_a_part_has_each_kind_once_and_sound_nodes() -> None:
    fleet = play.settings_of(play.REPORT, play.seed_of(play.REPORT, 4, "0" * 40))
    assert sorted(order.kind for order in fleet.faults) == sorted(KINDS)
    assert fleet.nodes > len(KINDS)
    assert fleet.host_sensors


def test_nobody_knows_the_seeds_of_the_report_before_the_commit_is_there() -> None:
    seeds = {play.seed_of(play.REPORT, it, commit) for it in range(3) for commit in ("a", "b")}
    assert len(seeds) == 6
    assert play.seed_of(play.SLICE, 0, "a") == play.seed_of(play.SLICE, 0, "b")


def test_the_page_counts_spans_jobs_and_look_alikes() -> None:
    def row(sort: str, job: int, right: bool, gpus: int = 1, **more: object) -> list[object]:
        whole = Row(sort=sort, job=job, name="notebook", why="", said="", right=right, gpus=gpus)
        return replace(whole, **more).to_json()  # type: ignore[arg-type]

    parked = {"why": "memory parked", "said": "memory parked"}
    run = {
        "part": "report",
        "seed": 2000,
        "fleet": "f",
        "code": "c",
        "commit": "0123456789ab",
        "command": "python -m evaluation.holders.play report 1",
        "idle": [
            row("own", 1, True, 3, seconds=300.0, **parked),
            row("own", 2, False, why="no process"),
            row("blamed", 1, True, 4),
            row("alike", 5, False, 2),
            row("alike", 6, True, 6),
        ],
        "endings": [["program", "hardware", "sweep", 1], ["program", "program", "sweep", 9]],
    }
    text = "\n".join(section({"runs": {"report/2000": run}}))
    assert "0.750 (0.301 to 0.954, 3 of 4)" in text
    assert "1.000 (0.510 to 1.000, 4 of 4)" in text
    assert "2 of 8" in text
    assert "| no process |  | 1 |" in text
    assert "| 1 of 10 |" in text
    assert "sweep 1" in text


@pytest.mark.server
@pytest.mark.site
@pytest.mark.timeout(600)
def test_the_slice_gives_the_committed_numbers() -> None:
    seed = play.seed_of(play.SLICE, 0, "")
    committed = play.read()["runs"][f"{play.SLICE}/{seed}"]
    found = json.loads(json.dumps(play.play(play.settings_of(play.SLICE, seed))))
    again = "play it again: python -m evaluation.holders.play slice"
    assert found == {key: committed[key] for key in ("idle", "endings")}, again
    rows = [Row.from_json(values) for values in found["idle"]]
    assert {row.sort for row in rows} >= {"own", "blamed", "excused", "alike", "given"}
    assert timedelta(seconds=max(row.seconds or 0.0 for row in rows)) < timedelta(minutes=30)
