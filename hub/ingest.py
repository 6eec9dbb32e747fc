"""Telemetry in: `POST /api/v2/write`, as InfluxDB v2 takes it."""

import asyncio
import math
from typing import Literal, cast, get_args

from starlette.requests import Request
from starlette.responses import Response

from gpuvigil.clock import Clock
from gpuvigil.config import HubSettings
from gpuvigil.lineprotocol import Precision

from .answers import Refused, body_of, failure
from .body import Body, Outcome
from .committer import Committer
from .counters import Counters
from .seen import Identity, identity

# Refused lines that an answer names; their number is always right.
_MOST_NAMED = 1000


class Ingest:
    """The write path; each request waits until its body is committed."""

    def __init__(
        self, committer: Committer, settings: HubSettings, clock: Clock, counters: Counters
    ) -> None:
        self._committer = committer
        self._settings = settings
        self._clock = clock
        self._counters = counters

    async def write(self, request: Request) -> Response:
        """204 after the commit, 400 naming the lines at fault once the good ones are committed."""
        self._check_bucket(request)
        precision = _precision(request)
        who = _identity(request)
        self._check_room(0)
        text = await body_of(request, self._settings.body_bytes)
        self._check_room(len(text))
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Outcome] = loop.create_future()
        taken = self._committer.put(
            Body(
                text=text,
                precision=precision,
                received_at=self._clock.now(),
                identity=who,
                done=lambda it: _tell(loop, outcome, it),
            )
        )
        if not taken:
            self._check_room(len(text))
            raise Refused(503, "the hub stops", self._pause)
        return _answer(await outcome)

    @property
    def _pause(self) -> int:
        return max(1, math.ceil(self._settings.commit_seconds))

    def _check_room(self, size: int) -> None:
        if self._committer.stopping:
            raise Refused(503, "the hub stops", self._pause)
        if not self._committer.has_room(size):
            self._counters.busy.inc()
            raise Refused(429, "too much telemetry waits for its commit", self._pause)

    def _check_bucket(self, request: Request) -> None:
        bucket = request.query_params.get("bucket", self._settings.bucket)
        if bucket != self._settings.bucket:
            raise Refused(404, f"bucket {bucket!r} not found; it is {self._settings.bucket!r} here")


def _precision(request: Request) -> Precision:
    given = request.query_params.get("precision", "ns")
    if given not in get_args(Precision):
        raise Refused(400, f"precision {given!r} is none of {', '.join(get_args(Precision))}")
    return cast("Literal['ns', 'us', 'ms', 's']", given)


def _identity(request: Request) -> Identity | None:
    try:
        return identity(request.headers)
    except ValueError as error:
        raise Refused(400, str(error)) from None


def _tell(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[Outcome], outcome: Outcome
) -> None:
    """Hand the outcome over from the committer's thread; the request may be gone."""

    def settle() -> None:
        if not future.done():
            future.set_result(outcome)

    if not loop.is_closed():
        loop.call_soon_threadsafe(settle)


def _answer(outcome: Outcome) -> Response:
    if outcome.error is not None:
        return failure(503, outcome.error, 5)
    if outcome.duplicate:
        return Response(status_code=204, headers={"Gpuvigil-Duplicate": "1"})
    if not outcome.refused:
        return Response(status_code=204)
    count = len(outcome.refused)
    first = outcome.refused[0]
    return failure(
        400,
        f"partial write: {count} of {outcome.lines + count} lines refused;"
        f" line {first.number}: {first.reason}",
        more={
            "lines": [
                {"number": refusal.number, "reason": refusal.reason}
                for refusal in outcome.refused[:_MOST_NAMED]
            ]
        },
    )
