"""Telemetry writes: `POST /api/v2/write`, as InfluxDB v2 accepts it."""

import asyncio
import math
from collections import deque
from collections.abc import Hashable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Literal, cast, get_args
from urllib.parse import parse_qsl

import numpy as np
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from gpuvigil.clock import Clock
from gpuvigil.config import HubSettings
from gpuvigil.lineprotocol import Precision
from gpuvigil.log import Log

from ..auth.authentication import Message, Send
from ..bodies.deduplication import Identity, TooManySenders, identity
from ..http.bearer import Bearer, foreign
from ..http.event_loop_slices import LoopThrottle
from ..http.responses import MemoryBudget, Receive, Refused, body_from, failure
from ..telemetry.body import Body, Outcome, sender_of
from ..telemetry.committer import Committer
from ..telemetry.counters import Counters

_LOG = Log("hub")

_NEWLINE = ord("\n")

# The answer to nearly every body.
_COMMITTED = Response(status_code=204)

# Most refused lines that an answer names; their count is always right.
_MOST_NAMED = 1000

# Bodies accepted, and answered, per turn of the event loop: some milliseconds. All nodes may send,
# and a commit of thousands may end, at the same moment.
_AT_A_TIME = 16

# An event loop this late is busy, and sees bodies late: clock offsets are not measured then.
_LATE_SECONDS = 0.1
_BEAT_SECONDS = 0.25

_LOG_AGAIN = timedelta(minutes=10)
_LANE_PAUSE_SECONDS = 60


class Ingest:
    """The write endpoint, an ASGI application; each request waits until its body is committed."""

    def __init__(
        self, committer: Committer, settings: HubSettings, clock: Clock, counters: Counters
    ) -> None:
        self._committer = committer
        self._settings = settings
        self._clock = clock
        self._counters = counters
        # Room for one of the largest bodies, beside as much for all others.
        most = max(settings.queue_bytes, 2 * settings.body_bytes)
        self._arriving = MemoryBudget(most, self._pause)
        self._lane_logged = clock.now() - _LOG_AGAIN
        self._throttle = LoopThrottle(_AT_A_TIME)
        self._late_seconds = math.nan  # until the first body
        self._outcomes: deque[tuple[asyncio.Future[Outcome], Outcome]] = deque()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            answer = await self._write(scope, receive)
        except Refused as error:
            answer = failure(error.status, str(error), error.retry_after_seconds)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one body, the next counts
            _LOG.error("write failed", error=f"{type(error).__name__}: {error}")
            answer = failure(500, "the hub failed at this body; see its log")
        await answer(scope, receive, send)

    async def _write(self, scope: Message, receive: Receive) -> Response:
        """Answer 204 after the commit, or 400 naming refused lines once the others are committed."""
        received_at = self._clock.now()
        await self._throttle.step()
        bucket, precision = _bucket_and_precision(scope["query_string"])
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        bearer: Bearer = scope["state"]["bearer"]
        if bucket not in {None, self._settings.bucket}:
            known = self._settings.bucket
            raise Refused(404, f"bucket {bucket!r} not found; it is {known!r} here")
        who = _identity(headers, bearer)
        sender = sender_of(bearer, who)
        self._check_room(sender, 0)
        if who is not None:
            self._check_lane(who, received_at)
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        with self._arriving.of(sender) as held:
            text = await body_from(receive, headers, self._settings.body_bytes, held)
            rows = self._count_rows(text)
            self._check_room(sender, len(text))
            taken = self._committer.put(
                Body(
                    text=text,
                    precision=precision,
                    received_at=received_at,
                    identity=who,
                    done=lambda it: self._pass_on(outcome, it),
                    bearer=bearer,
                    rows=rows,
                    prompt=self.is_prompt(),
                )
            )
        if not taken:
            self._check_room(sender, len(text))
            raise Refused(503, "the hub stops", self._pause)
        return _answer(await outcome)

    @property
    def _pause(self) -> int:
        return max(1, math.ceil(self._settings.commit_seconds))

    def _check_room(self, sender: Hashable, size: int) -> None:
        if self._committer.stopping:
            raise Refused(503, "the hub stops", self._pause)
        if not self._committer.has_room(sender, size):
            self._counters.busy.inc()
            raise Refused(429, "too much telemetry waits for its commit", self._pause)

    def _count_rows(self, text: bytes) -> int:
        # Ten times as fast as `text.count`.
        count = int(np.count_nonzero(np.frombuffer(text, np.uint8) == _NEWLINE))
        if count > (most := self._settings.body_lines_count):
            raise Refused(413, f"the body has more than {most} lines; send smaller ones")
        return count + 1

    def is_prompt(self) -> bool:
        """Return whether the event loop is fast enough to see arriving bodies at once."""
        if math.isnan(self._late_seconds):
            self._beat(asyncio.get_running_loop().time())
        return self._late_seconds < _LATE_SECONDS

    def _beat(self, due: float) -> None:
        """Measure how late this call is: anything else may have waited as long."""
        loop = asyncio.get_running_loop()
        self._late_seconds = loop.time() - due
        due = loop.time() + _BEAT_SECONDS
        loop.call_at(due, self._beat, due)

    def _check_lane(self, who: Identity, now: datetime) -> None:
        try:
            self._committer.seen.check(who, now)
        except ValueError as error:
            raise Refused(400, str(error)) from None
        except TooManySenders as error:
            self._counters.refused_lanes.inc()
            if now - self._lane_logged >= _LOG_AGAIN:
                self._lane_logged = now
                _LOG.warning("new lane of bodies refused", why=str(error))
            raise Refused(429, str(error), _LANE_PAUSE_SECONDS) from None

    def _pass_on(self, future: asyncio.Future[Outcome], outcome: Outcome) -> None:
        """Pass the outcome from the committer's thread to the loop, which is woken once for many."""
        loop = future.get_loop()
        self._outcomes.append((future, outcome))
        if len(self._outcomes) == 1 and not loop.is_closed():
            loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        for _ in range(_AT_A_TIME):
            if not self._outcomes:
                return
            # The last is removed only after it is settled: while one is queued, nobody wakes the
            # loop.
            future, outcome = self._outcomes[0]
            if not future.done():  # the request may be gone
                future.set_result(outcome)
            self._outcomes.popleft()
        asyncio.get_running_loop().call_soon(self._settle)


