"""The kubelet's pod-resources service, version 1, as protobuf's own classes: what a kubelet would use.

Written from the published definition: kubernetes/kubernetes,
staging/src/k8s.io/kubelet/pkg/apis/podresources/v1/api.proto (package `v1`; GetAllocatableResources since
Kubernetes 1.21, dynamic resources since 1.26). CPUs, memory and the topology of devices
are there as the kubelet has them, though nothing of ours reads them.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "v1.PodResourcesLister"
LIST = f"/{SERVICE}/List"
ALLOCATABLE = f"/{SERVICE}/GetAllocatableResources"

_Field = descriptor_pb2.FieldDescriptorProto
INTEGER = "int64"
_TYPES = {None: _Field.TYPE_STRING, INTEGER: _Field.TYPE_INT64}

# Of each message: its fields by name, with number and either a message of this file, None for text, or INTEGER.
_MESSAGES: dict[str, dict[str, tuple[int, bool, str | None]]] = {
    "ListPodResourcesRequest": {},
    "AllocatableResourcesRequest": {},
    "ListPodResourcesResponse": {"pod_resources": (1, True, "PodResources")},
    "AllocatableResourcesResponse": {"devices": (1, True, "ContainerDevices")},
    "PodResources": {
        "name": (1, False, None),
        "namespace": (2, False, None),
        "containers": (3, True, "ContainerResources"),
    },
    "ContainerResources": {
        "name": (1, False, None),
        "devices": (2, True, "ContainerDevices"),
        "cpu_ids": (3, True, INTEGER),
        "memory": (4, True, "ContainerMemory"),
        "dynamic_resources": (5, True, "DynamicResource"),
    },
    "ContainerDevices": {
        "resource_name": (1, False, None),
        "device_ids": (2, True, None),
        "topology": (3, False, "TopologyInfo"),
    },
    "ContainerMemory": {"memory_type": (1, False, None), "size": (2, False, INTEGER)},
    "TopologyInfo": {"nodes": (1, True, "NUMANode")},
    "NUMANode": {"ID": (1, False, INTEGER)},
    "DynamicResource": {
        "claim_name": (2, False, None),
        "claim_namespace": (3, False, None),
        "claim_resources": (4, True, "ClaimResource"),
    },
    "ClaimResource": {
        "driver_name": (2, False, None),
        "pool_name": (3, False, None),
        "device_name": (4, False, None),
    },
}


def messages() -> dict[str, Any]:
    """The message classes by their names in the definition."""
    file = descriptor_pb2.FileDescriptorProto(
        name="podresources/v1/api.proto", package="v1", syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, repeated, of) in fields.items():
            message.field.add(
                name=field,
                number=number,
                label=_Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL,
                type=_TYPES.get(of, _Field.TYPE_MESSAGE),
                type_name=None if of in _TYPES else f".v1.{of}",
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = message_factory.GetMessageClassesForFiles([file.name], pool)
    return {name.removeprefix("v1."): of for name, of in found.items()}
