"""The trial's texts: what could not be judged and which metric is missing, and a page for the terminal."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from accounting.efficiency.idle_reason import IDLE
from gpuvigil.clock import duration
from gpuvigil.faults import FAULTS
from gpuvigil.model import Incident
from gpuvigil.numbers_in_words import counted
from gpuvigil.store.exporter_names import EXPORTERS
from report.model.content import Report
from report.model.sheet import Cell

from ..recordings.unjudged import HOLDERS, Unjudged, unjudged
from .asking import Cost
from .questions import XID

_MOST = 8  # lines of a list
# What is missing where no metric begins so; the wider first.
_ABSENT = {
    "node_": "node_exporter (node_*)",
    "node_infiniband_": "node_exporter's InfiniBand ports (node_infiniband_*)",
}
_LESS, _MISSING = "Judged with less: ", ". Missing: "
# The seconds of each reason are computed from the mask of reasons.
_REASONS = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"
_BY_REASONS = (
    "hardware_thermal_slowdown_seconds",
    "software_thermal_slowdown_seconds",
    "power_brake_seconds",
    "power_cap_seconds",
)


def limits(
    given: Collection[str], there: Collection[str], named: int, gpus: int
) -> tuple[str, ...]:
    """Return sentences on what could not be judged; `there` are the metrics that the Prometheus has."""
    told = {*given, *({"events"} if XID in there else ())}
    every = unjudged(told)
    of_holders = [one for one in every if HOLDERS in one.missing]
    found = [one for one in every if one not in of_holders]
    lines = [*_without_use(given), *_without_metrics(found, there), *_with_less(found)]
    if named == 0:
        lines.insert(0, f"{_nobody(gpus)} {_unblamed(of_holders)}")
    only = sorted(
        {_title(key) for one in found if one.wholly and not _metrics(one) for key in one.faults}
    )
    if only:
        lines.append(f"Only gpuvigil's own collector sees: {', '.join(only)}.")
    return tuple(lines)


def _nobody(gpus: int) -> str:
    return (
        f"Who holds {'the GPU' if gpus == 1 else f'the {gpus} GPUs'}: no series has a label hpc_job or"
        " pod (dcgm-exporter: --hpc-job-mapping-dir, or --kubernetes)."
    )


def _unblamed(found: Iterable[Unjudged]) -> str:
    return f"Not judged without: {', '.join(sorted(_titles(one) for one in found))}."


def _without_use(given: Collection[str]) -> Iterator[str]:
    field = "gpu.utilization_percent"
    if field not in given:
        yield f"Not judged: which GPUs are idle{_MISSING}{_by_field()[field]}."


def _without_metrics(found: Sequence[Unjudged], there: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each set of missing metrics; an exporter that is missing as a whole has one alone."""
    absent = {
        prefix: what
        for prefix, what in _ABSENT.items()
        if not any(name.startswith(prefix) for name in there)
    }
    of: dict[str, list[str]] = {}
    for one in found:
        if one.wholly and (metrics := _metrics(one)):
            whole = next((it for it in absent if all(name.startswith(it) for name in metrics)), "")
            of.setdefault(absent.get(whole) or f"{', '.join(metrics)}", []).append(_titles(one))
    yield from (f"Not judged: {', '.join(titles)}{_MISSING}{what}." for what, titles in of.items())


def _with_less(found: Sequence[Unjudged]) -> Iterator[str]:
    for one in found:
        if not one.wholly and (metrics := _metrics(one)):
            yield f"{_LESS}{_titles(one)}{_MISSING}{', '.join(metrics)}."


def _metrics(one: Unjudged) -> list[str]:
    """Return the exporters' metrics for the inputs that a detector lacks."""
    known = _by_field()
    found = [known[name] for name in one.missing if name in known]
    if any(name.startswith("events") for name in one.missing):
        found.append(XID)
    return list(dict.fromkeys(found))


def _by_field() -> Mapping[str, str]:
    found = {
        f"{exporter.measurement.name}.{field}": column.metric
        for exporter in EXPORTERS
        for field, column in exporter.columns.items()
    }
    return {**found, **{f"gpu.{field}": _REASONS for field in _BY_REASONS}}


def _titles(one: Unjudged) -> str:
    return ", ".join(_title(key) for key in one.faults)


def _title(key: str) -> str:
    return FAULTS[key].title


def terminal(report: Report, incidents: Sequence[Incident]) -> Iterator[str]:
    """Yield a report's first page in a few lines."""
    first, second = report.verdict
    yield f"{report.title}, {report.span}"
    yield f"{first.text} {second.text}"
    yield ""
    yield f"Allocated at 0 %, by owner (GPU-hours of {_hours(report.installed_gpu_hours)} in all):"
    owners = report.sheet("owners")
    idle = [] if owners is None else [_owner(row) for row in owners.rows if row[-1]]
    yield from idle[:_MOST]
    yield from _more(len(idle), "owner")
    if not idle:
        yield "  none that is known"
    yield ""
    faults = [one for one in incidents if one.fault != IDLE]
    yield f"Faults: {counted(len(faults), 'incident')}"
    yield from (_incident(one) for one in faults[:_MOST])
    yield from _more(len(faults), "incident")
    yield from _limits(report)


def _limits(report: Report) -> Iterator[str]:
    """Yield what could not be judged; rules judged with less share one line of metrics, unlike in the report."""
    whole = [one for one in report.unjudged if not one.startswith(_LESS)]
    less = [one.partition(_MISSING)[2].rstrip(".") for one in report.unjudged if one not in whole]
    metrics = sorted({name for one in less for name in one.split(", ")})
    if report.unjudged:
        yield ""
        yield "What could not be judged:"
        yield from (f"  {one}" for one in whole)
    if metrics:
        yield f"  Much is judged with less. Missing: {', '.join(metrics)}."


def cost_in_words(cost: Cost, step: int) -> str:
    """Return a sentence on what the Prometheus was asked."""
    return (
        f"Asked {counted(cost.queries, 'query').replace('querys', 'queries')} one after another,"
        f" {counted(cost.points, 'point')} in all ({cost.largest:,} at most in one),"
        f" a value every {step} s; {cost.seconds:.1f} s of its time, {cost.longest:.1f} s the longest."
    )


def _more(number: int, thing: str) -> Iterator[str]:
    if number > _MOST:
        yield f"  and {counted(number - _MOST, f'more {thing}')}"


def _owner(row: Sequence[Cell]) -> str:
    owner, held, _, idle = row
    return f"  {_hours(idle):>10}  of {_hours(held):>10} held  {owner}"


def _incident(one: Incident) -> str:
    lasted = "" if one.resolved_at is None else f", {duration(one.resolved_at - one.since)}"
    where = one.label or one.subject.key
    return f"  {one.severity.value:<8}  {one.since:%Y-%m-%d %H:%MZ}{lasted}  {one.title}  {where}"


def _hours(value: Cell) -> str:
    return f"{value:,.1f} h" if isinstance(value, float) else "–"
