"""A secret that was made is there, whole, after a power loss at any moment, and nothing is in its way."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard.auth.keys import Keys
from gpuvigil.config import read_secret
from gpuvigil.errors import ConfigError
from tests.power_loss.disk_image import DiskImage, State, power_losses
from tests.power_loss.mutants import ROOT, syncs, without_line
from tests.power_loss.recording import Recording
from tests.power_loss.secrets_program import NOW, TOKENS

pytestmark = [pytest.mark.site, pytest.mark.slow, pytest.mark.timeout(300)]


def states(recorder: Path, tmp_path: Path, code: Path = ROOT) -> Iterator[State]:
    """All that a power loss may leave of the program's folder."""
    (tmp_path / "root").mkdir()
    recording = Recording(recorder, tmp_path / "root", tmp_path / "log")
    image = DiskImage(recording.root)
    program = [sys.executable, "-m", "tests.power_loss.secrets_program"]
    recording.run([*program, str(recording.root), str(recording.log)], (code, ROOT))
    return power_losses(image, recording.calls())


def wrong_with(state: State, folder: Path) -> str:
    """What is wrong with the secrets after a power loss; empty when they are as promised."""
    folder.mkdir()
    state.write(folder)
    told = dict(it.split(" ", 1) for it in state.acknowledged)
    try:
        token = read_secret(folder / "token", "token") if (folder / "token").exists() else ""
        keys = Keys(folder)
    except ConfigError as error:
        return str(error)
    finally:
        shutil.rmtree(folder)
    wanted = TOKENS[TOKENS.index(told["token"]) :] if "token" in told else ("", *TOKENS)
    if token not in wanted:
        return f"the token is {token!r} after {told}"
    lost = "cookie" in told and keys.payload(told["cookie"], NOW) is None
    return "who was signed in is not any more" if lost else ""


def test_after_a_power_loss_secrets_are_whole(recorder: Path, tmp_path: Path) -> None:
    opened = 0
    for state in states(recorder, tmp_path):
        assert wrong_with(state, tmp_path / "left") == "", state.story
        opened += 1
    assert opened > 20


@pytest.mark.parametrize(
    ("module", "number", "line"),
    syncs("gpuvigil/file_sync.py", "gpuvigil/private_files.py", "dashboard/auth/keys.py"),
)
def test_no_sync_can_be_left_out(
    recorder: Path, tmp_path: Path, module: str, number: int, line: str
) -> None:
    code = without_line(module, number, tmp_path / "code")
    left = states(recorder, tmp_path, code)
    if not any(wrong_with(state, tmp_path / "left") for state in left):
        pytest.fail(f"nobody misses {line} in {module}")
