"""Record what the collector reads on this machine's real GPUs, and what that costs.

`python -m hardware.record` watches for a minute with a tick of 1 s and writes
`hardware/results/<model>.json`; `make docs` writes `docs/hardware.md` from it. With PyTorch
installed it also measures by how much a loop of matrix products slows down meanwhile.
"""

import json
import queue
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.footprint import cpu_seconds
from benchmarks.spine import about
from collector.samples.gpu_sample import CallCost
from collector.samples.messages import LOADED, GpuTick, Tick, contents, load
from gpuvigil.metrics import GPU, MIG, NVLINK

from . import products

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parent.parent
TICK_SECONDS = 1.0
TICKS = 60
# Every fast number each tick, every slow one often enough that each call is made some times.
SLOW_SECONDS = 5.0
CALL_SECONDS = 2.0
PATIENCE_SECONDS = 60.0  # for a driver that is not kept loaded


def main() -> int:
    """Watch, measure and write; 1 with one line when there is no GPU to read."""
    with reading() as (reader, ticks):
        first = next((tick for tick in ticks if is_whole(tick)), None)
        if first is None:
            sys.stderr.write("no NVIDIA driver here answers: nothing to record\n")
            return 1
        began, cpu = time.monotonic(), cpu_seconds([reader.pid])
        seen = [first, *islice(ticks, TICKS)]
        share = (cpu_seconds([reader.pid]) - cpu) / (time.monotonic() - began)
    result = {**said(seen), "reader_cpu_percent": round(100 * share, 3)}
    result["matrix_products"] = products.slowdown(reading)
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{name_of(result['model'])}.json"
    file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    sys.stderr.write(f"wrote {file.relative_to(ROOT)}\n")
    return 0


@contextmanager
def reading() -> Iterator[tuple["subprocess.Popen[bytes]", Iterator[Tick]]]:
    """The reader as the collector starts it, and its ticks until it ends."""
    command = [
        *(sys.executable, "-m", "gpuvigil", "read"),
        *map(str, (TICK_SECONDS, CALL_SECONDS, PATIENCE_SECONDS, SLOW_SECONDS)),
    ]
    reader = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    ticks: queue.SimpleQueue[Tick | None] = queue.SimpleQueue()
    # Always listened to: a reader whose pipe is full would stand still.
    listening = threading.Thread(target=_listen, args=(reader, ticks))
    listening.start()
    try:
        yield reader, iter(ticks.get, None)
    finally:
        reader.kill()
        reader.wait()
        listening.join()


def _listen(reader: "subprocess.Popen[bytes]", ticks: "queue.SimpleQueue[Tick | None]") -> None:
    assert reader.stdout is not None
    with reader.stdout:
        for content in contents(reader.stdout):
            message = load(content)
            if isinstance(message, Tick):
                ticks.put(message)
    ticks.put(None)


def is_whole(tick: Tick) -> bool:
    """Whether every GPU has told its fast and its slow numbers."""
    return tick.state == LOADED and all(gpu.values and gpu.slow for gpu in tick.gpus)


def said(ticks: list[Tick]) -> dict[str, Any]:
    """What these ticks say, over all GPUs of the machine."""
    gpus = [gpu for tick in ticks for gpu in tick.gpus]
    models = {gpu.identity.model for gpu in gpus if gpu.identity is not None}
    sweeps = [tick.sweep_seconds for tick in ticks if tick.sweep_seconds is not None]
    links = {name for gpu in gpus for link in (gpu.links or {}).values() for name in link}
    of_migs = {name for gpu in gpus for mig in gpu.migs for name in mig.values}
    return {
        "about": {**about(), "command": "python -m hardware.record"},
        "model": ", ".join(sorted(models)),
        "gpus": len(ticks[-1].gpus),
        "driver": ticks[-1].driver,
        "ticks": len(ticks),
        "tick_seconds": TICK_SECONDS,
        "slow_seconds": SLOW_SECONDS,
        "sweep_seconds": {"median": statistics.median(sweeps), "worst": max(sweeps)},
        "read": {
            GPU.name: sorted({name for gpu in gpus for name in named(gpu)}),
            NVLINK.name: sorted(links),
            MIG.name: sorted(of_migs),
        },
        "calls": calls(gpus),
    }


def named(gpu: GpuTick) -> set[str]:
    """The metrics of a GPU that came with a number."""
    return {*(gpu.values or {}), *(gpu.slow or {})}


def calls(gpus: list[GpuTick]) -> dict[str, dict[str, float]]:
    """Each driver call: how often it was made, its mean and its longest time in seconds."""
    costs: dict[str, CallCost] = {}
    for gpu in gpus:
        for call, cost in (gpu.costs or {}).items():
            costs.setdefault(call, CallCost()).add(cost)
    return {call: shown(cost) for call, cost in sorted(costs.items())}


def shown(cost: CallCost) -> dict[str, float]:
    mean = cost.seconds / max(cost.calls, 1)
    return {
        "calls": cost.calls,
        "mean_seconds": round(mean, 9),
        "slowest_seconds": round(cost.slowest_seconds, 9),
    }


def name_of(model: str) -> str:
    """`nvidia-h100-80gb-hbm3` of `NVIDIA H100 80GB HBM3`."""
    return re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")


if __name__ == "__main__":
    sys.exit(main())
