"""Asks the kernel over netlink, as `tc`, `ip` and `ss` do: no privilege, no process.

Linux, include/uapi/linux/netlink.h.
"""

import socket
import struct
from collections.abc import Iterator

ATTRIBUTE = struct.Struct("=HH")  # length, type
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ERROR, _DONE = 2, 3
_REQUEST_ALL = 0x1 | 0x300  # NLM_F_REQUEST | NLM_F_DUMP
_SECONDS, _BYTES = 1.0, 1 << 18


def dumped(protocol: int, asked: int, question: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the types and bodies of all answers; OSError where the kernel does not answer."""
    head = _HEADER.pack(_HEADER.size + len(question), asked, _REQUEST_ALL, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as sock:
        sock.settimeout(_SECONDS)
        sock.send(head + question)
        while True:
            for kind, body in parts(sock.recv(_BYTES), _HEADER):
                if kind in {_DONE, _ERROR}:
                    return
                yield kind, body


def parts(raw: bytes, head: struct.Struct = ATTRIBUTE) -> Iterator[tuple[int, bytes]]:
    """Yield types and bodies of consecutive parts, each beginning with its length and type."""
    at = 0
    while at + head.size <= len(raw):
        length, kind = head.unpack_from(raw, at)[:2]
        if length < head.size:
            return
        yield kind & 0x3FFF, raw[at + head.size : at + length]
        at += (length + 3) & ~3
