"""One gRPC call by hand: against a real gRPC server, the RFC's examples, and servers that lie."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.owners.kubelet import messages
from collector.owners.kubelet.device_map import Answer, DeviceHold
from collector.owners.kubelet.rpc import RpcError, call, headers
from tests.collector.owners import definition

METHOD = "/v1.PodResourcesLister/List"
MOST = 1_000_000


@pytest.fixture
def path() -> Iterator[Path]:
    with TemporaryDirectory() as folder:  # short: an address of a socket has 107 bytes
        yield Path(folder) / "s"


@contextmanager
def served(path: Path, answer: Callable[[bytes, Any], bytes]) -> Iterator[None]:
    """A real gRPC server with one method of bytes."""
    server = grpc.server(ThreadPoolExecutor(1))
    handlers = {"List": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers),)
    )
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield
    finally:
        server.stop(0).wait()


@pytest.mark.parametrize("size", [0, 1, 16_383, 16_384, 16_385, 65_535, 65_536, MOST])
def test_a_message_of_any_length_comes_whole(path: Path, size: int) -> None:
    content = bytes(range(256)) * (size // 256) + bytes(size % 256)
    with served(path, lambda asked, _: content if asked == b"" else b"no"):
        assert call(str(path), METHOD, 5.0, MOST) == content


def test_one_byte_over_the_limit_is_refused(path: Path) -> None:
    with (
        served(path, lambda *_: bytes(MOST + 1)),
        pytest.raises(RpcError, match="its answer is over 1,000,000 bytes"),
    ):
        call(str(path), METHOD, 1.0, MOST)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit"),
        (grpc.StatusCode.PERMISSION_DENIED, "100 % \\ é\n"),
        (grpc.StatusCode.UNAUTHENTICATED, ""),
    ],
)
def test_a_refusal_is_told_in_the_servers_words(
    path: Path, code: grpc.StatusCode, text: str
) -> None:
    def refuse(_: bytes, context: Any) -> bytes:
        context.abort(code, text)
        return b""

    said = f"{code.name}: {text}" if text else code.name
    with served(path, refuse), pytest.raises(RpcError) as refused:
        call(str(path), METHOD, 5.0, MOST)
    assert str(refused.value) == said


def test_a_method_that_is_not_there_and_a_server_that_is_not(path: Path) -> None:
    with (
        served(path, lambda *_: b""),
        pytest.raises(RpcError, match="UNIMPLEMENTED"),
    ):
        call(str(path), "/v1.PodResourcesLister/GetAllocatableResources", 5.0, MOST)
    with pytest.raises(RpcError, match="No such file"):
        call(str(path), METHOD, 5.0, MOST)


def test_headers_are_read_as_in_the_examples_of_the_rfc() -> None:
    # RFC 7541, appendix C.2.1 (a name and a value that are written out), C.4.3 and C.6.1 (Huffman).
    assert headers(bytes.fromhex("400a637573746f6d2d6b65790d637573746f6d2d686561646572")) == {
        "custom-key": "custom-header"
    }
    third = "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf"
    assert headers(bytes.fromhex(third)) == {"custom-key": "custom-value"}
    first = (
        "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff"
        "6e919d29ad171863c78f0b97c8e9ae82ae43d3"
    )
    # All their names are in the static table.
    assert headers(bytes.fromhex(first)) == {}
    # As a server in Go says it: grpc-status 8 and a message, both names packed.
    packed = "40889acac8b21234da8f013840899acac8b5254207317f0668656c6c6f21"
    assert headers(bytes.fromhex(packed)) == {"grpc-status": "8", "grpc-message": "hello!"}


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name: str, value: str) -> bytes:
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


@contextmanager
def liar(path: Path, *said: bytes, pause: float = 0.0) -> Iterator[None]:
    """Says these, one after the other, whatever it is asked; then it stays as it is."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            with listening.accept()[0] as peer:
                try:
                    peer.recv(65_536)
                    for one in said:
                        peer.sendall(one)
                        time.sleep(pause)
                    peer.shutdown(socket.SHUT_WR)
                    while peer.recv(65_536):
                        pass
                except OSError:
                    pass  # who asked has gone

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        thread.join(10.0)


