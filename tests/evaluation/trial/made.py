"""A site's past as dcgm-exporter would have told it to a Prometheus, with known truth.

Two nodes of four GPUs: Slurm's jobs on gpu-a (label `hpc_job`), pods on gpu-b. Written as
OpenMetrics and taken in by promtool, so that a real Prometheus answers for it.
"""

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from tests.timeseries import Prometheus

HOUR = 3600
MODEL = "NVIDIA H100 80GB HBM3"
GPUS = [(node, gpu) for node in ("gpu-a", "gpu-b") for gpu in range(4)]


@dataclass(frozen=True)
class Held:
    """From when to when somebody has a GPU each day, and from when to when it computes."""

    gpu: tuple[str, int]
    labels: tuple[tuple[str, str], ...]
    owner: str
    start: int  # hours of a day
    end: int
    busy: tuple[int, int]


def _job(number: int) -> tuple[tuple[str, str], ...]:
    return (("hpc_job", str(number)),)


def _pod(namespace: str, name: str) -> tuple[tuple[str, str], ...]:
    return (("namespace", namespace), ("pod", name), ("container", "main"))


HELD: Sequence[Held] = (
    *(Held(("gpu-a", n), _job(101), "job 101", 0, 8, (0, 8)) for n in range(4)),
    *(Held(("gpu-a", n), _job(102), "job 102", 8, 20, (8, 10)) for n in range(2)),
    *(Held(("gpu-b", n), _pod("team-a", "train-0"), "team-a", 0, 24, (0, 24)) for n in range(2)),
    Held(("gpu-b", 2), _pod("team-b", "notebook"), "team-b", 2, 22, (0, 0)),
)
# What idle hours a day has, by owner.
IDLE = {"job 102": 20.0, "team-b": 20.0}
XID_AT, REMAP_AT, FAILURE_AT = 15, 17, 16  # hours of the last day
XID_ON, REMAP_ON, FAILURE_ON = ("gpu-b", 1), ("gpu-b", 0), ("gpu-a", 3)

Value = Callable[[tuple[str, int], Held | None, int], float]


def values(last_day: int) -> Mapping[str, Value]:
    """Metric by metric what a GPU has at a moment; `last_day` is when the last day begins."""

    def busy(held: Held | None, at: int) -> bool:
        hour = at % (24 * HOUR) / HOUR
        return held is not None and held.busy[0] <= hour < held.busy[1]

    def from_(hour: int, of: tuple[str, int]) -> Value:
        return lambda gpu, _, at: float(gpu == of and at >= last_day + hour * HOUR)

    return {
        "DCGM_FI_DEV_GPU_UTIL": lambda _, held, at: 96.0 if busy(held, at) else 0.0,
        "DCGM_FI_DEV_POWER_USAGE": lambda _, held, at: 610.0 if busy(held, at) else 70.0,
        "DCGM_FI_DEV_GPU_TEMP": lambda _, held, at: 62.0 if busy(held, at) else 31.0,
        "DCGM_FI_DEV_FB_USED": lambda _, held, __: 0.0 if held is None else 40_000.0,
        "DCGM_FI_DEV_SM_CLOCK": lambda _, held, at: 1980.0 if busy(held, at) else 345.0,
        "DCGM_FI_DEV_XID_ERRORS": lambda *it: 48.0 * from_(XID_AT, XID_ON)(*it),
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": from_(REMAP_AT, REMAP_ON),
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": from_(FAILURE_AT, FAILURE_ON),
    }


def labels(gpu: tuple[str, int], held: Held | None) -> str:
    node, number = gpu
    named = {
        "instance": f"10.0.0.{'ab'.index(node[-1]) + 1}:9400",
        "Hostname": node,
        "gpu": str(number),
        "UUID": f"GPU-{node}-{number}",
        "modelName": MODEL,
        **dict(held.labels if held else ()),
    }
    return ",".join(f'{name}="{value}"' for name, value in named.items())


def openmetrics(start: int, end: int, every: int, without: Sequence[str] = ()) -> Iterator[str]:
    """Every series of every metric but those without."""
    last_day = end - 24 * HOUR
    for metric, value in values(last_day).items():
        if metric in without:
            continue
        yield f"# TYPE {metric} gauge"
        for gpu in GPUS:
            own = [it for it in HELD if it.gpu == gpu]
            for at in range(start, end, every):
                hour = at % (24 * HOUR) / HOUR
                held = next((it for it in own if it.start <= hour < it.end), None)
                yield f"{metric}{{{labels(gpu, held)}}} {value(gpu, held, at):g} {at}"
    yield "# EOF"


def site(
    directory: Path,
    until: datetime,
    length: timedelta,
    every: int = 60,
    without: Sequence[str] = (),
    relabelled: Callable[[str], str] = str,
) -> Prometheus:
    """A Prometheus that has the last days before a midnight, `relabelled` line by line; to be entered."""
    end = int(until.timestamp())
    file = directory / "past.txt"
    lines = map(relabelled, openmetrics(end - int(length.total_seconds()), end, every, without))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    server = Prometheus(directory / "server", "", {})
    command = ["promtool", "tsdb", "create-blocks-from", "--max-block-duration=768h"]
    command += ["openmetrics", str(file)]
    subprocess.run(
        [*command, str(server.directory / "data")], check=True, capture_output=True, timeout=300
    )
    return server
