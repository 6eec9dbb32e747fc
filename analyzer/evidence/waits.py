"""Ranks that their jobs wait for, by NCCL Inspector's lines."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from gpuvigil.model import Collective, EventKind, Evidence, Source, Subject

from ..window.window import Window

# A collector repeats a report after ten minutes.
_YOUNG = timedelta(minutes=15)


def firsts(window: Window, _asked: None = None) -> Mapping[Subject, tuple[datetime, Collective]]:
    """Return by GPU when its rank was last reported as waiting least on its node, and the report."""
    return {
        replace(event.subject.of_node(), gpu=of.ranks[0].gpu): (event.at, of)
        for event in (window.whole or window).all_events(EventKind.COLLECTIVE)
        for of in (event.collectives if window.now - event.at <= _YOUNG else ())
        if of.by is Source.INSPECTOR and of.ranks and of.ranks[0].gpu is not None
    }


def waited_for(window: Window, gpu: Subject) -> Evidence | None:
    """Return evidence that the rank on a GPU recently waited least; None if that was not reported."""
    told = window.once(firsts, None).get(gpu)
    if told is None:
        return None
    _, found = told
    (rank, *_) = found.ranks
    return Evidence(
        name="wait in collectives",
        value=f"rank {rank.rank} is in {found.operation} for {rank.microseconds} µs, the shortest in"
        f" {found.percent} % of {found.compared}{_cost(found)}, by NCCL Inspector",
        peers=f"{found.microseconds} µs",
    )


def _cost(found: Collective) -> str:
    if found.cost is None:
        return ""
    before = "" if found.cost_before is None else f", {found.cost_before / 10.0:g} % at first"
    return f": {found.cost / 10.0:g} % of the job's time{before}"
