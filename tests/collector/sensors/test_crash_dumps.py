"""What a kernel that crashed left behind, and what else lies beside it."""

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from collector.sensors.crash_dumps import left_behind, newest_dump
from gpuvigil.config import CollectorSettings

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
DUMP = "127.0.0.1-2026-01-31-11:58:03"


def written(path: Path, at: datetime) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    os.utime(path, (at.timestamp(), at.timestamp()))
    return path


@pytest.mark.parametrize(
    ("name", "is_dump"),
    [
        (DUMP, True),
        ("2026-01-31-11:58", True),
        ("202601311158", True),
        ("7318349394477056001", True),
        ("dmesg-ramoops-0", True),
        ("console-ramoops-0", False),
        ("_usr_bin_python3.12.1000.crash", False),
        ("linux-image-6.8.0-45-generic-202601311158.crash", False),
        ("kexec_cmd", False),
    ],
)
def test_a_dump_is_known_by_its_name(name: str, is_dump: bool, tmp_path: Path) -> None:
    path = written(tmp_path / name, NOON)
    found = newest_dump([str(tmp_path / "none"), str(tmp_path)], NOON - SECOND)
    assert found == (str(path) if is_dump else None)


def machine(
    folder: Path, *, alive: datetime, dump: datetime, booted: datetime = NOON
) -> str | None:
    """A machine that was booted at noon, what its boot before knew, and a dump."""
    crash, saved = folder / "crash", written(folder / "node.json", alive)
    written(crash / DUMP, dump)
    (folder / "stat").write_text(f"cpu 1 2 3\nbtime {int(booted.timestamp())}\n")
    settings = CollectorSettings(proc_root=folder, crash_directories=(str(crash),))
    return left_behind(settings, saved)


@pytest.mark.parametrize(
    ("alive", "dump", "found"),
    [
        (0.5, 0.1, True),
        (0.5, 0.499, True),
        (0.5, 0.501, False),  # of a boot before
        (9.0, 1.999, True),
        (9.0, 2.001, False),  # somebody switched it off afterwards
        (0.5, -0.1, True),  # of the firmware, moved after the boot
    ],
)
def test_a_dump_belongs_to_the_boot_that_just_ended(
    alive: float, dump: float, found: bool, tmp_path: Path
) -> None:
    path = machine(tmp_path, alive=NOON - alive * HOUR, dump=NOON - dump * HOUR)
    assert path == (str(tmp_path / "crash" / DUMP) if found else None)


def test_a_node_that_knew_nothing_tells_nothing(tmp_path: Path) -> None:
    settings = CollectorSettings(proc_root=tmp_path, crash_directories=(str(tmp_path),))
    written(tmp_path / DUMP, NOON)
    assert left_behind(settings, tmp_path / "node.json") is None
