"""Which jobs an incident keeps from computing, or did until lately: nobody is blamed for what a fault took."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import timedelta

from accounting.efficiency.idle_query import Excuses, excuses
from gpuvigil.model import Allocation, Incident, Subject
from gpuvigil.silence_conditions import WERE_DOWN

from ..window.fault_kinds import SILENCES
from ..window.holdings import holder_key
from ..window.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldUp:
    """The holders that incidents hold up; each is looked at once."""

    window: Window
    excuses: Excuses
    _known: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def over(
        cls, window: Window, seconds: float, measured: Callable[[], Collection[str]]
    ) -> "HeldUp":
        """By what stood at any time within the last so many seconds.

        `measured` says, if asked, which nodes were measured all the while, by key: a silence that comes
        and goes there was the numbers' alone.
        """
        since = window.now - timedelta(seconds=seconds)
        lately = [one for one in window.stood if one.resolved_at is None or one.resolved_at > since]
        heard = measured() if any(one.fault in SILENCES for one in lately) else ()
        told = [one for one in lately if not _was_heard(one, heard)]
        return cls(window=window, excuses=excuses(told, since))

    def has(self, held: Allocation) -> bool:
        """Whether an incident on any GPU or node of its holder keeps that from computing."""
        key = holder_key(held)
        if key not in self._known:
            self._known[key] = self.excuses.hold_up(gpus_of(self.window, held))
        return self._known[key]


def gpus_of(window: Window, held: Allocation) -> list[Subject]:
    """All GPUs of its holder, in their order."""
    holder = window.holdings.get(holder_key(held))
    return [held.subject] if holder is None else sorted(holder.gpus)


def _was_heard(one: Incident, measured: Collection[str]) -> bool:
    if one.fault not in SILENCES or one.condition in WERE_DOWN:
        return False
    return all(
        Subject.parse(key).of_node().key in measured for key in {one.subject.key, *one.members}
    )
