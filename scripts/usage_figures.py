"""The section "Usage" of `docs/benchmarks.md`, from `benchmarks/usage.json`."""

from collections.abc import Iterator, Mapping
from typing import Any

_ROLLED_SECONDS, _ASKED_MILLISECONDS = 60, 200


def section(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield a week counted and added up, and the time of each query."""
    about, rolled = result["about"], result["rollup"]
    yield f"From `benchmarks/usage.json`, which `{about['command']}` measures: commit `{about['commit'][:12]}`, {about['measured_at']},"
    yield f"{about['machine']['cpus']} CPUs, load {about['load_average']:g} from other work. CPU time is what counts here, not wall-clock time."
    yield ""
    yield f"{about['days']} days of {about['gpus']:,} GPUs, {about['gpus_in_mig']} of them in seven MIG devices each, {about['jobs']:,} jobs: counted from one-minute means and"
    yield f"added up by hours and days in **{rolled['cpu_seconds']:g} s of a CPU** ({_holds(rolled['cpu_seconds'], _ROLLED_SECONDS, 's')}),"
    yield f"{rolled['seconds']:g} s of wall-clock time; {rolled['records']} records, {rolled['bytes'] / 1e6:.0f} MB. Reading the means from a store is not included."
    yield ""
    spans = list(dict.fromkeys(one["span"] for one in result["questions"]))
    yield "Milliseconds of client and hub together: CPU time, and in brackets wall-clock time."
    yield ""
    yield f"| `gpuvigil usage --by` | {' | '.join(spans)} |"
    yield f"|---|{'---|' * len(spans)}"
    for by in dict.fromkeys(one["by"] for one in result["questions"]):
        cells = [
            f"{one['cpu_milliseconds']:.0f} ({one['milliseconds']:.0f})"
            for span in spans
            for one in result["questions"]
            if (one["by"], one["span"]) == (by, span)
        ]
        yield f"| {by} | {' | '.join(cells)} |"
    worst = max(one["cpu_milliseconds"] for one in result["questions"])
    yield ""
    yield f"The slowest takes {worst:.0f} ms ({_holds(worst, _ASKED_MILLISECONDS, 'ms')}), without the start of Python."


def _holds(value: float, bar: float, unit: str) -> str:
    return f"bar {bar:g} {unit}: {'holds' if value <= bar else 'missed'}"
