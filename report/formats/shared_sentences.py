"""Sentences about the report itself, the same in every output that people read."""

from accounting.usage import BUCKET
from gpuvigil.clock import duration

from ..model import formatting
from ..model.content import Report


def coverage_words(report: Report) -> tuple[str, ...]:
    """Return sentences on how much is known, and which nodes are left out."""
    method = report.method
    missing, whole = (duration(it * BUCKET) for it in (method.quarters_missing, method.quarters))
    holes = f"{missing} of {whole} were not counted at all"
    if method.quarters and not method.quarters_missing:
        holes = "no quarter of an hour is missing"
    said = [
        f"Coverage: the state of {formatting.percent(method.coverage_percent, 1)} of GPU-hours is known; "
        f"{holes}."
    ]
    if method.counted_since is not None:
        said[0] = f"Counting began at {formatting.at(method.counted_since)}. {said[0]}"
    if method.excluded_nodes:
        said.append(f"Nodes without a GPU to count: {', '.join(method.excluded_nodes)}.")
    return tuple(said)


def made(report: Report) -> str:
    """Say which gpuvigil version and collectors made the report, and when."""
    method = report.method
    collectors = ", ".join(method.collector_versions) or "none"
    return (
        f"Made by gpuvigil {method.version} on {formatting.day(report.made_at)}, {report.made_at:%H:%M} UTC; "
        f"collectors: {collectors}."
    )
