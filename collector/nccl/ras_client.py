"""Asks NCCL's RAS socket once.

The protocol: NVIDIA/nccl v2.30.7, src/ras/client_support.cc:165-473 and src/ras/client.cc. The
answer ends with the connection. A timeout of zero is never sent: with JSON that would leave its
collection in the job's memory for ever (client_support.cc:1040, :1660).
"""

import socket
import time

from .ras_status import LARGEST_BYTES, Status, parse
from .unreadable import UnreadableError

# RAS's time limit for its own processes, and how long its own client waits beyond that.
TIMEOUT_SECONDS, _BEYOND_SECONDS = 5, 6.0
# The time after which NCCL's own client takes the process for stopped.
HANDSHAKE_SECONDS = 1.0
_TRIES = 2
_LONGEST_LINE = 1024
_CHUNK = 1 << 16
# Bytes beyond the limit are read and dropped, so that no process of the job writes into a closed socket.
_MOST_DRAINED = 64 * 1024 * 1024


class SilentError(UnreadableError):
    """A process listens and does not answer: it was stopped."""


def ask(
    addresses: list[tuple[str, int]], seconds: float = TIMEOUT_SECONDS + _BEYOND_SECONDS
) -> Status:
    """Return the answer of any process that listens there; UnreadableError says why there is none.

    Behind one port the kernel picks a process of the same user. A stopped process accepts the
    connection and never answers; another try may then find another process. The question itself is
    put to one process only.
    """
    for _ in range(_TRIES):
        for address in addresses:
            try:
                return _ask(address, seconds)
            except ConnectionRefusedError:
                continue
            except SilentError:
                break
            except OSError as error:
                raise UnreadableError(f"its RAS breaks off: {error.strerror or error}") from None
        else:
            raise UnreadableError("nobody listens there any more")
    raise SilentError("its process takes connections and does not answer")


def _ask(address: tuple[str, int], seconds: float) -> Status:
    try:
        peer = socket.create_connection(address, HANDSHAKE_SECONDS)
    except TimeoutError:
        raise SilentError("it takes no more connections") from None
    with peer:
        try:
            _send(peer, b"CLIENT PROTOCOL 2")
            if not _line(peer, HANDSHAKE_SECONDS).startswith(b"SERVER PROTOCOL "):
                raise UnreadableError("who listens there is no NCCL")
        except TimeoutError:
            raise SilentError("it takes the connection and says nothing") from None
        for said in (b"TIMEOUT %d" % TIMEOUT_SECONDS, b"SET FORMAT json"):
            _send(peer, said)
            answer = _line(peer, seconds)
            if answer != b"OK":
                words = answer.decode(errors="replace")[:100]
                raise UnreadableError(f"its RAS refuses {said.decode()}: {words!r}")
        _send(peer, b"STATUS")
        return parse(_rest(peer, time.monotonic() + seconds))


def _send(peer: socket.socket, words: bytes) -> None:
    peer.sendall(words + b"\n")


def _line(peer: socket.socket, seconds: float) -> bytes:
    """Return one line, which must be complete within `seconds`; TimeoutError."""
    deadline, read = time.monotonic() + seconds, b""
    while not read.endswith(b"\n"):
        peer.settimeout(max(deadline - time.monotonic(), 0.001))
        part = peer.recv(1)
        if not part:
            raise UnreadableError("its RAS closes the connection")
        read += part
        if len(read) > _LONGEST_LINE:
            raise UnreadableError("its RAS answers no line")
    return read.strip()


def _rest(peer: socket.socket, deadline: float) -> bytes:
    """Return everything until the end of the connection; what exceeds the size limit is dropped."""
    content, drained = bytearray(), 0
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise UnreadableError("its answer takes too long")
        peer.settimeout(left)
        try:
            part = peer.recv(_CHUNK)
        except TimeoutError:
            raise UnreadableError("its answer takes too long") from None
        if not part:
            break
        drained += len(part)
        if drained > _MOST_DRAINED:
            raise UnreadableError("its answer has no end")
        if len(content) <= LARGEST_BYTES:
            content += part
    return bytes(content)
