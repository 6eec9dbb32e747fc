"""The section "The report" of `docs/benchmarks.md`, from `benchmarks/report.json`."""

from collections.abc import Iterator, Mapping
from typing import Any

_SECONDS, _MIB, _HTML_BYTES = 10.0, 1024, 300_000


def section(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the cost of a week's report, in each format."""
    about, formats = result["about"], result["formats"]
    yield f"From `benchmarks/report.json`, which `{about['command']}` measures: commit `{about['commit'][:12]}`, {about['measured_at']},"
    yield f"{about['machine']['cpus']} CPUs, load {about['load_average']:g} from other work, medians of {about['runs']}. `gpuvigil report --week` of {about['days']} days of {about['gpus']:,} GPUs with the week before,"
    yield f"{about['jobs']:,} jobs of a scheduler, {about['incidents']} incidents and trends over eight weeks:"
    yield ""
    yield "| format | wall-clock | CPU, and the hub's | peak memory | size |"
    yield "|---|---|---|---|---|"
    for form, one in formats.items():
        yield (
            f"| {form.upper()} | {one['seconds']:.1f} s | {one['cpu_seconds']:.1f} s, {one['hub_cpu_seconds']:.1f} s"
            f" | {one['most_mib']:,} MiB | {one['bytes'] / 1e3:,.0f} kB |"
        )
    yield ""
    worst = max(one["seconds"] for one in formats.values())
    most = max(one["most_mib"] for one in formats.values())
    size = formats["html"]["bytes"]
    yield (
        f"Bars: {_SECONDS:g} s {_word(worst <= _SECONDS)}, {_MIB:,} MiB {_word(most <= _MIB)},"
        f" {_HTML_BYTES / 1e3:g} kB of HTML {_word(size < _HTML_BYTES)}."
    )


def _word(holds: bool) -> str:
    return "holds" if holds else "missed"
