"""A host whose processors are slowed down by heat for much of the time: so are its jobs, and nothing else tells why.

Where the kernel counts no such time (other makers' processors, Linux before 5.5), nothing is told.
"""

from collections.abc import Iterator

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding, Subject

from ..evidence.processor_heat import OF_NODES, TIMES, share
from ..window.columns import seconds
from ..window.rows import Row
from ..window.window import Need, Span, Window
from . import Detector

NEEDS = (Need(measurement="node", span=Span.STEADY, aggregates=OF_NODES),)

_FAULT = FAULTS["host_throttled"]
# Of the time [ours]: a processor that is cooled well is slowed down for moments at most, and at half of its clock
# a fifth of the time costs what works on it a tenth.
_LEAST, _COVERAGE = 0.2, 0.8


def throttled_hosts(window: Window) -> list[Finding]:
    """Return one finding per node, for as long as heat slows its processors down."""
    rows = window.get("node", Span.STEADY)
    slowed = share(rows)
    many = (slowed >= _LEAST) & (seconds(rows) >= _COVERAGE * window.settings.steady_seconds)
    found = zip(rows.where(many), slowed[many].tolist(), strict=True)
    return [_finding(window, node, row, part) for (node, row), part in found]


def _finding(window: Window, node: Subject, row: Row, slowed: float) -> Finding:
    return Finding(
        fault="host_throttled",
        subject=node,
        severity=_FAULT.severity,
        since=row["first_at"],
        evidence=(
            Evidence(
                name="heat slowed its processors down",
                value=f"{100.0 * slowed:.0f} % of the time",
                limit=f"under {100.0 * _LEAST:g} %",
            ),
            *_times(window, row),
        ),
        detector="host_throttled",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
    )


def _times(window: Window, row: Row) -> Iterator[Evidence]:
    """Yield how often it began, where that was counted."""
    if (times := row[TIMES.column]) is not None:
        minutes = window.settings.steady_seconds / 60.0
        yield Evidence(name="it began", value=f"{times:,.0f} times in {minutes:g} min")


DETECTOR = Detector(
    name="host_throttled",
    find=throttled_hosts,
    faults=found_by("host_throttled"),
    needs=NEEDS,
    sentence="A node whose processors are slowed down by heat.",
    source="package_throttle_total_time_ms of the Linux kernel, on Intel processors",
)
