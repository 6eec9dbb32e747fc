"""`docs/scaling.md`: what 100, 1,000 and 12,500 nodes need, from the committed figures."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gpuvigil.config import Config
from scripts.figures import FIGURES, RECORDS, SCALE, SUSTAINED, Figures
from simulator.cluster import build
from simulator.model import NO_WORK, gpu_fields

GPUS_PER_NODE = 8
NODES = (100, 1_000, 12_500)
DAY_SECONDS = 86_400
NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Size:
    """A site, and what its collectors send."""

    nodes: int
    fields: int  # numbers per GPU and tick
    tick_seconds: float

    @property
    def gpus(self) -> int:
        return self.nodes * GPUS_PER_NODE

    @property
    def samples_per_second(self) -> float:
        return self.gpus * self.fields / self.tick_seconds

    @property
    def samples_per_day(self) -> float:
        return self.samples_per_second * DAY_SECONDS

    @property
    def bodies_per_second(self) -> float:
        return self.nodes / self.tick_seconds


def page(figures: Figures) -> Iterator[str]:
    """Yield the whole page."""
    settings = Config()
    fields = len(gpu_fields(build(1, GPUS_PER_NODE, 1).nodes[0], 0, NO_WORK, 0.0, 0))
    sizes = [Size(nodes, fields, settings.collector.tick_seconds) for nodes in NODES]
    for part in (
        introduction(sizes, figures),
        comes_in(sizes),
        embedded(sizes, figures, settings),
        elsewhere(sizes, figures, settings),
        records(figures),
        services(figures),
        CHOICES.splitlines(),
    ):
        yield from part
        yield ""


def introduction(sizes: list[Size], figures: Figures) -> Iterator[str]:
    yield "# Scaling"
    yield ""
    yield "How large a site one machine carries, what each service needs, and what comes after one machine. Written by `make docs` from"
    yield "`benchmarks/*.json`. **M** was measured, **X** is extrapolated from a measured figure in proportion, **T** rests on a trial of minutes with few"
    yield "GPUs on a machine that had other work, and says the order of magnitude at best. Nothing on this page was run on"
    yield f"more than one machine: the figures are of {_machine(figures)}. Cells that say *{NOT_MEASURED}* wait for [a run](benchmarks.md#what-was-measured)."
    yield f"A node has {GPUS_PER_NODE} GPUs here, a GPU the simulator's {sizes[0].fields} numbers in a tick of {sizes[0].tick_seconds:g} s (`collector.tick_seconds`); a longer tick costs less in"
    yield "proportion. Rows of nodes and ports come beside those of GPUs, and are some percent of them."


def comes_in(sizes: list[Size]) -> Iterator[str]:
    yield "## What comes in"
    yield ""
    yield "| nodes | GPUs | samples a second | samples a day | requests a second |"
    yield "|---|---|---|---|---|"
    for it in sizes:
        yield f"| {it.nodes:,} | {it.gpus:,} | {it.samples_per_second:,.0f} | {it.samples_per_day / 1e9:,.2f} billion | {it.bodies_per_second:,.0f} |"


def embedded(sizes: list[Size], figures: Figures, settings: Config) -> Iterator[str]:
    """Yield the needs of the hub's own store: processor, disk and memory."""
    per_cpu = figures.number("stores", "ingest", "live", "hub", "samples_per_cpu_second")
    raw = figures.number("stores", "week", "disk", "lines_bytes_per_sample")
    rolled = _rolled_bytes_per_gpu_day(figures)
    days, kept = settings.hub.telemetry_days, settings.hub.rollup_days
    by_run, by_week = figures.mark("ingest", "X"), figures.mark("week", "X")
    yield "## The embedded store"
    yield ""
    yield f"Ingest is for bodies as collectors send them, sealing included. Disk is {days:g} days of every number (`hub.telemetry_days`) and {kept:g} days of 10-minute"
    yield f"roll-ups (`hub.rollup_days`); `hub.store_bytes` ({settings.hub.store_bytes / 2**30:g} GiB unless told otherwise) drops the oldest before the disk is full. Where the last column says so,"
    yield "the default does not hold these days: the oldest go, and the page *Monitoring* says it, until `hub.store_bytes` is raised on a disk with the room; leave some to spare."
    yield ""
    yield "| nodes | ingest, share of one CPU | every number | roll-ups | in all | `hub.store_bytes` |"
    yield "|---|---|---|---|---|---|"
    for it in sizes:
        numbers = None if raw is None else raw * it.samples_per_day * days
        rolls = None if rolled is None else rolled * it.gpus * kept
        both = None if numbers is None or rolls is None else numbers + rolls
        enough = _enough(both, settings.hub.store_bytes)
        yield f"| {it.nodes:,} | {_share(it, per_cpu, by_run)} | {_gib(numbers, by_week)} | {_gib(rolls, by_week)} | {_gib(both, by_week)} | {enough} |"
    yield ""
    yield from _sustained(figures)
    yield from _at_100_000(figures)


