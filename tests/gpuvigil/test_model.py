"""The words survive the way through JSON."""

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.clock import from_ns, from_text, to_ns, to_text
from gpuvigil.model import (
    Allocation,
    Event,
    EventKind,
    Evidence,
    GpuIdentity,
    Group,
    GroupKind,
    Holder,
    Impact,
    Incident,
    Inventory,
    PortIdentity,
    Record,
    RecordKind,
    Severity,
    Subject,
    Transition,
    with_kind,
)

NAMES = st.text(min_size=1)
TIMES = st.datetimes(
    min_value=datetime(1980, 1, 1),  # noqa: DTZ001 - hypothesis wants naive bounds
    max_value=datetime(2100, 1, 1),  # noqa: DTZ001
    timezones=st.just(timezone.utc),
)
SUBJECTS = st.one_of(
    st.builds(Subject, cluster=NAMES, node=NAMES),
    st.builds(Subject, cluster=NAMES, node=NAMES, gpu=NAMES),
    st.builds(Subject, cluster=NAMES, node=NAMES, device=NAMES, port=NAMES),
)


# As collectors of every version write them: a member may be renamed, its word may not.
EVENT_WORDS = (
    "xid gpu_lost gpu_back gpu_reset port_down port_up driver_silent driver_back sxid pcie_error"
    " oom_kill machine_check kernel_hang storage_error logs host shutdown stopped boot collective"
)


def through_json(record: Record) -> Record:
    return Record.from_json(json.loads(json.dumps(record.to_json())))


def test_events_are_written_with_the_words_of_every_version() -> None:
    assert {kind.value for kind in EventKind} == set(EVENT_WORDS.split())


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [
        ("rack", "r1", "rack r1"),
        ("rack", "rack-004", "rack-004"),
        ("Rack", "row3rack12", "row3rack12"),
        ("rack", "Rack 7", "Rack 7"),
        ("rack", "track7", "rack track7"),
        ("switch", "switches", "switch switches"),
        ("cluster", "cluster-a", "cluster-a"),
    ],
)
def test_a_name_that_says_what_it_is_is_not_said_twice(kind: str, name: str, told: str) -> None:
    assert with_kind(kind, name) == told


def test_the_fingerprint_of_a_rack_does_not_depend_on_how_it_is_shown() -> None:
    group = Group(GroupKind.RACK, "rack-004")
    assert (group.label, group.key) == ("rack-004", "rack rack-004")


@given(SUBJECTS)
def test_a_key_names_its_subject_whatever_the_names_hold(subject: Subject) -> None:
    assert Subject.parse(subject.key) == subject


@given(SUBJECTS, SUBJECTS)
def test_two_subjects_never_share_a_key(one: Subject, other: Subject) -> None:
    assert (one.key == other.key) == (one == other)


@given(TIMES)
def test_a_time_survives_text_and_nanoseconds(at: datetime) -> None:
    assert from_text(to_text(at)) == at
    assert from_ns(to_ns(at)) == at


@given(SUBJECTS, TIMES, st.sampled_from(EventKind), st.none() | st.integers(1, 200), st.text())
def test_an_event_survives_json(
    subject: Subject, at: datetime, kind: EventKind, xid: int | None, message: str
) -> None:
    event = Event(kind=kind, subject=subject, at=at, id="e1", xid=xid, message=message)
    assert Event.from_record(through_json(event.to_record())) == event


@given(SUBJECTS, TIMES, st.none() | TIMES)
def test_an_allocation_survives_json(
    subject: Subject, start: datetime, end: datetime | None
) -> None:
    held = Allocation(
        subject=subject,
        holder=Holder.parse("pid 7"),
        user="alice",
        command="train.py",
        started_at=start,
        ended_at=end,
    )
    assert Allocation.from_record(through_json(held.to_record())) == held


@given(SUBJECTS, TIMES)
def test_an_inventory_survives_json(subject: Subject, at: datetime) -> None:
    inventory = Inventory(
        subject=subject.of_node(),
        at=at,
        boot="b",
        tick_seconds=1.0,
        version="0.1.0",
        gpus=(GpuIdentity(uuid="GPU-1", index=0, pci_address="0000:01:00.0", model="H100"),),
        ports=(PortIdentity(device="mlx5_0", port="1", kind="infiniband", role="fabric"),),
    )
    assert Inventory.from_record(through_json(inventory.to_record())) == inventory
    ports = (
        replace(
            inventory.ports[0], firmware="28.43.2566", switch="leaf1", switch_port="Ethernet1/7"
        ),
    )
    told = replace(inventory, kernel="6.8.0-87-generic", ports=ports)
    assert Inventory.from_record(through_json(told.to_record())) == told


def test_an_inventory_of_before_there_were_kernels_in_it_is_read() -> None:
    told = Inventory(
        subject=Subject(cluster="c", node="n"),
        at=datetime(2026, 1, 1, tzinfo=timezone.utc),
        boot="b",
        tick_seconds=1.0,
        version="0.1.0",
        ports=(PortIdentity(device="mlx5_0", port="1", kind="infiniband", role="fabric"),),
    )
    value = told.to_record().to_json()
    assert "kernel" not in value["body"]
    assert not {"firmware", "switch", "switch_port"} & set(value["body"]["ports"][0])
    assert Inventory.from_record(Record.from_json(value)) == told


@given(SUBJECTS, TIMES, st.sampled_from(Severity))
def test_an_incident_and_its_transition_survive_json(
    subject: Subject, at: datetime, severity: Severity
) -> None:
    incident = Incident(
        id="i1",
        fingerprint="f",
        fault="gpu_lost",
        subject=subject,
        severity=severity,
        state="open",
        title="GPU fell off the bus",
        since=at,
        updated_at=at + timedelta(seconds=1),
        impact=Impact(gpus=8, holders=("job 1",), users=("alice",), text="8 GPUs stall"),
        evidence=(Evidence(name="Xid", value="79"),),
        members=(subject.key,),
        version=3,
    )
    record = incident.to_record()
    assert Incident.from_record(through_json(record)) == incident
    transition = Transition(
        incident="i1",
        number=1,
        from_state="suspect",
        to_state="open",
        signal="confirmed",
        at=at,
        reason="certain at first sight",
        subject=subject,
        snapshot=record.to_json(),
    )
    assert Transition.from_record(through_json(transition.to_record())) == transition


def test_a_record_says_which_key_is_missing() -> None:
    with pytest.raises(ValueError, match="'id'"):
        Record.from_json({"kind": "event"})


def test_a_newer_version_may_write_more_keys() -> None:
    record = Inventory(
        subject=Subject(cluster="local", node="n1"),
        at=datetime(2026, 1, 1, tzinfo=timezone.utc),
        boot="b",
        tick_seconds=1.0,
        version="9.0",
        gpus=(GpuIdentity(uuid="GPU-1", index=0, pci_address=None, model="X"),),
    ).to_record()
    value = record.to_json()
    value["body"]["gpus"][0]["colour"] = "green"
    assert Inventory.from_record(Record.from_json(value)).gpus[0].uuid == "GPU-1"
    assert record.kind is RecordKind.INVENTORY
