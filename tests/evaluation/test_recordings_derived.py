"""Columns that follow from others, where a recording does not have them itself."""

from datetime import datetime, timedelta, timezone
from pathlib import Path

from evaluation.recordings.play import CAUSES
from evaluation.recordings.recording import read

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
RATE, MOVED = "nvlink_receive_bytes_per_second", "nvlink_receive_bytes"


def moved(directory: Path, rows: str, more: str = "") -> list[int | None]:
    """What each row says that was received over NVLink, by GPU and time."""
    directory.mkdir()
    content = f"at,index,{RATE}{more}\n{rows}"
    (directory / "gpu.csv").write_text(content, encoding="utf-8")
    found = read(directory, CAUSES).tables["gpu"].to_pylist()
    return [row[MOVED] for row in sorted(found, key=lambda it: (it["index"], it["at"]))]


def row(seconds: float, index: int, *cells: object) -> str:
    at = NOON + timedelta(seconds=seconds)
    return ",".join(map(str, (f"{at:%Y-%m-%dT%H:%M:%SZ}", index, *cells))) + "\n"


def test_bytes_per_second_come_together_but_not_over_a_gap(tmp_path: Path) -> None:
    rows = "".join(row(seconds, 0, 100) for seconds in (0, 10, 20, 120, 130))
    rows += "".join(row(seconds, 1, rate) for seconds, rate in ((0, 5), (10, ""), (20, 7)))
    # A gap counts as two of the usual steps.
    assert moved(tmp_path / "it", rows) == [0, 1000, 2000, 4000, 5000, 0, None, 50]


def test_a_counter_that_is_told_is_kept(tmp_path: Path) -> None:
    rows = "".join(row(seconds, 0, 100, 7) for seconds in (0, 10, 20))
    assert moved(tmp_path / "it", rows, f",{MOVED}") == [7, 7, 7]
