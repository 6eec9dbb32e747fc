"""The reader of simulated switches: the code that reads real ones, without its clock."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from gpuvigil.model import Switch
from integrations.fabric.seen import SeenSwitch
from integrations.fabric.switches import (
    Switches,
    changed_switches,
    is_cut_off,
    merged,
    remember,
    remembered,
)


class Reader:
    """A repeated reader of a simulated fabric that returns what to report.

    What it knows is kept in `file`, so that a link that was slow before a restart is not taken for a sound one.
    """

    def __init__(self, cluster: str, file: Path | None = None) -> None:
        self._cluster = cluster
        self._file = file
        self._now: Switches = {} if file is None else remembered(file)
        self._told: Switches = {}

    def look(self, found: Mapping[str, SeenSwitch], at: datetime) -> Sequence[Switch]:
        """Return the switches with news or due for a report; none where too few answer to be believed."""
        if is_cut_off(self._now, found):
            return ()
        self._now = merged(self._now, found, self._cluster, at)
        news = changed_switches(self._told, self._now)
        self._told = {**self._told, **{it.guid: it for it in news}}
        if self._file is not None and news:
            with suppress(OSError):  # what is lost is seen again
                remember(self._file, self._now.values())
        return news
