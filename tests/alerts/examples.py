"""Incidents, transitions and routes that the tests of alerts speak about."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from alerts.routing.case import ChannelProfile
from gpuvigil.config import AlertsSettings
from gpuvigil.lifecycle import Signal, State
from gpuvigil.model import Evidence, Impact, Incident, Severity, Subject, Transition, fingerprint

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=timezone.utc)
SETTINGS = AlertsSettings(update_seconds=300.0, repeat_seconds=14_400.0, give_up_seconds=86_400.0)
CHAT = ChannelProfile(name="chat", minimum_severity=Severity.WARNING)
GPU = Subject(cluster="simulated", node="sim-003", gpu="GPU-00000000-0000-0000-0003-000000000005")
REAL = Subject(cluster="lab", node="n1", gpu="GPU-1")
MARKED = Subject(cluster="selftest", node="t1.gpu-lost", gpu="GPU-1")


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def an_incident(**changes: Any) -> Incident:
    """A lost simulated GPU that blocks a job."""
    incident = Incident(
        id="i-1",
        fingerprint=fingerprint("gpu_lost", GPU),
        fault="gpu_lost",
        subject=GPU,
        severity=Severity.CRITICAL,
        state="open",
        title="GPU fell off the bus",
        since=NOON,
        updated_at=NOON,
        impact=Impact(gpus=1, holders=("job 1234",), users=("alice",)),
        evidence=(Evidence(name="Xid", value="79", limit="none"),),
        action="Drain the node and reboot it.",
        source="NVIDIA Xid catalogue, Xid 79",
        label="sim-003 GPU 5",
    )
    return replace(incident, **changes)


def a_transition(
    number: int = 1,
    signal: Signal = Signal.CONFIRMED,
    to_state: State = State.OPEN,
    from_state: State = State.SUSPECT,
    at: datetime = NOON,
    **changes: Any,
) -> Transition:
    """One step of `an_incident(**changes)`."""
    over = to_state is State.RESOLVED
    changed = {"resolved_at": at if over else None, **changes}
    incident = an_incident(state=to_state.value, updated_at=at, version=number, **changed)
    return Transition(
        incident=incident.id,
        number=number,
        from_state=from_state.value,
        to_state=to_state.value,
        signal=signal.value,
        at=at,
        reason="seen",
        subject=incident.subject,
        snapshot=incident.to_record().to_json(),
    )


def opened(number: int = 1, **changes: Any) -> Transition:
    return a_transition(number, **changes)


def changed(number: int = 2, **changes: Any) -> Transition:
    return a_transition(number, Signal.CHANGED, State.OPEN, State.OPEN, **changes)


def resolved(number: int = 2, **changes: Any) -> Transition:
    return a_transition(number, Signal.CLEARED, State.RESOLVED, State.OPEN, **changes)


def returned(number: int = 3, **changes: Any) -> Transition:
    return a_transition(number, Signal.RETURNED, State.OPEN, State.RESOLVED, **changes)


def taken(number: int = 2, **changes: Any) -> Transition:
    return a_transition(number, Signal.ACKNOWLEDGED, State.ACKNOWLEDGED, State.OPEN, **changes)
