"""Makes `tests/fixtures/flight_recorder`: real dumps of PyTorch's Flight Recorder, by gloo on a CPU.

    python tests/collector/nccl/make_dumps.py tests/fixtures/flight_recorder

with PyTorch 2.13.0 and nothing of ours. Four ranks do five all_reduce of 16 floats in the default group; ranks 0
and 1 then do one all_gather in a group of their own. After that all but rank 2 enter a sixth all_reduce,
and each rank writes `comm_lib_trace_rank_N`, without frames, whose paths are this machine's.
"""

import importlib
import os
import sys
import time
from pathlib import Path
from typing import Any

RANKS, LATE = 4, 2


def work(rank: int, directory: str) -> None:
    torch: Any = importlib.import_module("torch")
    dist: Any = importlib.import_module("torch.distributed")
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    pair = dist.new_group([0, 1])
    for _ in range(5):
        dist.all_reduce(torch.ones(16))
    if rank < 2:
        dist.all_gather([torch.zeros(4) for _ in range(2)], torch.ones(4), group=pair)
    if rank != LATE:
        waits = dist.all_reduce(torch.ones(16), async_op=True)
        assert not waits.is_completed()
    time.sleep(2.0)
    dump = torch._C._distributed_c10d._dump_fr_trace(True, False, False)
    Path(directory, f"comm_lib_trace_rank_{rank}").write_bytes(dump)
    time.sleep(2.0)
    os._exit(0)


if __name__ == "__main__":
    importlib.import_module("torch.multiprocessing").spawn(work, (sys.argv[1],), RANKS)
