"""Sent reports, as the hub keeps them."""

from datetime import datetime

from gpuvigil.hub_client import Hub
from gpuvigil.model import RecordKind, readable
from gpuvigil.model.report_run import Letter, ReportRun

from ..sections.revised import EarlierNumbers


def earlier_numbers_since(hub: Hub, end: datetime) -> tuple[EarlierNumbers, ...]:
    """Return the numbers of reports made after `end`, which include those about the span up to it."""
    found = readable(hub.records(RecordKind.REPORT, since=end), ReportRun.from_record)
    return tuple(one for run in found for one in run.numbers)


def runs(hub: Hub, limit: int = 200) -> tuple[ReportRun, ...]:
    """Return the newest report runs, the last one first."""
    found = readable(hub.records(RecordKind.REPORT, limit=limit), ReportRun.from_record)
    return tuple(sorted(found, key=lambda one: one.due_at, reverse=True))


def letters_of(hub: Hub, run: ReportRun) -> dict[str, Letter]:
    """Return the delivery state of each of its letters, by receiver."""
    records = hub.records(RecordKind.LETTER, parent=run.id, limit=10_000)
    return {one.to: one for one in readable(records, Letter.from_record)}
