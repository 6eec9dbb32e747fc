"""What an incident says of what happened before at its place."""

from dataclasses import replace
from datetime import timedelta

from analyzer.incidents.history import HISTORY, Histories
from gpuvigil.model import (
    Evidence,
    GpuIdentity,
    Incident,
    Record,
    Severity,
    Subject,
    Transition,
    fingerprint,
)

from .scene import NOON, gpu

DAY = timedelta(days=1)


class Rack:
    """Which GPU sits where."""

    def __init__(self) -> None:
        self.gpus: dict[Subject, GpuIdentity] = {}

    def put(self, subject: Subject, serial: str, slot: str) -> None:
        self.gpus[subject] = GpuIdentity(
            uuid=subject.gpu or "", index=0, pci_address=slot, model="H100", serial=serial
        )


def incident(days_ago: float, subject: Subject) -> Incident:
    since = NOON - days_ago * DAY
    return Incident(
        id=f"{subject.key} {since.isoformat()}",
        fingerprint=fingerprint("gpu_lost", subject),
        fault="gpu_lost",
        subject=subject,
        severity=Severity.CRITICAL,
        state="open",
        title="GPU fell off the bus",
        since=since,
        updated_at=since,
        evidence=(Evidence(name="driver", value="the GPU is lost"),),
    )


def told(record: Record) -> list[str]:
    one = Incident.from_record(record)
    return [item.value for item in one.evidence if item.name == HISTORY]


def test_an_incident_carries_serial_slot_and_what_was_before_through_its_whole_life() -> None:
    rack = Rack()
    rack.put(gpu(1, 0), "s1", "0000:1b:00.0")
    rack.put(gpu(1, 1), "s2", "0000:1b:00.0")  # in the same slot, after the first
    histories = Histories(rack.gpus.get)
    histories.begin([], NOON)
    first = histories.named(incident(9.0, gpu(1, 0)).to_record())
    assert told(first) == []
    assert (first.body["serial"], first.body["slot"]) == ("s1", "0000:1b:00.0")
    one = incident(0.0, gpu(1, 1))
    said = ["Second time in 30 days at this slot, with 2 GPUs: it followed the slot, not the GPU"]
    assert told(histories.named(one.to_record())) == said
    # The GPU is gone from its node, and the incident changes: what was said stays.
    rack.gpus.clear()
    changed = replace(one, updated_at=NOON + DAY, version=2)
    again = histories.named(changed.to_record())
    assert (told(again), again.body["serial"]) == (said, "s2")
    # An analyzer that starts anew reads it, and says it once.
    later = Histories(rack.gpus.get)
    later.begin([Incident.from_record(first), Incident.from_record(again)], NOON + DAY)
    assert told(later.named(again)) == said
    assert told(later.named(replace(one, version=3).to_record())) == said


def test_messages_are_made_of_what_the_incident_says() -> None:
    rack = Rack()
    rack.put(gpu(1, 0), "s1", "0000:1b:00.0")
    histories = Histories(rack.gpus.get)
    histories.begin([replace(incident(3.0, gpu(1, 0)), serial="s1", slot="0000:1b:00.0")], NOON)
    one = incident(0.0, gpu(1, 0))
    step = Transition(
        incident=one.id,
        number=1,
        from_state="suspect",
        to_state="open",
        signal="confirmed",
        at=NOON,
        reason="certain",
        subject=one.subject,
        snapshot=one.to_record().to_json(),
    )
    snapshot = Record.from_json(histories.named(step.to_record()).body["snapshot"])
    assert told(snapshot) == ["Second time in 30 days on this GPU in this slot"]
    assert Incident.from_record(snapshot).serial == "s1"


def test_a_record_of_another_version_goes_as_it_is() -> None:
    histories = Histories(Rack().gpus.get)
    histories.begin([], NOON)
    record = incident(0.0, gpu()).to_record()
    strange = replace(record, body={**record.body, "severity": "purple"})
    assert histories.named(strange) == strange
