"""A real hub, its calls recorded: what it has answered with a success survives a power loss."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gpuvigil.clock import SystemClock
from gpuvigil.model import Record, RecordKind
from hub.embedded import Embedded
from tests.hub.talk import ask, identity
from tests.power_loss.disk_image import DiskImage, State
from tests.power_loss.recording import Recording
from tests.power_loss.store_program import NAME
from tests.servers import HubProcess

pytestmark = [pytest.mark.server, pytest.mark.site]


def test_what_a_hub_has_answered_with_204_or_200_survives_a_power_loss(
    recorder: Path, tmp_path: Path
) -> None:
    process = HubProcess(tmp_path / "hub")
    process.data.mkdir(parents=True, exist_ok=True)
    recording = Recording(recorder, process.data, tmp_path / "log")
    image = DiskImage(recording.root)
    process.within = ["env", *(f"{name}={value}" for name, value in recording.environment.items())]
    with process:
        client, token = process.hub(), process.collector_token
        url = f"{process.url}/api/v2/write?precision=s"
        now = SystemClock().now()
        for number in range(3):
            line = f"node,cluster=c,node=n{number} load_average=1 {int(now.timestamp())}".encode()
            assert ask(url, line, token=token, headers=identity(number + 1)).status == 204
            recording.acknowledge(f"n{number}")
            record = Record(kind=RecordKind.EVENT, id=f"e{number}", at=now, subject="c/n1")
            client.write_records([record])
            recording.acknowledge(f"e{number}")
        process.kill()
    opened = 0
    for call in recording.calls():
        image.follow(call)
        # The worst: nothing that was not waited for; then also no name.
        for state in image.states(0, call.first.decode()) if call.what == "A" else ():
            if state.story.endswith("writes lost"):
                lost = set(state.acknowledged) - kept(state, tmp_path / "left")
                assert not lost, state.story
                opened += 1
    assert opened >= 6


def kept(state: State, folder: Path) -> set[str]:
    """The nodes with a line and the events of a hub's files."""
    folder.mkdir()
    state.write(folder)
    store = Embedded(folder / NAME, 256 * 1024 * 1024, 1)
    nodes = store.ask("SELECT DISTINCT node FROM node")["node"].to_pylist()
    store.close()
    with closing(sqlite3.connect(folder / "records.sqlite")) as connection:
        events = connection.execute("SELECT id FROM record WHERE kind = 'event'").fetchall()
    shutil.rmtree(folder)
    return {*nodes, *(name for (name,) in events)}
