"""`gpuvigil store` on a hub that runs, and on the files of one that does not."""

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import trustme

from gpuvigil.clock import to_ns
from gpuvigil.model import Record, RecordKind
from gpuvigil.store.hub import HubStore
from tests.hub.test_tls import TlsHub, pair
from tests.polling import wait_until
from tests.servers import ROOT, HubProcess

pytestmark = pytest.mark.server

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
LINES = 120


def store(hub: HubProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    config = hub.directory / "store.toml"
    config.write_text(f'{hub.config.read_text()}url = "{hub.url}"\n', encoding="utf-8")
    code = "import sys; from hub.store_command import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments, "--config", str(config)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def filled(hub: HubProcess) -> None:
    lines = "\n".join(
        f"node,cluster=c,node=n1 load_average={n}.5 {to_ns(NOON + n * timedelta(minutes=1))}"
        for n in range(LINES)
    )
    HubStore(hub.hub()).write(lines.encode())
    hub.hub().write_records([Record(kind=RecordKind.EVENT, id="e1", at=NOON, subject="c/n1")])


def sealed_lines(hub: HubProcess) -> int:
    found = json.loads(hub.hub().request("GET", "/api/v1/store").body)
    return int(found["measurements"]["node"]["sealed_lines"])


def assert_filled(hub: HubProcess) -> None:
    found = HubStore(hub.hub()).window("node", [], NOON, NOON + 5 * HOUR)
    assert found["samples"].to_pylist() == [LINES]
    assert [it.id for it in hub.hub().records(RecordKind.EVENT)] == ["e1"]


def test_a_backup_of_a_running_hub_is_restored_for_another_one(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with HubProcess(tmp_path / "first") as hub:
        filled(hub)
        # The next start seals what is over.
        hub.restart()
        wait_until("every hour is sealed", lambda: sealed_lines(hub) == LINES, 90.0)
        done = store(hub, "backup", str(copy))
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"copied telemetry and records into {copy}: ")
        again = store(hub, "backup", str(copy))
        assert again.returncode == 1
        assert "is not empty" in again.stderr
        told = store(hub, "verify")
        assert told.returncode == 0, told.stderr
        assert store(hub, "restore", str(copy)).stderr.count("stop it first") == 1
        assert "node" in store(hub, "stats").stdout
    with HubProcess(tmp_path / "second") as other:
        other.stop()
        occupied = store(other, "restore", str(copy))
        assert occupied.returncode == 1
        assert "is there already; move it away first" in occupied.stderr
        other.data.rename(tmp_path / "moved")
        restored = store(other, "restore", str(copy))
        assert restored.returncode == 0, restored.stderr
        assert restored.stdout.rstrip().endswith("all as written")
        other.start()
        assert_filled(other)


def test_one_backup_of_the_records_is_put_back_and_what_was_there_is_set_aside(
    tmp_path: Path,
) -> None:
    with HubProcess(tmp_path / "hub") as hub:
        hub.hub().write_records([Record(kind=RecordKind.EVENT, id="e1", at=NOON, subject="c/n1")])
        kept = hub.data / "records.backups"
        wait_until("a backup", lambda: any(kept.glob("*.sqlite")), 30.0)
        (backup,) = kept.glob("*.sqlite")
        assert store(hub, "restore", str(backup)).stderr.count("stop it first") == 1
        hub.stop()
        no_backup = store(hub, "restore", str(hub.config))
        assert (no_backup.returncode, "holds no records" in no_backup.stderr) == (1, True)
        restored = store(hub, "restore", str(backup))
        assert restored.returncode == 0, restored.stderr
        (aside,) = hub.data.glob("records.sqlite.damaged-*")
        assert str(aside) in restored.stdout
        if os.geteuid() == 0:
            # As a service of a user of its own has it: root restores, and the user can read it.
            os.chown(hub.data, 65534, 65534)
            assert store(hub, "restore", str(backup)).returncode == 0
            assert (hub.data / "records.sqlite").stat().st_uid == 65534
        hub.start()
        assert [it.id for it in hub.hub().records(RecordKind.EVENT)] == ["e1"]
        # What a person has put there is not told as damage.
        assert hub.hub().status()["records"]["repairs"] == []


def test_files_of_a_stopped_hub_are_read_and_what_is_damaged_is_named(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "hub") as hub:
        filled(hub)
        hub.restart()
        wait_until("every hour is sealed", lambda: sealed_lines(hub) == LINES, 90.0)
        hub.stop()
        (file, *_) = sorted((hub.data / "telemetry.sealed").rglob("*.lines.parquet"))
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 0xFF
        file.write_bytes(content)
        told = store(hub, "verify")
        assert told.returncode == 1
        assert "1 damaged and set aside" in told.stdout
        assert str(file) in store(hub, "stats").stdout
        assert store(hub, "backup", str(tmp_path / "copy")).returncode == 0
        hub.start()
        (damaged,) = hub.hub().status()["store"]["damaged"]
        assert damaged["file"] == str(file)


def test_a_hub_that_asks_for_certificates_is_asked_with_those_of_the_configuration(
    tmp_path: Path,
) -> None:
    made = trustme.CA()
    made.cert_pem.write_to_path(tmp_path / "ca.pem")
    settings: dict[str, object] = {
        "tls_certificate_file": pair((made, tmp_path), "hub.pem"),
        "tls_client_ca_file": tmp_path / "ca.pem",
    }
    mine = {
        "ca_file": tmp_path / "ca.pem",
        "client_certificate_file": pair((made, tmp_path), "client.pem"),
    }
    with TlsHub(tmp_path / "hub", tmp_path / "ca.pem", {**settings, **mine}) as hub:
        told = store(hub, "stats")
        assert (told.returncode, told.stderr) == (0, "")
        assert told.stdout.splitlines()[-1].startswith("in all ")
