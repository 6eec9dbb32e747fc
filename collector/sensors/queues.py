"""What waits in the kernel's queues of network interfaces, as `tc -s qdisc` asks.

Takes no privilege and no process. Linux, include/uapi/linux/{rtnetlink,pkt_sched,gen_stats}.h and
net/sched/sch_api.c.
"""

import fcntl
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from . import files, netlink

_TRAFFIC = struct.Struct("=BxHiIII")  # family, interface, handle, parent, info
_NEW_QUEUE, _GET_QUEUE = 36, 38
_ROOT = 0xFFFFFFFF  # of an interface with many queues, the sum of them
_STATISTICS, _QUEUE = 7, 3  # TCA_STATS2, TCA_STATS_QUEUE
_COUNTS = struct.Struct("=5I")  # waiting packets and bytes, drops, requeues, overlimits
# The range of `transmit_held_back`.
WRAPS_AT = 1 << 32
_ASK_ADDRESS = 0x8927  # SIOCGIFHWADDR
_ADDRESS = slice(18, 24)
_NAME_BYTES = 15


@dataclass(frozen=True, slots=True)
class Queue:
    """One interface's queue now."""

    waiting_bytes: int
    held_back: int  # times that a shaper made packets wait, 32 bits


class Queues:
    """The queues of every interface of this network namespace; `read` before `of`."""

    def __init__(self) -> None:
        self._by_interface: Mapping[int, Queue] = {}

    def read(self) -> None:
        """Read anew; nothing is known of any queue where the kernel does not answer."""
        try:
            self._by_interface = dict(_ask())
        except (OSError, struct.error):
            self._by_interface = {}

    def of(self, interfaces: Iterable[str]) -> dict[str, int]:
        """Return, by metric, what waits at these interfaces in total; empty where one is unknown.

        Interfaces are folders of sysfs. In a container another interface may have the name of one
        of the host's: that one is not read.
        """
        found = [self._by_interface.get(number_of(it)) for it in interfaces]
        known = [queue for queue in found if queue is not None]
        if not known or len(known) < len(found):
            return {}
        return {
            "transmit_queue_bytes": sum(queue.waiting_bytes for queue in known),
            "transmit_held_back": sum(queue.held_back for queue in known) % WRAPS_AT,
        }


def number_of(interface: str) -> int:
    """Return an interface's number in this namespace; 0, which none has, if it is in another."""
    name = os.path.basename(interface)
    try:
        number = socket.if_nametoindex(name)
    except OSError:
        return 0
    there = files.stripped(f"{interface}/ifindex")
    address = files.stripped(f"{interface}/address")
    return number if there == str(number) and address == _address(name) else 0


def _address(name: str) -> str:
    asked = struct.pack("@16s24x", os.fsencode(name)[:_NAME_BYTES])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            told = fcntl.ioctl(sock, _ASK_ADDRESS, asked)
    except OSError:
        return ""
    return told[_ADDRESS].hex(":")


def _ask() -> Iterator[tuple[int, Queue]]:
    question = _TRAFFIC.pack(socket.AF_UNSPEC, 0, 0, 0, 0, 0)
    for kind, body in netlink.dumped(socket.NETLINK_ROUTE, _GET_QUEUE, question):
        if kind == _NEW_QUEUE:
            yield from root_queue(body)


def root_queue(body: bytes) -> Iterator[tuple[int, Queue]]:
    """Yield the interface's number and queue, if the message is about the outermost queue."""
    _, _, interface, _, parent, _ = _TRAFFIC.unpack_from(body)
    if parent != _ROOT:
        return
    for kind, statistics in netlink.parts(body[_TRAFFIC.size :]):
        for inner, counts in netlink.parts(statistics) if kind == _STATISTICS else ():
            if inner == _QUEUE:
                _, waiting, _, _, held_back = _COUNTS.unpack_from(counts)
                yield interface, Queue(waiting, held_back)
