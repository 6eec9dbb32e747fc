"""Loads what asks where ranks stand, only if a site has switched it on."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from gpuvigil.clock import Clock
from gpuvigil.config import CollectorSettings
from gpuvigil.model import Allocation, Event

from ..rows.catalogue_rows import Row
from ..rows.events import EventMaker


class RankWatcher(Protocol):
    """The interface that the agent uses."""

    def update(
        self,
        rows: Iterable[Row],
        processes: Mapping[str, Iterable[int]],
        held: Iterable[Allocation],
    ) -> None: ...

    def stop(self) -> None: ...


class _Off:
    def update(self, *_: object) -> None:
        """Look at nothing."""

    def stop(self) -> None:
        """Stop nothing: nothing runs."""


def rank_watcher(
    settings: CollectorSettings,
    events: EventMaker,
    clock: Clock,
    post: Callable[[Callable[[], None]], None],
    record: Callable[[Sequence[Event]], None],
) -> RankWatcher:
    """Return what the settings ask for: a watcher, or one that does nothing."""
    is_on = (
        settings.nccl_ras
        or settings.flight_recorder_directories
        or settings.nccl_inspector_directories
    )
    if not is_on:
        return _Off()
    from .ranks_supervisor import Ranks  # noqa: PLC0415 - see above

    return Ranks(settings, events, clock, post, record)
