"""The ranks of a small training on the CPU, in DistributedDataParallel over gloo, which report their steps.

`python -m tests.training RANKS DIRECTORY` prints their process ids, and they end with it. SIGUSR1 makes a
rank's own work 1.3 times as long, or as long as before. Each dumps its Flight Recorder once there is a
directory `dumps` beside DIRECTORY.
"""

import ctypes
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from gpuvigil.steps import Steps

# Seconds of a pass without any collective; an evaluation takes far longer, also than a step on a busy machine.
OWN_SECONDS, EVALUATION_SECONDS, SLOWER = 0.25, 3.0, 1.3
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
factor = [1.0, SLOWER]


class Model(torch.nn.Module):
    """A model that works for a given time, and has a gradient."""

    def __init__(self, seconds: float = OWN_SECONDS) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 1)
        self.seconds = seconds

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        time.sleep(self.seconds * factor[0] if self.training else EVALUATION_SECONDS)
        loss = self.linear(x).mean()
        return {"loss": loss, "logits": loss.detach().reshape(1, 1)}


def batches() -> Iterator[Any]:
    return repeat(torch.ones(1, 8))


def ddp(steps: Steps) -> None:
    """Train until killed.

    Where a rank is gone, gloo raises an error at once; NCCL's ranks would wait, so this one does, too.
    """
    torch.distributed.init_process_group("gloo")
    model = steps.watch(DistributedDataParallel(Model()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    try:
        for batch in steps.batches(batches()):
            model(batch)["loss"].backward()
            optimizer.step()
            optimizer.zero_grad()
            steps.done(tokens=8)
    except RuntimeError:
        while True:
            signal.pause()


def dump(number: int, directory: Path) -> None:
    """Write what this rank's Flight Recorder has, once the directory is there; PyTorch waits at a pipe.

    A thread does it, since a rank that waits for others runs nothing else.
    """
    while not directory.exists():
        time.sleep(0.5)
    content = torch._C._distributed_c10d._dump_fr_trace(True, False, False)
    (directory / f"trace_rank_{number}").write_bytes(content)


def rank(number: int, ranks: int, port: int, directory: str) -> None:
    os.environ |= {"RANK": str(number), "WORLD_SIZE": str(ranks)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGUSR1, lambda *_: factor.reverse())
    dumps = Path(directory).with_name("dumps")
    threading.Thread(target=dump, args=(number, dumps), daemon=True).start()
    torch.set_num_threads(1)
    ddp(Steps(directory))


def main() -> None:
    ranks, directory = int(sys.argv[1]), sys.argv[2]
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    for number in range(ranks):
        # Importing torch takes seconds of a core: once is enough.
        pid = os.fork()
        if not pid:
            rank(number, ranks, port, directory)
            return
        print(pid, flush=True)  # noqa: T201 - to the test
    while True:
        os.wait()


if __name__ == "__main__":
    main()
