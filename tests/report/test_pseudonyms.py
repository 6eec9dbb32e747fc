"""A report of what is over for long enough names nobody, and that it was written is in the audit log."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from accounting.people.configured import pseudonyms, with_pseudonyms
from gpuvigil.clock import SystemClock
from gpuvigil.config import load
from gpuvigil.model import Audit, AuditedAction, RecordKind
from report import report_command
from tests.accounting.people.scene import GPU, NOON, STRANGER, incident, records
from tests.dashboard.scene import inventory
from tests.hub.in_process import HubThread
from tests.servers import HubProcess

pytestmark = pytest.mark.server


def written(hub: HubProcess, directory: Path, days: float, name: str) -> str:
    config, out = directory / f"{name}.toml", directory / f"{name}.json"
    config.write_text(
        f'[hub]\nurl = "{hub.url}"\nservice_token_file = "{hub.service_token_file}"\n'
        f"[people]\npseudonyms_after_days = {days}\n"
    )
    span = ["--from", f"{NOON:%Y-%m-%d}", "--to", f"{NOON + timedelta(days=1):%Y-%m-%d}"]
    chosen = ["--config", str(config), *span, "--cluster", "prod", "--out", str(out)]
    assert report_command.main(chosen) == 0
    return out.read_text(encoding="utf-8")


def test_names_leave_a_report_after_their_days_and_each_report_is_noted(tmp_path: Path) -> None:
    with HubThread(tmp_path / "hub") as hub:
        client = hub.hub()
        others = {RecordKind.INVENTORY, RecordKind.INCIDENT}
        kept = (one for one in records() if one.kind not in others)
        over = replace(incident(), state="resolved", resolved_at=NOON + timedelta(hours=1))
        had = inventory(GPU.of_node(), at=NOON)
        client.write_records([*kept, over.to_record(), had.to_record()])
        ago = (SystemClock().now() - NOON) / timedelta(days=1)
        before = written(hub, tmp_path, 0, "never")
        assert STRANGER in before
        assert written(hub, tmp_path, ago + 2, "later").count(STRANGER) == before.count(STRANGER)
        after = written(hub, tmp_path, ago - 2, "now")
        told = [Audit.from_record(one) for one in client.records(RecordKind.AUDIT)]
        details = [one.detail for one in told if one.deed is AuditedAction.REPORT]
        assert [one.partition(", typed")[0] for one in details] == ["json, a span"] * 3
        config = load(tmp_path / "now.toml")
        found = pseudonyms(config)
        assert found is not None
        assert found.of(STRANGER) in after
        assert STRANGER not in after
        seen = with_pseudonyms(client, config, SystemClock())
        assert STRANGER not in str([one.to_json() for one in seen.records(RecordKind.OPINION)])
        client.close()
