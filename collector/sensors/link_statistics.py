"""Which of an interface's `ethtool` statistics describe its link.

Names: Linux, Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst, and in
drivers/net/ethernet `google/gve/gve_ethtool.c` and `intel/ice/ice_ethtool.c`.
"""

import errno
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from . import ethtool, firmware

# Errors of an interface whose driver has no statistics, or which this process may not ask.
_REFUSALS = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM})
# The kernel asks one driver at a time. A driver whose firmware is stuck holds it up, and with it the
# thread that shows this node to be alive: an interface that took this long is left alone for a while.
_LONGEST_SECONDS = 1.0
_REST_SECONDS = 600.0
Read = Callable[[], Mapping[str, int]]

# Of several lines of one metric the first counts for which the driver has a name; the value is the sum
# over all its names. Durations are in microseconds, of one priority each or of the whole link.
_STATISTICS = tuple(
    (metric, re.compile(names))
    for metric, names in (
        ("symbol_errors", r"rx_pcs_symbol_err_phy"),
        ("symbol_errors", r"rx_symbol_err_phy"),
        ("receive_discards", r"rx_discards_phy"),
        ("receive_discards", r"rx_prio\d_discards"),
        ("receive_discards", r"rx_queue_drop_cnt\[\d+\]"),
        ("corrected_bits", r"rx_corrected_bits_phy"),
        ("corrected_bits", r"rx_err_lane_\d_phy"),
        ("receive_pause_microseconds", r"rx_prio\d_pause_duration"),
        ("receive_pause_microseconds", r"rx_global_pause_duration"),
        ("transmit_pause_microseconds", r"tx_prio\d_pause_duration"),
        ("transmit_pause_microseconds", r"tx_global_pause_duration"),
        # ice counts the frames that stopped it, and no time.
        ("transmit_wait_ticks", r"rx_priority_\d_xoff\.nic"),
        ("pause_storms", r"tx_pause_storm_(warning|error)_events"),
        ("out_of_buffer", r"rx_out_of_buffer"),
        ("out_of_buffer", r"rx_no_buffers_posted\[\d+\]"),
        ("module_faults", r"module_(bus_stuck|bad_shorted|high_temp)"),
    )
)


def is_wanted(name: str) -> bool:
    """Return whether `of_link` uses a statistic with this name."""
    return any(pattern.fullmatch(name) for _, pattern in _STATISTICS)


def of_link(statistics: Mapping[str, int]) -> dict[str, int]:
    """Return a driver's counts by metric; a metric for which it has no name is absent."""
    return {
        metric: sum(statistics[name] for name in names)
        for metric, names in _parts(tuple(statistics))
    }


def of_links(each: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum of the counts over a bond's cables: each thing that happened is counted once.

    The maximum would be another cable's counter whenever another cable is the worst, and could
    fall.
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
        """Set up; `readers` are by interface."""
        self._readers = dict(readers)
        self._monotonic = monotonic
        self._rests_until = 0.0
        self.unread: dict[str, str] = {}  # by interface, why it cannot be read

    def read(self) -> dict[str, int]:
        """Return the counts by metric; none while a cable does not answer: the sum would fall."""
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
        """Return an interface's counts; None if it does not answer now, empty if it never does."""
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
    """Return the function that reads the statistics of a network interface, a folder of sysfs.

    In a container another interface may have the name of one of the host's: that one is not read.
    """
    name, hardware = os.path.basename(interface), os.path.realpath(f"{interface}/device")
    told = firmware.driver_info(name)
    if told is None or told.place not in hardware.split("/"):
        return _not_here
    return ethtool.Statistics(name, is_wanted).read


def _not_here() -> Mapping[str, int]:
    raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
