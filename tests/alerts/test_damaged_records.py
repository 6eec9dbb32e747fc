"""What alerts says of records that the hub has repaired."""

from datetime import datetime, timezone
from typing import Any

from alerts.messages.damaged_records import repairs
from gpuvigil.clock import to_text
from gpuvigil.model import Record, RecordKind, Severity

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
REPAIR: dict[str, Any] = {
    "at": to_text(NOON),
    "file": "/data/records.sqlite",
    "reason": "database disk image is malformed",
    "moved_to": "/data/records.sqlite.damaged-20260131T120000",
    "backup": "/data/records.backups/records-00000007.sqlite",
    "backup_at": to_text(NOON.replace(hour=11)),
    "commits": 3,
    "missing_since": None,
    "missing_until": None,
    "empty": False,
    "over": False,
}


def pulse(*told: object) -> Record:
    body = {"state": "running", "repairs": list(told)}
    return Record(kind=RecordKind.PULSE, id="hub-records", at=NOON, subject="hub", body=body)


def test_a_repair_that_lost_nothing_is_a_warning_and_says_what_to_do() -> None:
    ((name, trouble),) = repairs(pulse(REPAIR))
    assert trouble is not None
    assert name == trouble.name == "records-20260131T120000"
    assert trouble.severity is Severity.WARNING
    assert "malformed; restored from the backup of 11:00:00 UTC on 31 Jan; nothing" in trouble.value
    assert "Look at /data/records.sqlite.damaged-20260131T120000, then move it" in trouble.action


def test_a_missing_span_is_critical_and_named() -> None:
    missing = {"missing_since": REPAIR["backup_at"], "missing_until": to_text(NOON)}
    ((_, trouble),) = repairs(pulse({**REPAIR, **missing}))
    assert trouble is not None
    assert trouble.severity is Severity.CRITICAL
    assert "records from 11:00:00 UTC on 31 Jan to 12:00:00 UTC on 31 Jan may be" in trouble.value


def test_without_a_backup_everything_is_missing() -> None:
    lost = {"backup": None, "backup_at": None, "commits": 0, "empty": True, "moved_to": None}
    ((_, trouble),) = repairs(pulse({**REPAIR, **lost}))
    assert trouble is not None
    assert trouble.severity is Severity.CRITICAL
    assert "there was no backup; all that was recorded before is missing" in trouble.value
    assert trouble.action == "Check the hub's disk."


def test_one_that_is_over_ends_and_what_cannot_be_read_hides_no_other() -> None:
    found = repairs(pulse({"at": 7}, {**REPAIR, "over": True}))
    assert found == [("records-20260131T120000", None)]
    assert repairs(None) == []