def elsewhere(sizes: list[Size], figures: Figures, settings: Config) -> Iterator[str]:
    """Yield the needs of VictoriaMetrics, measured in the same run."""
    per_cpu = figures.number(
        "stores", "ingest", "live", "victoriametrics", "samples_per_cpu_second"
    )
    size = figures.number("stores", "week", "disk", "victoriametrics_bytes_per_sample")
    days = settings.hub.telemetry_days
    by_run, by_week = figures.mark("ingest", "X"), figures.mark("week", "X")
    yield "## VictoriaMetrics"
    yield ""
    yield f"One server, of Debian's version, fed with the same bodies; disk is {days:g} days of every number. It has no roll-ups: its own downsampling is"
    yield "a feature of the paid edition by its maker's documentation."
    yield ""
    yield "| nodes | ingest, share of one CPU | disk |"
    yield "|---|---|---|"
    for it in sizes:
        yield f"| {it.nodes:,} | {_share(it, per_cpu, by_run)} | {_disk(it.samples_per_day * days, size, by_week)} |"


def records(figures: Figures) -> Iterator[str]:
    """Yield the bursts and sizes of the records, in both databases."""
    yield "## Records"
    yield ""
    about = figures.get("records", "about")
    if about is None:
        yield RECORDS.missing
        return
    yield f"Measured (**M**) by `{about['command']}` through a hub, {about['measured_at']}, PostgreSQL {about['postgresql']} on the same machine; load average before: {about['load_average']:.1f}."
    yield "Where that is more than the CPUs, times are longer than on a machine of its own, and processor times are not."
    yield ""
    yield "| what | SQLite | PostgreSQL |"
    yield "|---|---|---|"
    for words, keys, unit in _RECORDS:
        cells = [_cell(figures.number("records", kind, *keys), unit) for kind in _DATABASES]
        yield f"| {words.format(**about)} | {' | '.join(cells)} |"
    per_job = figures.number("records", "postgresql", "bytes_per_allocation")
    if per_job is not None:
        million = per_job * 1e6 / 2**30
        yield ""
        yield f"A year of a million allocations (one GPU of one job each) is {million:.1f} GiB (**X**); they are forgotten after `hub.records_days`, as is a node that told nothing for as long."


def services(figures: Figures) -> Iterator[str]:
    """Yield what each process needs."""
    yield "## What each service needs"
    yield ""
    yield "| service | where | processor | memory |"
    yield "|---|---|---|---|"
    rest = {it["command"]: it["pss_mib"] for it in figures.get("spine", "processes") or ()}
    yield f"| collector | every node | {_of(figures.number('collector', 'ours', 'median', 'cpu_percent'), '% of one CPU at a tick of 1 s (M)')} | {_collector_memory(figures)}; disk for `collector.spool_bytes` |"
    for name, command in (("hub", "hub"), ("analyzer", "analyze")):
        yield f"| {name} | one machine | {_at_a_thousand(figures, command)} | {_memory(figures, command, rest.get(command))} |"
    yield f"| alerts | one machine, two may run | next to nothing | {_of(rest.get('alert'), 'MiB (M)')} |"
    pages = {size["gpus"]: size for size in figures.get("pages", "sizes") or ()}
    costs = ", ".join(
        f"{size['refresh']['overview']['server_cpu_ms']['median']:.0f} ms with {gpus:,} GPUs"
        for gpus, size in sorted(pages.items())
    )
    renewal = f"{costs} (M)" if costs else NOT_MEASURED
    yield f"| dashboard | one machine | a renewal of the overview: {renewal}, every 2 s for each open page | {_of(rest.get('dashboard'), 'MiB with 16 nodes (M)')} |"


def _memory(figures: Figures, command: str, small: float | None) -> str:
    """Return a service's memory with 16 nodes, and with the GPUs of the timed passes."""
    passes = (figures.get("passes", name) for name in ("ten_thousand", "hundred_thousand"))
    sizes = [
        f"{it['memory_rss_mib'][command]:,.0f} MiB with {it['gpus']:,} GPUs" for it in passes if it
    ]
    if small is not None:
        sizes.insert(0, _cell(small, "MiB with 16 nodes"))
    return f"{', '.join(sizes)} (M)" if sizes else NOT_MEASURED


