"""The machine itself: load and memory, from procfs."""

from contextlib import suppress
from pathlib import Path

_KIB = 1024


def read_host(proc_root: Path) -> dict[str, float | int]:
    """`load_average`, `memory_available_bytes`, `memory_total_bytes`: those that can be read."""
    values: dict[str, float | int] = {}
    with suppress(OSError, ValueError, IndexError):
        values["load_average"] = float((proc_root / "loadavg").read_text().split()[0])
    try:
        lines = (proc_root / "meminfo").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return values
    names = {"MemAvailable": "memory_available_bytes", "MemTotal": "memory_total_bytes"}
    for line in lines:
        name, _, rest = line.partition(":")
        number = rest.split()[:1]
        if name in names and number and number[0].isdigit():
            values[names[name]] = int(number[0]) * _KIB
    return values
