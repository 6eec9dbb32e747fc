"""What the version before wrote in words only is read as values: its own records, word for word."""

import json
import logging
from pathlib import Path

import pytest

from alerts.notice import Notice
from gpuvigil.model import CoveredBy, Record, RecordKind, Transition, Uncovered, older

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
