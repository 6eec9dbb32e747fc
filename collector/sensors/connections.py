"""How long TCP data is on its way, by the port it leaves through: as `ss -ti` asks.

A queue that builds up beyond the port is seen only by those who send into it: their round trips
take longer than the shortest that they ever had. No privilege, no process; programs are not
touched. Linux, include/uapi/linux/{sock_diag,inet_diag,tcp,if_addr}.h.
"""

import socket
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from . import files, netlink
from .queues import number_of

_SOCK_DIAG, _BY_FAMILY, _TCP, _ESTABLISHED = 4, 20, 6, 1 << 1
_INFO = 2  # INET_DIAG_INFO
_QUESTION = struct.Struct("=BBBxI48x")  # family, protocol, extensions, states; any socket
_SOCKET = struct.Struct("=4xHH16s16sIQ20x")  # ports, addresses, interface, cookie
_GET_ADDRESS, _NEW_ADDRESS = 22, 20
_ADDRESS = struct.Struct("=BBBBI")  # family, prefix, flags, scope, interface
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_FAMILY = {4: socket.AF_INET, 16: socket.AF_INET6}
_NEAR = ("127.", "169.254.", "::1", "fe80:")
# Offsets in `struct tcp_info`: microseconds, acknowledged bytes, microseconds.
_ROUND_TRIP, _ACKED, _SHORTEST = (68, "=I"), (120, "=Q"), (148, "=I")
_INFO_BYTES, _NEVER = 152, 0xFFFFFFFF
_MICROSECONDS = 1e6
# More sockets would cost a collector too much: a look at 2,000 takes some 20 ms.
MOST_SOCKETS = 2_000
# A port waits for a peer when its packets wait this long, and for this many of their shortest round
# trips: beyond the buffers of a switch, which hold a millisecond or two [own].
WAITS_SECONDS, _TIMES_SHORTEST = 2e-3, 10.0
# The least share of the port's bytes that go to such a peer, the most peers that are reported, and for
# how many looks each is kept.
_SHARE, _MOST_PEERS, _KEPT_LOOKS = 0.25, 4, 6
# Fewer bytes since the last look are occasional messages, which are acknowledged late anyway [own].
_LEAST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """One established connection now."""

    cookie: int
    local: str
    peer: str
    acked_bytes: int
    round_trip_seconds: float
    shortest_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PortDelay:
    """What left through a port since the last look."""

    delay_seconds: float  # beyond the shortest round trip: the mean over its bytes
    waits_for: tuple[str, ...]  # addresses of peers that answer late


