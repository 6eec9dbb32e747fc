"""A cache of aggregates per time slice, for questions that are repeated while time goes on.

A rule looks at the last half hour every ten seconds: all but the two ends of that half hour is what
it was ten seconds ago. For a kind of question that came before, the aggregates of hot lines in
whole slices of its range are kept until a commit touches them, and only the rest is read.
"""

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from .aggregates import Piece, pieces_of
from .dense_arrays import SlotAggregates
from .line_arrays import Ints
from .question import Series, Window
from .subject_slots import SubjectSlots

Span = tuple[int, int]
# Times of hot lines that are added or removed, by measurement; None when all may change.
Change = Mapping[str, Ints] | None
_SECOND_NS = 1_000_000_000
# A shorter range is read without the cache.
_SHORTEST_NS = 300_000_000_000
# Slices of a range: the two ends that are read each time are together as long as one of them.
_SLICES = 16
# A slice that ended less than this ago is not kept: more lines of that time often follow.
_SETTLED_NS = 5_000_000_000
# Slices dropped by commits that are read again for one question: a backlog touches all of them
# again and again. All are read the first time, and once in a while where none is left.
_MOST_MADE = 4
_ALL_AGAIN = 10  # questions of a kind
_MOST_KINDS = 64
# A kind that has not come among so many questions is dropped.
_STALE = 500


@dataclass(frozen=True, slots=True)
class Kind:
    """Questions that differ only in the time at which they are asked."""

    measurement: str
    pieces: tuple[tuple[str, tuple[Piece, ...]], ...]
    length_ns: int

    @property
    def step_ns(self) -> int:
        """The length of a slice in nanoseconds, in whole seconds."""
        return self.length_ns // _SLICES // _SECOND_NS * _SECOND_NS


@dataclass(slots=True)
class _Kept:
    asked: int  # number, among all questions, of the last one of this kind
    times: int = 0
    all_due: int = 0  # value of `times` from which all slices may be read for one question
    slices: dict[int, SlotAggregates] = field(default_factory=dict)
    # The sum of some slices, and which: they stay the same for a few questions.
    summed: tuple[frozenset[int], SlotAggregates] | None = None

    @property
    def bytes(self) -> int:
        """The memory of the slices and their sum, in bytes."""
        summed = 0 if self.summed is None else self.summed[1].bytes
        return summed + sum(it.bytes for it in self.slices.values())

    def drop(self, starts: Collection[int]) -> None:
        """Drop these slices, and a sum that includes any of them."""
        for start in starts:
            self.slices.pop(start, None)
        if self.summed is not None and not self.summed[0].isdisjoint(starts):
            self.summed = None

    def most_made(self, knows_some: bool) -> int:
        """Return how many slices may be read for this question."""
        self.times += 1
        if knows_some or self.times < self.all_due:
            return _MOST_MADE
        self.all_due = self.times + _ALL_AGAIN
        return _SLICES


@dataclass(slots=True)
class Plan:
    """How a question's hot lines are read: the known slices, those to be kept, and the rest."""

    slots: SubjectSlots
    kind: Kind | None
    known: Sequence[SlotAggregates] = ()
    making: Sequence[Span] = ()
    rest: Sequence[Span] = ()
    made: dict[int, SlotAggregates] = field(default_factory=dict)
    # The slices that commits have touched since, or may have; None for all.
    touched: set[int] | None = field(default_factory=set)
    starts: frozenset[int] = frozenset()  # starts of the known slices
    summed: SlotAggregates | None = None  # the sum of all known slices


