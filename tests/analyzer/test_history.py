"""What an incident says of what happened before at its place."""

from dataclasses import replace
from datetime import timedelta

from accounting.hardware.repeat_offenders import Advice
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
from gpuvigil.silence_conditions import NodeSilence

from .scene import NOON, gpu, node

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


def advised(record: Record) -> str:
    return Incident.from_record(record).action


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
    said = [
        "Again: 2nd time in 9 days at this slot, with 2 GPUs: it followed the slot, not the GPU"
    ]
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
    assert told(snapshot) == ["Again: 2nd time in 3 days on this GPU in this slot"]
    assert Incident.from_record(snapshot).serial == "s1"


def test_what_fails_again_and_again_is_to_be_taken_out() -> None:
    rack = Rack()
    rack.put(gpu(1, 0), "s1", "0000:1b:00.0")
    histories = Histories(rack.gpus.get)
    histories.begin([], NOON)
    first = histories.named(incident(20.0, gpu(1, 0)).to_record())
    second = histories.named(incident(5.9, gpu(1, 0)).to_record())
    assert (advised(first), advised(second)) == ("", "")
    last = histories.named(incident(0.0, gpu(1, 0)).to_record())
    assert told(last) == ["Again: 3rd time in 20 days on this GPU in this slot"]
    assert advised(last) == Advice.RETURN_GPU.value
    # Who starts anew says the same, also once it changes.
    later = Histories(rack.gpus.get)
    later.begin([Incident.from_record(one) for one in (first, second, last)], NOON)
    changed = replace(incident(0.0, gpu(1, 0)), updated_at=NOON + DAY, version=2)
    assert advised(later.named(changed.to_record())) == Advice.RETURN_GPU.value


def test_an_incident_that_comes_back_counts_each_time() -> None:
    histories = Histories(Rack().gpus.get)
    histories.begin([], NOON)
    first = replace(incident(0.0, gpu()), slot="a")
    histories.named(first.to_record())
    histories.named(replace(first, state="resolved", resolved_at=NOON, version=2).to_record())
    back = replace(first, earlier=(NOON,), since=NOON + DAY / 16, version=3)
    assert told(histories.named(back.to_record())) == [
        "2nd failure of hardware in 1 h 30 min on this node"
    ]


def test_a_node_that_went_down_before_says_so_and_its_gpus_failures_do_not_count() -> None:
    histories = Histories(Rack().gpus.get)
    dead = [
        replace(
            incident(days, node()),
            fault="node_silent",
            condition=NodeSilence.DEAD,
            id=f"{days}",
            fingerprint="f",
        )
        for days in (9.0, 4.0, 0.0)
    ]
    rebooted = replace(dead[1], id="r", condition=NodeSilence.WAS_REBOOTED)
    histories.begin([dead[0], incident(6.0, gpu()), rebooted], NOON)
    second = histories.named(dead[1].to_record())
    assert told(second) == ["Again: 2nd time in 5 days that this node went down"]
    # It turns out that somebody booted it while nobody held it: that was no death.
    histories.named(replace(dead[1], condition=NodeSilence.WAS_REBOOTED, version=2).to_record())
    last = histories.named(dead[2].to_record())
    assert told(last) == ["Again: 2nd time in 9 days that this node went down"]
    assert advised(last) == Advice.TAKE_NODE_OUT.value


def test_a_record_of_another_version_goes_as_it_is() -> None:
    histories = Histories(Rack().gpus.get)
    histories.begin([], NOON)
    record = incident(0.0, gpu()).to_record()
    strange = replace(record, body={**record.body, "severity": "purple"})
    assert histories.named(strange) == strange
