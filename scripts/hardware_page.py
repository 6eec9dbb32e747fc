"""`docs/hardware.md`, from the recordings of `python -m hardware.record` on machines with GPUs."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gpuvigil.metrics import GPU, NVLINK

RESULTS = Path(__file__).parent.parent / "hardware/results"
# Known without the driver, so no recording has them.
NOT_THE_DRIVERS = {
    "up",
    "unmeasured_reason",
    "unmeasured_seconds",
    "pcie_present",
    "read_seconds",
}
MOST_CALLS = 15


def page() -> Iterator[str]:
    """Yield the page; it says so when nothing was recorded yet."""
    yield from written([json.loads(file.read_text()) for file in sorted(RESULTS.glob("*.json"))])


def written(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield "# On real GPUs"
    yield ""
    yield "Written by `make docs` from `hardware/results/`, one file per GPU model. On a machine with an NVIDIA driver:"
    yield ""
    yield "```"
    yield "make test-hardware                       # the tests that need a GPU"
    yield ".venv/bin/python -m hardware.record      # a minute at a tick of 1 s; with PyTorch installed, two more of matrix products"
    yield "make docs"
    yield "```"
    yield ""
    if not results:
        yield "**gpuvigil itself has not yet run on a machine with an NVIDIA GPU, so nothing is recorded here.** The two runs on 8 x H100 that the"
        yield "[simulated fleet](fleet.md) is held against were sampled without it ([reference](reference/README.md)). All that is known of fields, codes and units"
        yield "comes from the driver's header and the sources in [metrics](metrics.md), and all that runs in the tests is the real `pynvml` on"
        yield "a small driver library of our own. What a real driver's calls cost, no figure of this project says; each node says it of its own:"
        yield "`gpuvigil_driver_call_seconds_total` on `/metrics`."
    for result in results:
        yield from machine(result)


def machine(result: dict[str, Any]) -> Iterator[str]:
    """Yield one recording."""
    about, sweep = result["about"], result["sweep_seconds"]
    yield f"## {result['model']}"
    yield ""
    yield f"{result['gpus']} GPUs, driver {result['driver']}, {about['measured_at']}, commit `{about['commit'][:12]}`, {about['machine']['cpus']} CPUs."
    yield f"{result['ticks']} ticks of {result['tick_seconds']:g} s, slow numbers every {result['slow_seconds']:g} s: a sweep over all GPUs took {1e3 * sweep['median']:.2f} ms (median),"
    yield f"{1e3 * sweep['worst']:.2f} ms at worst; the reader used {result['reader_cpu_percent']:.2f} % of one CPU."
    yield ""
    yield matrix_products(result["matrix_products"])
    yield ""
    for measurement in (GPU, NVLINK):
        every = {metric.name for metric in measurement.metrics} - NOT_THE_DRIVERS
        read = set(result["read"][measurement.name])
        absent = ", ".join(f"`{name}`" for name in sorted(every - read)) or "nothing"
        yield f"`{measurement.name}`: {len(every & read)} of {len(every)} fields read. Not given here: {absent}."
        yield ""
    yield f"The {MOST_CALLS} calls that took longest; `field N` is the driver's own word."
    yield ""
    yield "| call | times | mean µs | slowest µs |"
    yield "|---|---|---|---|"
    by_mean = sorted(result["calls"].items(), key=lambda call: -call[1]["mean_seconds"])
    for call, cost in by_mean[:MOST_CALLS]:
        mean, slowest = 1e6 * cost["mean_seconds"], 1e6 * cost["slowest_seconds"]
        yield f"| `{call}` | {cost['calls']} | {mean:.1f} | {slowest:.1f} |"


def matrix_products(found: dict[str, Any] | None) -> str:
    """Return the sentence about the loop of matrix products."""
    if found is None:
        return "The loop of matrix products was not run: PyTorch with CUDA was not there."
    return (
        f"A loop of {found['type']} products of {found['size']} x {found['size']} matrices was {found['slower_percent']:.2f} % slower beside a reader at that tick"
        f" (medians of {found['pairs']} windows of {found['window_seconds']:g} s each, in turns; negative is faster)."
    )
