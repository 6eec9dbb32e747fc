"""The section "Pages" of `docs/benchmarks.md`, from `benchmarks/pages.json`."""

from collections.abc import Iterator
from typing import Any

# The bars for every size: the figure, its label, and the bar in seconds.
FIRST_SIGHT = (
    (
        "cold",
        "First page, fresh browser profile: from the sign-in link to a map that responds",
        2.0,
    ),
    ("warm", "First page, static files cached: from a reload to a map that responds", 1.0),
    ("gpu_page", "Click on the map to the GPU's page", 0.5),
    ("gpu_chart", "Click on the map to the first chart of that page", 1.5),
    ("report", "`gpuvigil report --last 7d`, its start included", 5.0),
)
RENEWALS = (
    ("server_cpu_ms", "CPU time of the server", 60.0),
    ("answer_ms", "answered after, as the browser sees it", 60.0),
    ("browser_ms", "time of the browser's page process", 100.0),
)
OF_PAGES = {
    "overview": "Overview",
    "gpu": "A GPU's page",
    "incidents": "Incidents",
}
# To the first chart of every other page, and of pages that read far back.
OTHERS = (
    ("incidents", "Incidents, to its first row", 1.5),
    ("incident", "An incident, to its first chart", 1.5),
    ("jobs", "Jobs, to its first row", 1.5),
    ("job", "A job, to its first chart", 1.5),
    ("network", "Network, to its first row", 1.5),
    ("hardware", "Hardware, to its first row", 1.5),
    ("people", "Users and teams, to its first row", 1.5),
    ("node", "A node, to its first chart", 1.5),
)
FAR_BACK = (
    ("gpu_day", "A GPU's last 24 h by its address, to the first chart", 1.5),
    (
        "overview_then",
        "The overview of half a day ago, by its address, to a map that responds",
        None,
    ),
)
Rows = tuple[tuple[str, str, float | None], ...]


def section(result: dict[str, Any]) -> Iterator[str]:
    """Yield everything measured about the pages, each with its bar and whether it holds."""
    about, machine = result["about"], result["about"]["machine"]
    begun = f" since {about['begun_seconds']:g} s" if "begun_seconds" in about else ""
    yield f"From `benchmarks/pages.json`: commit `{about['commit'][:12]}`, {about['measured_at']}, {machine['cpus']} CPUs, {machine['memory_gib']} GiB memory, seed {about['simulator_seed']}, load average before {about['load_average']:.1f}."
    yield f"The store holds {about['hours']:g} h of a simulated cluster, written through the hub: a line of each GPU every {about['coarse_tick_seconds']:g} s, and every {about['tick_seconds']:g} s in the last"
    yield f"{about['recent_minutes']:g} minutes, while the simulator keeps running. An open page refreshes every {about['refresh_seconds']:g} s, three faults are open{begun}, and every service, the simulator and"
    yield "Chromium (headless, drawing in software) share one machine. A bar holds when the median is not above it."
    yield ""
    yield from _seconds(result["sizes"], FIRST_SIGHT)
    yield ""
    yield from renewals(result["sizes"], about["stretch_seconds"])
    yield ""
    yield from weights(result["sizes"])
    yield ""
    yield from viewers(result["sizes"])


def others(result: dict[str, Any]) -> Iterator[str]:
    """Yield how long each page takes from a click to its first chart."""
    yield _measured(result["about"])
    yield "From a click, on the bar or in a list, on something drawn by chance. The first of the runs is the first time that anybody asks. On pages without a curve the first row counts: it comes with heat map and bars."
    yield ""
    yield from _seconds(result["sizes"], OTHERS)


def day(result: dict[str, Any]) -> Iterator[str]:
    """Yield how pages do on a day of telemetry."""
    about = result["about"]
    yield _measured(about)
    yield f"The store holds {about['hours']:g} h: a line of each GPU every {about['coarse_tick_seconds']:g} s, and every {about['tick_seconds']:g} s in the last {about['recent_minutes']:g} minutes and since."
    yield from (_counted(size) for size in result["sizes"])
    yield ""
    yield from _seconds(result["sizes"], (*FIRST_SIGHT, *FAR_BACK))
    yield ""
    yield from renewals(result["sizes"], about["stretch_seconds"])


