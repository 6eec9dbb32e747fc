"""From a rank that is killed to its incident, with every service as it comes: ticks and passes of ten seconds."""

import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.conftest import PORTS, Site
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until
from tests.servers import HubProcess

pytestmark = [pytest.mark.server, pytest.mark.site, pytest.mark.timeout(300)]

RANKS = 4


@pytest.fixture
def usual_site(tmp_path: Path, library: Path) -> Iterator[Site]:
    """With the ticks and spans of a site that sets none, and files of jobs and of steps."""
    driver = FakeDriver(tmp_path / "driver", library)
    with HubProcess(tmp_path / "hub") as hub:
        site = Site(tmp_path, hub, driver)
        with site.receiver:
            for port in PORTS:
                site.ports.infiniband(port)
            site.configure()
            text = site.config.read_text().replace("tick_seconds = 0.5\n", "")
            text = text.replace("window_seconds = 5\n", "")
            folders = [f'{name}_directory = "{tmp_path}/{name}"' for name in ("jobs", "steps")]
            site.config.write_text(
                text.replace("[collector]\n", "\n".join(["[collector]", *folders, ""]))
            )
            try:
                yield site
            finally:
                site.stop()


def test_a_rank_that_is_killed_is_an_incident_within_fifteen_seconds(usual_site: Site) -> None:
    folder = usual_site.directory
    for name in ("jobs", "steps"):
        (folder / name).mkdir()
    (folder / "jobs/7-1").write_text(
        f"job=7\nuser=alice\ngpus=0-{RANKS - 1}\nstarted={time.time():.0f}\n"
    )
    ranks = [subprocess.Popen(["sleep", "250"]) for _ in range(RANKS)]
    try:
        for number, rank in enumerate(ranks):
            usual_site.driver.set_processes(number, {rank.pid: 10**9})
        _steps(folder, ranks)
        usual_site.start("analyze")
        usual_site.start("collect", usual_site.driver.environment())
        deadline = time.monotonic() + 60.0
        while time.monotonic() < deadline and len(_held(usual_site)) < RANKS:
            _steps(folder, ranks)
            time.sleep(0.5)
        # At any moment of a tick and of a pass.
        for _ in range(random.randrange(4, 24)):
            _steps(folder, ranks)
            time.sleep(0.5)
        ranks[2].kill()
        ranks[2].wait()
        usual_site.driver.set_processes(2, {})
        began = time.monotonic()
        (found,) = wait_until("the incident", usual_site.incidents, 40.0)
        seconds = time.monotonic() - began
        assert (found.fault, found.condition) == ("gpu_hung", "rank_gone")
        assert "rank 2" in found.evidence[0].value
        print(f"killed: an incident after {seconds:.1f} s")  # noqa: T201 - a figure of docs/steps.md
        assert seconds <= 15.0
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def _held(site: Site) -> list[object]:
    rows = site.latest("gpu", ["step", "rank"]) if "collect" in site.processes else []
    return [row for row in rows if row["rank"] is not None]


def _steps(folder: Path, ranks: list["subprocess.Popen[bytes]"]) -> None:
    """A step of all has ended now."""
    for number, rank in enumerate(ranks):
        beside = folder / "steps" / "new"
        beside.write_text(f"7 0.6 rank={number} world={RANKS} step_seconds=0.5\n")
        os.replace(beside, folder / "steps" / str(rank.pid))
