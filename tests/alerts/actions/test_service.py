"""`gpuvigil act` goes on whatever it cannot read, and does nothing meanwhile."""

import argparse
import threading
from datetime import datetime, timezone
from pathlib import Path

import pytest

from alerts.actions.service import check_faults, run
from gpuvigil.config import ActionsSettings, CollectorSettings, Config, HubSettings, SlurmSettings
from gpuvigil.errors import ConfigError
from gpuvigil.faults import FAULTS
from gpuvigil.model import Incident, Severity, Subject
from tests.polling import wait_until
from tests.servers import QuickHub

pytestmark = pytest.mark.server

NOON = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
STRANGE = Incident(
    id="i1",
    fingerprint="f",
    fault="gpu_lost",
    subject=Subject(cluster="c", node="n1"),
    severity=Severity.CRITICAL,
    state="open",
    title="GPU fell off the bus",
    since=NOON,
    updated_at=NOON,
    members=("no such subject",),
)


@pytest.mark.parametrize("fault", [key for key, row in FAULTS.items() if row.inferred])
def test_no_node_is_drained_for_what_is_only_inferred(fault: str) -> None:
    with pytest.raises(ConfigError, match=rf"'{fault}' is inferred.* a person decides") as refused:
        check_faults(("gpu_lost", fault))
    assert "gpu_lost, gpu_xid" in str(refused.value)


def test_what_a_device_reports_may_drain_a_node_and_what_nobody_knows_may_not() -> None:
    check_faults([key for key, row in FAULTS.items() if not row.inferred])
    with pytest.raises(ConfigError, match=r"'gpu_lots' is none of docs/faults\.md"):
        check_faults(("gpu_lots",))


def test_what_cannot_be_read_ends_no_acting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    looks, token = tmp_path / "looks", tmp_path / "token"
    program = tmp_path / "scontrol"
    program.write_text(f"#!/bin/sh\necho look >>{looks}\necho 'NodeName=n1 State=IDLE'\n")
    program.chmod(0o755)
    with QuickHub(tmp_path / "hub") as process:
        token.write_text(process.service_token)
        config = Config(
            hub=HubSettings(url=process.url, service_token_file=token),
            actions=ActionsSettings(enabled=True, interval_seconds=0.05),
            collector=CollectorSettings(cluster="c"),
            slurm=SlurmSettings(directory=str(tmp_path)),
        )
        stop = threading.Event()
        chosen = argparse.Namespace(once=False)
        acting = threading.Thread(target=run, args=(config, chosen, stop))
        acting.start()
        try:
            wait_until("it looks", looks.exists)
            token.write_text("")
            wait_until("it cannot ask", lambda: "must be exactly one line" in caplog.text)
            token.write_text(process.service_token)
            process.hub().write_records([STRANGE.to_record()])
            wait_until("it cannot read", lambda: "no such subject" in caplog.text)
            before = looks.stat().st_size
            wait_until("it looks again", lambda: looks.stat().st_size > before)
        finally:
            stop.set()
            acting.join(10)
    assert not acting.is_alive()
