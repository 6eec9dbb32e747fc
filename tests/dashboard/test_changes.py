"""What changed lately, as lines for people."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.data.allocation_changes import AllocationChanges
from dashboard.data.changes import BACK, MOST, Change, Happened, changes, summarize_transition
from gpuvigil.model import (
    Allocation,
    CoveredBy,
    Event,
    EventKind,
    Holder,
    Incident,
    Severity,
    Subject,
    Transition,
)
from gpuvigil.web import page_links

from .scene import NOON, allocation, gpu, incident, node

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def label(subject: Subject) -> str:
    return f"{subject.node} {subject.gpu or subject.device or ''}".strip()


def lines(
    *,
    transitions: tuple[Transition, ...] = (),
    events: tuple[Event, ...] = (),
    allocations: tuple[Allocation, ...] = (),
) -> tuple[Change, ...]:
    kept = AllocationChanges()
    for one in allocations:
        kept.put(one.id, None, one)
    return drawn(kept, transitions, events)


def drawn(
    kept: AllocationChanges,
    transitions: tuple[Transition, ...] = (),
    events: tuple[Event, ...] = (),
) -> tuple[Change, ...]:
    (allocation_changes,) = kept.by_cluster().values() or ((),)
    happened = Happened(
        transitions=tuple(map(summarize_transition, transitions)),
        events=events,
        allocation_changes=allocation_changes,
    )
    return changes(happened, NOON, label)


def texts(
    *,
    transitions: tuple[Transition, ...] = (),
    events: tuple[Event, ...] = (),
    allocations: tuple[Allocation, ...] = (),
) -> list[str]:
    found = lines(transitions=transitions, events=events, allocations=allocations)
    return [one.text for one in found]


def event(kind: EventKind, subject: Subject, at: datetime = NOON - HOUR) -> Event:
    return Event(kind=kind, subject=subject, at=at, id=f"{kind}-{subject.key}-{at}")


def step(
    of: Incident, to: str, at: datetime = NOON - HOUR, before: str = "suspect", reason: str = ""
) -> Transition:
    return Transition(
        incident=of.id,
        number=1,
        from_state=before,
        to_state=to,
        signal="confirmed",
        at=at,
        reason=reason,
        subject=of.subject,
        snapshot=of.to_record().to_json(),
    )


def held(subject: Subject, holder: str = "job 7", ended: datetime | None = None) -> Allocation:
    one = allocation(subject, holder, "alice")
    return replace(one, started_at=NOON - 2 * HOUR, ended_at=ended)


def test_a_job_over_many_gpus_is_one_line_when_it_starts_and_one_when_it_ends() -> None:
    gpus = [gpu(i, node(f"n{n}")) for n in range(8) for i in range(8)]
    running = tuple(held(one) for one in gpus)
    assert texts(allocations=running) == ["job 7 of alice started, 64 GPUs on 8 nodes"]
    over = tuple(held(one, ended=NOON - MINUTE) for one in gpus)
    assert texts(allocations=over) == [
        "job 7 of alice ended, 64 GPUs on 8 nodes",
        "job 7 of alice started, 64 GPUs on 8 nodes",
    ]


def test_a_job_that_goes_on_with_fewer_gpus_has_not_ended() -> None:
    some = (held(gpu(0)), held(gpu(1), ended=NOON - MINUTE))
    assert texts(allocations=some)[0] == "job 7 of alice let go, 1 GPU on sim-001"


def test_programs_are_called_by_their_command_and_never_by_a_number() -> None:
    (line,) = lines(allocations=(held(gpu(0), "pid 1"), held(gpu(1), "pid 2")))
    assert line.text == "python of alice started, 2 GPUs on sim-001"
    start = NOON - 2 * HOUR
    assert line.href == page_links.around(node(), start, start)


def test_a_leaf_is_called_by_its_name_without_the_nodes_at_it() -> None:
    leaf = incident(
        "port_congested",
        replace(node(), device="mlx5_0", port="1"),
        Severity.WARNING,
        label="switch leaf-01-0 (mlx5_0 of n1, n2, n3, n4 and 12 more nodes)",
    )
    assert texts(transitions=(step(leaf, "open"),)) == ["switch leaf-01-0: port_congested"]


def test_a_burst_of_reboots_is_one_line() -> None:
    boots = tuple(event(EventKind.BOOT, node(f"n{n}"), NOON - HOUR + n * MINUTE) for n in range(12))
    assert texts(events=boots) == ["12 nodes booted"]
    apart = (boots[0], replace(boots[1], at=NOON - MINUTE))
    assert texts(events=apart) == ["n1 booted", "n0 booted"]


def test_an_incident_and_the_event_that_it_rests_on_are_one_line() -> None:
    one = incident("gpu_lost", gpu(5), Severity.CRITICAL, label="sim-001 GPU 5")
    lost = event(EventKind.GPU_LOST, gpu(5))
    back = event(EventKind.GPU_BACK, gpu(5), NOON - 10 * MINUTE)
    opened = step(one, "open", NOON - HOUR + timedelta(seconds=2))
    over = step(one, "resolved", NOON - 9 * MINUTE, "open")
    found = lines(events=(lost, back), transitions=(opened, over))
    assert [(line.text, line.tone) for line in found] == [
        ("Over: sim-001 GPU 5: gpu_lost", "good"),
        ("sim-001 GPU 5: gpu_lost", "bad"),
    ]
    assert found[0].href == f"/incidents?incident={one.id}"
    assert len(lines(events=(lost, back))) == 2


def test_a_port_that_goes_down_again_and_again_is_one_line() -> None:
    port = Subject(cluster="c", node="n1", device="mlx5_0", port="1")
    downs = tuple(event(EventKind.PORT_DOWN, port, NOON - n * MINUTE) for n in range(1, 5))
    assert texts(events=downs) == ["n1 mlx5_0 is down (4 times)"]


def test_what_only_changes_within_its_state_or_is_told_elsewhere_is_no_line() -> None:
    one = incident("port_down", node(), Severity.WARNING)
    same = step(one, "open", before="open")
    suspect = step(one, "suspect")
    covered = step(one, "resolved", before="open")
    cause = CoveredBy(fingerprint="f1", what="sim-001: node is silent")
    covered = replace(covered, cause=cause)
    assert texts(transitions=(same, suspect, covered)) == []


def test_what_is_older_than_six_hours_or_not_yet_is_left_out() -> None:
    old = event(EventKind.BOOT, node("old"), NOON - BACK - MINUTE)
    coming = event(EventKind.BOOT, node("coming"), NOON + MINUTE)
    assert texts(events=(old, coming), allocations=()) == []


nodes = st.integers(0, 3).map(lambda number: node(f"n{number}"))
subjects = st.one_of(
    nodes,
    st.builds(lambda of, index: gpu(index, of), nodes, st.integers(0, 3)),
    st.builds(
        lambda of, port: replace(of, device="mlx5_0", port=str(port)), nodes, st.integers(1, 2)
    ),
)
events = st.builds(
    lambda kind, subject, minutes: event(kind, subject, NOON - minutes * MINUTE),
    st.sampled_from(EventKind),
    subjects,
    st.integers(-5, 500),
)


@pytest.mark.parametrize("kind", EventKind)
def test_every_event_is_a_line(kind: EventKind) -> None:
    (line,) = lines(events=(event(kind, node("n0")),))
    assert line.text.startswith("n0 ")


@given(st.lists(events, max_size=40), st.randoms())
def test_lines_do_not_depend_on_the_order_of_records(found: list[Event], chance: object) -> None:
    shuffled = list(found)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    before, after = lines(events=tuple(found)), lines(events=tuple(shuffled))
    assert before == after
    assert [one.at for one in before] == sorted((one.at for one in before), reverse=True)
    assert len(before) <= MOST


def test_what_befalls_several_says_what_they_are() -> None:
    for kind in EventKind:
        both = tuple(event(kind, node(name)) for name in ("a", "b"))
        (text,) = texts(events=both)
        assert not text.startswith(("2 have ", "2 has ", "2 are ", "2 were ")), kind


def test_who_was_there_at_the_first_look_is_not_said_to_have_started() -> None:
    one = replace(allocation(gpu(0)), holder=Holder.parse("pod train/llama-0"), user=None)
    one = replace(one, started_at=NOON - HOUR)
    assert texts(allocations=(one,)) == ["pod train/llama-0 started, 1 GPU on sim-001"]
    assert texts(allocations=(replace(one, began_before=True),)) == []


def test_what_a_job_did_follows_what_becomes_of_each_of_its_gpus() -> None:
    first, second = held(gpu(0)), held(gpu(1))
    kept = AllocationChanges()
    for one in (first, second):
        kept.put(one.id, None, one)
    assert [one.text for one in drawn(kept)] == ["job 7 of alice started, 2 GPUs on sim-001"]
    over = replace(first, ended_at=NOON - MINUTE)
    kept.put(first.id, first, over)
    assert next(one.text for one in drawn(kept)) == "job 7 of alice let go, 1 GPU on sim-001"
    # Who the user is may be known later.
    kept.put(second.id, second, replace(second, user="bob"))
    assert {one.text for one in drawn(kept)} == {
        "job 7 of alice ended, 1 GPU on sim-001",
        "job 7 of alice started, 1 GPU on sim-001",
        "job 7 of bob started, 1 GPU on sim-001",
    }
    kept.put(second.id, replace(second, user="bob"), None)
    kept.put(first.id, over, None)
    assert drawn(kept) == ()
