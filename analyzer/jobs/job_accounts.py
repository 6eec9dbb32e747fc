"""Whose account the jobs are on that an incident hits, and in which partition; beside the analysis.

No detector asks for it: it is written into an incident's impact on the way to the hub, so that
routes and silences can go by it.
"""

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuvigil.model import UNREADABLE, Allocation, Record, RecordKind, Subject

# Jobs that ended on a node, of which an incident may still speak.
MOST_ENDED = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What its nodes were told of it."""

    account: str | None
    partition: str | None


class Jobs:
    """All jobs that hold a GPU, and those that did last, by node and holder; for any thread.

    Of an incident only the nodes that it is about are believed: what another one says of a job of
    that name neither routes nor silences it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[tuple[str, str], Job] = {}
        self._ended: dict[tuple[str, str], Job] = {}

    def ingest(self, record: Record) -> None:
        """Take in an allocation; other records say nothing about jobs."""
        if record.kind is not RecordKind.ALLOCATION:
            return
        try:
            allocation = Allocation.from_record(record)
        except UNREADABLE:
            return  # the analysis says so
        job = Job(account=allocation.account, partition=allocation.partition)
        if job == Job(account=None, partition=None):
            return
        key = allocation.subject.of_node().key, str(allocation.holder)
        with self._lock:
            if allocation.ended_at is None:
                self._held[key] = job
                return
            self._held.pop(key, None)
            self._ended.pop(key, None)
            self._ended[key] = job
            while len(self._ended) > MOST_ENDED:
                del self._ended[next(iter(self._ended))]

    def named(self, record: Record) -> Record:
        """An incident, or a transition with its snapshot, that says accounts and partitions."""
        if record.kind is RecordKind.INCIDENT:
            return replace(record, body=self._named(record.subject, record.body))
        if record.kind is RecordKind.TRANSITION:
            snapshot = record.body["snapshot"]
            body = self._named(str(snapshot["subject"]), snapshot["body"])
            return replace(record, body={**record.body, "snapshot": {**snapshot, "body": body}})
        return record

    def _named(self, subject: str, body: Mapping[str, Any]) -> dict[str, Any]:
        impact = body["impact"]
        about = {Subject.parse(key).of_node().key for key in (subject, *body.get("members", ()))}
        jobs = self._of(about, impact["holders"])
        accounts = sorted({job.account for job in jobs if job.account})
        partitions = sorted({job.partition for job in jobs if job.partition})
        return {**body, "impact": {**impact, "accounts": accounts, "partitions": partitions}}

    def _of(self, nodes: Collection[str], holders: Sequence[str]) -> Sequence[Job]:
        with self._lock:
            keys = [(node, holder) for node in nodes for holder in holders]
            found = [self._held.get(key) or self._ended.get(key) for key in keys]
        return [job for job in found if job is not None]
