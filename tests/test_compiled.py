"""Test files are compiled before a run as pytest wants them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.compiled import as_pytest


@pytest.mark.server
def test_pytest_takes_what_was_compiled_for_it_until_the_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "test_one.py"
    file.write_text("def test_it() -> None:\n    assert 1 + 1 == 2\n")
    assert as_pytest(file)
    assert not as_pytest(file)
    (kept,) = (tmp_path / "__pycache__").iterdir()
    before = kept.stat().st_ino
    subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null", file],
        env={k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
        check=True,
        capture_output=True,
    )
    # It would have written its own.
    assert [path.stat().st_ino for path in kept.parent.iterdir()] == [before]
    file.write_text("def test_it() -> None:\n    assert 1 + 1 != 3\n")
    assert as_pytest(file)
