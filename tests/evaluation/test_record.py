"""Recordings written from a hub: what is read again is what the hub had, with or without its names."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet
import pytest

from evaluation.recordings.hashing import Names
from evaluation.recordings.play import CAUSES
from evaluation.recordings.record_command import Recorded, main, write
from evaluation.recordings.recording import read
from evaluation.recordings.replay_command import main as replay
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.model import (
    Allocation,
    Event,
    EventKind,
    GpuIdentity,
    HolderKind,
    Incident,
    Inventory,
    PortIdentity,
    RecordKind,
    Subject,
    job_holder,
    readable,
)
from gpuvigil.store.schema import latest_schema
from simulator import inject
from tests.polling import wait_until
from tests.servers import ROOT, HubProcess
from tests.services import commands, running, simulated

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
NODE = Subject(cluster="hamster", node="wombat-17.zoo.example")
GPU = replace(NODE, gpu="GPU-8f2cabba-1111-2222-3333-444455556666")
# Everything that tells whose machine it is, in any letter of any file.
SECRETS = (
    *("hamster", "wombat-17", "zoo.example", "8f2cabba", "1234567890", "rackety", "ada.lovelace"),
    *("turing-lab", "batchy", "991827", "enigma", "bletchley", "/home/", "boot-of-it"),
    *("leafy-3", "10.20.30.4", "c1a55e55"),
)


def numbers(
    measurement: str, rows: list[dict[str, Any]], tags: Mapping[str, str | None]
) -> pa.Table:
    of = MEASUREMENTS[measurement]
    fields = [it.name for it in of.metrics if any(it.name in row for row in rows)]
    return pa.Table.from_pylist([{**tags, **row} for row in rows], latest_schema(of, fields))


def events_of(ticks: list[datetime]) -> list[Event]:
    """Each with a name in it."""
    return [
        Event(
            kind=EventKind.XID,
            subject=GPU,
            at=ticks[5] + timedelta(microseconds=17),
            id=f"{NODE.key}|kernel|1",
            xid=31,
            message="Xid 31: on wombat-17.zoo.example, MMU Fault [0000:1b:00.0, enigma (pid 7)]",
        ),
        Event(
            kind=EventKind.OOM_KILL,
            subject=NODE,
            at=ticks[6],
            id="2",
            message="process killed: memory ran out [bletchley (pid 9)], ada.lovelace, wombat-17",
        ),
        Event(kind=EventKind.LOGS, subject=NODE, at=ticks[7], id="3", message="/home/ada.lovelace"),
    ]


def site() -> Recorded:
    """A node with names in every place where one may stand."""
    of_gpu = {"cluster": NODE.cluster, "node": NODE.node, "uuid": GPU.gpu, "model": "NVIDIA H100"}
    ticks = [NOON + timedelta(seconds=10 * number) for number in range(30)]
    rows = [{"at": at, "up": 1, "index": 0, "power_watts": 600.5} for at in ticks]
    holder = job_holder(991827)
    return Recorded(
        tables={"gpu": numbers("gpu", rows, of_gpu)},
        events=events_of(ticks),
        allocations=[
            Allocation(
                subject=GPU,
                holder=holder,
                user="ada.lovelace",
                command="/home/ada.lovelace/enigma --key 1",
                started_at=ticks[2],
                ended_at=ticks[20],
                account="turing-lab",
                partition="batchy",
                exit_code="0:9",
            )
        ],
        inventories=[
            Inventory(
                subject=NODE,
                at=NOON - timedelta(hours=1),
                boot="boot-of-it",
                tick_seconds=10.0,
                version="1",
                rack="rackety",
                gpus=(
                    GpuIdentity(
                        uuid=GPU.gpu or "",
                        index=0,
                        pci_address="0000:1b:00.0",
                        model="NVIDIA H100",
                        serial="1234567890",
                        fabric_cluster="c1a55e55",
                        fabric_clique=1,
                    ),
                ),
                ports=(
                    PortIdentity(
                        device="eno3",
                        port="1",
                        kind="ethernet",
                        role="storage",
                        was_up=True,
                        switch="leafy-3",
                        addresses=("10.20.30.40",),
                        waits_for=("10.20.30.41",),
                    ),
                ),
                driver="570.1",
                driver_state="loaded",
            )
        ],
    )


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_what_is_written_is_read_again(form: str, tmp_path: Path) -> None:
    site_ = site()
    write(site_, tmp_path / "it", form)
    found = read(tmp_path / "it", CAUSES)
    assert found.tables["gpu"].to_pylist() == site_.tables["gpu"].to_pylist()
    assert sorted(found.events, key=lambda it: it.at) == list(site_.events)
    assert [replace(it, command=None) for it in site_.allocations] == list(found.allocations)
    (inventory,) = found.inventories
    # It is known from the first row on.
    assert replace(inventory, at=site_.inventories[0].at) == site_.inventories[0]


_FIELDS = {
    "power_watts": st.floats(0, 5000),
    "temperature_celsius": st.integers(-20, 125),
    "sm_clock_hertz": st.integers(10**6, 3 * 10**9),
    "up": st.integers(0, 1),
    "recovery_action": st.integers(0, 2**40),
}
_ROW = st.fixed_dictionaries({name: st.none() | it for name, it in _FIELDS.items()})


@pytest.mark.medium
@hypothesis.given(
    st.lists(
        st.tuples(st.integers(0, 3_600_000_000), _ROW), min_size=1, unique_by=lambda it: it[0]
    ),
    st.sampled_from(["csv", "parquet"]),
)
def test_any_rows_are_read_as_they_were_written(
    made: list[tuple[int, dict[str, Any]]], form: str
) -> None:
    tags = {"cluster": "c", "node": 'n, "1"', "uuid": "GPU-1", "model": "H;100"}
    rows = [{"at": NOON + timedelta(microseconds=us), **row} for us, row in sorted(made)]
    table = numbers("gpu", rows, tags)
    with TemporaryDirectory() as folder:
        found = Recorded(tables={"gpu": table}, events=[], allocations=[], inventories=[])
        write(found, Path(folder) / "it", form)
        assert read(Path(folder) / "it", CAUSES).tables["gpu"].select(table.column_names) == table


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_hashed_names_leave_none_of_the_originals(form: str, tmp_path: Path) -> None:
    write(site(), tmp_path / "plain", form)
    write(site().hashed("salt"), tmp_path / "hashed", form)
    assert {word for word in SECRETS if word in everything(tmp_path / "plain")} >= {
        *("hamster", "wombat-17", "8f2cabba", "1234567890", "rackety", "ada.lovelace"),
        *("turing-lab", "batchy", "991827", "enigma", "bletchley", "boot-of-it"),
        *("leafy-3", "10.20.30.4", "c1a55e55"),
    }
    said = everything(tmp_path / "hashed")
    assert [word for word in SECRETS if word in said] == []
    assert "--key" not in everything(tmp_path / "plain")


def everything(directory: Path) -> str:
    said = ""
    for path in directory.iterdir():
        if path.suffix == ".parquet":
            table = pyarrow.parquet.read_table(path)
            said += f"{table.to_pylist()} {table.schema.metadata}"
        said += path.name + path.read_bytes().decode(errors="replace")
    return said


def test_one_name_is_one_word_everywhere_and_another_with_another_salt(tmp_path: Path) -> None:
    first, second = site().hashed("one"), site().hashed("one")
    assert first.events == second.events
    assert first.inventories == second.inventories
    (inventory,), (held,) = first.inventories, first.allocations
    assert held.subject.gpu == inventory.gpus[0].uuid == first.events[0].subject.gpu
    assert held.subject.of_node() == inventory.subject == first.events[1].subject
    assert inventory.subject.node in first.events[0].message
    assert first.tables["gpu"]["uuid"][0].as_py() == held.subject.gpu
    assert site().hashed("two").inventories[0].subject != inventory.subject
    assert held.holder.kind is HolderKind.JOB
    write(first, tmp_path / "it", "csv")
    assert len(read(tmp_path / "it", CAUSES).gpus) == 1


def test_a_name_within_another_word_stays() -> None:
    names = Names("salt")
    word = names.word("user", "ada")
    assert names.text("ada adamant (ada)") == f"{word} adamant ({word})"
    assert names.text("job 17 and pid 18") == "job 0 and pid 0"


@pytest.mark.server
@pytest.mark.site
@pytest.mark.timeout(300)
def test_a_hub_that_runs_is_recorded_and_the_recording_has_the_same_incident(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with HubProcess(tmp_path / "hub") as hub:
        config = simulated(hub.directory, hub, nodes=3, tick_seconds=1.0, seed=5)
        with running(hub.directory, config, commands("simulate", "analyze")):
            wait_until("numbers", lambda: len(hub.hub().status()["nodes"]) >= 3, 60.0)
            wait_until("a pass", lambda: hub.hub().records(RecordKind.PULSE), 60.0)
            words = ["xid79", "--node", "sim-001", "--gpu", "2", "--config", str(config)]
            assert inject.main(words) == 0

            def found() -> list[Incident]:
                records = hub.hub().records(RecordKind.INCIDENT)
                return list(readable(records, Incident.from_record))

            (was,) = wait_until("the incident", found, 60.0)
        token = hub.directory / "reader-token"
        issue = ["token", "create", "--scope", "reader", "--name", "it", "--file", str(token)]
        run = [sys.executable, "-m", "gpuvigil", *issue, "--config", str(config)]
        subprocess.run(run, cwd=ROOT, check=True)
        capsys.readouterr()
        plain, hashed = tmp_path / "plain", tmp_path / "hashed"
        common = ["--config", str(config), "--last", "15m", "--token-file", str(token)]
        assert main([*common, "--node", "sim-001", "--output", str(plain)]) == 0
        assert f"gpuvigil replay {plain}" in capsys.readouterr().out
        assert main([*common, "--hash-names", "--output", str(hashed)]) == 0
        assert main([*common, "--node", "sim-0001", "--output", str(tmp_path / "no")]) == 2
        assert "no node 'sim-0001'; did you mean sim-001?" in capsys.readouterr().err
        assert main([*common, "--output", str(plain)]) == 2
        assert "is not empty" in capsys.readouterr().err
    assert replay([str(plain), "-o", "json"]) == 0
    (again,) = json.loads(capsys.readouterr().out)["incidents"]
    assert (again["fault"], again["subject"]) == (was.fault, was.subject.key)
    assert abs(datetime.fromisoformat(again["opened_at"]) - was.since) < timedelta(seconds=30)
    said = everything(hashed)
    assert [word for word in ("sim-00", "simulated", was.subject.gpu or "") if word in said] == []
    assert token.read_text().strip() not in said + everything(plain)
    assert replay([str(hashed), "-o", "json"]) == 0
    (third,) = json.loads(capsys.readouterr().out)["incidents"]
    assert third["fault"] == was.fault
