"""What services write is nobody else's, whoever starts them and whatever the umask is."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from gpuvigil.errors import ConfigError
from gpuvigil.model import Record, RecordKind
from gpuvigil.private_files import as_owner_of, owned_as, write_private
from tests.polling import wait_until
from tests.servers import ROOT, HubProcess

_WIDE = 0o022
_SETTINGS = """
[hub]
url = "{hub.url}"
service_token_file = "{hub.service_token_file}"
collector_token_file = "{hub.collector_token_file}"
[collector]
cluster = "c"
node = "n"
gpus = false
tick_seconds = 0.5
metrics_port = -1
kernel_log = "kmsg"
journalctl = ""
spool_directory = "state/spool"
log_directory = "state/logs"
jobs_directory = "jobs"
steps_directory = "steps"
runtime_directory = "runtime"
[simulator]
nodes = 1
spool_directory = "state/simulator/spool"
faults_file = "state/simulator/faults.json"
[slurm]
directory = "{directory}"
spool_directory = "state/slurm"
[dashboard]
port = 0
secrets_directory = "state/secrets"
[analyzer]
tick_seconds = 0.5
"""


@contextmanager
def started(directory: Path, service: str) -> Iterator[None]:
    with (directory / f"{service}.log").open("wb") as log:
        command = [sys.executable, "-m", "gpuvigil", service, "--config", "gpuvigil.toml"]
        process = subprocess.Popen(
            command, cwd=directory, env=_environment(), stdout=log, stderr=log, umask=_WIDE
        )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def open_to_others(directory: Path) -> list[str]:
    """Files and folders below it that somebody else may read, write or enter, with their modes."""
    found = [directory, *directory.rglob("*")]
    modes = {path: path.lstat().st_mode & 0o777 for path in found if not path.is_socket()}
    return [f"{path} {mode:o}" for path, mode in modes.items() if mode & 0o077]


@pytest.mark.server
def test_what_services_keep_is_their_users_alone(tmp_path: Path) -> None:
    for name in ("squeue", "scontrol"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    for name in ("kmsg", "state", "runtime"):
        (tmp_path / name).mkdir() if name != "kmsg" else (tmp_path / name).touch()
    state = tmp_path / "state"
    state.chmod(0o700)  # what is in it is looked at
    hub = HubProcess(tmp_path / "hub")
    before = os.umask(_WIDE)  # which a hub gets from whoever starts it
    with ExitStack() as stack:
        try:
            stack.enter_context(hub)
        finally:
            os.umask(before)
        (tmp_path / "gpuvigil.toml").write_text(_SETTINGS.format(hub=hub, directory=tmp_path))
        for service in ("collect", "simulate", "slurm", "analyze", "alert", "dashboard"):
            stack.enter_context(started(tmp_path, service))
        client = hub.hub()
        wait_until("the collector has told", lambda: client.records(RecordKind.INVENTORY), 120.0)
        wait_until("it has its memory", lambda: list(state.glob("spool/*.json")), 60.0)
        wait_until("Slurm is asked", lambda: list(state.glob("slurm/**/*")), 60.0)
        wait_until("pages have keys", lambda: list(state.glob("secrets/session-key")), 120.0)
        wait_until("a node is played", lambda: list(state.glob("simulator/spool/*.json")), 60.0)
        wait_until("passes are made", lambda: client.record(RecordKind.PULSE, "analyzer"), 120.0)
        copy = json.dumps({"directory": str(tmp_path / "copy")}).encode()
        client.request("POST", "/api/v1/store/backup", copy)
        for kept in (state, hub.data, tmp_path / "copy"):
            assert open_to_others(kept) == []
        # What every user of the node may know: which hardware it has.
        shown = tmp_path / "runtime" / "node.json"
        wait_until("the node is shown", shown.exists, 60.0)
        assert shown.stat().st_mode & 0o777 == 0o644


@pytest.mark.server
def test_what_is_restored_and_what_is_made_without_a_hub_is_private_too(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "hub") as hub:
        hub.hub().write_records([Record.from_json(_EVENT)])
        copy = tmp_path / "copy"
        hub.hub().request(
            "POST", "/api/v1/store/backup", json.dumps({"directory": str(copy)}).encode()
        )
        for path in copy.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        hub.stop()
        hub.data.rename(tmp_path / "former")
        command = [sys.executable, "-m", "gpuvigil", "store", "restore", str(copy)]
        done = subprocess.run(
            [*command, "--config", str(hub.config)],
            cwd=ROOT,
            umask=_WIDE,
            env={**os.environ, "GPUVIGIL_HUB_URL": hub.url},  # another may be at the usual port
            check=False,
        )
        assert done.returncode == 0
        assert open_to_others(hub.data) == []
        hub.start()
        assert len(hub.hub().records(RecordKind.EVENT)) == 1


_EVENT = {"kind": "event", "id": "e", "at": "2026-01-31T12:00:00Z", "subject": "c/n", "body": {}}


def test_a_private_file_replaces_a_wide_one_and_an_unwritable_place_is_one_line(
    tmp_path: Path,
) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    file.chmod(0o644)
    write_private(file, "new\n")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("new\n", 0o600)
    with pytest.raises(ConfigError, match="cannot write"):
        write_private(tmp_path / "nowhere" / "token", "x")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files for others")
def test_what_root_makes_in_anothers_folder_is_the_others(tmp_path: Path) -> None:
    theirs, ours, secret = (tmp_path / name for name in ("theirs", "ours", "secret"))
    secret.touch()
    for folder, owner in ((theirs, 65534), (ours, 0)):
        folder.mkdir()
        os.chown(folder, owner, owner)
        with suppress(KeyError), owned_as(folder / "data"):
            (folder / "data/deep").mkdir(parents=True)
            (folder / "data/deep/file").touch()
            (folder / "data/link").symlink_to("/etc/passwd")
            (folder / "data/second").hardlink_to(secret)
            raise KeyError
        for made in ("data", "data/deep", "data/deep/file", "data/link"):
            assert (folder / made).lstat().st_uid == owner
    assert [it.stat().st_uid for it in (Path("/etc/passwd"), secret)] == [0, 0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for others")
def test_root_acts_as_the_owner_of_a_folder_and_is_root_again_afterwards() -> None:
    before = os.geteuid(), os.getegid(), os.getgroups()
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)  # pytest's own folder is closed to other users
        theirs, ours = Path(made, "theirs"), Path(made, "ours")
        for folder in (theirs, ours):
            folder.mkdir()
        (theirs / "link").symlink_to(ours)
        os.chown(theirs, 65534, 65534)
        with as_owner_of(theirs / "data"):
            (theirs / "data").mkdir()
            with pytest.raises(PermissionError):
                (theirs / "link/file").touch()
        found = (theirs / "data").stat()
        assert (found.st_uid, found.st_gid) == (65534, 65534)
        assert list(ours.iterdir()) == []
        assert (os.geteuid(), os.getegid(), os.getgroups()) == before
        with suppress(KeyError), as_owner_of(theirs):
            raise KeyError
        assert (os.geteuid(), os.getegid(), os.getgroups()) == before
        with as_owner_of(ours):
            (theirs / "link/file").touch()
        assert (ours / "file").stat().st_uid == 0