def large(result: dict[str, Any]) -> Iterator[str]:
    """Yield how pages do with very many GPUs."""
    about = result["about"]
    yield _measured(about)
    yield f"The store holds {60 * about['hours']:g} minutes; each GPU is read every {about['tick_seconds']:g} s. Bars are those of 10,000 GPUs."
    yield ""
    yield from _seconds(result["sizes"], FIRST_SIGHT)
    yield ""
    yield from renewals(result["sizes"], about["stretch_seconds"])
    yield ""
    yield from viewers(result["sizes"])


def _measured(about: dict[str, Any]) -> str:
    return f"From `benchmarks/more_pages.json`: commit `{about['commit'][:12]}`, {about['measured_at']}, {about['machine']['cpus']} CPUs, load average before {about['load_average']:.1f}. Cluster, faults and machine are as above."


def _counted(size: dict[str, Any]) -> str:
    past, usage = size["past"], size["usage"]
    return (
        f"{past['gpu_rows']:,} rows of {size['gpus']:,} GPUs were written in {past['seconds']:.0f} s;"
        f" {usage['quarters']} quarters of an hour of usage were counted {usage['seconds']:.0f} s after the faults were told."
    )


def _seconds(sizes: list[dict[str, Any]], rows: Rows) -> Iterator[str]:
    """Yield a table of these figures, of those that were measured."""
    yield "| what | GPUs | runs | median s | worst s | bar s | holds |"
    yield "|---|---|---|---|---|---|---|"
    for key, words, bar in rows:
        for size in sizes:
            if key not in size:
                continue
            found = size[key]
            median, worst = found["seconds"]["median"], found["seconds"]["worst"]
            cells = f"{found['runs']} | {median:.2f} | {worst:.2f}"
            yield f"| {words} | {size['gpus']:,} | {cells} | {verdict(median, bar)} |"


def renewals(sizes: list[dict[str, Any]], stretch_seconds: float) -> Iterator[str]:
    yield f"One refresh of a page, the only one open. CPU and browser times are those of {stretch_seconds:g} s, divided by the refreshes in"
    yield "them; the server's includes all that its process does meanwhile. The bars are for the overview."
    yield ""
    yield "| page | what | GPUs | refreshes | median ms | worst ms | bar ms | holds |"
    yield "|---|---|---|---|---|---|---|---|"
    for page, title in OF_PAGES.items():
        for key, words, bar in RENEWALS:
            for size in (it for it in sizes if page in it["refresh"]):
                found = size["refresh"][page]
                median, worst = found[key]["median"], found[key]["worst"]
                cells = f"{found['refreshes']} | {median:.0f} | {worst:.0f}"
                shown = verdict(median, bar if page == "overview" else None)
                yield f"| {title} | {words} | {size['gpus']:,} | {cells} | {shown} |"


def weights(sizes: list[dict[str, Any]]) -> Iterator[str]:
    yield (
        "| GPUs | "
        + " | ".join(f"{title}: bytes a refresh" for title in OF_PAGES.values())
        + " | report, bytes of HTML | rows of GPUs written before | in s | bytes of the store |"
    )
    yield "|---|" + "---|" * (len(OF_PAGES) + 4)
    for size in sizes:
        sent = " | ".join(f"{size['refresh'][page]['bytes']:,}" for page in OF_PAGES)
        past = size["past"]
        yield (
            f"| {size['gpus']:,} | {sent} | {size['report']['html_bytes']:,} "
            f"| {past['gpu_rows']:,} | {past['seconds']:.0f} | {past['store_bytes']:,} |"
        )


def viewers(sizes: list[dict[str, Any]]) -> Iterator[str]:
    found = [(size["gpus"], size["viewers"]) for size in sizes if "viewers" in size]
    if not found:
        return
    one = found[0][1]
    yield f"The overview, open {one['viewers']} times by sessions that speak the browser's protocol and draw nothing; each is refreshed every {one['every_seconds']:g} s."
    yield f"CPU time is the dashboard's, over {one['stretch_seconds']:g} s."
    yield ""
    yield "| GPUs | cores | bar | holds | refreshes of a page | memory before, MiB (PSS) | with all |"
    yield "|---|---|---|---|---|---|---|"
    for gpus, it in found:
        many, pss = it["renewals"], it["pss_mib"]
        yield f"| {gpus:,} | {it['cores']:.2f} | {verdict(it['cores'], 1.0)} | {many['least']} to {many['most']} | {pss['before']:,} | {pss['with']:,} |"


def verdict(median: float, bar: float | None) -> str:
    """Return the cells with the bar, and whether it holds."""
    if bar is None:
        return "| "
    return f"{bar:g} | {'yes' if median <= bar else '**no**'}"
