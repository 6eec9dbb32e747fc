"""The child process that asks the kubelet: the only one that needs gRPC (`gpuvigil[kubernetes]`).

It asks every so often until its parent is gone, and says what it heard, a line an answer.
"""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from gpuvigil import lifeline

from . import seen
from .seen import Answer, Hold, Unknown

MISSING = 3  # the exit code where gRPC is not installed

# The kubelet's own limit (pkg/kubelet/apis/podresources/constants.go: 16 MiB).
_LARGEST_BYTES = 16 * 1024 * 1024
_CALL_SECONDS = 5.0


def main(arguments: Sequence[str]) -> int:
    """Ask at SOCKET every SECONDS; returns the exit code."""
    lifeline.hold()
    socket, seconds = arguments[0], float(arguments[1])
    try:
        ask = _kubelet(socket)
    except ImportError as error:
        _say(Unknown(f"the package of {error.name} is missing: install gpuvigil[kubernetes]"))
        return MISSING
    sys.stdout.write(seen.BEGINS.decode())
    sys.stdout.flush()
    while True:
        began = time.monotonic()
        _say(ask())
        time.sleep(max(seconds - (time.monotonic() - began), 0.1))


def _say(said: Answer | Unknown) -> None:
    sys.stdout.write(seen.line(said) + "\n")
    sys.stdout.flush()


def _kubelet(socket: str) -> Callable[[], Answer | Unknown]:
    """What asks the kubelet at a socket; ImportError without gRPC or protobuf."""
    import grpc  # noqa: PLC0415 - no other process of the collector's may need it

    from . import definition  # noqa: PLC0415 - it needs protobuf

    of = definition.messages()
    options = [
        ("grpc.max_receive_message_length", _LARGEST_BYTES),
        # A name that is made of the socket's path is none to a server in Go.
        ("grpc.default_authority", "localhost"),
        ("grpc.enable_http_proxy", 0),
        ("grpc.max_reconnect_backoff_ms", 5_000),
    ]
    channel = grpc.insecure_channel(f"unix:{socket}", options=options)

    def call(method: str, request: str, response: str) -> Any:
        return channel.unary_unary(
            method,
            request_serializer=of[request].SerializeToString,
            response_deserializer=of[response].FromString,
        )(of[request](), timeout=_CALL_SECONDS)

    def ask() -> Answer | Unknown:
        try:
            pods = call(definition.LIST, "ListPodResourcesRequest", "ListPodResourcesResponse")
        except grpc.RpcError as error:
            return Unknown(f"{error.code().name}: {error.details()}")
        try:
            offered = call(
                definition.ALLOCATABLE,
                "AllocatableResourcesRequest",
                "AllocatableResourcesResponse",
            )
        except grpc.RpcError:
            offered = None  # kubelets before 1.21 have no such method, others may refuse it
        return _answer(pods, offered)

    return ask


def _answer(pods: Any, offered: Any) -> Answer:
    holds, claimed = [], []
    for pod in pods.pod_resources:
        for container in pod.containers:
            if any(
                "nvidia" in c.driver_name
                for d in container.dynamic_resources
                for c in d.claim_resources
            ):
                claimed.append(f"{pod.namespace}/{pod.name}")
            for devices in container.devices:
                names = tuple(name for name in devices.device_ids if seen.device(name))
                if names:
                    holds.append(
                        Hold(
                            namespace=pod.namespace,
                            pod=pod.name,
                            container=container.name,
                            resource=devices.resource_name,
                            devices=names,
                        )
                    )
    given = None
    if offered is not None:
        given = tuple(n for d in offered.devices for n in d.device_ids if seen.device(n))
    return Answer(holds=tuple(holds), allocatable=given, claimed=tuple(dict.fromkeys(claimed)))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(0)
