"""The part of `docs/benchmarks.md` on passes of the analyzer, from `benchmarks/passes.json`."""

from collections.abc import Iterator, Mapping
from typing import Any

from scripts.figures import HUNDRED_THOUSAND, TEN_THOUSAND, Figures

# The bar for a pass over 10,000 GPUs while the hub ingests.
_BAR_SECONDS = {"ten_thousand": 1.0}


def section(figures: Figures) -> Iterator[str]:
    """Yield a row per measured fleet."""
    cases = (TEN_THOUSAND, HUNDRED_THOUSAND)
    found = {it.place[-1]: figures.get(*it.place) for it in cases}
    yield "A pass is timed by the analyzer itself, from its first query to the hub until its incidents are written, while the simulated cluster sends and the hub receives."
    yield "The past that the longest rule needs was written before. The share of one CPU is over the whole time."
    yield ""
    if any(found.values()):
        yield from _table({name: one for name, one in found.items() if one})
    for missing in (it.missing for it in cases if not found[it.place[-1]]):
        yield ""
        yield missing


def _table(result: Mapping[str, Any]) -> Iterator[str]:
    yield "| GPUs | every | passes | median s | best | worst | bar | CPU: hub, analyzer, simulator | memory: hub, analyzer | load before | commit | command |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for name, one in result.items():
        seconds, used, memory = one["pass_seconds"], one["cpu_share_of_one"], one["memory_rss_mib"]
        about = one["about"]
        shares = ", ".join(f"{100 * used[it]:.0f} %" for it in ("hub", "analyze", "simulate"))
        mib = ", ".join(f"{memory[it]:,.0f} MiB" for it in ("hub", "analyze"))
        cells = (
            f"{one['gpus']:,}",
            f"{one['tick_seconds']:g} s",
            str(one["passes"]),
            *(f"{seconds[it]:.2f}" for it in ("median", "best", "worst")),
            _holds(one, _BAR_SECONDS.get(name)),
            shares,
            mib,
            str(one["load"]),
            f"`{about['commit'][:12]}`",
            f"`{about['command']}`",
        )
        yield f"| {' | '.join(cells)} |"


def _holds(one: Mapping[str, Any], bar: float | None) -> str:
    if bar is None:
        return ""
    longer = sum(it > bar for it in one["all_seconds"])
    verdict = "holds" if one["pass_seconds"]["median"] <= bar else "**missed**"
    return f"median at most {bar:g}: {verdict}; {longer} of {one['passes']} took longer"
