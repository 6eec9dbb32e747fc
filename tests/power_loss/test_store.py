"""What the hub's store has acknowledged survives a power loss at any moment, once."""

import os
import shutil
import sys
from itertools import islice
from pathlib import Path

import pytest

from tests.power_loss.disk_image import DiskImage, power_losses
from tests.power_loss.mutants import ROOT, syncs, without_line
from tests.power_loss.order import STORE, broken
from tests.power_loss.recording import Recording
from tests.power_loss.store_check import wrong_with
from tests.power_loss.store_program import HOURS, NAME

pytestmark = [pytest.mark.site, pytest.mark.slow, pytest.mark.timeout(600)]

# Of the states that a power loss may leave, each so-manieth is opened; `every=1` takes minutes.
EVERY = 8


def record(
    recorder: Path, tmp_path: Path, what: str, before: Path | None = None, code: Path = ROOT
) -> tuple[DiskImage, Recording]:
    """The program run once, and the disk before it."""
    root = tmp_path / "root"
    if before is None:
        root.mkdir(parents=True)
    else:
        shutil.copytree(before, root)
    recording = Recording(recorder, root, tmp_path / "log")
    image = DiskImage(recording.root)
    program = [sys.executable, "-m", "tests.power_loss.store_program", what]
    recording.run([*program, str(recording.root), str(recording.log)], (code, ROOT))
    return image, recording


@pytest.fixture(scope="module")
def without_tables(recorder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose tables were cut short, and whose sealed files are whole."""
    _, lived = record(recorder, tmp_path_factory.mktemp("live"), "live")
    os.truncate(lived.root / NAME, 20_000)
    shutil.rmtree(lived.root / "copy")
    return lived.root


def test_the_recording_has_all_that_the_program_did(recorder: Path, tmp_path: Path) -> None:
    image, lived = record(recorder, tmp_path, "live")
    for call in lived.calls():
        image.follow(call)
    files, folders = image.tree()
    there = {it.relative_to(lived.root).as_posix(): it for it in lived.root.rglob("*")}
    assert files == {name: it.read_bytes() for name, it in there.items() if it.is_file()}
    assert folders == {name for name, it in there.items() if it.is_dir()}
    assert image.acknowledged == ["1", "2", "3", "4", "5", "6", "7", "copy"]


@pytest.mark.parametrize("what", ["live", "adopt"])
def test_everything_is_on_the_disk_before_it_is_relied_on(
    recorder: Path, tmp_path: Path, without_tables: Path, what: str
) -> None:
    before = {"live": None, "adopt": without_tables}[what]
    image, recording = record(recorder, tmp_path, what, before)
    assert broken(image, recording.calls(), STORE) == []


@pytest.mark.parametrize(("module", "number", "line"), syncs("hub/embedded"))
def test_no_sync_can_be_left_out(
    recorder: Path, tmp_path: Path, without_tables: Path, module: str, number: int, line: str
) -> None:
    code = without_line(module, number, tmp_path / "code")
    told = []
    for what, before in (("live", None), ("adopt", without_tables)):
        image, recording = record(recorder, tmp_path / what, what, before, code)
        told += broken(image, recording.calls(), STORE)
        if told:
            return
    pytest.fail(f"nobody misses {line} in {module}")


@pytest.mark.parametrize("what", ["live", "adopt"])
def test_after_a_power_loss_all_that_was_acknowledged_is_there_once(
    recorder: Path, tmp_path: Path, without_tables: Path, what: str
) -> None:
    before = {"live": None, "adopt": without_tables}[what]
    image, recording = record(recorder, tmp_path, what, before)
    sealed = (1, 2, 3, 5) if what == "adopt" else ()  # whatever becomes of the tables
    image.acknowledged += map(str, sealed)
    opened = 0
    for state in islice(power_losses(image, recording.calls()), 0, None, EVERY):
        folder = tmp_path / "left"
        folder.mkdir()
        state.write(folder)
        assert wrong_with(folder, state.acknowledged, sealed) == "", state.story
        if "copy" in state.acknowledged:
            assert wrong_with(folder / "copy", [str(number) for number in HOURS]) == ""
        shutil.rmtree(folder)
        opened += 1
    assert opened > 10
