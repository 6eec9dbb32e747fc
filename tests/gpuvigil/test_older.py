"""What the version before wrote in words only is read as values: its own records, word for word."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from alerts.routing.notice import Notice
from gpuvigil.model import (
    CoveredBy,
    Group,
    GroupKind,
    Incident,
    OutOfService,
    Record,
    RecordKind,
    Transition,
    Uncovered,
    fingerprint,
    older,
)

# Written by the code before causes, conditions and groups had fields of their own.
RECORDS = [
    Record.from_json(one)
    for one in json.loads(Path(__file__).with_name("records_before_values.json").read_text())
]


def of(kind: RecordKind) -> list[Record]:
    return [record for record in RECORDS if record.kind is kind]


def test_the_causes_of_its_transitions_are_values() -> None:
    steps = [Transition.from_record(record) for record in of(RecordKind.TRANSITION)]
    covered = CoveredBy(fingerprint="", what="n1: Node stopped reporting")
    assert [step.cause for step in steps] == [None, covered, Uncovered()]
    assert steps == [Transition.from_record(step.to_record()) for step in steps]


def test_its_notices_know_what_covers_their_incident() -> None:
    (record,) = of(RecordKind.NOTICE)
    notice = Notice.from_record(record)
    assert notice.covered_by == CoveredBy(fingerprint="", what="n1: Node stopped reporting")
    assert Notice.from_record(notice.to_record()) == notice


def test_one_line_warns_however_many_are_read(caplog: pytest.LogCaptureFixture) -> None:
    older._warn.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            for record in of(RecordKind.TRANSITION):
                Transition.from_record(record)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_its_incidents_say_in_values_what_their_titles_say() -> None:
    incidents = [Incident.from_record(record) for record in of(RecordKind.INCIDENT)]
    told = [(one.fault, one.condition, one.group) for one in incidents]
    rack, cluster = Group(GroupKind.RACK, "r1"), Group(GroupKind.CLUSTER, "c")
    assert told == [
        ("node_silent", "dead", None),
        ("gpu_hot", "heatsink", None),
        ("gpu_slow", "pcie_narrow", None),
        ("gpu_slow", "gpu_clocks", None),
        ("node_silent", "stopped", None),
        ("node_silent", "taken_away", None),
        ("node_silent", "rack_power", rack),
        ("gpu_memory", "half_of_cluster", cluster),
        ("nvswitch_error", "", None),
        ("gpu_idle_held", "several_gpus", None),
    ]
    assert [one.sxid for one in incidents if one.sxid] == [20034]
    out = [one.out_of_service for one in incidents if one.out_of_service is not None]
    assert [(one.state, one.reason) for one in out] == [("DELETED", "deleted from the cluster")]
    assert incidents == [Incident.from_record(one.to_record()) for one in incidents]
    snapshots = (step.body["snapshot"] for step in of(RecordKind.TRANSITION))
    codes = {Incident.from_record(Record.from_json(one)).xid for one in snapshots}
    assert codes == {95}


def test_a_record_keeps_the_words_that_earlier_versions_read() -> None:
    one = Incident.from_record(next(iter(of(RecordKind.INCIDENT))))
    out = OutOfService("DRAIN", "drained: fan [ada@now]")
    record = replace(one, out_of_service=out).to_record()
    assert (record.body["held"], record.body["held_state"]) == (out.reason, out.state)
    back = Incident.from_record(record).out_of_service
    assert back is not None
    assert (back.reason, back.state) == (out.reason, out.state)
    assert record.body.keys() == one.to_record().body.keys()
    assert "out_of_service" not in record.body


@pytest.mark.parametrize(
    ("source", "own"),
    [("DCGM health warns at 1; ten in half an hour is ours", True), ("yours and NVIDIA's", False)],
)
def test_whose_limit_it_was_is_read_from_its_source(source: str, own: bool) -> None:
    record = next(iter(of(RecordKind.INCIDENT)))
    told = replace(record, body={**record.body, "source": source})
    assert Incident.from_record(told).own_limit is own


def test_what_it_wrote_keeps_its_name() -> None:
    """A restart with this version finds the same incidents again."""
    for one in (Incident.from_record(record) for record in of(RecordKind.INCIDENT)):
        named = one.group.key if one.group is not None else ""
        if one.fault != "gpu_idle_held":  # whose GPUs is part of its name
            assert one.fingerprint == fingerprint(one.fault, one.subject, named)
