"""`gpuvigil lemons`: nodes, slots and GPUs whose hardware failed again and again."""

from collections.abc import Iterable
from datetime import datetime

from accounting.hardware.repeat_offenders import RULE, SPAN, Offender
from dashboard.lists.table import Column, Grid, length, whole, yes_or_no

COLUMNS = (
    Column(key="score", title="SCORE", show=lambda value: f"{value:.2f}", right=True),
    Column(key="part", title="PART"),
    Column(key="node", title="NODE", flexible=True),
    Column(key="name", title="NAME", flexible=True),
    Column(key="failures", title="FAILURES", show=whole, right=True),
    Column(key="last_ago_seconds", title="LAST AGO", show=length, right=True),
    Column(key="faults", title="FAULTS", flexible=True),
    Column(key="lemon", title="LEMON", show=yes_or_no),
    Column(key="cluster", title="CLUSTER", flexible=True),
)
_FOR_PEOPLE = 9
_ROWS_FOR_PEOPLE = 50


def grid(
    found: Iterable[Offender], cluster: str | None, *, everything: bool, now: datetime
) -> Grid:
    """Return a row per offender, worst first; single failures only with `everything`, or for a lemon."""
    wanted = [one for one in found if cluster in {None, one.cluster}]
    shown = [one for one in wanted if everything or len(one.failures) > 1 or one.is_lemon]
    rows = [
        (
            round(one.score, 2),
            one.part.value,
            one.node,
            one.name,
            len(one.failures),
            now - one.last_at,
            ", ".join(sorted({it.fault for it in one.failures})),
            one.is_lemon,
            one.cluster,
        )
        for one in shown
    ]
    return Grid(
        columns=COLUMNS,
        rows=rows,
        for_people=_FOR_PEOPLE,
        rows_for_people=_ROWS_FOR_PEOPLE,
        notes=[RULE],
        empty=f"Nothing failed twice in {SPAN.days} days.",
    )
