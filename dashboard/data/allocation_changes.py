"""When jobs, pods and programs took or released which GPUs.

In a large cluster one of thousands changes every second, so only the changed ones are worked out again.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuvigil.model import Allocation, HolderKind, Subject
from gpuvigil.web import page_links

# Steps of one kind that follow each other within this time are one burst.
BURST = timedelta(minutes=5)

_Name = tuple[str, str, str]  # cluster, name, user
_Span = list[tuple[datetime, Subject]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AllocationChange:
    """A burst of GPUs that one job, pod or program took or released."""

    at: datetime
    said: str  # "job 7 of alice started"
    span: _Span
    page: str  # its own page; empty for a program


class AllocationChanges:
    """All changes, kept up to date with each allocation's changes; for one thread at a time."""

    def __init__(self) -> None:
        self._held: dict[_Name, dict[str, Allocation]] = {}
        self._done: dict[_Name, list[AllocationChange]] = {}
        self._changed: set[_Name] = set()

    def put(self, id_: str, before: Allocation | None, after: Allocation | None) -> None:
        """Replace an allocation's version `before` by `after`; None stands for no allocation."""
        if before is not None:
            name = _name(before)
            del self._held[name][id_]
            self._changed.add(name)
        if after is not None:
            name = _name(after)
            self._held.setdefault(name, {})[id_] = after
            self._changed.add(name)

    def by_cluster(self) -> Mapping[str, tuple[AllocationChange, ...]]:
        """Return the changes of all allocations, by cluster, in no order."""
        for name in self._changed:
            self._done[name] = _changes_of(name, self._held[name].values())
            if not self._held[name]:
                del self._held[name], self._done[name]
        self._changed.clear()
        found: dict[str, list[AllocationChange]] = {}
        for (cluster, _, _), done in self._done.items():
            found.setdefault(cluster, []).extend(done)
        return {cluster: tuple(done) for cluster, done in found.items()}


def _name(one: Allocation) -> _Name:
    named = one.holder.kind in {HolderKind.JOB, HolderKind.POD}
    name = str(one.holder) if named else one.command or "a program"
    return one.subject.cluster, name, one.user or ""


def _changes_of(name: _Name, held: Collection[Allocation]) -> list[AllocationChange]:
    cluster, called, user = name
    who = f"{called} of {user}" if user else called
    stands = any(one.ended_at is None for one in held)
    # The start of allocations that were there at the first look is not known.
    started = _spans((one.started_at, one.subject) for one in held if not one.began_before)
    ends = _spans((one.ended_at, one.subject) for one in held if one.ended_at is not None)
    # A job may release some of its GPUs and go on with the others.
    last = len(ends) if stands else len(ends) - 1
    said = [
        *((f"{who} started", span) for span in started),
        *((f"{who} let go", span) for span in ends[:last]),
        *((f"{who} ended", span) for span in ends[last:]),
    ]
    page = next((page_links.job_page(cluster, one.holder) for one in held), "")
    return [AllocationChange(at=span[0][0], said=text, span=span, page=page) for text, span in said]


def _spans(moments: Iterable[tuple[datetime, Subject]]) -> list[_Span]:
    """Group moments that follow each other within `BURST`."""
    found: list[_Span] = []
    for one in sorted(moments):
        if found and one[0] - found[-1][-1][0] <= BURST:
            found[-1].append(one)
        else:
            found.append([one])
    return found
