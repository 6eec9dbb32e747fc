"""Sends what waits in the spool to the hub, and loses nothing on the way.

Records have a connection of their own, so that an event never waits behind telemetry, which the hub
acknowledges only after its next commit. One telemetry connection is for live bodies alone; the
others also drain the backlog.
"""

import json
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from gpuvigil.clock import Clock, to_text
from gpuvigil.errors import HubRefused, HubUnavailable
from gpuvigil.hub_client import Answer, Hub
from gpuvigil.hub_client.tls import Trust
from gpuvigil.lineprotocol.refusal import Meaning
from gpuvigil.log import Log
from gpuvigil.loop import Persistence, run_steps

from .backoff import TIMEOUT_SECONDS, Backoff
from .body import IDENTITY, RECORDS_PATH, Body
from .queue import Spool
from .remote_write import DirectStore, StoreRefused
from .subscriptions import Lane

log = Log("collector")

_ANSWER_BYTES = 1024 * 1024  # naming a thousand refused lines takes a tenth of it
_LONGEST_IDLE_SECONDS = 10.0  # at the end, a thread that waits for a body is woken
_STOP_SECONDS = 2.0  # for answers that are under way when the collector stops

# When the hub itself says so, the request is at fault, and would fail again however often it is sent.
# Any other refusal (a token that rotates, a bucket that is renamed, a proxy) may pass: the body is kept.
_FINAL = frozenset({400, 422})
_TOO_LARGE = 413  # from the hub or a proxy
_UNKNOWN_TOKEN = frozenset({401, 403})


