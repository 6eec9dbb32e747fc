"""The section "Stores" of `docs/benchmarks.md`, from `benchmarks/stores.json`."""

from collections.abc import Iterator
from typing import Any

SAMPLES_PER_CPU_SECOND = 1_000_000
EVENT_MS = 100.0
BYTES_PER_SAMPLE = 1.2

# A query of the week, its label, and the engine's bar in milliseconds.
QUESTIONS = (
    ("latest", "Newest 10 metrics of all GPUs", 10.0),
    ("six_hours", "6 h of one GPU at 1 min, 10 metrics", 25.0),
    ("mean_by_node", "Mean utilisation by node over the week, roll-ups", 30.0),
    ("mean_by_node_raw", "The same from the lines", 100.0),
    ("report", "Mean and maximum of 10 metrics by GPU over the week, roll-ups", None),
    ("report_raw", "The same from the lines", 700.0),
)


def introduction() -> Iterator[str]:
    """Yield what all parts have in common."""
    yield "From `benchmarks/stores.json`; each part names the command that measured it. The data comes from `benchmarks/readings.py`:"
    yield "the simulator's fields, varied from one seed by jobs, heat, random walks and rare errors. A sample is one field of one GPU at one moment."
    yield "VictoriaMetrics is Debian's, on the same machine in the same run."


def measured(found: dict[str, Any]) -> str:
    """Return what a part's figures were measured with."""
    about = found["about"]
    small = " **Small, to try the program: these figures say nothing.**" if about["quick"] else ""
    machine = about["machine"]
    return (
        f"`{about['command']}`, commit `{about['commit'][:12]}`, {about['measured_at']},"
        f" {machine['cpus']} CPUs, {machine['memory_gib']} GiB, load average before {about['load_average']:.1f}.{small}"
    )


def verdict(value: float, bar: float | None, *, least: bool = False) -> str:
    """Return the cells with the bar, and whether it holds."""
    if bar is None:
        return " | "
    holds = value >= bar if least else value <= bar
    return f"{'at least' if least else 'at most'} {number(bar)} | {'yes' if holds else '**no**'}"