class Connections:
    """The connections of this network namespace; `read` before `of`."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, float]] = {}  # by cookie: bytes, shortest round trip
        self._addresses: Mapping[int, Sequence[str]] = {}
        self._sent: Mapping[str, PortDelay] = {}
        self._late: dict[
            tuple[str, str], int
        ] = {}  # by local address and peer: for how many more looks it is kept

    def read(self) -> None:
        """Look anew; nothing is known where the kernel does not answer, or there are too many."""
        try:
            self._addresses = _addresses()
            mine = {it for them in self._addresses.values() for it in them}
            found = list(islice(_established(mine), MOST_SOCKETS + 1))
        except (OSError, struct.error):
            self._addresses, found = {}, []
        self.update(found)

    def update(self, found: Sequence[Connection]) -> None:
        """Take the connections established now; a connection counts from its second look on."""
        if len(found) > MOST_SOCKETS:
            found = []
        moved: dict[str, list[tuple[Connection, int, float]]] = defaultdict(list)
        known: dict[int, tuple[int, float]] = {}
        for one in found:
            bytes_before, shortest = self._known.get(one.cookie, (None, one.shortest_seconds))
            shortest = min(shortest, one.shortest_seconds)
            known[one.cookie] = one.acked_bytes, shortest
            if bytes_before is not None and one.acked_bytes > bytes_before:
                moved[one.local].append((one, one.acked_bytes - bytes_before, shortest))
        self._known = known
        self._late = {who: left - 1 for who, left in self._late.items() if left > 1}
        self._sent = {local: self._summed(local, them) for local, them in moved.items()}

    def _summed(self, local: str, them: Sequence[tuple[Connection, int, float]]) -> PortDelay:
        total = sum(count for _, count, _ in them)
        late: dict[str, int] = defaultdict(int)
        weighed = 0.0
        for one, count, shortest in them:
            delay = max(one.round_trip_seconds - shortest, 0.0)
            weighed += delay * count
            if delay >= max(WAITS_SECONDS, _TIMES_SHORTEST * shortest):
                late[one.peer] += count
        for peer, count in late.items():
            if count >= max(_SHARE * total, _LEAST_BYTES):
                self._late[local, peer] = _KEPT_LOOKS
        peers = sorted(peer for of, peer in self._late if of == local)
        return PortDelay(delay_seconds=weighed / total, waits_for=tuple(peers[:_MOST_PEERS]))

    def of(self, interface: str) -> tuple[tuple[str, ...], PortDelay | None]:
        """Return the addresses of an interface or its bond, and what left from them lately.

        `interface` is a folder of sysfs. Of several addresses, the one with the longest delay
        counts. None where nothing left since the last look.
        """
        numbers = [number_of(interface)]
        bond = files.stripped(f"{interface}/master/ifindex")
        numbers += [int(bond)] if bond.isdigit() else []
        mine = tuple(it for number in numbers for it in self._addresses.get(number, ()))
        sent = [one for it in mine if (one := self.sent(it)) is not None]
        return mine, max(sent, key=lambda one: one.delay_seconds, default=None)

    def sent(self, address: str) -> PortDelay | None:
        """Return what left from an address since the last look; None where nothing did."""
        return self._sent.get(address)


def _addresses() -> Mapping[int, Sequence[str]]:
    """Return addresses by interface number, without those that reach no further than a cable."""
    found: dict[int, list[str]] = defaultdict(list)
    question = _ADDRESS.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
    for kind, body in netlink.dumped(socket.NETLINK_ROUTE, _GET_ADDRESS, question):
        if kind == _NEW_ADDRESS:
            *_, interface = _ADDRESS.unpack_from(body)
            told = dict(netlink.parts(body[_ADDRESS.size :]))
            raw = told.get(_IFA_LOCAL) or told.get(_IFA_ADDRESS) or b""
            address = "" if len(raw) not in {4, 16} else _text(_FAMILY[len(raw)], raw)
            if address and not address.startswith(_NEAR):
                found[interface].append(address)
    return {interface: sorted(them) for interface, them in found.items()}


def _established(mine: Set[str]) -> Iterator[Connection]:
    for family in (socket.AF_INET, socket.AF_INET6):
        question = _QUESTION.pack(family, _TCP, 1 << (_INFO - 1), _ESTABLISHED)
        for _, body in netlink.dumped(_SOCK_DIAG, _BY_FAMILY, question):
            yield from connection(family, body, mine)


def connection(family: int, body: bytes, mine: Set[str]) -> Iterator[Connection]:
    """Yield a message's connection; nothing if it has no round trip yet, or is at another address."""
    _, _, local, peer, _, cookie = _SOCKET.unpack_from(body)
    address = _text(family, local)
    for kind, info in netlink.parts(body[_SOCKET.size :]) if address in mine else ():
        if kind == _INFO and len(info) >= _INFO_BYTES:
            round_trip, acked, shortest = (
                struct.unpack_from(of, info, at)[0] for at, of in (_ROUND_TRIP, _ACKED, _SHORTEST)
            )
            if acked and shortest < _NEVER:
                yield Connection(
                    cookie=cookie,
                    local=address,
                    peer=_text(family, peer),
                    acked_bytes=acked,
                    round_trip_seconds=round_trip / _MICROSECONDS,
                    shortest_seconds=shortest / _MICROSECONDS,
                )


@lru_cache(maxsize=4096)
def _text(family: int, raw: bytes) -> str:
    if family == socket.AF_INET:
        return socket.inet_ntop(family, raw[:4])
    # An IPv4 address of a socket for both families.
    return socket.inet_ntop(family, raw).removeprefix("::ffff:")
