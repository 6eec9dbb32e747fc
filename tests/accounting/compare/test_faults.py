"""Which incidents count when versions are compared, and which of them are one failure."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.compare.faults import MACHINE, USUAL, counts, failures_by_node
from gpuvigil.faults import FAULTS
from gpuvigil.model import SELFTEST_CLUSTER, Incident, Severity, Subject
from gpuvigil.silence_conditions import NodeSilence

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
HOUR, MOMENT = timedelta(hours=1), timedelta(microseconds=1)


def incident(fault: str = "gpu_lost", at: datetime = NOON, node: str = "n1") -> Incident:
    return Incident(
        id=f"{fault} {node} {at.isoformat()}",
        fingerprint="f",
        fault=fault,
        subject=Subject(cluster="c", node=node, gpu="GPU-1"),
        severity=Severity.CRITICAL,
        state="resolved",
        title=fault,
        since=at,
        updated_at=at,
    )


def test_hardware_and_node_deaths_count_and_programs_and_idle_gpus_never() -> None:
    assert {"gpu_lost", "gpu_xid", "host_memory", "port_down", "node_silent"} <= USUAL
    assert not {"gpu_program", "gpu_idle_held", "gpu_memory_held"} & MACHINE
    assert USUAL < MACHINE < FAULTS.keys()
    assert counts(incident())
    for fault in ("gpu_program", "gpu_idle_held"):
        assert not counts(incident(fault))
        assert not counts(incident(fault), FAULTS.keys())
    assert not counts(incident("driver_not_loaded"))
    assert counts(incident("driver_not_loaded"), {"driver_not_loaded"})
    assert not counts(incident(), {"driver_not_loaded"})


@pytest.mark.parametrize(
    "changed",
    [
        {"severity": Severity.INFO},
        {"state": "suspect"},
        {"state": "dismissed"},
        {"covered_by": "another"},
        {"subject": Subject(cluster=SELFTEST_CLUSTER, node="n1")},
    ],
)
def test_what_is_minor_doubtful_explained_or_marked_does_not_count(
    changed: dict[str, object],
) -> None:
    assert not counts(replace(incident(), **changed))  # type: ignore[arg-type]


def test_a_warning_counts() -> None:
    assert counts(replace(incident(), severity=Severity.WARNING))


@pytest.mark.parametrize(
    ("silence", "counted"),
    [
        ("", True),
        (NodeSilence.DEAD, True),
        (NodeSilence.UNHEARD, True),
        (NodeSilence.NOT_BACK, True),
        (NodeSilence.WAS_DOWN, True),
        (NodeSilence.RACK_POWER, True),
        (NodeSilence.COLLECTOR, False),
        (NodeSilence.STOPPED, False),
        (NodeSilence.SHUT_DOWN, False),
        (NodeSilence.TAKEN_AWAY, False),
        (NodeSilence.WAS_REBOOTED, False),
        (NodeSilence.SCALED_DOWN, False),
        (NodeSilence.DID_NOT_REPORT, False),
        (NodeSilence.CUT_OFF, False),
        (NodeSilence.RACK_NETWORK, False),
        (NodeSilence.NOT_RECEIVED, False),
    ],
)
def test_a_silence_counts_where_the_node_may_have_died(silence: str, counted: bool) -> None:
    assert counts(replace(incident("node_silent"), condition=silence)) is counted


def test_what_follows_within_an_hour_is_the_same_failure() -> None:
    def failed(*times: datetime) -> int:
        return len(failures_by_node([incident(at=at) for at in times])["n1"])

    assert failed(NOON, NOON + HOUR) == 1
    assert failed(NOON, NOON + HOUR + MOMENT) == 2
    # Each within an hour of the one before.
    assert failed(NOON, NOON + HOUR, NOON + 2 * HOUR) == 1
    other = [incident(), incident("port_down", NOON + HOUR), incident(node="n2")]
    assert failures_by_node(other) == {"n1": [NOON], "n2": [NOON]}


@given(st.lists(st.tuples(st.integers(0, 400), st.sampled_from(["n1", "n2"]))), st.integers())
def test_the_order_of_incidents_does_not_matter(told: list[tuple[int, str]], seed: int) -> None:
    them = [incident(at=NOON + minutes * HOUR / 60, node=node) for minutes, node in told]
    found = failures_by_node(them)
    Random(seed).shuffle(them)
    assert failures_by_node(them) == found
    assert sum(map(len, found.values())) <= len(them)
    for times in found.values():
        assert all(b - a > HOUR for a, b in pairwise(times))
