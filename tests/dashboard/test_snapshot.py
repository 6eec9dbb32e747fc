"""The threads behind the pages outlive what goes wrong on the way to the hub."""

import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from dashboard.data.snapshot import UNWATCHED_AFTER_SECONDS, Snapshot
from gpuvigil.clock import SystemClock
from gpuvigil.config import AnalyzerSettings, HubSettings
from gpuvigil.hub_client import service_hubs
from gpuvigil.model import Severity
from tests.polling import wait_until
from tests.servers import QuickHub

from .scene import gpu, incident

pytestmark = pytest.mark.server


def test_pages_follow_the_records_again_after_a_token_was_rewritten_in_place(
    tmp_path: Path,
) -> None:
    with QuickHub(tmp_path / "hub") as process:
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


class Ahead(SystemClock):
    """The machine's clock, which a test sets forward."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return super().monotonic() + self.seconds


def test_who_opens_a_page_after_an_outage_at_which_nobody_looked_sees_it_fresh(
    tmp_path: Path,
) -> None:
    clock = Ahead()
    with QuickHub(tmp_path / "hub") as process:
        connect = service_hubs(
            HubSettings(url=process.url, service_token_file=process.service_token_file)
        )
        snapshot = Snapshot(connect, clock, AnalyzerSettings(), 0.2)
        snapshot.start()
        try:
            wait_until("a view", lambda: snapshot.silence() is None and snapshot.view())
            process.stop()
            wait_until("the silence", snapshot.silence)
            clock.seconds += UNWATCHED_AFTER_SECONDS + 1
            # Nobody asks while both threads find out, and the one falls asleep.
            time.sleep(2)
            process.start()
            # The records are followed all the time, so that their answers are of now.
            clock.seconds += UNWATCHED_AFTER_SECONDS + 1
            time.sleep(3)
            before = clock.monotonic()
            view = snapshot.view()
            assert clock.monotonic() - before < 5.0
            assert snapshot.silence() is None
            assert clock.now() - timedelta(seconds=clock.seconds) - view.now < timedelta(seconds=5)
        finally:
            snapshot.stop()
