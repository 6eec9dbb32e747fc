"""The catalogue's GPU metrics in groups that people know, and how much of each could be read."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuvigil.metrics import GPU, Metric
from gpuvigil.model import Unmeasured

from .diagnosis import Diagnosis, limited, ok

# The first match takes a metric; "" holds what the collector or a program makes, not the driver.
_GROUPS: tuple[tuple[str, str], ...] = (
    (
        "",
        r"up|unmeasured_.*|pcie_present|index|read_seconds|nvlink_worst_.*|step(_.*)?|rank(_gone_seconds)?"
        r"|checkpoint_age_seconds|job_disk_.*|(longest_)?spin_seconds",
    ),
    ("profiling counters (GPM)", r".*_activity_percent|sm_occupancy_percent|.*_bytes_per_second"),
    ("utilisation", r".*utilization_percent"),
    ("memory", r"memory_.*_bytes|bar1_.*"),
    ("power and energy", r"power_(limit_|average_)?.*watts|energy_joules"),
    ("temperatures and fans", r".*_celsius|fans|fan_.*"),
    ("clocks", r".*_hertz|performance_state"),
    ("why clocks are low", r"clock_event_reasons|.*_seconds"),
    ("SRAM error threshold", r"sram_.*"),
    ("memory errors (ECC)", r"ecc_.*"),
    ("repairs of memory", r"remap.*|bank_remap.*|retired_.*|.*_repair_pending"),
    ("recovery advice", r"recovery_action"),
    ("PCIe", r"pcie_.*"),
    ("NVLink", r"nvlink_.*"),
    ("NVLink fabric", r"fabric_.*"),
    ("processes", r".*_processes"),
    ("MIG", r"mig_.*"),
    ("modes", r"persistence_mode|compute_mode"),
)


def group_of(metric: str) -> str | None:
    """Return the group of a GPU metric; empty if no driver provides it, None if it has no group."""
    for name, form in _GROUPS:
        if re.fullmatch(form, metric):
            return name
    return None


def groups() -> dict[str, list[Metric]]:
    """Return the metrics of every group, in the order in which they are reported."""
    found: dict[str, list[Metric]] = {name: [] for name, _ in _GROUPS if name}
    for metric in GPU.metrics:
        name = group_of(metric.name)
        if name:
            found[name].append(metric)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Readable:
    """What one GPU gave: metrics with a value, and the calls it refused with their reasons."""

    gpu: str  # as people call it
    metrics: frozenset[str]
    refused: Mapping[str, Unmeasured]  # by function


def diagnose(read: Sequence[Readable]) -> list[Diagnosis]:
    """Return a line per group; GPUs that differ in it get lines of their own."""
    found = []
    for name, metrics in groups().items():
        alike: dict[tuple[str, str], list[str]] = {}
        for gpu in read:
            alike.setdefault(_words(metrics, gpu), []).append(gpu.gpu)
        for (text, todo), gpus in alike.items():
            whose = "" if len(gpus) == len(read) else f" of GPU {', '.join(gpus)}"
            what = f"{name}{whose}"
            found.append(limited(what, text, todo) if todo else ok(what, text))
    return found


def _words(metrics: Sequence[Metric], gpu: Readable) -> tuple[str, str]:
    """Return how much of a group could be read, and what to do for the rest, empty if nothing."""
    lacking = [metric for metric in metrics if metric.name not in gpu.metrics]
    text = f"{len(metrics) - len(lacking)} of {len(metrics)}"
    if not lacking:
        return text, ""
    forbidden = sorted({call for metric in lacking for call in _forbidden(metric, gpu)})
    others = [m.name for m in lacking if not _forbidden(m, gpu)]
    if others:
        text += f"; not on this GPU or driver: {', '.join(others)}"
    if forbidden:
        return f"{text}; refused, no permission: {', '.join(forbidden)}", "needs root to be read"
    return text, ""


def _forbidden(metric: Metric, gpu: Readable) -> list[str]:
    """Return the metric's calls that this GPU refuses for want of permission."""
    calls = re.findall(r"nvml\w+", metric.source)
    return [call for call in calls if gpu.refused.get(call) is Unmeasured.NO_PERMISSION]
