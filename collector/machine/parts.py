"""Power supplies, fans and memory controllers, as the kernel shows them in sysfs.

Many servers report supplies and fans only through their service processor, which takes root to ask;
there nothing is found, and nothing is reported. What each file means: Linux kernel,
Documentation/hwmon/sysfs-interface.rst, Documentation/ABI/testing/sysfs-class-power and
Documentation/driver-api/edac.rst.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..sensors import files

_FAN = re.compile(r"fan(\d+)_input")
_LABEL = re.compile(r"in(\d+)_label")
# A supply's input, as PMBus drivers call it (drivers/hwmon/pmbus/pmbus_core.c).
_INPUT = "vin"
# An input below this counts as no feed: a supply without one still reads a little; millivolts.
_NO_FEED_MILLIVOLTS = 10_000
_ILL = frozenset({"Dead", "Overheat", "Over voltage", "Unspecified failure", "Cold"})


class Part(NamedTuple):
    """A fan or a supply: whether it works, and why not.

    `sure`: the failure counts even if the part was never seen to work. A chip has fan headers to
    which nothing is connected: those stand still, and some raise an alarm.
    """

    name: str
    works: bool
    why: str = ""
    sure: bool = False


def fans(sysfs: Path) -> list[Part]:
    """Return every fan whose speed the kernel reads."""
    return [fan for chip in _chips(sysfs) for fan in _fans_of(chip)]


def supplies(sysfs: Path) -> list[Part]:
    """Return every power supply: PMBus chips that read their input, and mains of power_supply.

    A single mains is no redundant feed, such as that of a workstation on its battery.
    """
    found = [supply for chip in _chips(sysfs) for supply in _supplies_of(chip)]
    folder = sysfs / "class/power_supply"
    listed = [folder / name for name in files.names(str(folder))]
    own = [path for path in listed if _text(path / "scope") != "Device"]
    mains = [path for path in own if _text(path / "type") == "Mains"]
    for path in own:
        health, online = _text(path / "health"), _text(path / "online")
        if health in _ILL:
            found.append(Part(name=path.name, works=False, why=health.lower(), sure=True))
        elif path in mains and len(mains) > 1 and online in {"0", "1"}:
            found.append(Part(name=path.name, works=online == "1", why="no input"))
    return found


def memory_errors(sysfs: Path) -> tuple[int, int] | None:
    """Return corrected and uncorrected errors over all memory controllers; None without EDAC's."""
    folder = sysfs / "devices/system/edac/mc"
    pairs = [
        (_number(folder / name / "ce_count"), _number(folder / name / "ue_count"))
        for name in files.names(str(folder))
        if re.fullmatch(r"mc\d+", name)
    ]
    told = [(ce, ue) for ce, ue in pairs if ce is not None and ue is not None]
    return (sum(ce for ce, _ in told), sum(ue for _, ue in told)) if told else None


def _chips(sysfs: Path) -> Iterator[Path]:
    folder = sysfs / "class/hwmon"
    for name in files.names(str(folder)):
        yield folder / name


def _fans_of(chip: Path) -> Iterator[Part]:
    for match in filter(None, map(_FAN.fullmatch, files.names(str(chip)))):
        path = str(chip / f"fan{match[1]}")
        label = _text(Path(f"{path}_label")) or f"fan{match[1]}"
        name = f"{_text(chip / 'name') or chip.name} {label}"
        speed, least = _number(Path(f"{path}_input")), _number(Path(f"{path}_min"))
        if _number(Path(f"{path}_fault")) == 1:
            yield Part(name=name, works=False, why="says that it failed", sure=True)
        elif speed is None:
            continue
        elif speed == 0:
            yield Part(name=name, works=False, why="stands still")
        elif least and speed < least:
            yield Part(name=name, works=False, why=f"{speed} rpm, at least {least}", sure=True)
        else:
            yield Part(name=name, works=True)


def _supplies_of(chip: Path) -> Iterator[Part]:
    for match in filter(None, map(_LABEL.fullmatch, files.names(str(chip)))):
        path = str(chip / f"in{match[1]}")
        if _text(Path(f"{path}_label")) != _INPUT:
            continue
        name = f"{_text(chip / 'name') or chip.name} {chip.resolve().parent.parent.name}"
        volts = _number(Path(f"{path}_input"))
        alarms = [_number(Path(f"{path}_{which}")) for which in ("lcrit_alarm", "min_alarm")]
        if 1 in alarms:
            yield Part(name=name, works=False, why="input voltage too low", sure=True)
        elif volts is not None:
            yield Part(name=name, works=volts >= _NO_FEED_MILLIVOLTS, why="no input")


def _text(path: Path) -> str:
    return (files.read(str(path)) or "").strip()


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if re.fullmatch(r"-?\d+", text) else None
