"""Work that jobs lost to failures, by cause, since the last checkpoint where one is known."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from accounting.jobs.losses import Loss
from gpuvigil.numbers_in_words import counted

from ..inputs.facts import Facts
from ..model.sheet import Cell, Column, Kind, Sheet, exact

MOST = 8
NOT_TOLD = "What jobs lost at failures is not known: no scheduler reports jobs."


def work_lost(facts: Facts) -> Sheet | None:
    """Return a row per cause, the most costly first; None when nothing was lost or reported."""
    if not facts.lost:
        return None
    groups: defaultdict[str, list[Loss]] = defaultdict(list)
    for one in facts.lost:
        groups[one.said].append(one)
    order = sorted(groups, key=lambda said: (-_hours(groups[said])[1], said))
    lists = [(said, groups[said]) for said in order[:MOST]]
    if order[MOST:]:
        rest = [one for said in order[MOST:] for one in groups[said]]
        lists.append((f"{len(order) - MOST:,} more", rest))
    known = sum(one.since_checkpoint for one in facts.lost)
    return Sheet(
        key="work_lost",
        heading="Work that jobs lost at failures",
        caption=f"Since the last checkpoint, which is known of {known:,} of {counted(len(facts.lost), 'job')};"
        " of the others up to all that they did",
        columns=(
            Column(key="cause", label="Ended by"),
            Column(key="jobs", label="Jobs", kind=Kind.COUNT),
            Column(key="gpu_hours", label="GPU-hours lost", kind=Kind.HOURS),
            Column(key="node_hours", label="Node-hours lost", kind=Kind.HOURS),
        ),
        rows=tuple(_row(said, them) for said, them in lists),
        total=_row("all", facts.lost),
    )


def _row(said: str, them: Sequence[Loss]) -> tuple[Cell, ...]:
    return (
        said,
        float(len(them)),
        _cell(_hours(them)),
        _cell(_hours(them, by_node=True)),
    )


def _cell(hours: tuple[float, float]) -> Cell:
    low, high = exact(hours[0]), exact(hours[1])
    return low if low == high else (low, high)


def _hours(them: Iterable[Loss], *, by_node: bool = False) -> tuple[float, float]:
    """Return lower and upper bounds: a job without a known checkpoint may have written one right before."""
    low = high = 0.0
    for one in them:
        part = len(one.job.nodes) / one.job.gpus if by_node and one.job.gpus else 1.0
        hours = part * (one.gpu_hours or 0.0)
        low += hours if one.since_checkpoint else 0.0
        high += hours
    return low, high
