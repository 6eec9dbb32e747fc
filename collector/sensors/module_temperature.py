"""The temperature of a cable's module, from hwmon, which needs no privilege.

Linux, Documentation/hwmon/sysfs-interface.rst; mlx5 labels its sensors `asic` and `Module0`
(drivers/net/ethernet/mellanox/mlx5/core/hwmon.c).
"""

import os
from collections.abc import Iterable

from . import files

_MILLI = 1000.0


def inputs(devices: Iterable[str]) -> tuple[str, ...]:
    """Return the files with the temperatures of these devices' modules; devices are sysfs folders."""
    found = []
    for device in dict.fromkeys(os.path.realpath(f"{it}/device") for it in devices):
        for monitor in files.names(f"{device}/hwmon"):
            folder = f"{device}/hwmon/{monitor}"
            for name in files.names(folder):
                head = name.removesuffix("_label")
                if head == name or not head.startswith("temp"):
                    continue
                if (files.read(f"{folder}/{name}") or "").startswith("Module"):
                    found.append(f"{folder}/{head}_input")
    return tuple(found)


def hottest_celsius(temperatures: Iterable[str]) -> float | None:
    """Return the highest temperature in these files; None where none can be read."""
    measured = []
    for file in temperatures:
        text = files.stripped(file)
        if text.removeprefix("-").isdecimal():
            measured.append(int(text) / _MILLI)
    return max(measured, default=None)
