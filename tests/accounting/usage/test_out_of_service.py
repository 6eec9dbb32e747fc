"""What of a cluster is out of service in a quarter, by what records say of its time."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from accounting.usage.out_of_service import Out, Words, out_of, read, written
from gpuvigil.model import Incident, Rma, RmaState, ScheduledNode, Scheduler, Severity, Subject
from gpuvigil.schedulers.out_of_service import LostTo
from tests.accounting.usage.quarter import END, START, subject

NODES = [Subject(cluster="c", node=name) for name in ("n1.site.org", "n2")]
MINUTE, HOUR, SECOND = timedelta(minutes=1), timedelta(hours=1), timedelta(seconds=1)
DRAINED = ScheduledNode(name="n1", states=("IDLE", "DRAIN"), reason="dust [ann@2026-01-31]")
NONE: Out = {}


def said(after_end: timedelta = timedelta(), *nodes: ScheduledNode, why: str = "") -> Scheduler:
    return Scheduler(
        told_by=Subject(cluster="c", node="slurm"),
        at=END + after_end,
        why=why,
        nodes=None if why else nodes,
    )


def incident(fault: str = "driver_silent", node: str = "n2", **changed: object) -> Incident:
    given = {
        "severity": Severity.CRITICAL,
        "since": START + MINUTE,
        "resolved_at": None,
        "subject": Subject(cluster="c", node=node),
        **changed,
    }
    return Incident(
        id="i",
        fingerprint="f",
        fault=fault,
        state="open",
        title="",
        updated_at=END,
        **given,  # type: ignore[arg-type]
    )


def out(**words: object) -> Out | None:
    return out_of(Words(**words), NODES, START, END)  # type: ignore[arg-type]


def test_a_node_is_known_to_its_scheduler_by_its_short_name() -> None:
    assert out(schedulers=[said(timedelta(), DRAINED)]) == {("n1.site.org", ""): LostTo.MAINTENANCE}


@pytest.mark.parametrize(
    ("at", "known"),
    [
        (START - HOUR - SECOND - END, False),
        (START - HOUR - END, True),
        (15 * MINUTE, True),
        (15 * MINUTE + SECOND, False),
    ],
)
def test_a_schedulers_word_counts_for_the_quarters_beside_it(at: timedelta, known: bool) -> None:
    assert (out(schedulers=[said(at, DRAINED)]) is not None) is known


def test_nothing_is_said_while_the_scheduler_does_not_answer() -> None:
    assert out(schedulers=[said(why="slurmctld is down")]) is None


@pytest.mark.parametrize(
    ("answered", "carried"),
    [(START - HOUR, True), (START - HOUR - SECOND, False), (None, False)],
)
def test_one_that_answered_within_the_hour_leaves_things_as_they_were(
    answered: datetime | None, carried: bool
) -> None:
    silent = replace(said(why="slurmctld is down"), answered_at=answered)
    before = {("n2", ""): LostTo.REPAIR}
    found = out_of(Words(schedulers=[silent]), NODES, START, END, before)
    assert found == (before if carried else None)
    # One that answers has the last word.
    assert out_of(Words(schedulers=[said()]), NODES, START, END, before) == NONE


BEFORE = {("n2", ""): LostTo.REPAIR}


def carried(*schedulers: Scheduler) -> bool:
    """Whether things are as they were."""
    found = out_of(Words(schedulers=schedulers), NODES, START, END, BEFORE)
    assert found in (BEFORE, None)
    return found is not None


def test_all_that_do_not_answer_must_have_answered_lately() -> None:
    lately = replace(said(why="down"), answered_at=START - HOUR)
    long_ago = replace(lately, answered_at=START - 2 * HOUR)
    never = replace(lately, answered_at=None)
    assert carried(lately)
    assert carried(lately, said())
    assert not carried(lately, long_ago)
    assert not carried(never, lately)
    # One that nobody asks any more is not waited for.
    for at, still in ((-24 * HOUR, True), (-24 * HOUR - SECOND, False)):
        asked = replace(never, at=START + at)
        assert carried(lately, asked) is not still


def test_one_that_speaks_of_another_time_leaves_nothing_as_it_was() -> None:
    assert not carried(said(timedelta(minutes=16), DRAINED))


def test_one_that_nobody_asks_any_more_silences_no_other() -> None:
    old = said(-24 * HOUR - SECOND, DRAINED)
    assert out(schedulers=[old, said(timedelta(), DRAINED)]) == {
        ("n1.site.org", ""): LostTo.MAINTENANCE
    }


def test_a_case_that_was_opened_at_the_quarters_end_is_of_it() -> None:
    opened = Rma(incident="i", subject=subject(3, "n2"), state=RmaState.OPEN, by="ann", at=END)
    assert out(rmas=[opened]) == {("n2", "GPU-3"): LostTo.REPAIR}


def test_a_scheduler_that_nobody_asked_for_a_day_is_asked_no_more() -> None:
    assert out(schedulers=[said(-24 * HOUR, DRAINED)]) is None
    assert out(schedulers=[said(-24 * HOUR - SECOND, DRAINED)]) == NONE


def test_without_a_scheduler_what_stands_decides() -> None:
    assert out() == NONE
    assert out(incidents=[incident()]) == {("n2", ""): LostTo.FAULT}
    assert out(incidents=[incident(severity=Severity.WARNING)]) == NONE


@pytest.mark.parametrize(
    ("changed", "stood"),
    [
        ({"since": END}, False),
        ({"since": END - SECOND}, True),
        ({"resolved_at": END - SECOND}, False),
        ({"resolved_at": END}, True),
    ],
)
def test_what_stood_at_the_quarters_end_counts_for_it(changed: dict[str, Any], stood: bool) -> None:
    assert bool(out(incidents=[incident(**changed)])) is stood


def test_a_gpu_is_in_repair_until_it_is_replaced() -> None:
    def step(state: RmaState, at: timedelta) -> Rma:
        gpu = subject(3, "n2")
        return Rma(incident="i", subject=gpu, state=state, by="ann", at=END + at)

    opened, replaced = step(RmaState.OPEN, -HOUR), step(RmaState.REPLACED, -MINUTE)
    assert out(rmas=[opened]) == {("n2", "GPU-3"): LostTo.REPAIR}
    assert out(rmas=[opened, replaced]) == NONE
    assert out(rmas=[step(RmaState.OPEN, SECOND)]) == NONE
    drained = ScheduledNode(name="n2", states=("IDLE", "DRAIN"), reason="xid 79 [ann@x]")
    both = out(rmas=[opened], schedulers=[said(timedelta(), drained)])
    assert both == {("n2", "GPU-3"): LostTo.REPAIR, ("n2", ""): LostTo.REPAIR}


def test_it_survives_its_record() -> None:
    found = {("n1", ""): LostTo.FAULT, ("n2", "GPU-3"): LostTo.REPAIR}
    assert read(written(found)) == found
