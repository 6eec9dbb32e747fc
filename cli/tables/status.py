"""`gpuvigil status`: what needs attention, worst first, and the state of each cluster."""

from collections.abc import Sequence

from dashboard.data.attention import Attention
from dashboard.lists.fleet_now import FleetNow
from dashboard.lists.table import Column, Grid, length
from dashboard.model.cluster import ClusterView, DisplayState
from gpuvigil.model import Severity
from gpuvigil.numbers_in_words import counted, percent, watts

_LOOKS = (
    (DisplayState.ACTIVE, "active"),
    (DisplayState.IDLE, "idle"),
    (DisplayState.FREE, "free"),
    (DisplayState.DEGRADED, "degraded"),
    (DisplayState.FAILED, "unavailable or failing"),
    (DisplayState.OUT, "out of service"),
    (DisplayState.UNKNOWN, "unknown"),
)

COLUMNS = (
    Column(key="severity", title="SEVERITY", toned=True),
    Column(key="for_seconds", title="FOR", show=length, right=True),
    Column(key="where", title="WHERE", flexible=True),
    Column(key="what", title="WHAT", flexible=True),
    Column(key="impact", title="IMPACT", flexible=True),
    Column(key="state", title="STATE"),
    Column(key="cluster", title="CLUSTER", flexible=True),
    Column(key="incident", title="INCIDENT", flexible=True),
    Column(key="action", title="FIRST ACTION", flexible=True),
)
# The columns that fit in 80 characters; programs get all of them.
_FOR_PEOPLE = 5
_WELL = "Nothing needs attention."
_NO_NODE = "No node has reported yet: 'gpuvigil join' on each makes it report."


def grid(moment: FleetNow) -> Grid:
    """Return a row per open incident, in the order in which people should handle them."""
    active = _open_incidents(moment)
    rows = [
        (
            one.severity.value,
            moment.now - one.since,
            one.label,
            one.title,
            one.impact,
            one.state,
            one.subject.cluster,
            one.id,
            one.action,
        )
        for one in active
    ]
    return Grid(
        columns=COLUMNS,
        rows=rows,
        for_people=_FOR_PEOPLE,
        head=[*moment.view.warnings, *map(sentence, moment.clusters)],
        notes=[f"First: {one.label}: {one.action}" for one in active[:1]],
        empty=_WELL if moment.view.clusters else _NO_NODE,
    )


def exit_code(moment: FleetNow) -> int:
    """Return 2 if an open incident is critical, 1 if one is a warning, 3 if the view has gaps or no node, else 0."""
    active = {one.severity for one in _open_incidents(moment)}
    if Severity.CRITICAL in active:
        return 2
    if Severity.WARNING in active:
        return 1
    return 3 if moment.view.warnings or not moment.view.clusters else 0


def _open_incidents(moment: FleetNow) -> Sequence[Attention]:
    names = {one.name for one in moment.clusters}
    return [one for one in moment.view.attention if one.subject.cluster in names]


def sentence(cluster: ClusterView) -> str:
    """Return a cluster's state in one line; a simulated cluster is marked."""
    strip, marked = cluster.strip, " (simulated)" if cluster.simulated else ""
    counts = [f"{strip.looks[look]:,} {word}" for look, word in _LOOKS if strip.looks[look]]
    if not strip.gpus:
        return f"{cluster.name}{marked}: no GPUs on {counted(len(cluster.layout.nodes), 'node')}"
    use = f"{percent(strip.held_percent)} allocated"
    if strip.used_percent is not None:
        use += f", {percent(strip.used_percent)} of that used"
    if not strip.holders_known:
        use = "holders not known"
    power = "" if strip.power_watts is None else f"; {watts(strip.power_watts)}"
    return (
        f"{cluster.name}{marked}: {counted(strip.gpus, 'GPU')}: {', '.join(counts)}; {use}{power}"
    )
