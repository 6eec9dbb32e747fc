"""A node whose collector gives up what it measured, since there is no room for it."""

from gpuvigil.faults import FAULTS
from gpuvigil.model import Evidence, Finding
from gpuvigil.store import Aggregate, Function

from ..window import Need, Span, Window

DROPPED = Aggregate(function=Function.INCREASE, field="dropped_bodies")
NEEDS = (Need(measurement="node", span=Span.STEADY, aggregates=(DROPPED,)),)

_FAULT = FAULTS["host_disk"]
# A torn file after a power cut, or one body that the hub refused, is no full disk.
_BODIES = 3


def full_disks(window: Window) -> list[Finding]:
    """One finding per node whose collector dropped several bodies over the steady span."""
    rows = window.get("node", Span.STEADY)
    return [
        Finding(
            fault="host_disk",
            subject=node,
            severity=_FAULT.severity,
            since=row["last_at"],
            evidence=(
                Evidence(
                    name="dropped bodies",
                    value=f"{row[DROPPED.column]} in {window.settings.steady_seconds / 60.0:g} min",
                    limit=f"fewer than {_BODIES}",
                ),
            ),
            detector="host_disk",
            action=_FAULT.action,
            source=_FAULT.source,
        )
        for node, row in rows.where(rows.values(DROPPED.column) >= _BODIES)
    ]
