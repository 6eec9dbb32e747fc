"""The kubelet child's answers, one JSON line each, and the GPU that a device name means."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# What the child writes once it is up, before it asks for the first time.
BEGINS = b"\n"
# The suffix of NVIDIA's device plugin for a device that it offers several times, by time slicing or by
# MPS: `GPU-...::3` (NVIDIA/k8s-device-plugin, internal/rm/devices.go, AnnotatedID).
_REPLICA = re.compile(r"(.*)::\d+$")
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/_-]+$")
# GKE's plugin names device files, and what is in them: `nvidia0`, `nvidia0/gi1`, `nvidia0/vgpu2`
# (GoogleCloudPlatform/container-engine-accelerators, pkg/gpu/nvidia).
_FILE = re.compile(r"nvidia(\d+)(?:/(gi\d+|vgpu\d+))?(?:/vgpu\d+)?$")
# NVIDIA's driver for dynamic resource allocation: `gpu-3` is the GPU of /dev/nvidia3, `gpu-3-mig-19-0-1` a slice of it by
# profile, first place and size (NVIDIA/k8s-dra-driver-gpu, cmd/gpu-kubelet-plugin/deviceinfo.go, CanonicalName).
DRA_DRIVER = "gpu.nvidia.com"
_CLAIMED = re.compile(re.escape(DRA_DRIVER) + r"/gpu-(\d+)(?:-(mig-\d+-\d+-\d+))?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHold:
    """Devices of one resource that one container of a pod holds, by their plugin's names."""

    namespace: str
    pod: str
    container: str
    resource: str
    devices: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.namespace}/{self.pod}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A kubelet's answer: all that its pods hold, and its allocatable devices (None: not given)."""

    holds: tuple[DeviceHold, ...]
    allocatable: tuple[str, ...] | None = None
    claimed: tuple[str, ...] = ()  # pods whose claimed GPU cannot be identified by its name


@dataclass(frozen=True, slots=True)
class Unknown:
    """The kubelet did not answer: nothing is known of its pods, least of all that it has none."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU, by UUID, MIG device or device file, and whether it is shared."""

    uuid: str | None = None
    mig: str | None = None
    minor: int | None = None
    instance: str | None = None  # "gi1" or "mig-19-0-1", of a GPU named by its file
    shared: bool = False


def device(name: str) -> Device | None:
    """Return what a device's name means; None when it is no GPU."""
    claimed = _CLAIMED.match(name)
    if claimed:
        return Device(minor=int(claimed[1]), instance=claimed[2])
    replica = _REPLICA.match(name)
    plain = replica[1] if replica else name
    file = _FILE.match(plain)
    if file:
        shared = bool(replica) or "vgpu" in plain
        part = file[2] if file[2] and file[2].startswith("gi") else None
        return Device(minor=int(file[1]), instance=part, shared=shared)
    if not _UUID.match(plain):
        return None
    if plain.startswith("GPU-"):
        return Device(uuid=plain, shared=bool(replica))
    # Drivers before 470 named MIG devices by their GPU: `MIG-GPU-.../7/0`.
    old = plain.removeprefix("MIG-").partition("/")[0]
    parent = old if old.startswith("GPU-") else None
    return Device(uuid=parent, mig=plain, shared=bool(replica))


def gpu_of(found: Device, minors: Mapping[int, str], migs: Mapping[str, str]) -> str | None:
    """Return the GPU's UUID; None when this node knows none by that name (yet)."""
    if found.uuid is not None:
        return found.uuid
    if found.mig is not None:
        return migs.get(found.mig)
    return None if found.minor is None else minors.get(found.minor)


def line(said: Answer | Unknown) -> str:
    """Return the answer as one line of JSON, without its line end."""
    if isinstance(said, Unknown):
        return json.dumps({"unknown": said.why})
    holds = [[h.namespace, h.pod, h.container, h.resource, *h.devices] for h in said.holds]
    return json.dumps({"holds": holds, "allocatable": said.allocatable, "claimed": said.claimed})


def parse(text: str | bytes) -> Answer | Unknown:
    """Parse a line that `line` wrote; ValueError for anything else."""
    try:
        said: Any = json.loads(text)
        if "unknown" in said:
            return Unknown(str(said["unknown"]))
        offered = said["allocatable"]
        return Answer(
            holds=tuple(map(_hold, said["holds"])),
            allocatable=None if offered is None else tuple(map(str, offered)),
            claimed=tuple(map(str, said["claimed"])),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not what the kubelet's child says: {error!r}") from None


def _hold(said: Iterable[Any]) -> DeviceHold:
    namespace, pod, container, resource, *devices = map(str, said)
    return DeviceHold(
        namespace=namespace,
        pod=pod,
        container=container,
        resource=resource,
        devices=tuple(devices),
    )
