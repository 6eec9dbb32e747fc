"""What steps add: how words about jobs are judged, and what is written of them."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from evaluation.training_jobs.bounds import window
from evaluation.training_jobs.collectives import is_read
from evaluation.training_jobs.fleets import HANGS, STRAGGLERS
from evaluation.training_jobs.judging import IncidentSpan, blames, judged
from evaluation.training_jobs.section import section, sound_section
from gpuvigil.model import Subject
from gpuvigil.store import Aggregate, Function
from simulator.fleet import FaultOrder, Fleet, FleetSettings, build
from simulator.fleet.jobs import Job
from simulator.fleet.kinds import OF_JOBS
from simulator.fleet.steps import makes_steps_from, report_level, step_seconds

BARE = FleetSettings(
    seed=4, nodes=6, days=1.0 / 24.0, gpus_per_node=4, life=False, steps=True, demand=2.0,
    mix=(("talking inside", 1.0),),
)  # fmt: skip
START, LASTS = 1500.0, 900.0


def job(seed: int = BARE.seed) -> Job:
    jobs = build(replace(BARE, seed=seed)).plan.jobs
    return next(it for it in jobs if it.start < 0.0 and it.end > 3600.0)


def fleet(kind: str, start: float = START, seed: int = BARE.seed) -> Fleet:
    gpu = job(seed).gpus[1]
    order = FaultOrder(
        kind=kind, node=gpu // 4, gpu=gpu % 4, start_seconds=start, seconds=LASTS,
        magnitude=0.3 if kind in STRAGGLERS else None,
    )  # fmt: skip
    return build(replace(BARE, seed=seed, faults=(order,)))


def word(subject: Subject, seconds: float, **more: Any) -> IncidentSpan:
    at = BARE.start + timedelta(seconds=seconds)
    usual = {
        "incident": f"{subject.key} {seconds}", "fault": "gpu_slow", "condition": "slow_rank",
        "subject": subject, "title": "slow", "at": at, "since": at, "loud_at": at,
        "members": frozenset(), "waited_for": (),
    }  # fmt: skip
    return IncidentSpan(**{**usual, **more})


def test_each_kind_that_is_dealt_is_one_that_jobs_have() -> None:
    assert set(HANGS) < set(OF_JOBS)
    assert set(OF_JOBS) - set(HANGS) <= set(STRAGGLERS)


@pytest.mark.parametrize(
    ("seconds", "found"),
    [(START - 60.0, False), (START + 30.0, True), (START + LASTS + 700.0, True),
     (START + LASTS + 800.0, False)],
)  # fmt: skip
def test_a_word_about_the_very_gpu_while_it_is_slow_has_found_it(
    seconds: float, found: bool
) -> None:
    of = fleet("slow rank")
    [truth] = of.truths()
    said = word(truth.subject, seconds)
    said.until = said.at + timedelta(seconds=30)
    result = judged(of, [said])
    [fault] = result["faults"]
    assert (fault["loud"] is not None) is found
    assert len(result["wrong"]) == (not found)
    if found:
        assert fault["seconds"] == pytest.approx(seconds - START)
        assert fault["culprit"]


def test_who_is_slow_from_its_job_s_start_is_of_that_job_and_not_of_a_larger_one_just_before() -> (
    None
):
    long = replace(BARE, days=1.0, mix=(("even", 0.5), ("talking inside", 0.5)))
    jobs = build(long).plan.jobs
    then = next(
        b for a in jobs for b in jobs
        if a.end == b.start and set(b.gpus) < set(a.gpus) and 0.0 < b.start < 80000.0
    )  # fmt: skip
    order = FaultOrder(
        kind="slow rank", node=then.gpus[0] // 4, gpu=then.gpus[0] % 4,
        start_seconds=float(round(then.start - 1.0)), seconds=LASTS, magnitude=0.3,
    )  # fmt: skip
    [fault] = judged(build(replace(long, faults=(order,))), [])["faults"]
    assert (fault["job"], fault["from_start"]) == (then.number, True)


def test_a_word_about_another_gpu_of_the_job_is_wrong() -> None:
    of = fleet("slow rank")
    [truth] = of.truths()
    other = next(it for it in of.truths()[0].affected or _others(of, truth.subject))
    result = judged(of, [word(other, START + 30.0)])
    assert result["faults"][0]["loud"] is None
    assert [it["subject"] for it in result["wrong"]] == [other.key]


def _others(of: Fleet, subject: Subject) -> list[Subject]:
    topology = of.plan.topology
    mine = [topology.gpu_subject(it) for it in range(topology.gpus)]
    return [it for it in mine if it.node == subject.node and it != subject]


@pytest.mark.parametrize(
    ("named", "culprit"),
    [(("rank 1, GPU 1: stopped",), True), (("rank 2, GPU 2: stopped",), False)],
)
def test_of_a_hang_the_very_rank_must_be_named(named: tuple[str, ...], culprit: bool) -> None:
    of = fleet("stopped rank")
    [truth] = of.truths()
    said = word(truth.subject.of_node(), START + 70.0, fault="gpu_hung", condition="no_steps", waited_for=named)  # fmt: skip
    result = judged(of, [said])
    [fault] = result["faults"]
    assert (fault["loud"], fault["culprit"], result["wrong"]) == (70.0, culprit, [])


@pytest.mark.parametrize(
    ("kind", "steps", "shows_after_it"),
    [
        # How many steps before the pause it begins; within it where that is less than none.
        ("slow rank", 2.9, True),
        ("slow rank", 3.1, False),
        ("slow rank", -1.0, True),
        ("stopped rank", -1.0, True),
        ("stopped rank", 1.0, False),
        ("dead process", -1.0, False),
    ],
)
def test_what_begins_in_a_pause_shows_when_that_is_over(
    kind: str, steps: float, shows_after_it: bool
) -> None:
    mine = job()
    pause = next(it for it in map(float, range(900, 2700)) if makes_steps_from(mine, it) > it)
    over = makes_steps_from(mine, pause)
    # Of the pause's first second some is over.
    pause = over - mine.workload.checkpoint_seconds
    start = round(pause - steps * (step_seconds(mine) or 0.0), 3)
    of = fleet(kind, start)
    [truth] = of.truths()
    hangs = {} if kind in STRAGGLERS else {"fault": "gpu_hung", "condition": "no_steps"}
    [fault] = judged(of, [word(truth.subject, over + 100.0, **hangs)])["faults"]
    since = over if shows_after_it else start
    assert fault["seconds"] == pytest.approx(over + 100.0 - since, abs=0.01)


@pytest.mark.parametrize(
    ("condition", "title", "hardware"),
    [
        ("", "GPU slows its job down", True),
        ("slow_rank", "GPU slows its job down: its rank's own work takes longer", True),
        ("slow_rank", "Node slows its job down: its ranks' own work takes longer", True),
        ("slow_rank", "A rank of the job has become slow: its own work takes longer", False),
        ("uneven_stage", "Some ranks of the job have had more to do since it began", False),
        ("last_in_collectives", "A rank of the job comes last to its collectives", False),
        ("last_in_collectives", "GPU slows its job down: its rank comes last", True),
        ("node_clocks", "Job waits for a node whose GPUs all run at lower clocks", False),
    ],
)
def test_a_slow_rank_that_is_called_its_gpu_s_fault_blames_hardware(
    condition: str, title: str, hardware: bool
) -> None:
    assert blames(condition, title) is hardware


def test_healthy_hours_and_pauses_are_those_without_a_fault() -> None:
    well, sick = (judged(it, [])["healthy"]["talking inside"] for it in (build(BARE), fleet("slow rank")))  # fmt: skip
    # Its fault, and as long as what is said may be an echo of it.
    assert well["hours"] - sick["hours"] == pytest.approx((LASTS + 720.0) / 3600.0, abs=0.01)
    assert 0.0 < sick["pauses"] < well["pauses"]


def test_a_table_is_asked_as_a_store_is() -> None:
    noon = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)
    table = pa.table(
        {
            "uuid": ["b", "a", "a", "a"],
            "at": [noon + timedelta(seconds=it) for it in (0, 20, 0, 10)],
            "moved": [5, 2, 3, 7],
            "watts": [1.0, 3.0, 1.0, None],
        }
    )
    asked = [
        Aggregate(function=function, field=name)
        for function, name in (
            (Function.INCREASE, "moved"), (Function.MEAN, "watts"), (Function.LAST, "watts"),
            (Function.COUNT, "watts"), (Function.MAX, "absent"),
        )
    ]  # fmt: skip
    first, second = window(table, asked, ("uuid",))
    assert (first["uuid"], first["samples"], second["uuid"]) == ("a", 3, "b")
    # From 3 to 7, then anew from 0 to 2.
    assert (first["moved_increase"], second["moved_increase"]) == (6.0, None)
    assert (first["watts_mean"], first["watts_last"], first["watts_count"]) == (2.0, 3.0, 2.0)
    assert first["absent_max"] is None
    assert first["last_at"] - first["first_at"] == timedelta(seconds=20)


def test_the_section_counts_what_was_found_missed_and_wrong() -> None:
    def fault(kind: str, loud: float | None, **more: Any) -> dict[str, Any]:
        usual = {"kind": kind, "loud": loud, "seconds": loud, "tells": "own", "from_start": False,
                 "culprit": loud is not None, "step": 1.0, "onset": 0.0}  # fmt: skip
        return {**usual, **more}

    one = {
        "seed": 7,
        "node_days": 4.0,
        "faults": [
            fault("slow rank", 40.0),
            fault("slow rank", None),
            fault("dead process", 12.0),
            fault("dead process", 16.0),
        ],
        "wrong": [
            {
                "slow": True,
                "loud": True,
                "blames": True,
                "tells": "own",
                "fault": "gpu_slow",
                "workload": "unlike",
            }
        ],
        "healthy": {"even": {"hours": 100.0, "pauses": 2000.0}},
        "bounds": [{"truth": "compute", "said": "compute", "tells": "own"}],
    }
    text = "\n".join(section({"command": "x", "commit": "c" * 40, "fleet": "f", "fleets": [one]}))
    assert "NCCL Inspector's files" not in text
    assert "| its ranks' own work | 2 | 0.50 (0.09 to 0.91, 1 of 2)" in text
    assert "| dead process | its ranks' own work | 2 | 1.00 (0.34 to 1.00, 2 of 2) | 0.50" in text
    assert "hardware was blamed 1 time (10.0 in 1,000 job-hours)" in text
    assert "| F1 of stragglers of 0.95 where ranks report their own work | 0.50 | missed |" in text
    assert "NCCL Inspector is read" not in text
    assert "within 15 s | 0.50 (0.09 to 0.91, 1 of 2) | missed |" in text
    assert "| no false hang in 10,000 pauses | 0 in 2000 | none, in fewer than asked for |" in text
    assert "1,000 healthy job-hours | 1 in 100, 0 of them of such jobs | missed |" in text
    assert "| compute | 1.00 (0.21 to 1.00, 1 of 1) | - | - |" in text
    result = {"command": "y 100", "commit": None, "fleet": "f", "fleets": [one]}
    assert "No play is kept." in "\n".join(sound_section(None))
    sound = "\n".join(sound_section(result))
    assert "`y 100`: 1 fleet of 4 hours (4 node-days) without a fault" in sound
    assert "1,000 healthy job-hours | 1 in 100, 0 of them of such jobs | missed |" in sound
    assert "In 100 healthy job-hours with 2000 pauses" in sound
    assert "read GPUs and nodes only" in sound
    last = [{"id": None, "seconds": None, "workload": key} for key in ("staged", "even")]
    read = {**one, "read": 0.2, "last": last}
    sound = "\n".join(sound_section({**result, "fleets": [read]}))
    assert "read GPUs, nodes, and NCCL Inspector's files of 20 % of the jobs" in sound
    assert "reported as last 2 times, 1 of them in jobs split unevenly" in sound


def test_who_comes_last_is_counted_of_jobs_whose_collectives_are_read() -> None:
    usual = {"kind": "slow rank", "seconds": 40.0, "tells": "steps", "from_start": False,
             "culprit": True, "step": 1.0, "onset": 0.0}  # fmt: skip
    faults = [{**usual, "loud": 60.0, "id": "a", "read": True}, {**usual, "loud": None, "id": "b"}]
    said = [("a", 360.0, "even"), ("b", 240.0, "even"), ("c", None, "even"), (None, None, "staged")]
    last = [{"id": name, "seconds": at, "workload": key} for name, at, key in said]
    one = {"seed": 7, "node_days": 4.0, "faults": faults, "wrong": [], "healthy": {}, "bounds": []}
    result = {"command": "x", "commit": "c" * 40, "fleet": "f", "fleets": [{**one, "last": last}]}
    text = "\n".join(section(result))
    assert "where ranks report less, and NCCL Inspector is read | 1.00 | met |" in text
    assert (
        "where ranks report only steps or nothing, and NCCL Inspector is not read | 0.00 | missed |"
        in text
    )
    assert "0.67 (0.21 to 0.94, 2 of 3) came last, half of them within 360 s" in text
    assert "1 of them got no warning" in text
    assert "reported as last 1 time, 1 of them in jobs split unevenly" in text


@pytest.mark.parametrize(
    ("seconds", "of"),
    [(START - 1.0, None), (START + 300.0, 300.0), (START + LASTS + 719.0, LASTS + 719.0),
     (START + LASTS + 721.0, None)],
)  # fmt: skip
def test_who_comes_last_while_it_is_slow_is_a_straggler(seconds: float, of: float | None) -> None:
    mine = next(it for it in range(1, 40) if is_read(job(it)))
    slow = fleet("slow rank", seed=mine)
    [truth] = slow.truths()
    at = BARE.start + timedelta(seconds=seconds)
    straggler, *others = judged(slow, [], [(at, truth.subject)])["last"]
    assert (straggler["id"], straggler["seconds"]) == (truth.id, of)
    assert [it["id"] for it in others] == ([] if of else [None])


def test_who_tells_what_is_the_job_s_and_not_the_fault_s() -> None:
    with_fault, without = fleet("slow rank").plan.jobs, build(BARE).plan.jobs
    assert [report_level(it) for it in with_fault] == [report_level(it) for it in without]
