"""What the collector's spool has taken of records survives a power loss at any moment."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.agent import saved_state
from collector.spool.queue import Spool
from tests.power_loss.disk_image import DiskImage, State, power_losses
from tests.power_loss.mutants import ROOT, syncs, without_line
from tests.power_loss.recording import Recording
from tests.power_loss.spool_program import ALL, RECORDS

pytestmark = [pytest.mark.site, pytest.mark.slow, pytest.mark.timeout(300)]


def states(recorder: Path, tmp_path: Path, code: Path = ROOT) -> Iterator[State]:
    """All that a power loss may leave of the program's folder."""
    (tmp_path / "root").mkdir()
    recording = Recording(recorder, tmp_path / "root", tmp_path / "log")
    image = DiskImage(recording.root)
    program = [sys.executable, "-m", "tests.power_loss.spool_program"]
    recording.run([*program, str(recording.root), str(recording.log)], (code, ROOT))
    return power_losses(image, recording.calls())


def wrong_with(state: State, folder: Path) -> str:
    """What is wrong with a spool after a power loss; empty when every event that it took is there
    once, unless it was sent, nothing half is read, and the node is remembered as before or after.
    """
    folder.mkdir()
    state.write(folder)
    told = list(events(folder))
    known = saved_state.load(folder / "node.json")
    text = (folder / "node.json").read_text() if (folder / "node.json").exists() else ""
    shutil.rmtree(folder)
    taken = {f"event {n}" for n in range(RECORDS)} & set(state.acknowledged)
    sent = {name for name in taken if f"sent {name}" in state.acknowledged}
    if lost := taken - sent - set(told):
        return f"lost: {lost}"
    if len(told) != len(set(told)):
        return f"more than once: {told}"
    return "node.json is torn" if text and not known.gpus else ""


def events(folder: Path) -> Iterator[str]:
    """The ids of the events that wait in a spool."""
    spool = Spool(folder, 1024 * 1024)
    while (body := spool.next(ALL)) is not None:
        if body.path.endswith("records"):
            yield from (json.loads(line)["id"] for line in body.content.splitlines())
        else:
            assert body.content.startswith(b"x a=")
        spool.done(body)
    spool.close()


def test_after_a_power_loss_every_event_that_the_spool_took_is_there(
    recorder: Path, tmp_path: Path
) -> None:
    opened = 0
    for state in states(recorder, tmp_path):
        assert wrong_with(state, tmp_path / "left") == "", state.story
        opened += 1
    assert opened > 100


@pytest.mark.parametrize(
    ("module", "number", "line"), syncs("collector/spool/body.py", "collector/agent/saved_state.py")
)
def test_no_sync_can_be_left_out(
    recorder: Path, tmp_path: Path, module: str, number: int, line: str
) -> None:
    code = without_line(module, number, tmp_path / "code")
    left = states(recorder, tmp_path, code)
    if not any(wrong_with(state, tmp_path / "left") for state in left):
        pytest.fail(f"nobody misses {line} in {module}")
