"""With which token `gpuvigil slurm` comes, and what it does when the hub takes no word of a scheduler by it."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuvigil.config import HubSettings
from gpuvigil.errors import ConfigError
from gpuvigil.model import Record, RecordKind
from integrations.scheduler_token import scheduler_token
from tests.integrations.slurm.test_watch import OUTPUTS, program
from tests.polling import wait_until
from tests.servers import ROOT, HubProcess, QuickHub


@contextmanager
def asking(hub: HubProcess, directory: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`gpuvigil slurm` as it ran before schedulers had a token, beside a Slurm that prints files."""
    for name, file in (("squeue", "squeue-22.05.8.json"), ("scontrol", "nodes-22.05.8.txt")):
        program(directory, name, f"cat {OUTPUTS / file}")
    (directory / "collector-token").write_text(hub.collector_token)
    config = directory / "collector.toml"
    config.write_text(
        f'[hub]\nurl = "{hub.url}"\ncollector_token_file = "collector-token"\n'
        '[collector]\ncluster = "c"\nnode = "login"\n'
        f'[slurm]\ninterval_seconds = 5\ndirectory = "{directory}"\nspool_directory = "spool"\n'
    )
    with log.open("ab") as out:
        command = [sys.executable, "-m", "gpuvigil", "slurm", "--config", str(config)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.server
def test_with_an_old_token_it_says_once_what_mends_it_and_goes_on_by_itself(tmp_path: Path) -> None:
    log = tmp_path / "slurm.log"
    with QuickHub(tmp_path / "hub") as hub, asking(hub, tmp_path, log):
        wait_until("it says so", lambda: "gpuvigil token create" in log.read_text(), 60.0)

        def told(kind: RecordKind) -> tuple[Record, ...]:
            return hub.hub().records(kind)

        # Long enough for several tries.
        refusals = hub.log.read_text()
        wait_until("more is kept", lambda: _spooled(tmp_path / "spool") >= 1, 30.0)
        assert (told(RecordKind.JOB), told(RecordKind.SCHEDULER)) == ((), ())
        assert refusals.count("a scheduler's records refused") == 1
        found = re.findall(r"`gpuvigil (token create [^`]+)`", log.read_text())
        assert len(found) == 1
        words = [*shlex.split(found[0]), "--config", str(hub.config)]
        made = subprocess.run(
            [sys.executable, "-m", "gpuvigil", *words],
            cwd=ROOT,
            env={**os.environ, "GPUVIGIL_HUB_URL": hub.url},  # another may be at the usual port
            capture_output=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        file = tmp_path / "scheduler-token"
        assert file.stat().st_mode & 0o777 == 0o600
        wait_until("all is told", lambda: len(told(RecordKind.JOB)) == 10, 30.0)
        wait_until("also of the nodes", lambda: told(RecordKind.SCHEDULER), 30.0)
        # Of the one that speaks for cluster "c" alone.
        (token,) = hub.hub().request("GET", "/api/v1/tokens").body.decode().split('"tokens":')[1:]
        assert '"scope":"scheduler","name":"slurm","cluster":"c"' in token
        assert file.read_text().strip() not in log.read_text() + hub.log.read_text()


def _spooled(directory: Path) -> int:
    return sum(1 for file in directory.rglob("*") if file.is_file() and file.name != "lock")


def test_which_token_a_scheduler_comes_with(tmp_path: Path) -> None:
    before, own, named = (tmp_path / name for name in ("old", "scheduler-token", "elsewhere"))
    with pytest.raises(
        ConfigError, match=r"gpuvigil token create --scope scheduler --cluster 'a b'"
    ):
        scheduler_token(HubSettings(), "a b", "slurm", None)
    before.write_text("old\n")
    found = scheduler_token(HubSettings(), "c", "slurm", before)
    assert found.read() == "old"
    own.write_text("own\n")
    assert found.read() == "own"
    assert f"--cluster c --name slurm --file {own}`" in found.todo
    own.unlink()
    assert found.read() == "old"
    settings = HubSettings(scheduler_token_file=named)
    with pytest.raises(ConfigError, match=r"hub\.scheduler_token_file"):
        scheduler_token(settings, "c", "slurm", before)
    named.write_text("named\n")
    assert scheduler_token(settings, "c", "slurm", before).read() == "named"
    assert scheduler_token(settings, "c", "slurm", None).read() == "named"
    with pytest.raises(ConfigError, match="nothing"):
        scheduler_token(HubSettings(), "c", "slurm", tmp_path / "nothing")