@lru_cache(maxsize=64)
def _bucket_and_precision(query_string: bytes) -> tuple[str | None, Precision]:
    """Return the bucket, or None, and the precision that a query string names."""
    query = dict(parse_qsl(query_string.decode("latin-1"), keep_blank_values=True))
    given = query.get("precision", "ns")
    if given not in get_args(Precision):
        raise Refused(400, f"precision {given!r} is none of {', '.join(get_args(Precision))}")
    return query.get("bucket"), cast("Literal['ns', 'us', 'ms', 's']", given)


def _identity(headers: Mapping[str, str], bearer: Bearer) -> Identity | None:
    try:
        who = identity(headers)
    except ValueError as error:
        raise Refused(400, str(error)) from None
    if not bearer.writes_for_any_node:
        named = {key: headers.get(f"gpuvigil-{key}") for key in ("cluster", "node")}
        own = {"cluster": bearer.cluster, "node": bearer.node}
        if any(name not in {None, own[key]} for key, name in named.items()):
            whose = f"{named['cluster'] or bearer.cluster}/{named['node'] or bearer.node}"
            raise Refused(403, foreign(bearer, whose))
    return who


def _answer(outcome: Outcome) -> Response:
    if outcome.error is not None:
        return failure(503, outcome.error, 5)
    if outcome.forbidden is not None:
        return failure(403, outcome.forbidden)
    if outcome.duplicate:
        return Response(status_code=204, headers={"Gpuvigil-Duplicate": "1"})
    if not outcome.refused:
        return _COMMITTED
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
