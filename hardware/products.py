"""By how much a loop of matrix products on a GPU slows down while the collector reads it."""

import importlib
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

PAIRS = 6
WINDOW_SECONDS = 8.0
SIZE = 8192
BATCH = 20  # products between two looks at the clock


def slowdown(reading: Callable[[], AbstractContextManager[Any]]) -> dict[str, Any] | None:
    """Products per second without and with a reader, in turns; None without PyTorch and CUDA.

    The turns are close together, so that a GPU that grows warm does so under both.
    """
    try:
        torch = importlib.import_module("torch")
    except ModuleNotFoundError:
        return None
    if not torch.cuda.is_available():
        return None
    rates = _rates(torch)
    next(rates)  # warm
    alone, watched = [], []
    for _ in range(PAIRS):
        alone.append(next(rates))
        with reading() as (_, ticks):
            next(ticks)
            watched.append(next(rates))
    without, beside = statistics.median(alone), statistics.median(watched)
    return {
        "size": SIZE,
        "type": "bfloat16",
        "pairs": PAIRS,
        "window_seconds": WINDOW_SECONDS,
        "products_per_second_alone": [round(rate, 3) for rate in alone],
        "products_per_second_watched": [round(rate, 3) for rate in watched],
        "slower_percent": round(100 * (1 - beside / without), 3),
    }


def _rates(torch: Any) -> Iterator[float]:
    """Products per second over one window after the other."""
    left, right = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(left)
    while True:
        torch.cuda.synchronize()
        began, done = time.perf_counter(), 0
        while time.perf_counter() - began < WINDOW_SECONDS:
            for _ in range(BATCH):
                torch.matmul(left, right, out=out)
            torch.cuda.synchronize()
            done += BATCH
        yield done / (time.perf_counter() - began)
