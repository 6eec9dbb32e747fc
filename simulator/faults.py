"""Faults that can be injected into a simulated node, and the file that carries them.

A fault is only what sensors would read. The file keeps cleared faults too: a simulator that was
away still reports how they ended, and counters keep what they missed.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

from gpuvigil.clock import from_text, to_text


class Target(str, Enum):
    """The object that a fault happens to."""

    GPU = "gpu"
    PORT = "port"
    NODE = "node"


class Effect(str, Enum):
    """What the sensors read while the fault lasts."""

    LOST = "lost"
    SILENT = "silent"
    XID = "xid"
    IDLE = "idle"
    HEAT = "heat"
    SLOW = "slow"
    NVLINK = "nvlink"
    PORT_DOWN = "port down"
    PORT_FLAP = "port flap"
    PORT_NUMBERS = "port numbers"
    UPLINK = "uplink"
    SPINE = "spine"
    NODE_SILENT = "node silent"
    HOST_HOT = "host hot"

    @property
    def is_beyond_hosts(self) -> bool:
        """Whether the fault is between switches, where no host sees it."""
        return self in {Effect.UPLINK, Effect.SPINE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of fault."""

    target: Target
    effect: Effect
    sentence: str
    xid: int | None = None
    uncorrected_errors: int = 0
    # For a port: what counters gain a second, and what other numbers are set to or multiplied by.
    grows: Mapping[str, float] = field(default_factory=dict)
    sets: Mapping[str, float] = field(default_factory=dict)
    times: Mapping[str, float] = field(default_factory=dict)
    on_rail: bool = False  # hits the port of that name on up to 32 nodes: those at one leaf
    loses_leaf: bool = False  # the leaf no longer answers
    fills_leaf: bool = False  # the leaf's cables to spines drop packets
    holds_up: bool = False  # the other ranks of a training wait for the one that is hit


def _xid(code: int, sentence: str, uncorrected_errors: int = 0, *, holds_up: bool = False) -> Kind:
    return Kind(
        target=Target.GPU,
        effect=Effect.XID,
        xid=code,
        sentence=f"the driver reports Xid {code}: {sentence}",
        uncorrected_errors=uncorrected_errors,
        holds_up=holds_up,
    )


