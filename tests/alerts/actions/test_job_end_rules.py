"""Which idle jobs are ended, and which never."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.efficiency.idle_reason import FOR_JOBS, Idleness
from alerts.actions.job_end_rules import (
    Ending,
    EndRefusal,
    How,
    Running,
    by_controller,
    by_policy,
    by_slurm,
    end_is_due,
    end_notice,
    has_other_incident,
    within_limits,
)
from alerts.actions.slurm import Slurm
from alerts.idle.idle_notice import IdleHolding, Terms, notice, terms
from alerts.messages.message import message
from alerts.routing.notice import draft, is_idle_end
from gpuvigil.config import ActionsSettings, IdleSettings
from gpuvigil.model import Holder, Incident, Job, Severity, Subject, fingerprint

NOON = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)  # a Friday
MINUTE = timedelta(minutes=1)
GPUS = tuple(Subject(cluster="c", node=f"n{n // 2}", gpu=f"GPU-{n}") for n in range(4))
POLICY = IdleSettings(end_minutes=120.0)
SENT = {"notice 1": NOON - 65 * MINUTE, "notice 2": NOON - 20 * MINUTE}
SINCE = NOON - 125 * MINUTE
HELD = IdleHolding(
    cluster="c",
    holder=Holder.parse("job 17"),
    user="alice",
    gpus=GPUS,
    idle={one.key: SINCE for one in GPUS},
    started_at=NOON - 300 * MINUTE,
    partition="gpu",
)
FOUND = {one.key: Idleness.NO_PROCESS for one in GPUS}


def asked(policy: IdleSettings = POLICY) -> Terms:
    found = terms((policy,), HELD)
    assert found is not None
    return found


def ending(held: IdleHolding = HELD, how: How = How.CANCEL) -> Ending:
    return Ending(held=held, how=how, why=Idleness.NO_PROCESS, asked=asked())


def test_without_a_policy_that_says_so_nothing_is_ever_ended() -> None:
    week = NOON + timedelta(days=7)
    assert not end_is_due(HELD, asked(IdleSettings()), week)
    default = terms((), HELD)
    assert default is not None
    assert not end_is_due(HELD, default, week)
    assert end_is_due(HELD, asked(), NOON)
    assert not end_is_due(HELD, asked(), NOON - 10 * MINUTE)
    assert not end_is_due(replace(HELD, pod="team/train-0"), asked(), week)
    assert not end_is_due(replace(HELD, holder=Holder.parse("processes")), asked(), week)


@pytest.mark.parametrize(
    ("changes", "sent", "found", "used", "why"),
    [
        ({}, SENT, FOUND, None, None),
        ({}, SENT, FOUND, 0.2, None),
        ({}, SENT, FOUND, 0.6, EndRefusal.NOT_NOW),
        ({}, {"notice 1": SENT["notice 1"]}, FOUND, None, EndRefusal.NOTICES_MISSING),
        ({}, {"notice 2": SENT["notice 2"]}, FOUND, None, EndRefusal.NOTICES_MISSING),
        ({}, {**SENT, "notice 2": NOON - 5 * MINUTE}, FOUND, None, EndRefusal.NOT_NOW),
        ({"command": "bash"}, SENT, FOUND, None, EndRefusal.INTERACTIVE),
        ({"command": "jupyter-lab"}, SENT, FOUND, None, EndRefusal.INTERACTIVE),
        ({"idle": {GPUS[0].key: SINCE}}, SENT, FOUND, None, EndRefusal.COMPUTES),
        (
            {"idle": {**HELD.idle, GPUS[3].key: NOON - MINUTE}},
            SENT,
            FOUND,
            None,
            EndRefusal.COMPUTES,
        ),
        ({}, SENT, {GPUS[0].key: Idleness.NO_PROCESS}, None, EndRefusal.COMPUTES),
        ({}, SENT, {}, None, EndRefusal.COMPUTES),
        *(
            ({}, SENT, {**FOUND, GPUS[2].key: doubt}, None, EndRefusal.EXCUSED)
            for doubt in Idleness
            if not doubt.blames
        ),
    ],
)
def test_a_policy_and_what_was_measured_speak_against_an_end(
    changes: Mapping[str, Any],
    sent: Mapping[str, datetime],
    found: Mapping[str, Idleness],
    used: float | None,
    why: EndRefusal | None,
) -> None:
    assert by_policy(replace(HELD, **changes), asked(), sent, found, used, NOON) == why


def test_on_a_day_without_notices_nothing_is_ended() -> None:
    weekend = asked(replace(POLICY, days=("sat-sun",)))
    assert by_policy(HELD, weekend, SENT, FOUND, None, NOON) is EndRefusal.NOT_NOW


def an_incident(subject: Subject, *members: Subject, **changes: Any) -> Incident:
    given: dict[str, Any] = {"fault": "port_down", "severity": Severity.WARNING, **changes}
    return Incident(
        id="i",
        fingerprint=fingerprint(given["fault"], subject),
        subject=subject,
        state="open",
        title="t",
        since=NOON,
        updated_at=NOON,
        members=tuple(one.key for one in members),
        **given,
    )


def node(name: str, cluster: str = "c") -> Subject:
    return Subject(cluster=cluster, node=name)


@pytest.mark.parametrize(
    ("active", "holds"),
    [
        (an_incident(node("n1")), True),
        (an_incident(Subject(cluster="c", node="n0", device="mlx5_0", port="1")), True),
        (an_incident(GPUS[3]), True),
        (an_incident(node("n7"), *(node(f"n{n}") for n in range(7, 40))), True),  # of a switch
        (an_incident(node("n7")), False),
        (an_incident(node("n1", "other")), False),
        (an_incident(GPUS[0], fault="gpu_idle_held", severity=Severity.INFO), False),
        (an_incident(GPUS[0], fault="gpu_program", severity=Severity.INFO), False),
    ],
)
def test_what_stands_beside_a_job_may_explain_it(active: Incident, holds: bool) -> None:
    assert has_other_incident(HELD, [active]) is holds


def test_a_job_of_which_not_everything_is_seen_is_left_alone() -> None:
    job = Job(
        told_by=node("control"),
        number="17",
        state="RUNNING",
        submitted_at=HELD.started_at,
        seen_at=NOON,
        user="alice",
        nodes=("n0", "n1"),
        gpus=4,
    )
    assert by_controller(HELD, job) is None
    assert by_controller(HELD, None) is EndRefusal.UNKNOWN
    assert by_controller(HELD, replace(job, gpus=8)) is EndRefusal.UNSEEN
    assert by_controller(HELD, replace(job, nodes=("n0", "n1", "n2"))) is EndRefusal.UNSEEN
    assert by_controller(HELD, replace(job, state="COMPLETED")) is EndRefusal.CHANGED
    assert by_controller(HELD, replace(job, user="bob")) is EndRefusal.CHANGED


@pytest.mark.parametrize(
    ("changes", "how", "why"),
    [
        ({}, How.CANCEL, None),
        ({}, How.HOLD, None),
        ({"requeues": False}, How.CANCEL, None),
        ({"requeues": False}, How.REQUEUE, EndRefusal.NO_REQUEUE),
        ({"state": "COMPLETING"}, How.CANCEL, EndRefusal.CHANGED),
        ({"user": "bob"}, How.CANCEL, EndRefusal.CHANGED),
        ({"started_at": NOON - 100 * MINUTE}, How.CANCEL, EndRefusal.CHANGED),  # begun anew since
        ({"started_at": None}, How.CANCEL, EndRefusal.CHANGED),
        ({"suspended": 5 * MINUTE}, How.CANCEL, EndRefusal.CHANGED),  # and resumed since
        ({"suspended": None}, How.CANCEL, EndRefusal.CHANGED),
        ({"batch": False}, How.CANCEL, EndRefusal.NO_BATCH),
        ({"heterogeneous": True}, How.CANCEL, EndRefusal.HETEROGENEOUS),
        ({"mark": "gpuvigil [gpu_idle_held x] requeued"}, How.CANCEL, EndRefusal.ONCE),
        ({"mark": "please keep, jo"}, How.CANCEL, None),
    ],
)
def test_slurm_has_the_last_word(
    changes: Mapping[str, Any], how: How, why: EndRefusal | None
) -> None:
    found = Running(
        target="17",
        user="alice",
        state="RUNNING",
        started_at=HELD.started_at,
        batch=True,
        requeues=True,
        heterogeneous=False,
        mark="",
        suspended=timedelta(seconds=1),
    )
    assert by_slurm(ending(how=how), replace(found, **changes), NOON) == why
    assert by_slurm(ending(how=how), None, NOON) is EndRefusal.CHANGED


@settings(max_examples=30)
@given(
    sizes=st.lists(st.integers(1, 4), max_size=8),
    lately=st.lists(st.integers(1, 8), max_size=4),
    percent=st.floats(0, 100),
    per_hour=st.integers(0, 6),
    installed=st.integers(0, 64),
)
def test_never_more_than_the_share_nor_the_rate_and_nobody_is_forgotten(
    sizes: list[int], lately: list[int], percent: float, per_hour: int, installed: int
) -> None:
    limits = ActionsSettings(ends_percent=percent, ends_per_hour=per_hour)
    jobs = [
        ending(replace(HELD, holder=Holder.parse(f"job {n}"), gpus=GPUS[:size]))
        for n, size in enumerate(sizes)
    ]
    may, may_not = within_limits(limits, jobs, lately, installed)
    assert len(may) <= max(per_hour - len(lately), 0)
    if may:
        assert sum(lately) + sum(one.gpus for one in may) <= installed * percent / 100.0
    assert len(may) + len(may_not) == len(jobs)
    assert {why for _, why in may_not} <= {EndRefusal.RATE, EndRefusal.SHARE}


def test_the_owner_hears_before_and_after() -> None:
    last = notice(HELD, "notice 2", asked().policy, Idleness.NO_PROCESS, NOON)
    said = message(draft(last, "owners", NOON), NOON, "https://gpus.example.org")
    assert said.action.endswith("It may be ended when they were idle for 2 h.")
    never = notice(HELD, "notice 2", FOR_JOBS, Idleness.NO_PROCESS, NOON)
    assert "ended when" not in message(draft(never, "o", NOON), NOON, "").action
    step = end_notice(ending(how=How.HOLD), NOON)
    assert is_idle_end(step.incident)
    assert not is_idle_end(last.incident)
    after = message(draft(step, "owners", NOON), NOON, "https://gpus.example.org")
    assert after.summary.startswith(
        "Your job 17 was requeued and held: its 4 GPUs computed nothing"
    )
    assert "scontrol release 17" in after.action
    assert (after.for_owners, after.owners_only) == (("alice",), True)


LINE = "{:16}{:16}{:64}{:16}{:64}{:20}{:8}{:8}{:24}{:24}{:256}"


@pytest.mark.parametrize(
    ("lines", "target"),
    [
        ([("17", "17", "N/A", "N/A", "alice", "RUNNING")], "17"),
        (
            [("17", "17", "4", "N/A", "a", "RUNNING"), ("16", "17", "0", "N/A", "a", "RUNNING")],
            "17_4",
        ),
        ([("17", "15", "0", "N/A", "alice", "RUNNING")], "15_0"),
        ([("18", "17", "N/A", "N/A", "alice", "RUNNING")], None),
        ([], None),
    ],
)
def test_of_an_array_only_the_task_is_named(
    tmp_path: Path, lines: list[tuple[str, ...]], target: str | None
) -> None:
    began = str(int(datetime.now(timezone.utc).timestamp()) - 90005)  # an hour more than it ran
    text = [LINE.format(*line, "1", "1", began, "1-00:00:05", "(null)") for line in lines]
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in text))
    program = tmp_path / "squeue"
    program.write_text('#!/bin/sh\ncat "$(dirname "$0")/lines"\n')
    program.chmod(0o755)
    found = Slurm(str(tmp_path), 20.0).job("17")
    assert (None if found is None else found.target) == target
    if found is not None:
        assert found.suspended is not None
        assert timedelta(0) <= found.suspended - timedelta(hours=1) < MINUTE
