"""One gRPC call over a Unix socket, with the standard library alone.

A request without content and one message as the answer, each on a connection of its own (grpc/grpc,
doc/PROTOCOL-HTTP2.md). Frames are those of RFC 9113, section 6. Only the headers that say how the
call ended are read (RFC 7541); since their names come once on a connection, no table is kept.
"""

import socket
import struct
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _WINDOW_UPDATE, _CONTINUATION = 0, 1, 3, 4, 6, 8, 9
_END_STREAM = _ACK = 0x1
_END_HEADERS, _PADDED, _PRIORITY = 0x4, 0x8, 0x20
_INITIAL_WINDOW_SIZE = 4  # a setting
_CALL = 1  # the stream
_HEAD_BYTES = 9
_LARGEST_FRAME_BYTES = 16_384  # as long as no setting says otherwise
_PREFIX_BYTES = 5  # before a message: whether it is compressed, and its length

# grpc/grpc, doc/statuscodes.md, by number.
_CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND"),
    *("ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"),
    *("ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
    "UNAUTHENTICATED",
)


class RpcError(Exception):
    """A call without an answer; the message says why."""


def call(path: str, method: str, seconds: float, most_bytes: int) -> bytes:
    """Return the server's answer to `method`, "/package.Service/Name", at the socket `path`.

    Raises RpcError when there is none within `seconds`, or one of more than `most_bytes`.
    """
    deadline = time.monotonic() + seconds
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(seconds)
            connection.connect(path)
            connection.sendall(_request(method, most_bytes))
            return _answer(connection, deadline, most_bytes)
    except TimeoutError:
        raise RpcError(f"no answer within {seconds:g} s") from None
    except OSError as error:
        raise RpcError(error.strerror or str(error)) from None
    except (ValueError, IndexError, struct.error):
        raise RpcError("what it answers is not gRPC") from None


def _request(method: str, most_bytes: int) -> bytes:
    """Return the whole request: nothing in it waits for the server."""
    window = most_bytes + _PREFIX_BYTES + 1  # room for one byte too many, so that it is noticed
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": "localhost",  # a server in Go does not accept a socket path as a name
        "content-type": "application/grpc",
        "te": "trailers",
    }
    return b"".join(
        [
            _PREFACE,
            _frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW_SIZE, window)),
            _frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", window)),
            _frame(_HEADERS, _END_HEADERS, _CALL, b"".join(map(_literal, headers.items()))),
            _frame(_DATA, _END_STREAM, _CALL, bytes(_PREFIX_BYTES)),
        ]
    )


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _literal(header: tuple[str, str]) -> bytes:
    """Encode a header that is not indexed; name and value are shorter than 127 bytes."""
    return b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in header)


@dataclass(slots=True)
class _Call:
    """What the call has received so far."""

    most_bytes: int
    content: bytearray = field(default_factory=bytearray)
    block: bytearray = field(default_factory=bytearray)  # headers that go on in the next frame
    headers: dict[str, str] = field(default_factory=dict)
    ended: bool = False

    def feed(self, kind: int, flags: int, payload: bytes) -> bool:
        """Take one frame of the call; return whether it was the last."""
        if kind == _RST_STREAM:
            raise RpcError(f"it broke the call off (HTTP/2 error {int.from_bytes(payload, 'big')})")
        if kind == _DATA:
            self.content += _inner(kind, flags, payload)
            if len(self.content) > self.most_bytes + _PREFIX_BYTES:
                raise RpcError(f"its answer is over {self.most_bytes:,} bytes")
        elif kind in {_HEADERS, _CONTINUATION}:
            self.block += _inner(kind, flags, payload)
            if flags & _END_HEADERS:
                self.headers |= headers(bytes(self.block))
                self.block.clear()
        self.ended |= kind in {_DATA, _HEADERS} and bool(flags & _END_STREAM)
        return self.ended and not self.block

    def message(self) -> bytes:
        """Return the one message; RpcError where the server refused."""
        status = int(self.headers["grpc-status"]) if "grpc-status" in self.headers else None
        if status is None:
            raise ValueError("headers without a status")
        if status:
            name = _CODES[status] if status < len(_CODES) else f"status {status}"
            said = urllib.parse.unquote(self.headers.get("grpc-message", ""))
            raise RpcError(f"{name}: {said}" if said else name)
        compressed, length = struct.unpack_from(">BI", self.content)
        if compressed or length != len(self.content) - _PREFIX_BYTES:
            raise ValueError("not one plain message")
        return bytes(self.content[_PREFIX_BYTES:])


