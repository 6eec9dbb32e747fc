"""The section "The collector on a node" of `docs/benchmarks.md`, from `benchmarks/collector.json`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# Bars for our figures, as a maximum share of the peer's, or a minimum multiple of it.
CPU_SHARE = 0.5
VALUES_RATIO = 5.0
SCRAPE_SHARE = 0.25
PSS_SHARE = 1.5
# The same for each sensor that the peer has no counterpart for.
SENSOR_SHARE = 0.1
SENSORS = {
    "network": "eight InfiniBand ports, looked at every second",
    "jobs": "a Slurm job on all GPUs, and programs that tell their steps",
    "machine": "power supplies, fans, memory and mounts, looked at every minute by a child",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A row: the key in the result, its label, and the digits after the point."""

    key: str
    words: str
    digits: int


FIGURES = (
    Figure("cpu_percent", "Processor time, nobody scraping (ours ships to a hub), % of one CPU", 2),
    Figure("cpu_percent_scraped", "Processor time, scraped every second, % of one CPU", 2),
    Figure("values", "Values on `/metrics`", 0),
    Figure("scrape_ms", "One scrape, ms", 2),
    Figure("scrape_us_per_value", "One scrape, µs per value", 2),
    Figure("pss_mib", "Memory (PSS) of all its processes without the NVML library, MiB", 1),
    Figure("alone_mib", "The same where nothing else runs Python, at most, MiB", 1),
)


def section(result: dict[str, Any]) -> Iterator[str]:
    """Yield both programs beside each other, with each bar and whether it holds."""
    about, machine = result["about"], result["about"]["machine"]
    ours, peer = result["ours"]["median"], result["peer"]["median"]
    yield f"From `benchmarks/collector.json`, which `{about['command']}` measures: commit `{about['commit'][:12]}`, {about['measured_at']}, {machine['cpus']} CPUs, Python {about['python']}."
    yield f"`collector.pyz` and {about['peer']} side by side, each with an update every {about['tick_seconds']:g} s, on the tests' fake NVML library: {about['gpus']} busy GPUs with"
    without = (
        " Ours is without network ports, jobs and the machine's other parts."
        if "sensors" in result
        else ""
    )
    yield f"{about['nvlinks_per_gpu']} NVLinks each.{without} {_calls(about)}"
    yield f"Medians of {about['rounds']} starts of both, {about['rest_seconds']:g} s of CPU time and {about['scrapes_per_round']} scrapes each. Load average before: {about['load_average']:.1f}."
    yield ""
    yield "| what | gpuvigil | nvitop-exporter | bar | holds |"
    yield "|---|---|---|---|---|"
    for figure in FIGURES:
        mine, its = ours[figure.key], peer[figure.key]
        cells = f"{mine:,.{figure.digits}f} | {its:,.{figure.digits}f}"
        yield f"| {figure.words} | {cells} | {' | '.join(verdict(figure.key, mine, its))} |"
    if "sensors" in result:
        yield ""
        yield from _sensors(result["sensors"], peer)


def _sensors(found: Mapping[str, Mapping[str, float]], peer: Mapping[str, float]) -> Iterator[str]:
    """Yield what each sensor adds, compared with our collector without it over the same seconds."""
    cpu, pss = SENSOR_SHARE * peer["cpu_percent"], SENSOR_SHARE * peer["pss_mib"]
    yield f"What each further sensor adds, compared with a collector without it over the same seconds. Bar: {SENSOR_SHARE:g} of nvitop-exporter's CPU time and memory, {cpu:.2f} % and {pss:.1f} MiB:"
    yield ""
    yield "| sensor | CPU time, % of one CPU | memory, MiB | values | holds |"
    yield "|---|---|---|---|---|"
    for sensor, words in SENSORS.items():
        it = found[sensor]
        holds = it["cpu_percent"] <= cpu and it["pss_mib"] <= pss
        yield f"| {words} | {it['cpu_percent']:.2f} | {it['pss_mib']:.1f} | {it['values']:,.0f} | {'yes' if holds else '**no**'} |"


def _calls(about: dict[str, Any]) -> str:
    """Return the cost of a call of the fake library, and what the processor time includes."""
    if "call_seconds" not in about:
        return "A call of it costs microseconds, so these figures compare the programs and say nothing of a driver. Processes that ended meanwhile are not counted."
    call, dear = 1e6 * about["call_seconds"], 1e6 * about["dear_call_seconds"]
    return f"A call of it costs its caller {call:g} µs of processor time, {dear:g} µs where it is of NVLinks, a batch of field values or of throughput; processes that ended meanwhile are counted."


def verdict(key: str, ours: float, peer: float) -> tuple[str, str]:
    """Return the bar as text, and whether it holds; both are empty where there is no bar."""
    half = (f"at most {CPU_SHARE:g} of its", ours <= CPU_SHARE * peer)
    bars = {
        "cpu_percent": half,
        "cpu_percent_scraped": half,
        "values": (f"at least {VALUES_RATIO:g} times its", ours >= VALUES_RATIO * peer),
        "scrape_us_per_value": (f"at most {SCRAPE_SHARE:g} of its", ours <= SCRAPE_SHARE * peer),
        "pss_mib": (f"at most {PSS_SHARE:g} of its", ours <= PSS_SHARE * peer),
    }
    if key not in bars:
        return "", ""
    words, holds = bars[key]
    return words, "yes" if holds else "**no**"
