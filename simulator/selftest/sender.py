"""Sending what the selftest's nodes report, as their collectors would: bodies with a name and a number."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType

from collector.spool.batches import Sender
from collector.spool.remote_write import DirectStore
from gpuvigil.clock import to_text
from gpuvigil.hub_client import Hub
from gpuvigil.model import Record, Subject

_TIMEOUT_SECONDS = 20.0
_ANSWER_BYTES = 1024 * 1024


class Wire(AbstractContextManager["Wire"]):
    """A connection for each node: the hub answers a body only with its next commit."""

    def __init__(
        self, connect: Callable[[], Hub], direct_store: DirectStore | None, run: str
    ) -> None:
        self._connect = connect
        self._direct_store = direct_store
        self._run = run
        self._hubs: dict[Subject, Hub] = {}
        self._numbers = Counter[Subject]()
        self._records = connect()
        self._pool = ThreadPoolExecutor(max_workers=64, thread_name_prefix="selftest")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        for hub in (self._records, *self._hubs.values()):
            hub.close()

    def lines(
        self, told: Mapping[Subject, Iterable[str]], at: datetime, ahead: Mapping[Subject, float]
    ) -> None:
        """Send a body of lines for each node; return once all are committed.

        `ahead` is by how many seconds a node's clock is ahead. HubError when the hub, or the store beside it,
        does not take one of them.
        """
        jobs = [
            self._pool.submit(self._send, node, list(lines), at, ahead.get(node, 0.0))
            for node, lines in told.items()
        ]
        for job in jobs:
            job.result()

    def inventories(
        self,
        told: Mapping[Subject, Record],
        now: Callable[[], datetime],
        ahead: Mapping[Subject, float],
    ) -> None:
        """Send an inventory for each node: where lines bypass the hub, it knows a node's clock only by these."""
        for node, record in told.items():
            at = now()
            body = self._sender(node).records([record], at)
            headers = {**body.headers, **_sent(at, ahead.get(node, 0.0))}
            self._records.request("POST", body.path, body.content, headers)

    def records(self, records: Iterable[Record]) -> None:
        """Send events and allocations."""
        self._records.write_records(records)

    def _send(self, node: Subject, lines: list[str], at: datetime, ahead_seconds: float) -> None:
        body = self._sender(node).telemetry(lines, at)
        hub = self._hubs.get(node)
        if hub is None:
            hub = self._hubs[node] = self._new()
        if self._direct_store is not None:
            self._direct_store.send(hub, body)
            return
        self._numbers[node] += 1
        headers = {
            **body.headers,
            "Gpuvigil-Lane": "live",
            "Gpuvigil-Sequence": str(self._numbers[node]),
            **_sent(at, ahead_seconds),
        }
        body = replace(body, headers=headers)
        hub.request("POST", body.path, body.content, body.headers)

    def _sender(self, node: Subject) -> Sender:
        return Sender(cluster=node.cluster, node=node.node, boot=self._run)

    def _new(self) -> Hub:
        if self._direct_store is None:
            return self._connect()
        return self._direct_store.connect(_TIMEOUT_SECONDS, _ANSWER_BYTES)


def _sent(at: datetime, ahead_seconds: float) -> dict[str, str]:
    """Return the header with the time of sending, by the node's own clock."""
    return {"Gpuvigil-Sent-At": to_text(at + timedelta(seconds=ahead_seconds))}
