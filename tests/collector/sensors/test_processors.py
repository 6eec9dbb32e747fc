"""What a machine's processors did, as procfs counts it."""

from pathlib import Path

import pytest

from collector.sensors.host import read_processors

STAT = "cpu  {} 20 30 400 50 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 1 2 3\n"


def test_time_is_counted_in_milliseconds_and_waiting_for_a_disk_is_no_work(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text(STAT.format(100))
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure/cpu").write_text(
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234\nfull avg10=0.00 total=9\n"
    )
    busy = 100 + 20 + 30 + 6 + 7 + 8
    assert read_processors(tmp_path) == {
        "cpu_busy_milliseconds": 10 * busy,
        "cpu_milliseconds": 10 * (busy + 400 + 50),
        "cpu_pressure_microseconds": 1234,
    }


@pytest.mark.parametrize(
    "text", ["", "cpu 1 2\n", "cpu a b c d e f g h\n", "intr 1 2 3 4 5 6 7 8\n"]
)
def test_what_is_not_there_is_not_measured(text: str, tmp_path: Path) -> None:
    assert read_processors(tmp_path) == {}
    (tmp_path / "stat").write_text(text)
    assert read_processors(tmp_path) == {}


def test_this_machine_has_processors() -> None:
    found = read_processors(Path("/proc"))
    assert 0 < found["cpu_busy_milliseconds"] <= found["cpu_milliseconds"]
