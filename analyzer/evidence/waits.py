"""What NCCL Inspector's lines say of a GPU that its job waits for."""

from datetime import timedelta

from gpuvigil.model import EventKind, Evidence, Source, Subject

from ..window.window import Window

# A collector tells the same again after ten minutes.
_YOUNG = timedelta(minutes=15)


def waited_for(window: Window, gpu: Subject) -> Evidence | None:
    """That the rank on this GPU lately waited least of those on its node; None where that was not told."""
    found = None
    for event in (window.whole or window).node_events(gpu.of_node(), EventKind.COLLECTIVE):
        for of in event.collectives if window.now - event.at <= _YOUNG else ():
            if of.by is Source.INSPECTOR and of.ranks and of.ranks[0].gpu == gpu.gpu:
                found = of
    if found is None:
        return None
    (rank, *_) = found.ranks
    return Evidence(
        name="wait in collectives",
        value=f"rank {rank.rank} is in {found.operation} for {rank.microseconds} µs, the shortest in"
        f" {found.percent} % of {found.compared}, by NCCL Inspector",
        peers=f"{found.microseconds} µs",
    )
