"""A kubelet's pod-resources socket, served by a real gRPC server."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from tests.collector.owners import definition

Containers = Mapping[str, Mapping[str, list[str]]]  # by name: devices by resource


class FakeKubelet:
    """Answers List with `pods`, GetAllocatableResources with `offered`; `refusal` fails both."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.pods: dict[str, Containers] = {}  # by "namespace/name"
        self.claimed: list[str] = []
        self.offered: Mapping[str, list[str]] | None = None  # None: an older kubelet
        self.refusal: grpc.StatusCode | None = None
        self.asked = 0
        self._of = definition.messages()
        self._server: Any = None

    def start(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(2))
        methods = {
            "List": (self._list, "ListPodResources"),
            "GetAllocatableResources": (self._allocatable, "AllocatableResources"),
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                answer,
                request_deserializer=self._of[f"{of}Request"].FromString,
                response_serializer=self._of[f"{of}Response"].SerializeToString,
            )
            for name, (answer, of) in methods.items()
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(definition.SERVICE, handlers),)
        )
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(0).wait()
            self._server = None

    def _devices(self, resources: Mapping[str, list[str]]) -> list[Any]:
        one = self._of["ContainerDevices"]
        return [
            one(resource_name=name, device_ids=ids, topology={"nodes": [{"ID": 1}]})
            for name, ids in resources.items()
        ]

    def _list(self, _: Any, context: Any) -> Any:
        self.asked += 1
        if self.refusal is not None:
            context.abort(self.refusal, "not today")
        answer = self._of["ListPodResourcesResponse"]()
        for pod, containers in self.pods.items():
            namespace, name = pod.split("/")
            told = answer.pod_resources.add(namespace=namespace, name=name)
            for container, resources in containers.items():
                told.containers.add(
                    name=container,
                    devices=self._devices(resources),
                    cpu_ids=range(0, 300, 100),
                    memory=[{"memory_type": "memory", "size": 2**40}],
                )
        for pod in self.claimed:
            namespace, name = pod.split("/")
            told = answer.pod_resources.add(namespace=namespace, name=name)
            claim = told.containers.add(name="main").dynamic_resources.add(claim_name="gpu")
            claim.claim_resources.add(driver_name="gpu.nvidia.com", device_name="gpu-vfio-0")
        return answer

    def _allocatable(self, _: Any, context: Any) -> Any:
        if self.offered is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method")
        return self._of["AllocatableResourcesResponse"](devices=self._devices(self.offered or {}))