def _collector_memory(figures: Figures) -> str:
    """Return the collector's memory, with pages that other Python processes share counted in part, and in full."""
    shared, alone = (
        _cell(figures.number("collector", "ours", "median", name), "MiB")
        for name in ("pss_mib", "alone_mib")
    )
    if not shared or not alone:
        return NOT_MEASURED
    fake = "on a fake driver library: a real driver's calls come on top"
    return f"{shared} shared with other Python, {alone} alone (M), {fake}"


_DATABASES = ("sqlite", "postgresql")
_RECORDS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("a burst of {events:,} events in one body", ("burst", "seconds"), "s"),
    ("the same, processor time of the hub", ("burst", "hub_cpu_seconds"), "s"),
    ("these {events:,} out again by `changes`", ("changes", "seconds"), "s"),
    ("single events a second, one writer", ("singles_per_second",), ""),
    ("single events a second, {writers} writers", ("singles_per_second_of_all_writers",), ""),
    ("2,000 transitions written, claimed and finished by 100", ("claims", "seconds"), "s"),
    ("{allocations:,} allocations in bodies of 1,000", ("allocations", "seconds"), "s"),
    ("the same, processor time of the hub", ("allocations", "hub_cpu_seconds"), "s"),
    ("disk for an allocation", ("bytes_per_allocation",), "bytes"),
    ("the 10,000 of them that are held, asked for", ("held", "seconds"), "s"),
    ("acknowledged to `changes`, median", ("wake_ms", "median"), "ms"),
    ("the same, worst of 50", ("wake_ms", "worst"), "ms"),
    ("the same at the other hub, median", ("wake_at_the_other_hub_ms", "median"), "ms"),
    ("the same at the other hub, worst of 50", ("wake_at_the_other_hub_ms", "worst"), "ms"),
)


def _machine(figures: Figures) -> str:
    each = (figures.get(*it.place, "about", "machine") for it in FIGURES)
    found = next((it for it in each if it), None)
    if found is None:
        return "one machine, client and server together"
    return (
        f"one with {found['cpus']} CPUs and {found['memory_gib']} GiB, client and server together"
    )


def _rolled_bytes_per_gpu_day(figures: Figures) -> float | None:
    week = figures.get("stores", "week")
    if week is None:
        return None
    return float(week["disk"]["rolled_bytes"] / (week["gpus"] * week["days"]))


def _share(size: Size, samples_per_cpu_second: float | None, mark: str) -> str:
    if not samples_per_cpu_second:
        return NOT_MEASURED
    return f"{100 * size.samples_per_second / samples_per_cpu_second:,.1f} % ({mark})"


def _disk(samples: float, bytes_per_sample: float | None, mark: str) -> str:
    return _gib(None if bytes_per_sample is None else samples * bytes_per_sample, mark)


def _gib(size: float | None, mark: str) -> str:
    return NOT_MEASURED if size is None else f"{size / 2**30:,.1f} GiB ({mark})"


def _enough(size: float | None, most: int) -> str:
    if size is None:
        return NOT_MEASURED
    return (
        "the default" if size <= most else f"**raise to {math.ceil(size / 2**30):,} GiB or more**"
    )


def _of(value: float | None, unit: str) -> str:
    return _cell(value, unit) or NOT_MEASURED


def _cell(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}".strip()


def _at_a_thousand(figures: Figures, process: str) -> str:
    name = "hub" if process == "hub" else "analyze"
    share = figures.number("stores", "sustained", "cpu_share_of_one", name)
    nodes = figures.number("stores", "sustained", "nodes")
    if share is None or nodes is None:
        return NOT_MEASURED
    return (
        f"{100 * share:.0f} % of one CPU with {nodes:,.0f} nodes ({figures.mark('sustained', 'M')})"
    )


def _sustained(figures: Figures) -> Iterator[str]:
    found = figures.get("stores", "sustained")
    if found is None:
        yield SUSTAINED.missing
        return
    yield f"Run (**{figures.mark('sustained', 'M')}**): {found['nodes']:,} simulated nodes every {found['tick_seconds']:g} s for {found['seconds']:g} s while the analyzer and {found['people']} people read: the hub took {100 * found['cpu_share_of_one']['hub']:.0f} % of one CPU"
    yield f"and {found['memory_rss_mib']:,.0f} MiB, {found['answers_429']} requests were sent away as too many and {found['failed_commits']} commits failed."


