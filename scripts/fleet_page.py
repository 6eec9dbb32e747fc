"""The tables of the simulated fleet, for `docs/fleet-tables.md`."""

from collections.abc import Iterable, Iterator
from typing import Any

from scripts.figures import FLEET, Figures
from simulator.fleet.hardware import MODELS
from simulator.fleet.kinds import KINDS, OF_SWITCHES
from simulator.fleet.site import FaultKind
from simulator.fleet.workloads import WORKLOADS

_HOURS = (
    "Hours: the shortest, the median, the longest. A fault lasts at most a third of the time for"
    " which its fleet is planned."
)


def page(figures: Figures) -> Iterator[str]:
    """Yield faults, workloads and GPU models."""
    yield "# Tables of the simulated fleet"
    yield ""
    yield "Generated from `simulator/fleet/` by `make docs`. Their meaning: [simulated fleet](fleet.md)."
    yield ""
    yield from _faults(f"## Faults: {len(KINDS)}", _HOURS, KINDS.values())
    between = f"## Faults between switches: {len(OF_SWITCHES)}"
    yield from _faults(between, "Only in fleets whose switches are read.", OF_SWITCHES.values())
    yield "## Workloads"
    yield ""
    yield "Shares are of what the GPU can do. A slot is a period in which work is on or off. Workloads with 0 % of GPU time run only in a [fleet like the world](fleet.md#like-the-world)."
    yield ""
    yield "| workload | GPU time asked for | GPUs | SM | tensor | DRAM | utilisation | slots on | slot s |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for work in WORKLOADS.values():
        sizes = ", ".join(str(size) for size, _ in work.sizes)
        yield (
            f"| {work.key} | {work.gpu_time:.0%} | {sizes} | {work.sm} | {work.tensor} | {work.dram} "
            f"| {work.utilization} | {min(work.duty, 1.0):.0%} | {work.duty_seconds:g} |"
        )
    yield ""
    yield "## GPU models"
    yield ""
    yield "D: datasheet or white paper. A: AcmeTrace. R: our own runs on 8 x H100. U: unchecked."
    yield ""
    yield "| model | limit W | free W | held W | SM MHz | memory GB | links | K/W | slows at °C | where from |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for model in MODELS.values():
        yield (
            f"| {model.key} | {model.limit_watts:g} | {model.free_watts:g} | {model.held_watts:g} "
            f"| {model.sm_clock_hertz / 1e6:g} | {model.memory_bytes / 1e9:.0f} | {model.links} "
            f"| {model.kelvin_per_watt:g} | {model.operating_celsius:g} | {model.sources} |"
        )
    yield ""
    yield from speed(figures)


def _faults(title: str, said: str, kinds: Iterable[FaultKind]) -> Iterator[str]:
    yield from (title, "", said, "")
    yield "| fault | of a | magnitude | hours | severity | cause | secondary symptoms | right action |"
    yield "|---|---|---|---|---|---|---|---|"
    for kind in kinds:
        yield (
            f"| {kind.key} | {kind.target} | {magnitude(kind)} | {hours(kind)} "
            f"| {kind.severity.value} | {kind.cause} | {', '.join(kind.symptoms)} | {kind.action} |"
        )
    yield ""


def speed(figures: Figures) -> Iterator[str]:
    """Yield the cost of playing."""
    yield "## Speed"
    yield ""
    yield from figures.shown(FLEET, _cases)


def _cases(result: dict[str, Any]) -> Iterator[str]:
    about = result["about"]
    yield f"`{about['command']}` on {about['machine']['cpus']} cores, commit `{about['commit'][:12]}`: one process each, every column and record made."
    yield ""
    yield "| GPUs | tick s | simulated | seconds | CPU s | plan s | GPU rows | port rows | columns | at most MiB | load of the machine |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for case in result["cases"].values():
        rows = case["rows"]
        yield (
            f"| {case['gpus']:,} | {case['tick_seconds']:g} | {case['simulated_seconds'] / 3600:g} h "
            f"| {case['wall_seconds']} | {case['cpu_seconds']} | {case['plan_seconds']} | {rows['gpu']:,} "
            f"| {rows['port']:,} | {case['gpu_columns']} | {case['peak_mib']} | {case['load_average']} |"
        )


def magnitude(kind: FaultKind) -> str:
    """Return `2 to 200 errors/h`, or the discrete values."""
    if not kind.sizes:
        return ""
    joined = ", " if kind.discrete else " to "
    return f"{joined.join(f'{size:g}' for size in kind.sizes)} {kind.unit}"


def hours(kind: FaultKind) -> str:
    """Return how long a fault lasts: the shortest, the median, the longest."""
    return "always" if kind.hours[0] >= 1e6 else " / ".join(f"{hours:g}" for hours in kind.hours)
