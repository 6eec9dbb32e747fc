"""`docs/benchmarks.md`: what was measured, at which commit, and what has to be measured again."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from scripts import (
    collector_figures,
    page_figures,
    pass_figures,
    report_figures,
    slurm_figures,
    soak_figures,
    spine_figures,
    store_figures,
    usage_figures,
)
from scripts.commits import MOST_COMMITS, ROOT
from scripts.figures import (
    COLLECTOR,
    FIGURES,
    INGEST,
    MESSAGES,
    PAGES,
    PORTS,
    REPORT,
    SCALE,
    SLURM,
    SPINE,
    SUSTAINED,
    USAGE,
    WEEK,
    Figure,
    Figures,
    code_in_words,
)

Shown = tuple[Figure, Callable[[Any], Iterator[str]]]

# Headings in the order of the page, with the figures and writers below each.
_SECTIONS: tuple[tuple[str, tuple[Shown, ...]], ...] = (
    (
        "## From the sensor to people",
        (
            (SPINE, spine_figures.latencies),
            (MESSAGES, spine_figures.to_slack),
            (PORTS, spine_figures.of_ports),
        ),
    ),
    ("## `make up`", ((SPINE, spine_figures.startup),)),
    ("## Memory at rest", ((SPINE, spine_figures.memory),)),
    ("## Pages", ((PAGES, page_figures.section),)),
    ("## The collector on a node", ((COLLECTOR, collector_figures.section),)),
    ("## Stores", ()),
    ("### Ingest at saturation", ((INGEST, store_figures.ingest),)),
    ("### A site that runs", ((SUSTAINED, store_figures.sustained),)),
    ("### A week of questions", ((WEEK, store_figures.week),)),
    ("### A hundred thousand GPUs", ((SCALE, store_figures.scale),)),
    ("## A pass of the analyzer", ()),
    ("## Usage", ((USAGE, usage_figures.section),)),
    ("## The report", ((REPORT, report_figures.section),)),
    ("## Asking Slurm", ((SLURM, slurm_figures.section),)),
)
# Content below a heading in addition to the figures of single runs.
_BESIDE: dict[str, Callable[[Figures], Iterator[str]]] = {
    "## Stores": lambda _: store_figures.introduction(),
    "## A pass of the analyzer": pass_figures.section,
}


def page(figures: Figures) -> Iterator[str]:
    """Yield the whole page."""
    yield "# Benchmarks"
    yield ""
    yield "Written by `make docs` from `benchmarks/*.json` and `soak/results.json`."
    yield ""
    yield from measured(figures)
    for heading, shown in _SECTIONS:
        yield ""
        yield heading
        if heading in _BESIDE:
            yield ""
            yield from _BESIDE[heading](figures)
        for figure, write in shown:
            yield ""
            yield from figures.shown(figure, write)
    yield ""
    yield from soak_figures.section(json.loads((ROOT / "soak/results.json").read_text()))


def measured(figures: Figures) -> Iterator[str]:
    """Yield the commit of each figure, and the code that decides whether it still holds."""
    yield "## What was measured"
    yield ""
    yield f"A figure is measured again, or goes, when it is more than {MOST_COMMITS} commits old and its code has changed since: a test fails until then, and"
    yield "`python -m scripts.figures` says how old each is. Minutes are those of a quiet machine with two CPUs."
    yield ""
    yield "| figure | of commit | its code | measured by | minutes |"
    yield "|---|---|---|---|---|"
    for it in FIGURES:
        commit = figures.commit(it)
        of = f"`{commit[:12]}`" if commit else "not measured"
        yield f"| {it.title} | {of} | {code_in_words(it.code)} | `{it.command}` | {it.minutes} |"