def _at_100_000(figures: Figures) -> Iterator[str]:
    found = figures.get("stores", "scale")
    if found is None:
        yield SCALE.missing
        return
    yield f"Fed with {found['gpus']:,} GPUs at {found['tick_seconds']:g} s (**{figures.mark('scale', 'M')}**), the machine keeps up {found['keeps_up_times']:g} times by the slowest part ({found['slowest']}); what breaks first: {found['breaks_first']}."
    memory = found["store"]["memory_limit_bytes"] / 1024**3
    for one in found["tries"]:
        if one["error"]:
            yield f"With `hub.memory_limit_bytes` of {one['memory_limit_bytes'] / 1024**3:g} GiB an hour of so many cannot be sealed: the figures are with {memory:g} GiB."
    yield "How much of two hours was really run, and how: [benchmarks](benchmarks.md#a-hundred-thousand-gpus)."


CHOICES = """## When to leave the embedded store

Stay with it as long as its disk and one machine are enough: up to about 1,000 nodes at a tick of 10 s, with
`hub.store_bytes` raised where [its table](#the-embedded-store) says so. It answers from roll-ups over days, and there is nothing else to run.
Leave it when

- the disk for the days that you want to keep does not fit one machine, or the machine that holds it may not be a single point of failure;
- a second hub is wanted: the embedded store belongs to one hub, and another would know a part;
- Grafana or others are to read the same numbers;
- `/metrics` of the hub says so: `gpuvigil_hub_queue_bytes` stays near `hub.queue_bytes`, or `gpuvigil_hub_busy_answers_total` grows.

With `store.kind = "victoriametrics"` (or `"influxdb"`), `store.url` and, where it differs, `store.write_url`, collectors send numbers straight there, and
the analyzer, the dashboard and the report read them from there. Events, allocations and inventories go to the hub as before. Give every
process the same `[store]`. Telemetry that was kept before stays where it is.

| site | telemetry | records | hubs |
|---|---|---|---|
| up to about 1,000 nodes | embedded store, `hub.store_bytes` as its table says | SQLite | one |
| the same, and one machine may fail | VictoriaMetrics or InfluxDB | PostgreSQL | two |
| 12,500 nodes | a VictoriaMetrics cluster | PostgreSQL | two |

## A VictoriaMetrics cluster

Addresses by its maker's documentation; no cluster was run here. `0` is the tenant:

```toml
[store]
kind = "victoriametrics"
url = "http://vmselect:8481/select/0/prometheus"
write_url = "http://vminsert:8480/insert/0/influx"
```

Flags, limits and what a server forgets when it is killed: [where telemetry lives](stores.md#victoriametrics). What decides is in the records.

## Two hubs

```toml
# hub.toml, the same on both machines but for the address
[hub]
listen = "10.0.0.11"
records_url_file = "/etc/gpuvigil/records-url"   # postgresql://gpuvigil:password@db:5432/gpuvigil
```

```toml
# everywhere else
[hub]
url = "http://10.0.0.11:8428,http://10.0.0.12:8428"
```

- An empty database that belongs to the user in the URL; the first hub makes the tables. Packages, image and `'.[all]'` have the driver. The URL holds a
  password: keep it in a file. `?sslmode=verify-full`, several hosts and `target_session_attrs=read-write` work as libpq describes them.
- A hub that kept its records in SQLite takes them along: stop it, set the URL, `gpuvigil hub --config FILE --move-records` once, start it.
- Each hub takes up to 21 connections. Roles and servers with `synchronous_commit = off` are overruled: what is acknowledged is on disk.
- Connect to PostgreSQL directly, or through a pooler in session mode. Where notifications do not pass, changes are seen within a second instead of milliseconds.
- Run two alerts services, too: a transition or a notice is claimed by one of them. Run one analyzer, which goes on at the other hub: two
  would not know of each other.
- Tokens that were issued are in PostgreSQL, too: [both hubs know the same](security.md#tokens).
- A load balancer in front instead of the list works, with `/readyz` as its check.
- Upgrade one hub after the other, the analyzer and alerts last. A hub refuses a database that a newer version has changed; one that runs goes on.
- Backups are PostgreSQL's own. A restored database has an older sequence: restart the analyzer, alerts and the dashboard after it.

Tested with two hubs, two alerts services and four claimants as processes on one machine, with either hub killed and with PostgreSQL crashed
underneath; [the decision](decisions/0011-two-hubs-are-a-list-of-addresses.md) says what it costs. Replication and fail-over of PostgreSQL itself were not tried."""
