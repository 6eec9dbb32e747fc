"""Which nodes are drained and given back, and which are not touched."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.actions.drain_rules import DrainRefusal, Machine, Past, plan, reason
from gpuvigil.config import ActionsSettings
from gpuvigil.model import (
    RESERVED_CLUSTERS,
    SIMULATED_CLUSTER,
    Act,
    Evidence,
    Incident,
    Severity,
    Subject,
)

NOON = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
OLD = NOON - timedelta(hours=1)
SETTINGS = ActionsSettings(enabled=True, most_percent=50.0, resume=True)


def incident(node: str = "n1", id_: str = "i1", cluster: str = "c", **more: Any) -> Incident:
    given: dict[str, Any] = {"state": "open", "fault": "gpu_lost", "since": OLD, **more}
    return Incident(
        id=id_,
        fingerprint="f",
        subject=Subject(cluster=cluster, node=node, gpu="GPU-1"),
        severity=Severity.CRITICAL,
        title="GPU fell off the bus",
        updated_at=given["since"],
        evidence=(Evidence(name="up", value='"0"', limit="1"),),
        **given,
    )


def machines(*them: Machine, free: int = 0) -> dict[str, Machine]:
    found = [*them, *(Machine(name=f"free{n}", states=frozenset({"IDLE"})) for n in range(free))]
    return {one.name: one for one in found}


IDLE = Machine(name="n1", states=frozenset({"IDLE"}))
TESTED = Past(accepted={"n1": OLD})
OURS = Machine(name="n1", states=frozenset({"IDLE", "DRAIN"}), reason=reason(incident()))


def test_a_node_with_a_fault_is_drained_with_its_class_and_evidence() -> None:
    (step,) = plan(SETTINGS, "c", [incident()], machines(IDLE, free=1), NOON).steps
    assert (step.what, step.node) == (Act.DRAIN, "n1")
    assert step.reason == "gpuvigil [gpu_lost i1] GPU fell off the bus: up:  0  (normal: 1)"
    assert replace(IDLE, states=frozenset({"DRAIN"}), reason=step.reason).ours == ("gpu_lost", "i1")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"since": NOON - timedelta(seconds=5)}, DrainRefusal.TOO_RECENT),
        ({"node": "n9"}, DrainRefusal.UNKNOWN_NODE),
    ],
)
def test_every_no_has_a_name(change: dict[str, Any], why: DrainRefusal) -> None:
    found = plan(SETTINGS, "c", [incident(**change)], machines(IDLE, free=1), NOON)
    assert [one.why for one in found.refused] == [why]
    assert not found.steps


def test_what_was_drained_here_and_takes_jobs_again_was_given_back_by_a_person() -> None:
    them = machines(IDLE, free=1)
    found = plan(SETTINGS, "c", [incident()], them, NOON, Past(drained={("n1", "i1")}))
    assert (found.steps, [one.why for one in found.refused]) == ((), [DrainRefusal.RELEASED])
    assert plan(SETTINGS, "c", [incident(id_="i2")], them, NOON, Past(drained={("n1", "i1")})).steps


def test_what_is_simulated_late_of_another_cluster_or_fault_is_nothing_to_act_on() -> None:
    them = [
        incident(cluster=SIMULATED_CLUSTER),
        incident(cluster="other"),
        incident(late=True),
        incident(fault="gpu_hot"),
        incident(state="suspect"),
        incident(condition="gpu_unread"),
    ]
    for one in them:
        assert plan(SETTINGS, "c", [one], machines(IDLE, free=1), NOON).steps == ()


@pytest.mark.parametrize("cluster", sorted(RESERVED_CLUSTERS))
def test_for_what_no_machine_has_nothing_is_done_whatever_the_site_is_called(cluster: str) -> None:
    found = plan(SETTINGS, cluster, [incident(cluster=cluster)], machines(IDLE, free=1), NOON)
    assert (found.steps, found.refused) == ((), ())


def test_a_node_that_somebody_drained_is_theirs_before_and_after() -> None:
    theirs = Machine(name="n1", states=frozenset({"IDLE", "DRAIN"}), reason="new DIMMs, jo")
    found = plan(SETTINGS, "c", [incident()], machines(theirs, free=3), NOON)
    assert [one.why for one in found.refused] == [DrainRefusal.OUT_OF_SERVICE]
    over = incident(state="resolved", resolved_at=OLD)
    assert plan(SETTINGS, "c", [over], machines(theirs, free=3), NOON).steps == ()


def test_only_what_we_drained_is_given_back_and_only_when_all_is_over() -> None:
    over = incident(state="resolved", resolved_at=OLD)
    (step,) = plan(SETTINGS, "c", [over], machines(OURS), NOON, TESTED).steps
    assert (step.what, step.node) == (Act.RESUME, "n1")
    other = incident(id_="i2")
    assert plan(SETTINGS, "c", [over, other], machines(OURS), NOON, TESTED).steps == ()
    assert plan(SETTINGS, "c", [], machines(OURS), NOON, TESTED).steps == ()  # nobody remembers
    never = replace(SETTINGS, resume=False)
    assert plan(never, "c", [over], machines(OURS), NOON, TESTED).steps == ()


@pytest.mark.parametrize(
    ("accepted", "resumed"),
    [
        ({}, False),
        ({"n2": NOON}, False),
        ({"n1": OLD - timedelta(seconds=1)}, False),  # it broke again after that test
        ({"n1": OLD}, True),
    ],
)
def test_a_node_is_given_back_once_it_was_accepted_after_its_incident_not_after_quiet_minutes(
    accepted: dict[str, datetime], resumed: bool
) -> None:
    over = incident(state="resolved", resolved_at=OLD)
    for later in (timedelta(0), timedelta(days=30)):
        found = plan(SETTINGS, "c", [over], machines(OURS), NOON + later, Past(accepted=accepted))
        assert bool(found.steps) is resumed


def test_what_something_else_covers_may_be_there_still_and_is_not_given_back() -> None:
    over = incident(state="resolved", resolved_at=OLD)
    assert plan(SETTINGS, "c", [over], machines(OURS), NOON, TESTED).steps
    hidden = replace(over, covered_by="f2")
    assert not plan(SETTINGS, "c", [hidden], machines(OURS), NOON, TESTED).steps


def test_when_every_node_is_critical_at_once_the_cluster_stays_in_service() -> None:
    there = machines(*(Machine(name=f"n{n}", states=frozenset({"IDLE"})) for n in range(1000)))
    them = [incident(node=name, id_=f"i-{name}") for name in there]
    found = plan(replace(SETTINGS, most_percent=5.0), "c", them, there, NOON)
    assert (len(found.steps), {one.why for one in found.refused}) == (50, {DrainRefusal.SHARE})


def test_for_what_is_about_many_nodes_at_once_none_is_drained() -> None:
    own = ("c/n1/gpu/GPU-1", "c/n1/gpu/GPU-2")
    assert plan(SETTINGS, "c", [incident(members=own)], machines(IDLE, free=1), NOON).steps
    whole = incident(members=(*own, "c/free0/gpu/GPU-7"))
    assert not plan(SETTINGS, "c", [whole], machines(IDLE, free=9), NOON).steps


@pytest.mark.parametrize(
    "more",
    [
        {"fault": "node_silent"},
        {"fault": "gpu_memory"},
        {"fault": "node_silent", "node": "n7", "members": ("c/n7", "c/n1")},
        {"fault": "gpu_lost", "node": "n7", "members": ("c/n1/gpu/GPU-1",), "late": True},
    ],
)
def test_nothing_is_given_back_of_which_anything_stands(more: dict[str, Any]) -> None:
    over, other = incident(state="resolved", resolved_at=OLD), incident(id_="i2", **more)
    assert plan(SETTINGS, "c", [over, other], machines(OURS), NOON, TESTED).steps == ()
    strange = replace(other, subject=replace(other.subject, cluster="d"), members=())
    assert len(plan(SETTINGS, "c", [over, strange], machines(OURS), NOON, TESTED).steps) == 1


@pytest.mark.parametrize(
    "states", ["DOWN DRAIN NOT_RESPONDING", "IDLE DRAIN REBOOT_ISSUED", "FAIL DRAIN"]
)
def test_a_node_with_more_against_it_than_our_drain_is_not_given_back(states: str) -> None:
    over = incident(state="resolved", resolved_at=OLD)
    broken = replace(OURS, states=frozenset(states.split()))
    assert plan(SETTINGS, "c", [over], machines(broken), NOON, TESTED).steps == ()


def test_of_a_small_cluster_nothing_is_drained_where_a_node_is_more_than_allowed() -> None:
    few = replace(SETTINGS, most_percent=5.0)
    found = plan(few, "c", [incident()], machines(IDLE, free=10), NOON)
    assert ([one.why for one in found.refused], found.steps) == ([DrainRefusal.SHARE], ())


_STATE = st.sampled_from(["IDLE", "MIXED", "DOWN", "IDLE DRAIN", "DRAINED"])


@given(
    st.lists(_STATE, min_size=1, max_size=20),
    st.lists(st.integers(0, 25), max_size=20),
    st.floats(0, 100),
)
def test_never_more_is_out_of_service_than_is_allowed(
    states: list[str], hit: list[int], percent: float
) -> None:
    there = machines(
        *(Machine(name=f"n{n}", states=frozenset(it.split())) for n, it in enumerate(states))
    )
    them = [incident(node=f"n{n}", id_=f"i{k}") for k, n in enumerate(hit)]
    found = plan(replace(SETTINGS, most_percent=percent), "c", them, there, NOON)
    out = sum(not one.in_service for one in there.values())
    nodes = [step.node for step in found.steps]
    assert len(nodes) == len(set(nodes))
    assert not nodes or out + len(nodes) <= len(there) * percent / 100.0
    assert all(there[node].in_service for node in nodes)
    assert len(found.steps) + len(found.refused) == len(them)
