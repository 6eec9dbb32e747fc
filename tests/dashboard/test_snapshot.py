"""The threads behind the pages outlive what goes wrong on the way to the hub."""

from pathlib import Path

import pytest

from dashboard.snapshot import Snapshot
from gpuvigil.clock import SystemClock
from gpuvigil.config import AnalyzerSettings, HubSettings
from gpuvigil.hub import service_hubs
from gpuvigil.model import Severity
from tests.polling import wait_until
from tests.servers import HubProcess

from .scene import gpu, incident

pytestmark = pytest.mark.server


def test_pages_follow_the_records_again_after_a_token_was_rewritten_in_place(
    tmp_path: Path,
) -> None:
    with HubProcess(tmp_path / "hub") as process:
        token = tmp_path / "token"
        token.write_text(process.service_token)
        connect = service_hubs(HubSettings(url=process.url, service_token_file=token))
        snapshot = Snapshot(connect, SystemClock(), AnalyzerSettings(), 0.2)
        snapshot.start()
        try:
            wait_until("a view", lambda: snapshot.silence() is None and snapshot.view())
            token.write_text("")
            wait_until("the silence", snapshot.silence)
            token.write_text(process.service_token)
            lost = incident("gpu_lost", gpu(5), Severity.CRITICAL)
            process.hub().write_records([lost.to_record()])
            wait_until("the incident", lambda: snapshot.view().attention)
        finally:
            snapshot.stop()
