"""Events with a code that a table explains: which of them stand, and the finding from the worst."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, Protocol, TypeVar

from gpuvigil.faults import Scope
from gpuvigil.lifecycle import ACTIVE, State
from gpuvigil.model import Event, EventKind, Evidence, Finding, Severity, Subject

from ..window.window import Window
from .cures import cured_at

# The GPUs of a machine answer by then after it began to boot, even with an upgraded driver [ours].
_ANSWERS_WITHIN = timedelta(minutes=20)


class Row(Protocol):
    """A table's row about a code."""

    @property
    def title(self) -> str: ...
    @property
    def severity(self) -> Severity: ...
    @property
    def scope(self) -> Scope: ...
    @property
    def action(self) -> str: ...
    @property
    def source(self) -> str: ...


_BySubject = Sequence[tuple[Subject, Sequence[Event]]]
Row_co = TypeVar("Row_co", bound=Row, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coded(Generic[Row_co]):
    """A fault told by coded events of one kind; `code` returns None for an event of another fault."""

    fault: str
    kind: EventKind
    code: Callable[[Event], int | None]
    row: Callable[[Event], Row_co]
    # Codes whose meaning depends on what comes with them: alone they wait for the next pass.
    waits: frozenset[int] = frozenset()
    # A cache: the events that were looked through last, which nobody modifies, and the result.
    _last: list[tuple[Mapping[str, Sequence[Event]], _BySubject]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def active(self, window: Window) -> Iterator[tuple[Subject, list[Event]]]:
        """Yield each subject's events that stand: sticky ones until a cure, others while they repeat."""
        for subject, events in self._by_subject(window.events):
            kept = self._kept(window, subject, events)
            if kept:
                yield subject, kept

    def _by_subject(self, events: Mapping[str, Sequence[Event]]) -> _BySubject:
        """Return each subject's events of this fault, old ones included, cached between passes."""
        for known, last in tuple(self._last):
            if known is events:
                return last
        told: dict[Subject, list[Event]] = defaultdict(list)
        for event in (event for them in events.values() for event in them):
            if event.kind is self.kind and self.code(event) is not None:
                told[event.subject].append(event)
        found = sorted(told.items())
        self._last[:] = [(events, found)]
        return found

    def worst(self, events: Sequence[Event]) -> Event:
        """Return the gravest event; among equals the newest."""
        return min(events, key=lambda e: (self.row(e).severity.rank, -e.at.timestamp()))

    def finding(
        self,
        window: Window,
        subject: Subject,
        events: Sequence[Event],
        evidence: Sequence[Evidence],
    ) -> Finding:
        """Return a finding with the severity, action and source of the worst event's row."""
        worst = self.worst(events)
        row = self.row(worst)
        return Finding(
            fault=self.fault,
            subject=subject,
            severity=row.severity,
            since=events[0].at,
            evidence=tuple(evidence),
            detector=self.fault,
            action=row.action,
            source=row.source,
            # An info only goes into the digest, so it can wait for the driver's own state.
            certain=row.severity is not Severity.INFO
            and not {self.code(event) for event in events} <= self.waits,
            late=window.came_late(events),
            title=row.title,
            xid=worst.xid,
            sxid=worst.sxid,
        )

    def _kept(self, window: Window, subject: Subject, events: Sequence[Event]) -> list[Event]:
        young = window.now - timedelta(seconds=window.settings.passing_xid_seconds)
        last = {self.code(event): event.at for event in events}
        kept = [
            event
            for event in events
            if last[self.code(event)] > young or self.row(event).scope is Scope.STICKY
        ]
        cured = cured_at(window, self.fault, subject) if kept else None
        kept = kept if cured is None else [event for event in kept if event.at >= cured]
        return kept if not kept or _has_incident(window, subject) else _since_boot(window, kept)


def _has_incident(window: Window, subject: Subject) -> bool:
    return any(
        one.subject == subject and State(one.state) in ACTIVE for one in window.recent_incidents
    )


def _since_boot(window: Window, events: Sequence[Event]) -> list[Event]:
    """Return the events since the node's last boot, where that was just now; else all.

    Whether a boot helped shows once its GPU answers. Until then what came before it opens no incident: an NVSwitch's
    ends with the boot, and each of its GPUs would have one.
    """
    boots = window.node_events(events[0].subject.of_node(), EventKind.BOOT)
    lately = [boot.at for boot in boots if window.now - boot.at < _ANSWERS_WITHIN]
    return [event for event in events if not lately or event.at >= max(lately)]