GOOD = literal("grpc-status", "0")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "what it answers is not gRPC"),
        (frame(3, 0, 1, struct.pack(">I", 7)), r"it broke the call off \(HTTP/2 error 7\)"),
        (frame(1, 5, 1, literal("content-type", "text/html")), "what it answers is not gRPC"),
        (frame(1, 5, 1, GOOD), "what it answers is not gRPC"),  # and no message
        (frame(1, 5, 1, GOOD[:-1]), "what it answers is not gRPC"),
        (frame(1, 5, 1, b"\x00\xff\xff\xff"), "what it answers is not gRPC"),
        (frame(0, 0, 1, b"\1\0\0\0\1x") + frame(1, 5, 1, GOOD), "what it answers is not gRPC"),
        (frame(0, 0, 1, b"\0\0\0\0\2x") + frame(1, 5, 1, GOOD), "what it answers is not gRPC"),
        (frame(4, 0, 0, b""), "it closed the connection"),
        (b"", "it closed the connection"),
    ],
)
def test_a_server_that_lies_is_said_to(path: Path, said: bytes, why: str) -> None:
    with liar(path, said), pytest.raises(RpcError, match=why):
        call(str(path), METHOD, 5.0, MOST)


def test_headers_in_pieces_padding_and_other_frames_are_followed(path: Path) -> None:
    status = literal(":status", "200") + GOOD
    said = [
        frame(4, 0, 0, b"") + frame(6, 0, 0, b"12345678") + frame(8, 0, 0, b"\0\0\0\1"),
        frame(0, 8, 1, b"\2\0\0\0\0\5hel\0\0") + frame(0, 0, 3, b"other") + frame(0, 0, 1, b"lo"),
        frame(1, 0x29, 1, b"\1\0\0\0\0\7" + status[:5] + b"\0") + frame(9, 4, 1, status[5:]),
    ]
    with liar(path, *said):
        assert call(str(path), METHOD, 5.0, MOST) == b"hello"


def test_a_server_that_drips_ends_with_the_limit(path: Path) -> None:
    began = time.monotonic()
    with liar(path, *[b"\0"] * 50, pause=0.1), pytest.raises(RpcError, match=r"within 0\.5 s"):
        call(str(path), METHOD, 0.5, MOST)
    assert time.monotonic() - began < 30.0


NAMES = st.text(max_size=20)
DEVICES = st.lists(st.sampled_from(["GPU-0", "GPU-1::3", "MIG-7", "nvidia3/gi1", "mlx5_0"]))

CLAIMED = st.tuples(
    st.sampled_from(["", "gpu.nvidia.com", "compute-domain.nvidia.com", "x"]),
    st.sampled_from(["gpu-0", "gpu-3-mig-19-0-1", "gpu-vfio-0"]),
)


@pytest.mark.medium
@given(
    st.lists(st.tuples(NAMES, NAMES, NAMES, DEVICES, CLAIMED)),
    st.one_of(st.none(), DEVICES),
)
def test_messages_are_read_as_protobuf_writes_them(
    pods: list[tuple[str, str, str, list[str], tuple[str, str]]], offered: list[str] | None
) -> None:
    of = definition.messages()
    told = of["ListPodResourcesResponse"]()
    holds, claimed = [], []
    for namespace, name, container, devices, (driver, device) in pods:
        one = told.pod_resources.add(namespace=namespace, name=name).containers.add(
            name=container, cpu_ids=[1, 300], memory=[{"memory_type": "m", "size": 2**40}]
        )
        one.devices.add(resource_name="r", device_ids=devices, topology={"nodes": [{"ID": 1}]})
        one.dynamic_resources.add(claim_name="c").claim_resources.add(
            driver_name=driver, device_name=device
        )
        place = {"namespace": namespace, "pod": name, "container": container}
        gpus = tuple(it for it in devices if it != "mlx5_0")
        if gpus:
            holds.append(DeviceHold(**place, resource="r", devices=gpus))
        if driver == "gpu.nvidia.com" and "vfio" not in device:
            holds.append(DeviceHold(**place, resource="claim c", devices=(f"{driver}/{device}",)))
        elif driver == "gpu.nvidia.com":
            claimed.append(f"{namespace}/{name}")
    given_away = None
    if offered is not None:
        answer = of["AllocatableResourcesResponse"]()
        answer.devices.add(resource_name="r", device_ids=offered)
        given_away = answer.SerializeToString()
    assert messages.answer(told.SerializeToString(), given_away) == Answer(
        holds=tuple(holds),
        claimed=tuple(dict.fromkeys(claimed)),
        allocatable=None if offered is None else tuple(it for it in offered if it != "mlx5_0"),
    )


@given(st.binary(max_size=60))
def test_bytes_that_are_no_message_are_refused_or_read_and_nothing_else(content: bytes) -> None:
    with suppress(ValueError):
        messages.answer(content, content)


def test_a_message_that_ends_early_is_refused() -> None:
    whole = definition.messages()["ListPodResourcesResponse"](pod_resources=[{"name": "a-0"}])
    content = whole.SerializeToString()
    assert messages.answer(content, None) == Answer(holds=())
    for end in range(1, len(content)):
        with pytest.raises(ValueError, match="ends early"):
            messages.answer(content[:end], None)
