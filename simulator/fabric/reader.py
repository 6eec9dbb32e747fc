"""The reader of simulated switches: the code that reads real ones, without its clock and its memory."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from gpuvigil.model import Switch
from integrations.fabric.seen import SeenSwitch
from integrations.fabric.switches import Switches, after_look, is_cut_off, worth_telling


class Reader:
    """A repeated reader of a simulated fabric that returns what to report."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._now: Switches = {}
        self._told: Switches = {}

    def look(self, found: Mapping[str, SeenSwitch], at: datetime) -> Sequence[Switch]:
        """Return the switches with news or due for a report; none where too few answer to be believed."""
        if is_cut_off(self._now, found):
            return ()
        self._now = after_look(self._now, found, self._cluster, at)
        news = worth_telling(self._told, self._now)
        self._told = {**self._told, **{it.guid: it for it in news}}
        return news
