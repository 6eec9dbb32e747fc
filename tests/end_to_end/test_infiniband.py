"""The switches of a real subnet, from the fabric's own tools to the webhook, everything as shipped."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuvigil.model import RecordKind
from tests.fabric import Fabric, labels_of, running
from tests.ibsim import PROGRAMS, Ibsim
from tests.polling import wait_until
from tests.servers import ROOT

pytestmark = [pytest.mark.server, pytest.mark.site]

HOSTS, RAILS = 6, 2
NODES = {f"host{n:02}": tuple(f"mlx5_{r}" for r in range(RAILS)) for n in range(1, HOSTS + 1)}
_READER = """
[collector]
cluster = "lab"
node = "mgmt"
[infiniband]
interval_seconds = 5
spool_directory = "{folder}/spool"
"""


def gpuvigil(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpuvigil", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@contextmanager
def reading(folder: Path, fabric: Fabric, subnet: Ibsim) -> Iterator[None]:
    """`gpuvigil infiniband` with a token of its own, on a machine of the subnet."""
    folder.mkdir()
    config, token = folder / "reader.toml", folder / "scheduler-token"
    config.write_text(fabric.everybody() + _READER.format(folder=folder))
    words = ("--scope", "scheduler", "--cluster", "lab", "--name", "infiniband")
    made = gpuvigil("token", "--config", str(config), "create", *words, "--file", str(token))
    assert made.returncode == 0, made.stderr
    text = config.read_text().replace("[hub]", f'[hub]\nscheduler_token_file = "{token}"')
    config.write_text(text)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "gpuvigil", "infiniband", "--config", str(config)],
            cwd=subnet.folder,
            env={**os.environ, **subnet.environment, "PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            process.terminate()
            assert process.wait(20) == 0, (folder / "log").read_text()


def test_a_leaf_that_goes_is_one_message_with_its_name_and_its_hosts(
    tmp_path: Path, needs: Callable[[str, str], str]
) -> None:
    for program in PROGRAMS:
        needs(program, "scripts/install-test-servers")
    with (
        Ibsim(tmp_path / "ib", leaves=2, spines=2, hosts=HOSTS, rails=RAILS) as subnet,
        running(tmp_path, NODES) as fabric,
        reading(tmp_path / "reader", fabric, subnet),
    ):
        hub = fabric.hub.hub()
        wait_until("four switches", lambda: len(hub.records(RecordKind.SWITCH)) == 4)
        said = gpuvigil("topology", "--config", str(tmp_path / "services.toml"))
        assert said.returncode == 0, said.stderr
        assert "leaf2" in said.stdout
        assert "spine1, spine2" in said.stdout
        began = fabric.down()
        subnet.cut(subnet.leaf(2))
        told = fabric.wait(began, timeout_seconds=60.0)
        assert labels_of(told) == ("switch_down", "critical")
        summary = told.payload["alerts"][0]["annotations"]["summary"]
        assert summary.startswith("Switch does not answer: switch leaf2")
        (incident,) = hub.records(RecordKind.INCIDENT)
        ports = [key for key in incident.body["members"] if "/port/mlx5" in key]
        assert ports == [f"lab/host{n:02}/port/mlx5_1/1" for n in range(1, HOSTS + 1)]
        subnet.join(subnet.leaf(2))
        over = fabric.wait(began, "resolved", timeout_seconds=120.0)
        assert labels_of(over) == ("switch_down", "critical")
        assert len(fabric.told(began)) == 1