def _answer(connection: socket.socket, deadline: float, most_bytes: int) -> bytes:
    found = _Call(most_bytes)
    for kind, flags, stream, payload in _frames(connection, deadline):
        if kind in {_SETTINGS, _PING} and not flags & _ACK:
            connection.sendall(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
        elif stream == _CALL and found.feed(kind, flags, payload):
            break
    return found.message()


def _frames(connection: socket.socket, deadline: float) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield type, flags, stream and payload of each frame."""
    while True:
        head = _read(connection, _HEAD_BYTES, deadline)
        length = int.from_bytes(head[:3], "big")
        if length > _LARGEST_FRAME_BYTES:
            raise ValueError("no frame of HTTP/2")
        kind, flags, stream = struct.unpack(">BBI", head[3:])
        yield kind, flags, stream & 0x7FFF_FFFF, _read(connection, length, deadline)


def _read(connection: socket.socket, count: int, deadline: float) -> bytes:
    """Read exactly `count` bytes by the deadline: a limit per read would not stop single bytes."""
    found = bytearray()
    while len(found) < count:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        part = connection.recv(count - len(found))
        if not part:
            raise RpcError("it closed the connection")
        found += part
    return bytes(found)


def _inner(kind: int, flags: int, payload: bytes) -> bytes:
    """Return the payload without padding and priority."""
    padded = flags & _PADDED and kind != _CONTINUATION
    start = 1 if padded else 0
    if kind == _HEADERS and flags & _PRIORITY:
        start += 5
    return payload[start : len(payload) - (payload[0] if padded else 0)]


def headers(block: bytes) -> dict[str, str]:
    """Return the headers of a block (RFC 7541, section 6) whose names are written out."""
    found, at = {}, 0
    while at < len(block):
        first = block[at]
        if first & 0x80:  # name and value are in the table
            _, at = _integer(block, at, 7)
            continue
        if first & 0xE0 == 0x20:  # the table's new size
            _, at = _integer(block, at, 5)
            continue
        index, at = _integer(block, at, 6 if first & 0x40 else 4)
        name = ""
        if not index:
            name, at = _text(block, at)
        value, at = _text(block, at)
        if name:
            found[name] = value
    return found


def _integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """Return a number, and the position after it (RFC 7541, section 5.1)."""
    most = (1 << bits) - 1
    value, at = block[at] & most, at + 1
    if value < most:
        return value, at
    shift = 0
    while True:
        byte, at = block[at], at + 1
        value += (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _text(block: bytes, at: int) -> tuple[str, int]:
    packed = block[at] & 0x80
    length, at = _integer(block, at, 7)
    raw = block[at : at + length]
    return _unpacked(raw) if packed else raw.decode(errors="replace"), at + length


def _unpacked(raw: bytes) -> str:
    """Decode the code of RFC 7541, appendix B, up to a character that is not in `_TEXTS`."""
    found, length, code = [], 0, 0
    for place in range(8 * len(raw)):
        code = code << 1 | raw[place // 8] >> 7 - place % 8 & 1
        length += 1
        if (length, code) in _SYMBOLS:
            found.append(_SYMBOLS[length, code])
            length = code = 0
    return "".join(found)


# Printable ASCII characters, except the backslash, by the length of their code in bits.
_TEXTS = {
    5: "012aceiost",
    6: " %-./3456789=A_bdfghlmnpru",
    7: ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: "&*,;XZ",
    10: '!"()?',
    11: "'+|",
    12: "#>",
    13: "\0$@[]~",
    14: "^}",
    15: "<`{",
}


def _symbols() -> dict[tuple[int, int], str]:
    """Return characters by code length and code: codes count up within and across lengths."""
    found, code, before = {}, 0, 0
    for length, texts in _TEXTS.items():
        code <<= length - before
        before = length
        for text in texts:
            found[length, code] = text
            code += 1
    return found


_SYMBOLS = _symbols()
