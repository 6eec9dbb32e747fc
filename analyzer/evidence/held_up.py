"""Jobs that an incident keeps from computing, or did until lately: they are not blamed for that."""

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
    """The holders that incidents hold up; each is worked out once."""

    window: Window
    excuses: Excuses
    _known: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def over(
        cls, window: Window, seconds: float, measured: Callable[[], Collection[str]]
    ) -> "HeldUp":
        """Return the holders held up by incidents that stood within the last `seconds`.

        `measured` returns, when called, the keys of nodes that were measured all the while: there,
        a silence that came and went was only missing samples, and excuses nobody.
        """
        since = window.now - timedelta(seconds=seconds)
        lately = [
            one
            for one in window.recent_incidents
            if one.resolved_at is None or one.resolved_at > since
        ]
        heard = measured() if any(one.fault in SILENCES for one in lately) else ()
        told = [one for one in lately if not _was_measured(one, heard)]
        return cls(window=window, excuses=excuses(told, since))

    def has(self, held: Allocation) -> bool:
        """Tell whether an incident on any GPU or node of an allocation's holder holds it up."""
        key = holder_key(held)
        if key not in self._known:
            self._known[key] = self.excuses.hold_up(gpus_of(self.window, held))
        return self._known[key]


def gpus_of(window: Window, held: Allocation) -> list[Subject]:
    """Return all GPUs of an allocation's holder, sorted."""
    holder = window.holdings.get(holder_key(held))
    return [held.subject] if holder is None else sorted(holder.gpus)


def _was_measured(one: Incident, measured: Collection[str]) -> bool:
    if one.fault not in SILENCES or one.condition in WERE_DOWN:
        return False
    return all(
        Subject.parse(key).of_node().key in measured for key in {one.subject.key, *one.members}
    )
