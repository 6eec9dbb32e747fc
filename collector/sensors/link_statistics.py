"""What of an interface's `ethtool` statistics says something of its link.

Names: Linux, Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst, and
drivers/net/ethernet/google/gve/gve_ethtool.c.
"""

import errno
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from . import ethtool, firmware

# What an interface answers whose driver has no statistics, or which nobody here may ask.
_REFUSALS = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM})
# The kernel asks one driver at a time, and one whose firmware is stuck holds it up, and with it the
# thread that tells whether this node lives: an interface that took so long is left alone for a while.
_LONGEST_SECONDS = 1.0
_REST_SECONDS = 600.0
Read = Callable[[], Mapping[str, int]]

# Of several lines of one metric the first counts of which the driver has a name; it is the sum of all
# that it has. Durations are in microseconds, of one priority each or of the whole link.
_STATISTICS = tuple(
    (metric, re.compile(names))
    for metric, names in (
        ("symbol_errors", r"rx_pcs_symbol_err_phy"),
        ("symbol_errors", r"rx_symbol_err_phy"),
        ("receive_discards", r"rx_discards_phy"),
        ("receive_discards", r"rx_prio\d_discards"),
        ("receive_pause_microseconds", r"rx_prio\d_pause_duration"),
        ("receive_pause_microseconds", r"rx_global_pause_duration"),
        ("transmit_pause_microseconds", r"tx_prio\d_pause_duration"),
        ("transmit_pause_microseconds", r"tx_global_pause_duration"),
        ("pause_storms", r"tx_pause_storm_(warning|error)_events"),
        ("out_of_buffer", r"rx_out_of_buffer"),
        ("out_of_buffer", r"rx_no_buffers_posted\[\d+\]"),
        ("module_faults", r"module_(bus_stuck|bad_shorted|high_temp)"),
    )
)


def is_wanted(name: str) -> bool:
    """Whether `of_link` makes something of a statistic by this name."""
    return any(pattern.fullmatch(name) for _, pattern in _STATISTICS)


def of_link(statistics: Mapping[str, int]) -> dict[str, int]:
    """By metric, what a driver counts; a metric for which it has no name is absent."""
    return {
        metric: sum(statistics[name] for name in names)
        for metric, names in _parts(tuple(statistics))
    }


def of_links(each: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The same over the cables of a bond, together: each thing that happened is counted once.

    The worst of them would be another counter whenever another is the worst, and fall.
    """
    total: dict[str, int] = {}
    for link in each:
        for metric, count in link.items():
            total[metric] = total.get(metric, 0) + count
    return total


# A node has two or three kinds of interfaces.
@lru_cache(maxsize=32)
def _parts(names: tuple[str, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, tuple[str, ...]] = {}
    for metric, pattern in _STATISTICS:
        mine = tuple(name for name in names if pattern.fullmatch(name))
        if mine:
            found.setdefault(metric, mine)
    return tuple(found.items())


class Links:
    """The cables of one port: one interface, or those of a bond."""

    def __init__(
        self, readers: Mapping[str, Read], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """`readers` by interface."""
        self._readers = dict(readers)
        self._monotonic = monotonic
        self._rests_until = 0.0
        self.unread: dict[str, str] = {}  # interfaces, and why they cannot be read

    def read(self) -> dict[str, int]:
        """By metric; nothing while one of the cables does not answer, since the sum would fall."""
        if self._monotonic() < self._rests_until:
            return {}
        each = []
        for interface in tuple(self._readers):
            link = self._read_one(interface)
            if link is None:
                return {}
            each.append(link)
        return of_links(each)

    def _read_one(self, interface: str) -> dict[str, int] | None:
        """None where it does not answer now, nothing where it never will."""
        began, why, link = self._monotonic(), "", None
        try:
            link = of_link(self._readers[interface]())
        except OSError as error:
            why = os.strerror(error.errno or 0)
            if error.errno in _REFUSALS:
                del self._readers[interface]
                link = {}
        ended = self._monotonic()
        if ended - began > _LONGEST_SECONDS:
            self._rests_until = ended + _REST_SECONDS
            why = f"took {ended - began:.0f} s"
        if why:
            self.unread[interface] = why
        else:
            self.unread.pop(interface, None)
        return link


def reader_of(interface: str) -> Read:
    """What reads the statistics of a network interface, a folder of sysfs.

    In a container another interface may have the name of one of the host's: that is not read.
    """
    name, hardware = os.path.basename(interface), os.path.realpath(f"{interface}/device")
    told = firmware.driver_info(name)
    if told is None or told.place not in hardware.split("/"):
        return _not_here
    return ethtool.Statistics(name, is_wanted).read


def _not_here() -> Mapping[str, int]:
    raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
