"""A real server on loopback that answers as an inference server does, or as nobody should."""

import socket
import socketserver
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

PAGES = Path(__file__).parents[2] / "fixtures" / "inference"
Behaviour = Callable[[socket.socket], None]


def page(name: str) -> bytes:
    """One of the fixtures."""
    return (PAGES / f"{name}.txt").read_bytes()


def good(content: bytes, status: str = "200 OK", head: str = "") -> Behaviour:
    """A whole answer."""
    start = f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\n{head}\r\n".encode()
    return lambda peer: peer.sendall(start + content)


def dripping(start: bytes) -> Behaviour:
    """A byte at a time, for ever."""

    def behave(peer: socket.socket) -> None:
        peer.sendall(start)
        while True:
            peer.sendall(b"a")
            time.sleep(0.05)

    return behave


def endless(peer: socket.socket) -> None:
    """More than anybody takes."""
    peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        peer.sendall(b"vllm:nothing 1\n" * 4096)


class InferenceServer:
    """Behaves as told; a context manager."""

    def __init__(self, behave: Behaviour) -> None:
        self.behave = behave
        self.asked = 0
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                outer.asked += 1
                try:
                    self.request.recv(65536)
                    outer.behave(self.request)
                except OSError:
                    pass  # who asked has gone

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/metrics"

    def __enter__(self) -> "InferenceServer":
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
