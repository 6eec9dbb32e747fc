"""The reader's messages to the supervisor: one per tick, and one per Xid at once.

They are plain values in Python's own format, which takes a tenth of JSON's time: at a tick of one
second that was a tenth of all the collector's work. Both ends are one program, and no data comes
from elsewhere.
"""

import marshal
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import IO, Any

from gpuvigil.clock import from_text
from gpuvigil.gpu_identity import GpuIdentity, Unmeasured
from gpuvigil.plain import known, plain

from .field_values import Values
from .gpu_sample import CallCost, MigDevice

_LENGTH = struct.Struct("!I")
_FORM = 4  # the same in every Python since 3.4

LOADED = "loaded"
STARTING = "starting"
NO_DRIVER = "no driver"
CHANGED = "changed"  # the driver has other GPUs than when the reader began: a new reader must begin
RELEASED = "released for maintenance"  # set by the supervisor, while there is no reader


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTick:
    """One GPU in one tick: its values, why it has none, or for how long it is silent.

    `silent_seconds` counts from the start of a sweep that has not returned. A GPU that has neither
    values nor a reason is being read; that is no fault until `silent_seconds` is too long.
    """

    index: int
    identity: GpuIdentity | None = None
    values: Values | None = None
    slow: Values | None = None  # in some ticks only, as are `links` and `costs`
    links: dict[int, Values] | None = None  # by link
    migs: tuple[MigDevice, ...] = ()
    costs: dict[str, CallCost] | None = None  # by driver call, since the last report
    processes: tuple[int, ...] | None = None
    reason: Unmeasured | None = None
    silent_seconds: float | None = None
    read_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """All GPUs at one moment; sent even when every driver call hangs.

    `silent_seconds` is how long no call has returned, None while calls do. `starting_seconds` is
    how long the first calls have been under way: a driver that is not kept loaded needs some time.
    Both count what the calls had themselves, not what the machine kept them waiting for a core.
    """

    at: datetime
    state: str  # LOADED, STARTING, NO_DRIVER, or why the driver cannot be read
    driver: str | None = None
    gpus: tuple[GpuTick, ...] = ()
    silent_seconds: float | None = None
    starting_seconds: float | None = None
    sweep_seconds: float | None = None
    spent_seconds: float = 0.0  # `cpu_time.spent_seconds` of the reader before this tick


@dataclass(frozen=True, slots=True, kw_only=True)
class XidSeen:
    """An Xid that the driver reported, for a GPU by UUID or for none that is known."""

    at: datetime
    uuid: str | None
    xid: int


def dump(message: Tick | XidSeen) -> bytes:
    """Return the message as bytes that `contents` finds in a stream."""
    if isinstance(message, XidSeen):
        value: dict[str, Any] = {"kind": "xid", **plain(message)}
    else:
        value = {"kind": "tick", **plain(message), "gpus": [_gpu(gpu) for gpu in message.gpus]}
    content = marshal.dumps(value, _FORM)
    return _LENGTH.pack(len(content)) + content


def contents(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield what `load` takes, message by message, until the stream ends."""
    while len(head := stream.read(_LENGTH.size)) == _LENGTH.size:
        (length,) = _LENGTH.unpack(head)
        content = stream.read(length)
        if len(content) < length:
            return
        yield content


def load(content: bytes) -> Tick | XidSeen:
    """Return the message that `dump` wrote; ValueError for anything else."""
    try:
        value = marshal.loads(content)
        at = from_text(value["at"])
        if value["kind"] == "xid":
            return XidSeen(at=at, uuid=value["uuid"], xid=int(value["xid"]))
        gpus = tuple(_gpu_tick(gpu) for gpu in value["gpus"])
        return Tick(**{**known(Tick, value), "at": at, "gpus": gpus})
    except (AttributeError, EOFError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a message of the reader: {error}") from error


def _gpu(gpu: GpuTick) -> tuple[Any, ...]:
    """Return the GPU as plain values, which `_gpu_tick` takes in the same order."""
    costs, processes = gpu.costs, gpu.processes
    return (
        gpu.index,
        None if gpu.identity is None else _packed(gpu.identity),
        gpu.values,
        gpu.slow,
        gpu.links,
        [plain(mig) for mig in gpu.migs],
        None if costs is None else {call: plain(cost) for call, cost in costs.items()},
        processes,
        None if gpu.reason is None else gpu.reason.value,
        gpu.silent_seconds,
        gpu.read_seconds,
    )


# The same in every tick, and packed and unpacked once: more than the GPUs of a node.
@lru_cache(maxsize=256)
def _packed(identity: GpuIdentity) -> bytes:
    return marshal.dumps(plain(identity), _FORM)


@lru_cache(maxsize=256)
def _unpacked(identity: bytes) -> GpuIdentity:
    return GpuIdentity(**known(GpuIdentity, marshal.loads(identity)))


def _gpu_tick(value: tuple[Any, ...]) -> GpuTick:
    index, identity, values, slow, links, migs, costs, processes, reason, silent, read = value
    return GpuTick(
        index=index,
        identity=None if identity is None else _unpacked(identity),
        values=values,
        slow=slow,
        links=links,
        migs=tuple(MigDevice(**mig) for mig in migs),
        costs=_costs(costs),
        processes=processes,
        reason=None if reason is None else Unmeasured(reason),
        silent_seconds=silent,
        read_seconds=read,
    )


def _costs(value: dict[str, dict[str, Any]] | None) -> dict[str, CallCost] | None:
    return None if value is None else {call: CallCost(**cost) for call, cost in value.items()}