# The kinds a user may name. Meanings of the Xids: NVIDIA, "XID Errors", the catalogue.
KINDS: dict[str, Kind] = {
    "xid79": Kind(
        target=Target.GPU,
        effect=Effect.LOST,
        xid=79,
        sentence="the GPU falls off the bus, and the driver reports Xid 79",
        holds_up=True,
    ),
    "gpu-lost": Kind(
        target=Target.GPU,
        effect=Effect.LOST,
        sentence="the GPU is lost, and no Xid is reported",
        holds_up=True,
    ),
    "gpu-hang": Kind(
        target=Target.GPU,
        effect=Effect.SILENT,
        sentence="calls for this GPU do not come back",
        holds_up=True,
    ),
    "xid48": _xid(48, "uncorrectable memory error", 1, holds_up=True),
    "xid94": _xid(94, "contained memory error", 1),
    "xid95": _xid(95, "uncontained memory error", 1, holds_up=True),
    "xid119": _xid(119, "the GPU's system processor does not answer", holds_up=True),
    "xid31": _xid(31, "memory page fault of a program"),
    "xid13": _xid(13, "graphics engine exception of a program"),
    "idle": Kind(
        target=Target.GPU, effect=Effect.IDLE, sentence="a held GPU computes nothing any more"
    ),
    "heat": Kind(
        target=Target.GPU,
        effect=Effect.HEAT,
        sentence="the GPU overheats, and its hardware halves the clocks",
    ),
    "slow-rank": Kind(
        target=Target.GPU,
        effect=Effect.SLOW,
        sentence="the rank of a training on the GPU works a third longer by itself, and its job waits for it",
    ),
    "nvlink-errors": Kind(
        target=Target.GPU,
        effect=Effect.NVLINK,
        sentence="one of the GPU's NVLinks counts CRC errors, one a second",
    ),
    "driver-hang": Kind(
        target=Target.NODE,
        effect=Effect.SILENT,
        sentence="no call to the driver comes back",
        holds_up=True,
    ),
    "node-silent": Kind(
        target=Target.NODE, effect=Effect.NODE_SILENT, sentence="the node sends nothing any more"
    ),
    "host-hot": Kind(
        target=Target.NODE,
        effect=Effect.HOST_HOT,
        sentence="heat slows the processors down for two fifths of the time, and jobs wait for the node",
    ),
    "port-down": Kind(
        target=Target.PORT,
        effect=Effect.PORT_DOWN,
        sentence="the port loses its link",
        holds_up=True,
    ),
    "port-flap": Kind(
        target=Target.PORT,
        effect=Effect.PORT_FLAP,
        sentence="the port loses its link again and again",
    ),
    "port-slow": Kind(
        target=Target.PORT,
        effect=Effect.PORT_NUMBERS,
        sentence="the port's link trains anew with a quarter of its lanes",
        times={"speed_bits_per_second": 0.25, "width_lanes": 0.25},
    ),
    "bad-cable": Kind(
        target=Target.PORT,
        effect=Effect.PORT_NUMBERS,
        sentence="the port counts symbol errors, one a second",
        grows={"symbol_errors": 1.0},
    ),
    "slow-receiver": Kind(
        target=Target.PORT,
        effect=Effect.PORT_NUMBERS,
        sentence="the host does not keep up with what the port receives",
        grows={"out_of_buffer": 500.0, "transmit_pause_microseconds": 300_000.0},
    ),
    "packet-loss": Kind(
        target=Target.PORT,
        effect=Effect.PORT_NUMBERS,
        sentence="packets are lost on the port's way, and sent again",
        grows={"retransmits": 200.0},
    ),
    "hot-module": Kind(
        target=Target.PORT,
        effect=Effect.PORT_NUMBERS,
        sentence="the port's transceiver has 85 °C",
        sets={"module_celsius": 85.0},
    ),
    "congestion": Kind(
        target=Target.PORT,
        effect=Effect.PORT_NUMBERS,
        sentence="the leaf of the port is congested: that port of all its nodes waits and drops packets",
        grows={
            "transmit_wait_ticks": 1.5e7,
            "receive_pause_microseconds": 300_000.0,
            "transmit_discards": 200.0,
        },
        on_rail=True,
        fills_leaf=True,
    ),
    "leaf-down": Kind(
        target=Target.PORT,
        effect=Effect.PORT_DOWN,
        sentence="the leaf of the port is lost: all its nodes lose that port",
        on_rail=True,
        loses_leaf=True,
        holds_up=True,
    ),
    "uplink-errors": Kind(
        target=Target.PORT,
        effect=Effect.UPLINK,
        sentence="a cable from the port's leaf to a spine has symbol errors, one a second",
        grows={"symbol_errors": 1.0},
    ),
    "uplink-slow": Kind(
        target=Target.PORT,
        effect=Effect.UPLINK,
        sentence="a cable from the port's leaf to a spine trains anew with a quarter of its lanes",
        times={"speed_bits_per_second": 0.25, "width_lanes": 0.25},
    ),
    "uplink-down": Kind(
        target=Target.PORT,
        effect=Effect.UPLINK,
        sentence="a cable from the port's leaf to a spine loses its link",
        sets={"up": 0},
    ),
    "spine-down": Kind(
        target=Target.PORT,
        effect=Effect.SPINE,
        sentence="a spine above the port's leaf, its last, is lost: no host sees it",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedFault:
    """One fault: what, where, from when to when; it lasts while `cleared_at` is None."""

    name: str  # a key of KINDS
    node: str
    at: datetime
    gpu: int | None = None
    device: str | None = None
    port: str | None = None
    cleared_at: datetime | None = None

    @property
    def kind(self) -> Kind:
        return KINDS[self.name]

    @property
    def id(self) -> str:
        """A permanent id, so that its events are the same events after a restart."""
        place = ":".join(
            str(part) for part in (self.gpu, self.device, self.port) if part is not None
        )
        return f"{self.name}:{self.node}:{place}:{to_text(self.at)}"

    @property
    def place(self) -> str:
        """The place for people: `sim-003 GPU 5`."""
        if self.gpu is not None:
            return f"{self.node} GPU {self.gpu}"
        return self.node if self.device is None else f"{self.node} {self.device} port {self.port}"

    def same_place(self, other: "InjectedFault") -> bool:
        """Return whether this is the same kind of fault at the same place."""
        return self._key() == other._key()

    def active(self, now: datetime) -> bool:
        return self.at <= now and (self.cleared_at is None or now < self.cleared_at)

    def lasted_seconds(self, now: datetime) -> float:
        """Return how long the fault has lasted by now; 0 before it."""
        end = now if self.cleared_at is None else min(now, self.cleared_at)
        return max((end - self.at).total_seconds(), 0.0)

    def _key(self) -> tuple[object, ...]:
        return (self.name, self.node, self.gpu, self.device, self.port)


_CLEARED_FAULTS_KEPT = 200


def read(path: Path) -> tuple[InjectedFault, ...]:
    """Read the faults of the file, oldest first; none when there is no file.

    ValueError says what is wrong with a file that `change` has not written.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["faults"]
        return tuple(_from_json(entry) for entry in entries)
    except FileNotFoundError:
        return ()
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{error} in {path}") from error


@contextmanager
def change(path: Path) -> Iterator[list[InjectedFault]]:
    """Yield the faults of the file as a list to change; the file is replaced in one step at the end.

    Other writers wait. Only the last of the cleared faults are kept.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{path}.lock", "w", opener=_private) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        faults = list(read(path))
        yield faults
        faults.sort(key=lambda fault: fault.at)
        cleared = [fault for fault in faults if fault.cleared_at is not None]
        forgotten = {fault.id for fault in cleared[:-_CLEARED_FAULTS_KEPT]}
        kept = [_to_json(fault) for fault in faults if fault.id not in forgotten]
        with open(f"{path}.new", "w", encoding="utf-8", opener=_private) as draft:
            json.dump({"faults": kept}, draft, indent=1)
        os.replace(draft.name, path)


def _private(path: str, flags: int) -> int:
    """Open a file that only its owner may read when it is new."""
    return os.open(path, flags, 0o600)


def _to_json(fault: InjectedFault) -> dict[str, object]:
    cleared = None if fault.cleared_at is None else to_text(fault.cleared_at)
    return {
        "name": fault.name,
        "node": fault.node,
        "gpu": fault.gpu,
        "device": fault.device,
        "port": fault.port,
        "at": to_text(fault.at),
        "cleared_at": cleared,
    }


def _from_json(entry: dict[str, Any]) -> InjectedFault:
    if entry["name"] not in KINDS:
        raise ValueError(f"{entry['name']!r} is not a fault")
    cleared = entry["cleared_at"]
    return InjectedFault(
        name=entry["name"],
        node=entry["node"],
        gpu=entry["gpu"],
        device=entry["device"],
        port=entry["port"],
        at=from_text(entry["at"]),
        cleared_at=None if cleared is None else from_text(cleared),
    )


class FaultsFile:
    """The faults that the file has now; it is read again only after it was replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._faults: tuple[InjectedFault, ...] = ()

    def faults(self) -> tuple[InjectedFault, ...]:
        """Return the faults; ValueError, raised once, when the file was replaced by something that is not ours."""
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            self._seen, self._faults = None, ()
            return ()
        if self._seen != (stat.st_mtime_ns, stat.st_ino):
            self._seen = (stat.st_mtime_ns, stat.st_ino)
            self._faults = read(self._path)
        return self._faults
