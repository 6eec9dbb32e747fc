"""Why a job ended: what counts, what only stands beside, and whom nothing is blamed on."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.job_ending import EndCause, Ending, verdict
from gpuvigil.model import Event, EventKind, Incident, Severity, Subject

NOON = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)
NODE = Subject(cluster="c", node="n1")
OWN, OTHER = replace(NODE, gpu="GPU-own"), replace(NODE, gpu="GPU-other")
PORT = replace(NODE, device="mlx5_0", port="1")
MINUTE = timedelta(minutes=1)


def ending(state: str | None = "FAILED", exit_code: str | None = "1:0", **values: object) -> Ending:
    given = Ending(
        state=state, ended_at=NOON, exit_code=exit_code, gpus=frozenset({OWN.key}), nodes=2
    )
    return replace(given, **values)  # type: ignore[arg-type]


def event(
    kind: EventKind,
    subject: Subject = NODE,
    ago: timedelta = MINUTE,
    xid: int | None = None,
    message: str = "",
) -> Event:
    at = NOON - ago
    return Event(
        kind=kind,
        subject=subject,
        at=at,
        id=f"{kind}{subject.key}{at}{xid}",
        xid=xid,
        message=message,
    )


def xid(code: int, subject: Subject = OWN, ago: timedelta = MINUTE) -> Event:
    return event(EventKind.XID, subject, ago, code)


def incident(
    fault: str,
    subject: Subject = OWN,
    ago: timedelta = MINUTE,
    severity: Severity = Severity.CRITICAL,
) -> Incident:
    return Incident(
        id=fault,
        fingerprint=fault,
        fault=fault,
        subject=subject,
        severity=severity,
        state="open",
        title="",
        since=NOON - ago,
        updated_at=NOON,
    )


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("COMPLETED", EndCause.COMPLETED),
        ("TIMEOUT", EndCause.TIME_LIMIT),
        ("DEADLINE", EndCause.TIME_LIMIT),
        ("CANCELLED", EndCause.CANCELLED),
        ("PREEMPTED", EndCause.PREEMPTED),
        ("OUT_OF_MEMORY", EndCause.MEMORY),
        ("NODE_FAIL", EndCause.NODE),
        ("FAILED", EndCause.PROGRAM),
    ],
)
def test_where_nothing_happened_slurms_word_counts(state: str, why: EndCause) -> None:
    assert verdict(ending(state), []).why is why


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ([xid(79)], EndCause.HARDWARE),
        ([xid(48)], EndCause.HARDWARE),
        ([xid(94)], EndCause.HARDWARE),
        ([event(EventKind.GPU_LOST, OWN)], EndCause.HARDWARE),
        ([event(EventKind.PORT_DOWN, PORT)], EndCause.NETWORK),
        ([event(EventKind.OOM_KILL)], EndCause.MEMORY),
        (
            [event(EventKind.MACHINE_CHECK, message="memory failure at page 12, process killed")],
            EndCause.HARDWARE,
        ),
        ([event(EventKind.BOOT)], EndCause.NODE),
        ([event(EventKind.BOOT, ago=timedelta()), xid(79)], EndCause.HARDWARE),
        ([event(EventKind.PORT_DOWN, PORT, 2 * MINUTE), xid(79)], EndCause.NETWORK),
    ],
)
def test_of_a_job_that_failed_the_first_cause_on_its_own_nodes_counts(
    told: list[Event], why: EndCause
) -> None:
    found = verdict(ending(), told)
    assert found.why is why
    assert [one.at for one in found.clues] == sorted(one.at for one in told)


@pytest.mark.parametrize(
    "told",
    [
        [xid(13), xid(31), xid(43), xid(45)],
        [xid(79, OTHER), event(EventKind.GPU_LOST, OTHER)],
        [xid(79, ago=11 * MINUTE)],
        [xid(79, ago=-MINUTE)],
        [event(EventKind.PCIE_ERROR, OWN, message="PCIe error: Correctable, Physical Layer")],
        [event(EventKind.MACHINE_CHECK, message="machine check: Machine check events logged")],
    ],
)
@pytest.mark.parametrize("code", ["1:0", "0:11", "0:6", "134:0", "139:0"])
def test_a_programs_own_crash_is_blamed_on_nothing_else(told: list[Event], code: str) -> None:
    assert verdict(ending(exit_code=code), told).why is EndCause.PROGRAM


def test_a_job_on_one_node_is_not_ended_by_the_network() -> None:
    down = [event(EventKind.PORT_DOWN, PORT)]
    assert verdict(ending(nodes=1), down).why is EndCause.PROGRAM
    assert verdict(ending(nodes=2), down).why is EndCause.NETWORK


@pytest.mark.parametrize("state", ["COMPLETED", "TIMEOUT", "CANCELLED", "PREEMPTED"])
def test_what_slurm_did_itself_is_not_blamed_on_what_happened_beside(state: str) -> None:
    found = verdict(ending(state, "0:0"), [xid(79)])
    assert found.why is not EndCause.HARDWARE
    assert len(found.clues) == 1


def test_a_signal_that_anybody_may_have_sent_is_no_evidence() -> None:
    for code in ("0:9", "137:0", "0:15"):
        assert verdict(ending(exit_code=code), []).why is EndCause.NO_EVIDENCE
    assert verdict(ending(exit_code=None), []).why is EndCause.NO_EVIDENCE
    assert verdict(ending(exit_code="0:9"), [event(EventKind.OOM_KILL)]).why is EndCause.MEMORY


def test_a_node_that_slurm_lost_has_its_own_cause_where_one_was_seen() -> None:
    assert verdict(ending("NODE_FAIL"), [event(EventKind.OOM_KILL)]).why is EndCause.NODE
    assert verdict(ending("NODE_FAIL"), [xid(79)]).why is EndCause.HARDWARE


def test_an_incident_of_long_before_stands_beside_and_a_fresh_grave_one_speaks() -> None:
    assert verdict(ending(), [], [incident("gpu_memory")]).why is EndCause.HARDWARE
    old = verdict(ending(), [], [incident("gpu_memory", ago=timedelta(days=2))])
    assert (old.why, len(old.clues)) == (EndCause.PROGRAM, 1)
    assert (
        verdict(ending(), [], [incident("gpu_pcie", severity=Severity.WARNING)]).why
        is EndCause.PROGRAM
    )
    assert verdict(ending(), [], [incident("gpu_lost", OTHER)]).why is EndCause.PROGRAM


def test_what_goes_on_has_no_cause() -> None:
    waiting = Ending(state="PENDING", ended_at=None, reason="Resources")
    assert verdict(waiting, []).why is EndCause.RUNNING
    assert verdict(waiting, []).text == "it is pending: Resources"


KINDS = [kind for kind in EventKind if kind is not EventKind.XID]
events = st.lists(
    st.builds(
        lambda kind, subject, seconds: event(kind, subject, timedelta(seconds=seconds)),
        st.sampled_from(KINDS),
        st.sampled_from([NODE, OWN, OTHER, PORT]),
        st.integers(-400, 700),
    )
    | st.builds(
        lambda code, subject, seconds: xid(code, subject, timedelta(seconds=seconds)),
        st.sampled_from([13, 31, 43, 45, 48, 63, 74, 79, 94, 119, 999]),
        st.sampled_from([OWN, OTHER]),
        st.integers(-400, 700),
    ),
    max_size=8,
    unique_by=lambda one: one.id,
)
endings = st.builds(
    ending,
    st.sampled_from(["FAILED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY", None]),
    st.sampled_from(["1:0", "0:9", "0:11", "0:0", None]),
)


@given(endings, events, st.randoms(), st.integers(-(10**6), 10**6))
def test_neither_the_order_of_arrival_nor_the_hour_changes_a_verdict(
    end: Ending, told: list[Event], random: object, seconds: int
) -> None:
    found, by = verdict(end, told), timedelta(seconds=seconds)
    shuffled = list(told)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert verdict(end, shuffled) == found
    moved = verdict(
        replace(end, ended_at=NOON + by), [replace(one, at=one.at + by) for one in told]
    )
    assert (moved.why, moved.text) == (found.why, found.text)
    assert [one.at for one in found.clues] == sorted(one.at for one in found.clues)


@given(endings, events)
def test_without_an_error_of_its_own_gpus_or_nodes_no_hardware_is_blamed(
    end: Ending, told: list[Event]
) -> None:
    own = [
        one
        for one in told
        if one.subject.gpu != OTHER.gpu
        and (
            one.xid in {48, 74, 79, 94, 119}
            or one.kind in {EventKind.GPU_LOST, EventKind.DRIVER_SILENT, EventKind.SXID}
        )
    ]
    others = [one for one in told if one not in own]
    assert verdict(end, others).why is not EndCause.HARDWARE


def test_what_was_over_when_the_job_began_has_not_ended_it() -> None:
    begun = ending(started_at=NOON - 5 * MINUTE)
    before = [event(EventKind.OOM_KILL, ago=8 * MINUTE), event(EventKind.BOOT, ago=6 * MINUTE)]
    found = verdict(begun, before, [incident("fabric_down", NODE, 7 * MINUTE)])
    assert found.why is EndCause.PROGRAM
    assert len(found.clues) == 3
    assert verdict(begun, [event(EventKind.OOM_KILL, ago=4 * MINUTE)]).why is EndCause.MEMORY


def test_a_link_that_was_back_for_minutes_has_not_ended_it() -> None:
    down, up = EventKind.PORT_DOWN, EventKind.PORT_UP
    flap = [event(down, PORT, 8 * MINUTE), event(up, PORT, 7 * MINUTE)]
    assert verdict(ending(), flap).why is EndCause.PROGRAM
    assert verdict(ending(), [*flap, xid(79)]).why is EndCause.HARDWARE
    again = [*flap, event(down, PORT, 2 * MINUTE), event(up, PORT, MINUTE)]
    assert verdict(ending(), again).why is EndCause.NETWORK
    over = replace(incident("port_down", PORT, 8 * MINUTE), resolved_at=NOON - 6 * MINUTE)
    assert verdict(ending(), [], [over]).why is EndCause.PROGRAM
    assert verdict(ending(), [], [replace(over, resolved_at=None)]).why is EndCause.NETWORK


def test_a_silent_node_that_told_an_exit_code_has_a_dead_collector() -> None:
    silent = [incident("node_silent", NODE, MINUTE, Severity.WARNING)]
    assert verdict(ending(nodes=1), [], silent).why is EndCause.PROGRAM
    assert verdict(ending(nodes=2), [], silent).why is EndCause.NODE
    assert verdict(ending("NODE_FAIL", nodes=1), [], silent).why is EndCause.NODE


def test_of_what_happens_at_once_the_jobs_own_gpu_is_nearer_than_the_network() -> None:
    told = [event(EventKind.PORT_DOWN, PORT), xid(79, ago=MINUTE - timedelta(seconds=3))]
    assert verdict(ending(), told).why is EndCause.HARDWARE