class Shipper:
    """Ships one spool to one hub until told to stop; `token` is called for each request."""

    def __init__(  # noqa: PLR0913 - most have a default
        self,
        spool: Spool,
        hub_url: str,
        token: Callable[[], str],
        clock: Clock,
        *,
        direct_store: DirectStore | None = None,
        connections: int = 4,
        spread_seconds: float = 0.0,
        timeout_seconds: float = TIMEOUT_SECONDS,
        trust: Trust = Trust(),  # noqa: B008 - it is frozen
        token_todo: str = "",
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Set up; ConfigError when `hub_url` is not an address.

        `connections` carry telemetry: one body each at each of the hub's commits. With `direct_store`
        telemetry goes there, and the hub gets only the records. Nothing is sent until a random part
        of `spread_seconds` has passed, so that the nodes of a cluster whose power comes back do not
        all send at once. `token_todo`: what people are told to do about a token that the hub
        refuses.
        """
        Hub(hub_url, token, trust=trust)
        self._spool = spool
        self._hub_url = hub_url
        self._direct_store = direct_store
        self._token = token
        self._trust = trust
        self._token_todo = token_todo
        self._clock = clock
        self._connections = connections
        self._timeout_seconds = timeout_seconds
        self._pause_seconds = spread_seconds * chance()
        self._backoffs = {path: Backoff(clock, chance) for path in ("records", "telemetry")}
        self._counting = threading.Lock()
        self._refused_lines = 0

    @property
    def reachable(self) -> bool:
        """Whether the hub took, or refused for a reason, what was last sent to it."""
        return all(backoff.open for backoff in self._backoffs.values())

    @property
    def refused_lines(self) -> int:
        """The lines of telemetry that the hub has refused since the start."""
        return self._refused_lines

    def run(self, stop: threading.Event) -> None:
        """Send until `stop`; then write to disk whatever is not acknowledged, and close the spool."""
        both, live = (Lane.LIVE, Lane.BACKLOG), (Lane.LIVE,)
        jobs = [
            ("records", (Lane.RECORDS,)),
            ("telemetry", live if self._connections > 1 else both),
        ]
        jobs += [("telemetry", both)] * (self._connections - 1)
        threads = [
            threading.Thread(
                target=self._send_until,
                args=(stop, name, lanes),
                name=f"ship {name}",
                daemon=True,
            )
            for name, lanes in jobs
        ]
        for thread in threads:
            thread.start()
        stop.wait()
        self._spool.interrupt()
        deadline = self._clock.monotonic() + _STOP_SECONDS
        for thread in threads:
            thread.join(max(deadline - self._clock.monotonic(), 0.0))
        self._spool.close()

    def _send_until(self, stop: threading.Event, name: str, lanes: tuple[Lane, ...]) -> None:
        hub = self._connect(name)
        self._clock.wait(stop, self._pause_seconds)
        loop = Persistence(name=f"ship {name}", clock=self._clock, stop=stop, log=log)
        run_steps(loop, lambda: self._send_next(hub, name, lanes))
        hub.close()

    def _send_next(self, hub: Hub, name: str, lanes: tuple[Lane, ...]) -> None:
        backoff = self._backoffs[name]
        if not self._spool.wait(lanes, _LONGEST_IDLE_SECONDS) or not backoff.enter():
            return
        body = self._spool.next(lanes)
        if body is None:
            backoff.leave()
        else:
            self._attempt(hub, backoff, name, body)

    def _connect(self, name: str) -> Hub:
        if self._direct_store is not None and name == "telemetry":
            return self._direct_store.connect(self._timeout_seconds, _ANSWER_BYTES)
        return Hub(self._hub_url, self._token, self._timeout_seconds, _ANSWER_BYTES, self._trust)

    def _attempt(self, hub: Hub, backoff: Backoff, name: str, body: Body) -> None:
        """Send a body once and deal with the answer."""
        try:
            self._send(hub, body)
        except HubRefused as refusal:
            if not self._settled(body, refusal):
                self._keep(backoff, name, body, refusal)
                return
        except Exception as error:  # noqa: BLE001 - whatever it is, the body is kept
            self._keep(backoff, name, body, error)
            return
        else:
            self._spool.done(body)
        if backoff.succeeded():
            log.info("hub answers again", lane=name)

    def _send(self, hub: Hub, body: Body) -> None:
        if self._direct_store is not None and body.path != RECORDS_PATH:
            refused = self._direct_store.send(hub, body, self._put_anew)
            if refused:
                self._count_refused(refused, "the store kept the others")
            return
        headers = {**body.headers, "Gpuvigil-Sent-At": to_text(self._clock.now())}
        _check(body, hub.request("POST", body.path, body.content, headers))

    def _settled(self, body: Body, refusal: HubRefused) -> bool:
        """Return whether the body was dealt with for good, or in parts; otherwise it must be kept."""
        if refusal.status == _TOO_LARGE:
            self._halve(body, refusal)
        elif isinstance(refusal, StoreRefused):
            if refusal.meaning is not Meaning.A_LINE:
                return False
            self._halve(body, refusal)
        elif refusal.status in _FINAL and refusal.details:
            self._give_up(body, refusal)
        else:
            return False
        return True

    def _keep(self, backoff: Backoff, name: str, body: Body, error: Exception) -> None:
        retry_after = error.retry_after_seconds if isinstance(error, HubUnavailable) else None
        # A proxy may refuse just this body: it must not hold the others back.
        odd = isinstance(error, HubRefused) and error.status in _FINAL
        self._spool.retry_later(body, last=odd)
        if backoff.failed(retry_after):
            log.warning(
                "hub takes nothing, bodies are kept", lane=name, **self._advice(name, error)
            )

    def _advice(self, name: str, error: Exception) -> dict[str, str]:
        """Return why it failed, and what to do if that is known."""
        said = {"why": str(error) or type(error).__name__}
        of_hub = self._direct_store is None or name == "records"
        is_refused = isinstance(error, HubRefused) and error.status in _UNKNOWN_TOKEN
        if of_hub and is_refused and self._token_todo:
            said["todo"] = self._token_todo
        if isinstance(error, StoreRefused):
            said["todo"] = "look at the section [store]: address, bucket, token or user"
        return said

    def _give_up(self, body: Body, refusal: HubRefused) -> None:
        """Deal with a body that the hub will not take as it is, now or later."""
        lines = body.content.split(b"\n")
        if body.path == RECORDS_PATH and refusal.status == 400 and len(lines) > 1:
            # The hub keeps all or none: one bad record must not cost its neighbours.
            self._split(body, lines)
        elif body.path != RECORDS_PATH and refusal.status == 400:
            # The good lines are committed.
            self._count_refused(*_named(refusal, len(lines)))
            self._spool.done(body)
        else:
            self._spool.drop(body)
            log.error("hub refuses a body, it is dropped", why=str(refusal), status=refusal.status)

    def _halve(self, body: Body, refusal: HubRefused) -> None:
        """Send a body in halves, where only smaller bodies are taken, or one line is at fault.

        A faulty line ends up alone, and its neighbours are kept. A line cannot be made smaller.
        """
        lines = body.content.split(b"\n")
        if len(lines) > 1:
            half = len(lines) // 2
            self._split(body, [b"\n".join(lines[:half]), b"\n".join(lines[half:])])
        elif refusal.status == _TOO_LARGE:
            self._spool.drop(body)
            log.error("hub refuses a line, it is dropped", why=str(refusal), status=refusal.status)
        else:
            self._count_refused(1, str(refusal))
            self._spool.done(body)

    def _split(self, body: Body, contents: Sequence[bytes]) -> None:
        """Replace a body by several, each with an identity of its own; at least one always exists."""
        for content in contents:
            self._put_anew(replace(body, content=content))
        self._spool.done(body)

    def _put_anew(self, body: Body) -> None:
        headers = {name: text for name, text in body.headers.items() if name not in IDENTITY}
        self._spool.put(replace(body, headers=headers))

    def _count_refused(self, count: int, first: str) -> None:
        with self._counting:
            self._refused_lines += count
        log.warning("hub refuses lines", count=count, first=first)


def _named(refusal: HubRefused, lines: int) -> tuple[int, str]:
    """Return how many lines the hub refused, and why the first."""
    named = refusal.details.get("lines")
    refused = [entry for entry in named if isinstance(entry, dict)] if named else []
    first = str(refused[0].get("reason")) if refused else str(refusal)
    return len(refused) or lines, first


def _check(body: Body, answer: Answer) -> None:
    """Raise HubUnavailable when a success is not the hub's own, such as a proxy's sign-in page."""
    if body.path != RECORDS_PATH:
        fine = answer.status == 204
    else:
        try:
            fine = "sequence" in json.loads(answer.body)
        except (ValueError, TypeError):
            fine = False
    if not fine:
        raise HubUnavailable(f"status {answer.status}, which is not an answer of the hub")
