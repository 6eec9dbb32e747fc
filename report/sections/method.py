"""The definitions of a report's terms, and what was left out."""

from collections.abc import Sequence

from accounting.efficiency.idle_reason import IDLE
from accounting.usage.sharing import IDLE_BELOW
from gpuvigil import __version__
from gpuvigil.clock import duration
from gpuvigil.model import Incident, Severity
from gpuvigil.numbers_in_words import counted

from ..inputs.facts import Facts
from ..model import formatting
from ..model.content import Method
from ..model.rounding import down
from .cost import cost_notes
from .coverage import FULL_PERCENT, Coverage
from .work_lost import NOT_TOLD

_MOST_NODES = 20


def method(facts: Facts, cover: Coverage, incidents: Sequence[Incident], grain: str) -> Method:
    """Return definitions, coverage, and the versions that produced the report."""
    return Method(
        coverage_percent=None if cover.percent is None else down(cover.percent, 1),
        quarters=cover.quarters,
        quarters_missing=cover.quarters_missing,
        counted_since=cover.counted_since,
        definitions=_definitions(facts),
        notes=_notes(facts, cover, incidents, grain),
        excluded_nodes=_excluded(facts),
        version=__version__,
        collector_versions=tuple(sorted({one.version for one in facts.inventories})),
    )


def _definitions(facts: Facts) -> tuple[tuple[str, str], ...]:
    span, counted = duration(facts.idle_after), 100.0 * IDLE_BELOW
    told = facts.idle_below_percent
    others = "" if told == counted else f" Incidents use another limit, {told:g} %."
    return (
        (
            "Allocated",
            "to a job, where Slurm or Kubernetes say so, else to a process since it was first "
            "seen on that GPU. "
            "In percent of the GPU-hours whose state was known.",
        ),
        (
            "Used",
            "the mean utilisation of allocated GPU-hours: the share of time in which any kernel "
            "ran. It does not say how much of the GPU a kernel filled.",
        ),
        ("Unused share", "100 % less used: short pauses and waiting count into it."),
        (
            "Allocated but idle",
            f"allocated and under {counted:g} % at every sample for at least {span} (the idle rule), from "
            f"the beginning of that time. Part of the unused share, and never the whole of it.{others}",
        ),
        (
            "Allocated, at 0 %",
            "allocated while nothing ran at that moment, however short: what the idle rule found is "
            "mostly in it.",
        ),
        (
            "States",
            "every GPU is at every moment in exactly one of: computing, allocated at 0 %, free, "
            "unavailable, unknown. Together they are 100 % of the counted GPU-hours. A GPU with a "
            "critical error that still answers counts by what it computed.",
        ),
        (
            "In service",
            "not lost: a GPU is lost while it cannot be used, while its node is drained, down or in "
            "maintenance and no job runs on there, and while its node has said nothing for a quarter "
            "of an hour. A node is owned until somebody retires it. Each quarter of an hour is judged "
            "once, by what the scheduler had said by then, from when a node went until it came back.",
        ),
        (
            "Hardware incidents",
            "confirmed incidents of GPUs, drivers, nodes and network ports that were open at any time "
            "of the span. Hours open are within the span.",
        ),
        ("Energy", "board power of the GPUs over time; not hosts, switches or cooling."),
    )


def _notes(
    facts: Facts, cover: Coverage, incidents: Sequence[Incident], grain: str
) -> tuple[str, ...]:
    notes = [
        "Counted in whole quarters of an hour from samples of every tick, so that a span begins with"
        " the quarter in which it was asked to begin; "
        f"{_zone(facts)}."
    ]
    notes.append(f"The chart is by {grain}; a step of which less than half is known is a gap.")
    if cover.counted_since is not None:
        notes.append(
            f"Counting began at {formatting.at(cover.counted_since)}; shares are from then on."
        )
    if cover.percent is not None and cover.percent < FULL_PERCENT:
        notes.append(
            "Less than 95 % is known, so shares are ranges: what is unknown could have been all "
            "allocated, or none of it."
        )
    told = sum(one.severity is Severity.INFO and one.fault != IDLE for one in incidents)
    if told:
        what = counted(told, "incident")
        notes.append(
            f"Not counted as hardware: {what} of severity info, mostly a program's own errors."
        )
    if facts.lost is None:
        notes.append(NOT_TOLD)
    notes += cost_notes(facts)
    notes += facts.notes
    if facts.simulated:
        notes.append("SIMULATED: every number is of a simulated cluster; no real GPU is in it.")
    return tuple(notes)


def _zone(facts: Facts) -> str:
    zone = facts.calendar.zone.key
    return "all times are UTC" if zone == "UTC" else f"days are those of {zone}, times are UTC"


def _excluded(facts: Facts) -> tuple[str, ...]:
    """Return nodes without a GPU to count, with the driver's state."""
    nodes = sorted(
        (one.subject.node, one.driver_state) for one in facts.inventories if not one.gpus
    )
    listed = [f"{node} ({state})" for node, state in nodes[:_MOST_NODES]]
    more = len(nodes) - len(listed)
    return tuple([*listed, f"and {more:,} more"] if more else listed)
