"""What plays fleets ends with the command that started it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

_SECONDS = 60.0


@pytest.mark.server
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_play_that_is_killed_leaves_no_worker(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "gpuvigil", "play", "--seed", "1", "--workers", "1"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as play:
        children = Path(f"/proc/{play.pid}/task/{play.pid}/children")
        try:
            assert _soon(lambda: children.read_text(encoding="ascii").split() != [])
            workers = [int(it) for it in children.read_text(encoding="ascii").split()]
        finally:
            os.kill(play.pid, number)
    assert _soon(lambda: not any(map(_runs, workers)))


def _runs(process: int) -> bool:
    """Whether it still runs: one that ended may wait for somebody to collect it."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}


def _soon(is_so: Callable[[], bool]) -> bool:
    end = time.monotonic() + _SECONDS
    while not is_so() and time.monotonic() < end:
        time.sleep(0.05)
    return is_so()
