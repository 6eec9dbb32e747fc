"""What an interface's driver reports, as `ethtool` asks the kernel: no privilege, no process.

Linux, include/uapi/linux/ethtool.h and net/ethtool/ioctl.c.
"""

import array
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Callable, Iterator, Mapping

_SIOCETHTOOL = 0x8946
# The interface's name and a pointer to the question, in a union of 24 bytes.
_ASKED_OF = struct.Struct("@16sP16x")
_NAME_BYTES = 15
_GET_NAMES, _GET_STATISTICS, _GET_SET_INFO = 0x1B, 0x1D, 0x37
_STATISTICS_SET = 1  # ETH_SS_STATS
_SET_INFO = struct.Struct("=IIQI4x")
_NAMES_HEAD = struct.Struct("=III")
_STATISTICS_HEAD = struct.Struct("=II")
_ENTRY_NAME_BYTES = 32  # ETH_GSTRING_LEN
# The kernel writes as many entries as the driver has by then, whatever was asked for: each queue that
# is added in between brings some dozens.
_SPARE_ENTRIES = 4096


def ask(interface: str, question: "array.array[int]") -> None:
    """Send the question to the kernel, which writes its answer over it.

    Raises OSError where there is no such interface, or its driver does not answer this. The caller
    must make the question as long as the answer can be.
    """
    name = os.fsencode(interface)
    if len(name) > _NAME_BYTES:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
    asked = _ASKED_OF.pack(name, question.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCETHTOOL, asked)


class Statistics:
    """The statistics of one interface's driver, by the names that `ethtool -S` shows.

    Of a driver's thousands of names only those that `wanted` accepts are kept.
    """

    def __init__(self, interface: str, wanted: Callable[[str], bool]) -> None:
        self._interface = interface
        self._wanted = wanted
        self._entries = 0
        self._places: tuple[tuple[int, str], ...] = ()

    def read(self) -> Mapping[str, int]:
        """Return the values now; OSError when there are none, EAGAIN while their number changes."""
        entries = self._count()
        if entries != self._entries:
            names = self._names(entries)
            self._places = tuple((at, name) for at, name in names if self._wanted(name))
            self._entries = entries
        answer = array.array("Q", bytes(8 * (1 + entries + _SPARE_ENTRIES)))
        _STATISTICS_HEAD.pack_into(answer, 0, _GET_STATISTICS, entries)
        ask(self._interface, answer)
        if _STATISTICS_HEAD.unpack_from(answer)[1] != entries:
            self._entries = 0
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return {name: answer[1 + at] for at, name in self._places}

    def _count(self) -> int:
        question = array.array("B", _SET_INFO.pack(_GET_SET_INFO, 0, 1 << _STATISTICS_SET, 0))
        ask(self._interface, question)
        _, _, sets, entries = _SET_INFO.unpack(question)
        if not sets or not entries:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return int(entries)

    def _names(self, entries: int) -> Iterator[tuple[int, str]]:
        head = _NAMES_HEAD.size
        answer = array.array("B", bytes(head + _ENTRY_NAME_BYTES * (entries + _SPARE_ENTRIES)))
        _NAMES_HEAD.pack_into(answer, 0, _GET_NAMES, _STATISTICS_SET, entries)
        ask(self._interface, answer)
        names = answer.tobytes()[head:]
        for at in range(entries):
            raw = names[at * _ENTRY_NAME_BYTES : (at + 1) * _ENTRY_NAME_BYTES]
            yield at, raw.partition(b"\0")[0].decode(errors="replace").strip()
