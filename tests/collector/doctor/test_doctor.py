"""`gpuvigil doctor` as a process, beside a real hub and a fake driver."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.collector.agent import ROOT, Agent
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until
from tests.servers import HubProcess, QuickHub

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with QuickHub(tmp_path_factory.mktemp("hub")) as hub:
        yield hub


class Doctor:
    def __init__(self, directory: Path, hub: HubProcess, driver: FakeDriver) -> None:
        self.config = directory / "doctor.toml"
        self.driver = driver
        self.hub = {"url": hub.url, "collector_token_file": str(hub.collector_token_file)}
        self.spool = directory / "spool"

    def look(self, *arguments: str, **variables: str) -> tuple[int, dict[str, dict[str, Any]]]:
        """The exit code, and the diagnoses by what they are about."""
        done = self.run("-o", "json", *arguments, **variables)
        value = json.loads(done.stdout)
        assert value["can_work"] == (done.returncode == 0)
        return done.returncode, {row["what"]: row for row in value["diagnoses"]}

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        keys = "".join(f"{key} = '{value}'\n" for key, value in self.hub.items())
        text = f"[hub]\n{keys}[collector]\nspool_directory = '{self.spool}'\n"
        self.config.write_text(f"{text}cluster = 'c'\nnode = 'n1'\nmetrics_port = 0\n")
        return subprocess.run(
            [sys.executable, "-m", "gpuvigil", "doctor", "--config", str(self.config), *arguments],
            cwd=ROOT,
            env={**os.environ, **self.driver.environment(), **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


@pytest.fixture
def doctor(tmp_path: Path, hub: HubProcess, driver: FakeDriver) -> Doctor:
    return Doctor(tmp_path, hub, driver)


def test_a_node_on_which_a_collector_can_work(doctor: Doctor) -> None:
    code, told = doctor.look()
    assert code == 0
    assert told["GPUs"]["text"].startswith("4 by the driver")
    assert told["NVML library"]["text"].endswith("libnvidia-ml.so.1")
    assert told["Xid events"]["state"] == "ok"
    assert told["profiling counters (GPM)"]["text"] == "12 of 12"
    assert told["hub"]["text"].endswith(f"(address from {doctor.config})")
    assert told["clock"]["text"] == "within 2 s of the hub's"
    assert told["token"]["text"].endswith("the hub has not heard of this node yet")
    assert told["spool"]["state"] == "ok"
    assert told["collector"]["state"] == "limited"


def test_people_read_a_line_each(doctor: Doctor) -> None:
    done = doctor.run()
    assert done.returncode == 0
    assert done.stderr == ""
    for line in done.stdout.splitlines():
        assert line.split()[0] in {"ok", "limited", "missing"}


def test_a_token_that_the_hub_refuses_is_missing(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("stale\n")
    doctor.hub["collector_token_file"] = str(tmp_path / "token")
    code, told = doctor.look()
    assert (code, told["token"]["state"]) == (1, "missing")
    assert "refuses" in told["token"]["text"]
    assert "stale" not in json.dumps(told)
    del doctor.hub["collector_token_file"]
    assert doctor.look()[1]["token"]["text"].startswith("hub.collector_token_file is not set")


def test_a_hub_that_is_away_is_missing_with_where_its_address_is_from(doctor: Doctor) -> None:
    code, told = doctor.look(GPUVIGIL_HUB_URL="http://127.0.0.1:9")
    assert (code, told["hub"]["state"]) == (1, "missing")
    assert "address from GPUVIGIL_HUB_URL" in told["hub"]["text"]
    assert "token" not in told


def test_of_several_hubs_one_that_answers_is_enough(doctor: Doctor, hub: HubProcess) -> None:
    urls = f"http://127.0.0.1:9,{hub.url}"
    done = doctor.run("-o", "json", GPUVIGIL_HUB_URL=urls)
    told = [row for row in json.loads(done.stdout)["diagnoses"] if row["what"] == "hub"]
    assert done.returncode == 0
    assert [row["state"] for row in told] == ["limited", "ok"]
    assert f"{hub.url} answers" in told[1]["text"]


def test_what_a_gpu_refuses_and_one_that_hangs_are_told(doctor: Doctor) -> None:
    doctor.driver.fail(1, "nvmlDeviceGetSramEccErrorStatus", 4)
    doctor.driver.hang(2)
    code, told = doctor.look("--timeout", "4")
    assert code == 1
    assert re.fullmatch("no answer within [34] s", told["GPU 2"]["text"])  # its call's share of 4 s
    assert told["SRAM error threshold of GPU 1"]["state"] == "limited"
    assert told["SRAM error threshold of GPU 0, 3"]["state"] == "ok"
    assert told["spool"]["state"] == "ok"


def test_a_driver_that_hangs_hides_nothing_else(doctor: Doctor) -> None:
    doctor.driver.hang_all()
    code, told = doctor.look("--timeout", "4")
    assert (code, told["driver"]["state"]) == (1, "missing")
    assert told["token"]["state"] == "ok"


def test_the_collector_beside_it_is_asked(doctor: Doctor, tmp_path: Path, hub: HubProcess) -> None:
    agent = Agent(tmp_path / "agent", hub.url)
    agent.environment = doctor.driver.environment()
    doctor.spool = Path(str(agent.settings["spool_directory"]))
    agent.start()
    try:
        wait_until("its first tick", lambda: "driver state=loaded" in agent.said())
        told = doctor.look()[1]["collector"]
    finally:
        agent.end()
    assert told["state"] == "ok"
    assert "driver: loaded, 4 GPUs known" in told["text"]


def test_a_wrong_configuration_is_one_line_and_code_2(doctor: Doctor) -> None:
    done = doctor.run(GPUVIGIL_COLLECTOR_NODE="a\tb")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gpuvigil doctor: GPUVIGIL_COLLECTOR_NODE")
