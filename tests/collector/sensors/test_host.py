"""When the machine was booted, as its kernel says."""

from datetime import datetime, timezone
from pathlib import Path

import pytest

from collector.sensors.host import booted_at


def test_the_boot_is_the_kernel_s_and_not_the_collector_s(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu 1 2 3\nbtime 1769860800\nprocesses 4\n")
    assert booted_at(tmp_path) == datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def test_every_look_gives_the_same_time() -> None:
    first, second = booted_at(Path("/proc")), booted_at(Path("/proc"))
    assert first is not None
    assert second is not None
    assert abs((first - second).total_seconds()) <= 1.0


@pytest.mark.parametrize("text", [None, "", "cpu 1\n", "btime\n", "btime soon\n"])
def test_a_kernel_that_does_not_say_is_not_guessed(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "stat").write_text(text)
    assert booted_at(tmp_path) is None
