"""The messages of the kubelet's pod-resources service, version 1, as far as they are used. Pure.

kubernetes/kubernetes, staging/src/k8s.io/kubelet/pkg/apis/podresources/v1/api.proto (package `v1`;
GetAllocatableResources since Kubernetes 1.21, dynamic resources since 1.26). Fields that are not
named here are skipped, as protobuf asks (protobuf.dev, "Encoding").
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from . import device_map
from .device_map import Answer, DeviceHold

LIST = "/v1.PodResourcesLister/List"
ALLOCATABLE = "/v1.PodResourcesLister/GetAllocatableResources"

# Numbers of fields.
_PODS = _OFFERED = 1
_POD_NAME, _POD_NAMESPACE, _POD_CONTAINERS = 1, 2, 3
_CONTAINER_NAME, _CONTAINER_DEVICES, _CONTAINER_DYNAMIC = 1, 2, 5
_DEVICES_RESOURCE, _DEVICES_IDS = 1, 2
_DYNAMIC_NAME, _DYNAMIC_CLAIMS = 2, 4
_CLAIM_DRIVER, _CLAIM_DEVICE = 2, 4

_Fields = Mapping[int, Sequence[bytes]]


def answer(pods: bytes, offered: bytes | None) -> Answer:
    """Parse the messages of both calls; `offered` None: no message. ValueError for anything else."""
    holds, claimed = [], []
    for pod in map(fields, fields(pods)[_PODS]):
        namespace, name = _text(pod, _POD_NAMESPACE), _text(pod, _POD_NAME)
        for container in map(fields, pod[_POD_CONTAINERS]):
            by_claim, others = _by_claim(container)
            if others:
                claimed.append(f"{namespace}/{name}")
            for resource, names in (*_by_plugin(container), *by_claim):
                holds.append(
                    DeviceHold(
                        namespace=namespace,
                        pod=name,
                        container=_text(container, _CONTAINER_NAME),
                        resource=resource,
                        devices=names,
                    )
                )
    given = None
    if offered is not None:
        given = tuple(name for it in fields(offered)[_OFFERED] for name in _gpus(fields(it)))
    return Answer(holds=tuple(holds), allocatable=given, claimed=tuple(dict.fromkeys(claimed)))


def _by_plugin(container: _Fields) -> list[tuple[str, tuple[str, ...]]]:
    """Return the GPUs that a device plugin gave the container, with their resource."""
    told = [
        (_text(it, _DEVICES_RESOURCE), _gpus(it))
        for it in map(fields, container[_CONTAINER_DEVICES])
    ]
    return [(resource, names) for resource, names in told if names]


def _by_claim(container: _Fields) -> tuple[list[tuple[str, tuple[str, ...]]], bool]:
    """Return the container's GPUs by claims (DRA), and whether it has any unidentified by its name."""
    found, others = [], False
    for dynamic in map(fields, container[_CONTAINER_DYNAMIC]):
        names = [
            f"{device_map.DRA_DRIVER}/{_text(it, _CLAIM_DEVICE)}"
            for it in map(fields, dynamic[_DYNAMIC_CLAIMS])
            if _text(it, _CLAIM_DRIVER) == device_map.DRA_DRIVER
        ]
        known = tuple(name for name in names if device_map.device(name))
        others = others or len(known) < len(names)
        if known:
            found.append((f"claim {_text(dynamic, _DYNAMIC_NAME)}", known))
    return found, others


def _gpus(devices: _Fields) -> tuple[str, ...]:
    names = (it.decode(errors="replace") for it in devices[_DEVICES_IDS])
    return tuple(name for name in names if device_map.device(name))


def _text(of: _Fields, number: int) -> str:
    """Return a text field; of several the last counts, as protobuf says; empty for none."""
    return of[number][-1].decode(errors="replace") if of[number] else ""


def fields(message: bytes) -> _Fields:
    """Return texts and messages by their field number, in order; numeric fields are skipped.

    Raises ValueError for a message that is torn, or none.
    """
    found, at = defaultdict[int, list[bytes]](list), 0
    while at < len(message):
        key, at = _number(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            _, at = _number(message, at)
        elif kind in {1, 5}:
            at += 8 if kind == 1 else 4
        elif kind == 2:
            length, at = _number(message, at)
            found[number].append(message[at : at + length])
            at += length
        else:
            raise ValueError(f"no message of protobuf: a field of the type {kind}")
    if at > len(message):
        raise ValueError("a message of protobuf that ends early")
    return found


def _number(message: bytes, at: int) -> tuple[int, int]:
    """Return a varint, and the position after it."""
    value = shift = 0
    while at < len(message):
        byte, at = message[at], at + 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
    raise ValueError("a message of protobuf that ends early")