class RollupCache:
    """The slices kept for all kinds of questions, limited in bytes; any thread may call."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._slots: dict[str, SubjectSlots] = {}
        self._kept: dict[Kind, _Kept] = {}
        self._came: OrderedDict[Kind, None] = OrderedDict()  # kinds that came once so far
        self._asked = 0
        self._open: list[Plan] = []
        self._changes: list[Change] = []

    @property
    def bytes(self) -> int:
        """The memory of all slices, in bytes."""
        return sum(kept.bytes for kept in self._kept.values())

    @contextmanager
    def planned(self, question: Window | Series) -> Iterator[Plan]:
        """Yield the plan to read by; what is put into its `made` is kept, unless a commit touched
        it.
        """
        with self._lock:
            plan = self._plan(question)
            self._open.append(plan)
            for change in self._changes:
                _touch(plan, change)
        try:
            yield plan
        finally:
            with self._lock:
                self._open = [it for it in self._open if it is not plan]
                self._keep(plan)

    def holds(self, plan: Plan) -> bool:
        """Return whether the plan's known slices still hold for a snapshot that was taken since."""
        with self._lock:
            return plan.touched is not None and plan.touched.isdisjoint(plan.starts)

    @contextmanager
    def changing(self, change: Change) -> Iterator[None]:
        """Mark a commit under way that changes slices, and drop those that it touches."""
        with self._lock:
            self._changes.append(change)
            for plan in self._open:
                _touch(plan, change)
            for kind, kept in self._kept.items():
                kept.drop(_starts(kind, change))
            if change is None:
                # Subjects without hot lines need no slots.
                self._slots = {}
                for kept in self._kept.values():
                    kept.drop(list(kept.slices))
        try:
            yield
        finally:
            with self._lock:
                # By identity: two commits may be equal.
                at = next(n for n, it in enumerate(self._changes) if it is change)
                del self._changes[at]

    def _plan(self, question: Window | Series) -> Plan:
        tags = len(question.measurement.tags)
        slots = self._slots.setdefault(question.measurement.name, SubjectSlots(tags))
        whole = (question.start_ns, question.end_ns)
        plan = Plan(slots=slots, kind=self._admitted(question), rest=[whole])
        if plan.kind is None:
            return plan
        self._asked += 1
        kept, step = self._kept[plan.kind], plan.kind.step_ns
        kept.asked = self._asked
        starts = range(-(-whole[0] // step) * step, whole[1] - step - _SETTLED_NS, step)
        for start in [it for it in kept.slices if it + step < whole[0]]:
            del kept.slices[start]
        known = {it: kept.slices[it] for it in starts if it in kept.slices}
        missing = [it for it in starts if it not in known]
        made = missing[-kept.most_made(bool(known)) :] if missing and self._has_room() else []
        plan.known, plan.starts = list(known.values()), frozenset(known)
        if kept.summed is not None and kept.summed[0] == plan.starts:
            plan.summed = kept.summed[1]
        plan.making = [(it, it + step) for it in made]
        plan.rest = _without(whole, sorted({*known, *made}), step)
        return plan

    def _admitted(self, question: Window | Series) -> Kind | None:
        """Return the question's kind from its second time on; None if its slices are not kept."""
        length_ns = question.end_ns - question.start_ns
        if isinstance(question, Series) or length_ns < _SHORTEST_NS:
            return None
        pieces = tuple(sorted(pieces_of(question).items()))
        kind = Kind(question.measurement.name, pieces, length_ns)
        if kind in self._kept:
            return kind
        if kind not in self._came:
            self._came[kind] = None
            if len(self._came) > _MOST_KINDS:
                self._came.popitem(last=False)
            return None
        for gone in [it for it, kept in self._kept.items() if kept.asked < self._asked - _STALE]:
            del self._kept[gone]
        # A full cache admits no kind: kinds that took turns would be read anew each time.
        if len(self._kept) >= _MOST_KINDS or not self._has_room():
            return None
        del self._came[kind]
        self._kept[kind] = _Kept(self._asked)
        return kind

    def _has_room(self) -> bool:
        return self.bytes < self._most_bytes

    def _keep(self, plan: Plan) -> None:
        kept = self._kept.get(plan.kind) if plan.kind is not None else None
        if kept is None or plan.touched is None:
            return
        for start, made in plan.made.items():
            if start not in plan.touched:
                kept.slices[start] = made
        if plan.summed is not None and plan.touched.isdisjoint(plan.starts):
            kept.summed = plan.starts, plan.summed


def seconds_of(start_ns: int, end_ns: int) -> Ints:
    """Return times in every slice that overlaps this range: slices are of whole seconds."""
    return np.arange(start_ns, end_ns, _SECOND_NS)


def _touch(plan: Plan, change: Change) -> None:
    if change is None:
        plan.touched = None
    elif plan.touched is not None and plan.kind is not None:
        plan.touched |= _starts(plan.kind, change)


def _starts(kind: Kind, change: Change) -> set[int]:
    """Return the starts of the slices of a kind that lines of these times are in."""
    times = None if change is None else change.get(kind.measurement)
    return (
        set() if times is None else set((np.unique(times // kind.step_ns) * kind.step_ns).tolist())
    )


def _without(whole: Span, starts: Collection[int], step_ns: int) -> list[Span]:
    """Return the spans of a range that are in none of these slices, which are sorted and in it."""
    rest, at = [], whole[0]
    for start in starts:
        if at < start:
            rest.append((at, start))
        at = start + step_ns
    # The end, which has not settled, is in no slice.
    return [*rest, (at, whole[1])]
