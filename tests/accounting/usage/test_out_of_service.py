"""What of a cluster is out of service in a quarter, by what records say of its time."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from accounting.usage.out_of_service import Out, Part, Words, out_of, read, written, written_parts
from gpuvigil.model import Incident, Rma, RmaState, ScheduledNode, Scheduler, Severity, Subject
from gpuvigil.schedulers.out_of_service import LostTo
from tests.accounting.usage.quarter import ALL, END, START, subject

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
    assert out(schedulers=[said(timedelta(), DRAINED)]) == {
        ("n1.site.org", ""): ALL[LostTo.MAINTENANCE]
    }


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
    before = {("n2", ""): ALL[LostTo.REPAIR]}
    found = out_of(Words(schedulers=[silent]), NODES, START, END, before)
    assert found == (before if carried else None)
    # One that answers has the last word.
    assert out_of(Words(schedulers=[said()]), NODES, START, END, before) == NONE


BEFORE = {("n2", ""): ALL[LostTo.REPAIR]}


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
        ("n1.site.org", ""): ALL[LostTo.MAINTENANCE]
    }


@pytest.mark.parametrize(
    ("said_at", "nodes", "left", "parts"),
    [
        # Seen so at the first look: for all of the quarter.
        (END, [DRAINED], [], ALL[LostTo.MAINTENANCE]),
        (END, [replace(DRAINED, since=START)], [], ALL[LostTo.MAINTENANCE]),
        (END, [replace(DRAINED, since=START + SECOND)], [], (Part(LostTo.MAINTENANCE, 1.0),)),
        (END + MINUTE, [replace(DRAINED, since=END - SECOND)], [], (Part(LostTo.MAINTENANCE, 899.0),)),
        (END + MINUTE, [replace(DRAINED, since=END)], [], ()),
        # It came back.
        (END, [], [replace(DRAINED, until=START)], ()),
        (END, [], [replace(DRAINED, until=START + SECOND)], (Part(LostTo.MAINTENANCE, 0.0, 1.0),)),
        (END + MINUTE, [], [replace(DRAINED, until=END)], ALL[LostTo.MAINTENANCE]),
        (END, [], [replace(DRAINED, since=START + MINUTE, until=START + 3 * MINUTE)],
         (Part(LostTo.MAINTENANCE, 60.0, 180.0),)),
        # Another reason: one after the other; the same in other words: one.
        (END, [replace(DRAINED, reason="RMA [ann@x]", since=START + MINUTE)],
         [replace(DRAINED, until=START + MINUTE)],
         (Part(LostTo.MAINTENANCE, 0.0, 60.0), Part(LostTo.REPAIR, 60.0))),
        (END, [replace(DRAINED, reason="more dust [ann@x]", since=START + MINUTE)],
         [replace(DRAINED, until=START + MINUTE)], ALL[LostTo.MAINTENANCE]),
    ],
)  # fmt: skip
def test_a_node_is_out_from_when_it_was_seen_so_until_it_was_not(
    said_at: datetime,
    nodes: list[ScheduledNode],
    left: list[ScheduledNode],
    parts: tuple[Part, ...],
) -> None:
    one = replace(said(said_at - END, *nodes), left=tuple(left))
    found = out(schedulers=[one])
    assert found == ({("n1.site.org", ""): parts} if parts else NONE)
    # And in its record.
    back = Scheduler.from_record(one.to_record())
    assert out(schedulers=[back]) == found


def test_what_was_out_for_a_part_before_is_out_while_nobody_answers_only_if_it_was_at_its_end() -> (
    None
):
    silent = replace(said(why="slurmctld is down"), answered_at=START)
    words = Words(schedulers=[silent])
    late, early = (Part(LostTo.REPAIR, 60.0),), (Part(LostTo.REPAIR, 0.0, 899.0),)
    before = {("n1.site.org", ""): late, ("n2", ""): early}
    assert out_of(words, NODES, START, END, before) == {("n1.site.org", ""): ALL[LostTo.REPAIR]}


def test_a_hung_driver_takes_a_node_out_while_it_hangs() -> None:
    hung = incident(resolved_at=START + 5 * MINUTE)
    assert out(incidents=[hung]) == {("n2", ""): (Part(LostTo.FAULT, 60.0, 300.0),)}
    # What a scheduler says goes on after it.
    drained = ScheduledNode(
        name="n2", states=("DRAIN",), reason="dust [a@x]", since=START + 9 * MINUTE
    )
    both = out(incidents=[hung], schedulers=[said(timedelta(), drained)])
    parts = Part(LostTo.FAULT, 60.0, 300.0), Part(LostTo.MAINTENANCE, 540.0)
    assert both == {("n2", ""): parts}


def test_a_case_counts_from_when_it_was_opened() -> None:
    for at, parts in ((END, ()), (END - SECOND, (Part(LostTo.REPAIR, 899.0),))):
        opened = Rma(incident="i", subject=subject(3, "n2"), state=RmaState.OPEN, by="ann", at=at)
        assert out(rmas=[opened]) == ({("n2", "GPU-3"): parts} if parts else NONE)


def test_a_scheduler_that_nobody_asked_for_a_day_is_asked_no_more() -> None:
    assert out(schedulers=[said(-24 * HOUR, DRAINED)]) is None
    assert out(schedulers=[said(-24 * HOUR - SECOND, DRAINED)]) == NONE


def test_without_a_scheduler_what_stands_decides() -> None:
    assert out() == NONE
    assert out(incidents=[incident(since=START)]) == {("n2", ""): ALL[LostTo.FAULT]}
    assert out(incidents=[incident(severity=Severity.WARNING)]) == NONE


@pytest.mark.parametrize(
    ("changed", "stood"),
    [
        ({"since": END}, False),
        ({"since": END - SECOND}, True),
        ({"resolved_at": START}, False),
        ({"since": START - MINUTE, "resolved_at": START}, False),
        ({"since": START - MINUTE, "resolved_at": START + SECOND}, True),
    ],
)
def test_what_stood_in_the_quarter_counts_for_it(changed: dict[str, Any], stood: bool) -> None:
    assert bool(out(incidents=[incident(**changed)])) is stood


def test_a_gpu_is_in_repair_until_it_is_replaced() -> None:
    def step(state: RmaState, at: timedelta) -> Rma:
        gpu = subject(3, "n2")
        return Rma(incident="i", subject=gpu, state=state, by="ann", at=END + at)

    opened, replaced = step(RmaState.OPEN, -HOUR), step(RmaState.REPLACED, -MINUTE)
    assert out(rmas=[opened]) == {("n2", "GPU-3"): ALL[LostTo.REPAIR]}
    assert out(rmas=[opened, replaced]) == {("n2", "GPU-3"): (Part(LostTo.REPAIR, 0.0, 840.0),)}
    assert out(rmas=[opened, step(RmaState.REPLACED, START - END)]) == NONE
    assert out(rmas=[step(RmaState.OPEN, SECOND)]) == NONE
    drained = ScheduledNode(name="n2", states=("IDLE", "DRAIN"), reason="xid 79 [ann@x]")
    both = out(rmas=[opened], schedulers=[said(timedelta(), drained)])
    assert both == {("n2", "GPU-3"): ALL[LostTo.REPAIR], ("n2", ""): ALL[LostTo.REPAIR]}


def test_it_survives_its_record() -> None:
    two = Part(LostTo.FAULT, 0.0, 60.5), Part(LostTo.REPAIR, 840.0)
    over = (Part(LostTo.FAULT, 0.0, 60.5),)
    found = {("n1", ""): two, ("n2", "GPU-3"): ALL[LostTo.REPAIR], ("n3", ""): over}
    assert read(written(found), written_parts(found)) == found
    # Versions from before parts unpack three values, and take a quarter for what stood at its end.
    assert written(found) == [["n1", "", "repair"], ["n2", "GPU-3", "repair"]]
    # Between them parts stood in the same rows.
    assert read(written_parts(found)) == {("n1", ""): two, ("n3", ""): over}
