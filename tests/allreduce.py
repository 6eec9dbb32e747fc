"""One rank of a job that sums its gradients over a ring of sockets, step after step.

`python -m tests.allreduce RANK ADDRESS...` takes one address per rank and runs until it is ended.
"""

import socket
import sys
import threading
import time
from itertools import count

import numpy as np

PORT = 29500
CHUNK, STEP_SECONDS = (
    1 << 18,
    0.15,
)  # floats sent around at once; the part of a step that is no waiting


def neighbours(rank: int, addresses: list[str]) -> tuple[socket.socket, socket.socket]:
    """Return the connections to the next rank and from the previous one."""
    with socket.create_server((addresses[rank], PORT)) as door:
        after = addresses[(rank + 1) % len(addresses)]
        while True:
            try:
                to = socket.create_connection((after, PORT), timeout=1.0)
                break
            except OSError:
                time.sleep(0.1)
        to.settimeout(None)
        come, _ = door.accept()
    return to, come


def receive(come: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = come.recv(min(size - len(parts), 1 << 18))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def exchange(to: socket.socket, come: socket.socket, chunk: np.ndarray) -> np.ndarray:
    """Send one chunk on while receiving another, and return the received one."""
    sender = threading.Thread(target=to.sendall, args=(chunk.tobytes(),))
    sender.start()
    came = np.frombuffer(receive(come, chunk.nbytes), np.float32)
    sender.join()
    return came


def all_reduce(rank: int, ranks: int, to: socket.socket, come: socket.socket) -> float:
    """Return the sum over all ranks; rank r contributes r + 1, so the result is the same everywhere."""
    chunks = [np.full(CHUNK // ranks, rank + 1, np.float32) for _ in range(ranks)]
    for turn in range(ranks - 1):
        chunks[(rank - turn - 1) % ranks] += exchange(to, come, chunks[(rank - turn) % ranks])
    for turn in range(ranks - 1):
        chunks[(rank - turn) % ranks] = exchange(to, come, chunks[(rank - turn + 1) % ranks])
    return float(max(chunk.max() for chunk in chunks))


def main() -> None:
    rank, addresses = int(sys.argv[1]), sys.argv[2:]
    to, come = neighbours(rank, addresses)
    for step in count():
        time.sleep(STEP_SECONDS)
        total = all_reduce(rank, len(addresses), to, come)
        assert total == len(addresses) * (len(addresses) + 1) / 2, (step, total)


if __name__ == "__main__":
    main()
