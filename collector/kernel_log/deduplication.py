"""Deduplication of Xids that both the kernel log and NVML report."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuvigil.model import Event

SAME_SECONDS = 10.0
# The most reports that wait for their twin, by source, GPU and code. Beyond that the oldest are
# dropped: their twins are then reported once more, and nothing is lost.
_MOST_WAITING = 1000
_MOST_SORTS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report of one source; `told` is false where it was only counted."""

    id: str
    at: datetime
    recorded: bool


_Key = tuple[str, str, int | None]


class ReportMatcher:
    """Matches reports of two sources about the same event; each report matches one other at most."""

    def __init__(self, same_seconds: float = SAME_SECONDS) -> None:
        self._same = timedelta(seconds=same_seconds)
        self._waiting: dict[_Key, deque[Report]] = {}

    def answered(self, source: str, event: Event) -> Report | None:
        """Return and drop another source's report that this event repeats; None when there is none."""
        for key in self._of_others(source, event):
            reports = self._waiting[key]
            self._expire(reports, event.at)
            for report in reports:
                if abs(event.at - report.at) <= self._same:
                    reports.remove(report)
                    return report
        return None

    def wait(self, source: str, event: Event, *, recorded: bool) -> None:
        """Keep a report of this event, as another source may report the same soon."""
        key = (source, event.subject.key, event.xid)
        if key not in self._waiting and len(self._waiting) >= _MOST_SORTS:
            self._forget(event.at)
        reports = self._waiting.setdefault(key, deque(maxlen=_MOST_WAITING))
        self._expire(reports, event.at)
        reports.append(Report(id=event.id, at=event.at, recorded=recorded))

    def _of_others(self, source: str, event: Event) -> Iterator[_Key]:
        for other in ("kernel", "driver"):
            key = (other, event.subject.key, event.xid)
            if other != source and key in self._waiting:
                yield key

    def _expire(self, reports: deque[Report], at: datetime) -> None:
        while reports and at - reports[0].at > self._same:
            reports.popleft()

    def _forget(self, at: datetime) -> None:
        """Drop reports that wait in vain; if that frees nothing, drop all."""
        for reports in self._waiting.values():
            self._expire(reports, at)
        self._waiting = {key: reports for key, reports in self._waiting.items() if reports}
        if len(self._waiting) >= _MOST_SORTS:
            self._waiting.clear()