def number(value: float) -> str:
    """Format a number for people: no exponent, no needless zeros."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def ingest(found: dict[str, Any]) -> Iterator[str]:
    yield measured(found)
    yield f"{found['gpus']:,} GPUs, {found['fields']} fields, the same gzip requests to both; medians of {found['runs']} runs of {found['samples_per_run']:,} samples, after one"
    yield f"run to warm up. CPU time is the server's alone, until {found['settle_seconds']:g} s after the last answer, plus the work it does on these lines later: the hub"
    yield f"seals their hours and joins the hours of their day ({_later(found['sealing'])}), VictoriaMetrics merges its parts ({_later(found['merging'])}). Samples a second"
    yield f"include that work; requests a second end with the last answer. {' and '.join(f'{n:,}' for n in found['hub_connections'])} connections to the hub, which answers after its next commit, {found['victoriametrics_connections']} to VictoriaMetrics."
    yield ""
    yield "| request | server | samples per CPU-second | samples per second | requests per second | bar per CPU-second | holds |"
    yield "|---|---|---|---|---|---|---|"
    for kind, words in (("live", "one node, one tick"), ("backlog", "one node, twenty ticks")):
        for server, name in (("hub", "hub"), ("victoriametrics", "VictoriaMetrics")):
            one = found[kind][server]
            value = one["samples_per_cpu_second"]
            bar = SAMPLES_PER_CPU_SECOND if server == "hub" else None
            yield (
                f"| {words} ({found[kind]['lines_per_body']} lines) | {name} | {value:,}"
                f" | {one['samples_per_second']:,} | {one['bodies_per_second']:,}"
                f" | {verdict(value, bar, least=True)} |"
            )


def _later(found: dict[str, Any]) -> str:
    return f"{found['samples']:,} samples in {found['seconds']:.1f} s, {found['cpu_seconds']:.1f} s of CPU time"


def sustained(found: dict[str, Any]) -> Iterator[str]:
    shares = found["cpu_share_of_one"]
    told, asked = found["acknowledged_event_to_changes_ms"], found["sent_event_to_changes_ms"]
    written = found["body_to_acknowledgement_ms"]
    yield measured(found)
    yield f"{found['nodes']:,} nodes with 8 GPUs every {found['tick_seconds']:g} s for {found['seconds']:g} s: the real hub and analyzer, `gpuvigil simulate` as the collectors,"
    yield f"and {found['people']} viewers: the dashboard's own reader with an overview open, and six hours of one GPU every ten seconds (no browser)."
    yield ""
    yield "| what | value | bar | holds |"
    yield "|---|---|---|---|"
    yield f"| Lines a second | {found['lines_per_second']:,} |  |  |"
    yield f"| Hub, share of one CPU | {100 * shares['hub']:.1f} % |  |  |"
    yield f"| Headroom: this many times the load fills one CPU | {found['headroom']:g} |  |  |"
    for name in ("analyze", "readers", "simulate"):
        yield f"| `{name}`, share of one CPU | {100 * shares[name]:.1f} % |  |  |"
    yield f"| Answers 429 / failed commits | {found['answers_429']} / {found['failed_commits']} | at most 0 | {'yes' if not found['answers_429'] + found['failed_commits'] else '**no**'} |"
    yield f"| Commit, parsing included, mean of {found['commits']}, ms | {found['commit_mean_ms']:g} |  |  |"
    yield f"| Request to its acknowledgement, p50 / p99, ms | {written['p50']:g} / {written['p99']:g} |  |  |"
    yield f"| Acknowledged event to `changes`, p50 / p99 of {found['events']}, ms | {told['p50']:g} / {told['p99']:g} | {verdict(told['p99'], EVENT_MS)} |"
    yield f"| Event sent to `changes`, p50 / p99, ms | {asked['p50']:g} / {asked['p99']:g} |  |  |"
    yield f"| Hub's memory, MiB | {found['memory_rss_mib']:g} |  |  |"


def week(found: dict[str, Any]) -> Iterator[str]:
    disk = found["disk"]
    yield measured(found)
    yield f"{found['days']} days of {found['gpus']:,} GPUs at {found['step_seconds']:g} s, sealed: {found['lines']:,} lines, {found['samples']:,} samples. Median milliseconds. *Fresh* is"
    yield f"the first question to a store just opened or a server just started ({found['runs']} starts each), VictoriaMetrics with `nocache`; in brackets the same question repeated,"
    yield f"in a process that has answered it ({found['runs_repeated']} times). Files are in the page cache. *Engine* is the store without HTTP; *hub* is asked by the product's client, the answer"
    yield f"decoded, a week of lines day by day. VictoriaMetrics ({found['victoriametrics']}) over HTTP, the JSON decoded. Both agree on the means: {'yes' if found['means_by_node_agree'] else '**no**'}."
    yield ""
    yield "| question, fresh (repeated) | engine | hub | VictoriaMetrics | bar of the engine, fresh | holds | hub ahead |"
    yield "|---|---|---|---|---|---|---|"
    for key, words, bar in QUESTIONS:
        one = found["queries"][key]
        sides = ("engine_ms", "hub_ms", "victoriametrics_ms")
        shown = " | ".join(_both(one[side]) for side in sides)
        ahead = f"{_ahead(one, 'fresh')} ({_ahead(one, 'repeated')})"
        engine = one["engine_ms"]["fresh"]["median"]
        yield f"| {words} | {shown} | {verdict(engine, bar)} | {ahead} |"
    yield ""
    yield "| on disk | bytes | bytes a sample | bar | holds |"
    yield "|---|---|---|---|---|"
    whole = disk["lines_bytes"] + disk["rolled_bytes"] + disk["duckdb_bytes"]
    each = disk["bytes_per_sample"]
    yield f"| embedded, all of it | {whole:,} | {each:g} | {verdict(each, BYTES_PER_SAMPLE)} |"
    kinds = (("lines", "sealed lines"), ("rolled", "roll-ups"), ("duckdb", "the DuckDB file"))
    for key, words in kinds:
        size = disk[f"{key}_bytes"]
        yield f"| of it {words} | {size:,} | {size / found['samples']:.3f} |  |  |"
    yield f"| VictoriaMetrics, merged | {disk['victoriametrics_bytes']:,} | {disk['victoriametrics_bytes_per_sample']:g} |  |  |"


def _both(times: dict[str, Any]) -> str:
    """Return the milliseconds of a fresh query, and in brackets of a repeated one."""
    return f"{times['fresh']['median']:.1f} ({times['repeated']['median']:.1f})"


def _ahead(one: dict[str, Any], how: str) -> str:
    hub, theirs = (one[side][how]["median"] for side in ("hub_ms", "victoriametrics_ms"))
    return "yes" if hub <= theirs else "**no**"


def scale(found: dict[str, Any]) -> Iterator[str]:
    http, store, shares = found["http"], found["store"], found["share_of_the_time"]
    commit, ticks = store["commit_ms"], store["ticks"]
    yield measured(found)
    yield f"{found['gpus']:,} GPUs every {found['tick_seconds']:g} s. Over HTTP {http['ticks']} ticks of {http['nodes']:,} requests, as fast as the hub takes them; into the store by itself"
    yield f"{sum(ticks.values())} ticks, as fast as it takes them. The hour that is sealed meanwhile has only the"
    yield f"{store['lines_sealed']:,} lines of {ticks['before']} ticks from its minute {found['begin_minute']} on; a whole hour (**X**) is extrapolated from these. *Share* is of the time that the data"
    yield "spans: above 1, the machine does not keep up."
    yield ""
    yield "| what | seconds | of | share |"
    yield "|---|---|---|---|"
    seconds: dict[str, tuple[float, float]] = {
        "a tick over HTTP": (http["seconds_per_tick"], found["tick_seconds"]),
        "a tick in the store": (store["append_seconds_per_tick"], found["tick_seconds"]),
        "a tick in the store while an hour is sealed": (
            store["append_seconds_per_tick_while_sealing"],
            found["tick_seconds"],
        ),
        "sealing": (store["seal_seconds_per_hour"], 3600.0),
    }
    for key, share in shares.items():
        took, of = seconds[key]
        mark = " (X)" if key == "sealing" else ""
        yield f"| {key} | {took:g}{mark} | {of:g} | {share:g} |"
    yield ""
    yield f"The slowest of these could take {found['keeps_up_times']:g} times the load; the limit is {found['breaks_first']}. Commits of the store took {commit['p50']:g} ms (p50),"
    yield f"{commit['p99']:g} ms (p99), {commit['worst']:g} ms (worst); peak memory {store['peak_rss_mib']:,} MiB, the generator's included."
    for one in found["tries"]:
        if one["error"]:
            yield f"With {one['memory_limit_bytes'] / 1024**3:g} GiB (`hub.memory_limit_bytes`) sealing failed: `{one['error'].partition(': ')[2].partition(' (')[0]}`."
