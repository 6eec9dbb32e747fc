"""The embedded store, accessed through the hub that owns it."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from ..clock import to_text
from ..errors import HubRefused, StoreError
from ..hub_client import Hub
from . import Aggregate


class HubStore:
    """`gpuvigil.store.Store` over HTTP; HubUnavailable when the hub does not answer."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def write(self, lines: bytes) -> None:
        """See `Store.write`."""
        try:
            self._hub.request("POST", "/api/v2/write?precision=ns", lines)
        except HubRefused as error:
            raise StoreError(str(error)) from error

    def window(
        self, measurement: str, aggregates: Sequence[Aggregate], start: datetime, end: datetime
    ) -> pa.Table:
        """See `Store.window`."""
        return self._ask(
            "window",
            {
                "measurement": measurement,
                "aggregates": [[a.function.value, a.field] for a in aggregates],
                "start": to_text(start),
                "end": to_text(end),
            },
        )

    def series(
        self,
        measurement: str,
        fields: Sequence[str],
        where: Mapping[str, str],
        span: tuple[datetime, datetime],
        step: timedelta,
    ) -> pa.Table:
        """See `Store.series`."""
        return self._ask(
            "series",
            {
                "measurement": measurement,
                "fields": list(fields),
                "where": dict(where),
                "start": to_text(span[0]),
                "end": to_text(span[1]),
                "step_seconds": step.total_seconds(),
            },
        )

    def latest(self, measurement: str, fields: Collection[str], since: datetime) -> pa.Table:
        """See `Store.latest`."""
        return self._ask(
            "latest",
            {"measurement": measurement, "fields": list(fields), "since": to_text(since)},
        )

    def forget(self, before: datetime) -> None:
        """See `Store.forget`."""
        try:
            self._hub.telemetry("forget", {"before": to_text(before)})
        except HubRefused as error:
            raise StoreError(str(error)) from error

    def _ask(self, verb: str, question: Mapping[str, Any]) -> pa.Table:
        try:
            return pa.ipc.open_stream(self._hub.telemetry(verb, question)).read_all()
        except HubRefused as error:
            raise StoreError(str(error)) from error
