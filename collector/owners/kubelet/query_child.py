"""The child process that asks the kubelet; false or endless answers cost this process alone.

It asks periodically until its parent is gone, and writes one line per answer.
"""

import sys
import time
from collections.abc import Sequence

from gpuvigil import lifeline

from . import device_map, messages
from .device_map import Answer, Unknown
from .rpc import RpcError, call

# The kubelet's own limit (pkg/kubelet/apis/podresources/constants.go: 16 MiB).
_LARGEST_BYTES = 16 * 1024 * 1024
_CALL_SECONDS = 5.0


def main(arguments: Sequence[str]) -> int:
    """Ask at SOCKET every SECONDS; never returns."""
    lifeline.hold()
    socket, seconds = arguments[0], float(arguments[1])
    sys.stdout.write(device_map.BEGINS.decode())
    sys.stdout.flush()
    while True:
        began = time.monotonic()
        _write(ask(socket))
        time.sleep(max(seconds - (time.monotonic() - began), 0.1))


def _write(answer: Answer | Unknown) -> None:
    sys.stdout.write(device_map.line(answer) + "\n")
    sys.stdout.flush()


def ask(socket: str) -> Answer | Unknown:
    """Return the answer of the kubelet at the socket."""

    def reply_to(method: str) -> bytes:
        return call(socket, method, _CALL_SECONDS, _LARGEST_BYTES)

    try:
        pods = reply_to(messages.LIST)
        try:
            offered = reply_to(messages.ALLOCATABLE)
        except RpcError:
            offered = None  # kubelets before 1.21 have no such method, others may refuse it
        return messages.answer(pods, offered)
    except (RpcError, ValueError) as error:
        return Unknown(str(error))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(0)
