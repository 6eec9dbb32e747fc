"""The machine itself: load, memory and boot time, from procfs."""

from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from gpuvigil.clock import EPOCH

from . import files

_KIB, _TICK_MILLISECONDS = 1024, 10
_MEMORY = {"MemAvailable": "memory_available_bytes", "MemTotal": "memory_total_bytes"}


def booted_at(proc_root: Path) -> datetime | None:
    """Return when the kernel was booted (proc(5): `btime` of /proc/stat); None when unknown."""
    with suppress(OSError, ValueError, IndexError):
        for line in (proc_root / "stat").read_text().splitlines():
            if line.startswith("btime "):
                return EPOCH + timedelta(seconds=int(line.split()[1]))
    return None


def boot_id(proc_root: Path) -> str | None:
    """Return the unique id of this boot of the kernel (random(4)); None when it cannot be read."""
    with suppress(OSError, UnicodeDecodeError):
        return (proc_root / "sys/kernel/random/boot_id").read_text().strip() or None
    return None


def read_processors(proc_root: Path) -> dict[str, int]:
    """Return counters since boot, those that can be read.

    `cpu_milliseconds` of all processors, `cpu_busy_milliseconds` of them, and
    `cpu_pressure_microseconds`, in which some task waited for one. proc(5), /proc/stat in
    hundredths of a second; Linux, Documentation/accounting/psi.rst.
    """
    found: dict[str, int] = {}
    with suppress(ValueError, IndexError):
        name, *words = (files.read(f"{proc_root}/stat") or "").partition("\n")[0].split()
        user, nice, system, idle, waiting, irq, soft_irq, stolen = map(int, words[:8])
        if name == "cpu":
            busy = user + nice + system + irq + soft_irq + stolen
            found["cpu_busy_milliseconds"] = busy * _TICK_MILLISECONDS
            found["cpu_milliseconds"] = (busy + idle + waiting) * _TICK_MILLISECONDS
    with suppress(ValueError, IndexError):
        line = (files.read(f"{proc_root}/pressure/cpu") or "").partition("\n")[0]
        if line.startswith("some "):
            found["cpu_pressure_microseconds"] = int(line.rpartition("total=")[2])
    return found


def read_host(proc_root: Path) -> dict[str, float | int]:
    """Return `load_average`, `memory_available_bytes` and `memory_total_bytes`, if readable."""
    values: dict[str, float | int] = {}
    with suppress(ValueError, IndexError):
        values["load_average"] = float((files.read(f"{proc_root}/loadavg") or "").split()[0])
    missing = set(_MEMORY)
    for line in (files.read(f"{proc_root}/meminfo") or "").splitlines():
        if not missing:
            break  # they are among the first of some fifty
        name, _, rest = line.partition(":")
        if name in _MEMORY and (number := rest.split()[:1]) and number[0].isdigit():
            values[_MEMORY[name]] = int(number[0]) * _KIB
            missing.discard(name)
    return values
