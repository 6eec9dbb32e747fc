"""What the detectors cannot judge in a recording that lacks their inputs."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from analyzer.correlation.all_detectors import DETECTORS, Detector

# Rows of GPUs imply these, whatever columns they have.
_ALWAYS = frozenset({"gpu.up", "gpu.index", "node.driver_answering", "gpu.unmeasured_reason"})
_MOST = 4  # columns in a line for people
HOLDERS = "jobs"  # who holds which GPU
# What only gpuvigil's own collector reports about itself.
_OF_COLLECTOR = frozenset(
    {"node.dropped_bodies", "node.spool_oldest_seconds", "gpu.unmeasured_seconds"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unjudged:
    """A detector, and what it reads that the recording does not have."""

    detector: str
    faults: tuple[str, ...]
    missing: tuple[str, ...]  # `gpu.power_watts`; `events or kernel`; `jobs`
    wholly: bool  # whether nothing that it reads is there


def unjudged(given: Collection[str], detectors: Sequence[Detector] = DETECTORS) -> list[Unjudged]:
    """Return the detectors that cannot judge anything in a recording, then those that can judge in part."""
    found = [one for detector in detectors if (one := _of(detector, given)) is not None]
    return sorted(found, key=lambda one: (not one.wholly, one.detector))


def _of(detector: Detector, given: Collection[str]) -> Unjudged | None:
    asked = {
        f"{need.measurement}.{name}"
        for need in detector.needs
        for name in (*need.fields, *(it.field for it in need.aggregates))
    } - _OF_COLLECTOR
    by_rows = asked & _ALWAYS if "gpu" in given else set()
    missing = sorted(asked - set(given) - by_rows)
    told = {"events", "kernel"} & set(given)
    if detector.reads_events and not told:
        missing.append("events or kernel")
    nobody = detector.needs_holders and HOLDERS not in given
    if nobody:
        missing.insert(0, HOLDERS)
    if not missing:
        return None
    # A row of anything also says that its node is there.
    by_absence = detector.judges_absence and any(
        need.measurement in {*given, "node"} for need in detector.needs
    )
    judged = (asked & set(given)) - _ALWAYS or by_absence or (detector.reads_events and told)
    return Unjudged(
        detector=detector.name,
        faults=detector.faults,
        missing=tuple(missing),
        wholly=nobody or not judged,
    )


def lines(found: Sequence[Unjudged]) -> Iterator[str]:
    """Yield lines for people, as `cannot judge host_disk: no node.spool_writable`."""
    for one in found:
        words = ", ".join(one.missing[:_MOST])
        more = f" and {len(one.missing) - _MOST} more" if len(one.missing) > _MOST else ""
        what = "cannot judge" if one.wholly else "judges with less"
        yield f"{what}: {', '.join(one.faults)}: no {words}{more}"
