"""Supervises the child that scrapes inference servers, and keeps their last answers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuvigil import own_command
from gpuvigil.clock import Clock
from gpuvigil.config import CollectorSettings
from gpuvigil.log import Log

from ..processes.spawn import Child, end, started
from . import scrape_result
from .address import Address, address
from .binding import limited, of_its_user, serving
from .scrape_result import Answer, Replica

log = Log("collector")

_LONGEST_REST_SECONDS = 60.0
_SLACK_SECONDS = 10.0  # for a start of Python, and a call that runs into its limit
# The GPUs behind an address are looked up again after this long, and when GPU processes change.
_RETRY_SECONDS = 60.0
_Processes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """An address's replicas, and the GPUs that serve there, as far as that can be seen."""

    where: Address
    replicas: tuple[Replica, ...]
    gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bound:
    processes: _Processes
    gpus: tuple[str, ...]
    at: float


class Inference:
    """The last answers of the node's inference servers.

    `keep` is for the main thread, as the child's lifeline requires.
    """

    def __init__(
        self,
        urls: Sequence[str],
        seconds: float,
        proc_root: Path,
        clock: Clock,
        *,
        anywhere: bool = False,
    ) -> None:
        """Parse the addresses; ConfigError for an invalid one. Without any, nothing is started."""
        self._places = {url: address(url, anywhere=anywhere) for url in urls}
        self._seconds = seconds
        self._proc = proc_root
        self._clock = clock
        self._child: Child | None = None
        self._not_before = 0.0
        self._rest_seconds = 1.0
        self._processes: _Processes = {}
        self._bound: dict[str, _Bound] = {}
        self._served: dict[str, tuple[Served, float]] = {}
        self._logged: dict[str, str] = {}

    @classmethod
    def of(cls, settings: CollectorSettings, clock: Clock) -> "Inference":
        """Create it from the settings."""
        return cls(
            settings.inference_urls,
            settings.tick_seconds,
            settings.proc_root,
            clock,
            anywhere=settings.inference_anywhere,
        )

    def keep(self) -> None:
        """Start the child if there are addresses, and again after a rest when it has ended."""
        if not self._places:
            return
        now = self._clock.monotonic()
        if self._child is None:
            if now >= self._not_before:
                self._start(now)
        elif self._child.poll() is not None:
            self._rest(now, self._child.wait())

    def served(self, processes: Mapping[str, Iterable[int]]) -> list[Served]:
        """Return what is known of addresses that answered in the last ticks; never waits.

        `processes` are the pids on each GPU, by UUID, from which the GPUs of later answers are
        found.
        """
        self._processes = {uuid: tuple(sorted(pids)) for uuid, pids in processes.items()}
        now = self._clock.monotonic()
        oldest = now - 2 * self._seconds - _SLACK_SECONDS
        return [served for served, at in list(self._served.values()) if at >= oldest]

    def stop(self) -> None:
        """End the child."""
        end(self._child)

    def _start(self, now: float) -> None:
        command = own_command.command("endpoints", "collector.inference.scrape_child")
        words = [*command, str(self._seconds), *self._places]
        try:
            self._child = started(words, "inference", self._listen)
        except OSError as error:
            log.warning("inference servers are not asked", why=str(error))
            self._pause(now)

    def _listen(self, child: Child) -> None:
        """Take the child's answers and look up who serves, in a thread: no tick waits for procfs."""
        assert child.stdout is not None
        with child.stdout as lines:
            for line in lines:
                try:
                    self._receive(scrape_result.parse(line))
                except ValueError as error:
                    log.warning("an answer about inference cannot be read", why=str(error))

    def _receive(self, answer: Answer) -> None:
        where = self._places.get(answer.url)
        self._log_reason(answer)
        if where is None:
            return
        self._rest_seconds = 1.0
        if not answer.replicas:
            self._served.pop(answer.url, None)
            return
        bound = self._gpus(where)
        # A server may name the GPUs of its models among its own GPUs, and no others.
        own = bound or of_its_user(self._proc, where, self._processes)
        replicas = tuple(limited(one, own) for one in answer.replicas)
        told = {uuid for one in replicas for uuid in one.gpus}
        served = Served(where=where, replicas=replicas, gpus=tuple(sorted(told)) or bound)
        self._served[answer.url] = served, self._clock.monotonic()

    def _gpus(self, where: Address) -> tuple[str, ...]:
        now, processes = self._clock.monotonic(), self._processes
        before = self._bound.get(where.url)
        if (
            before is not None
            and before.processes == processes
            and now - before.at < _RETRY_SECONDS
        ):
            return before.gpus
        gpus = serving(self._proc, where, processes)
        self._bound[where.url] = _Bound(processes=processes, gpus=gpus, at=now)
        return gpus

    def _log_reason(self, answer: Answer) -> None:
        """Log one line when a reason appears, and one when it goes."""
        before = self._logged.get(answer.url, "")
        if answer.why == before:
            return
        self._logged[answer.url] = answer.why
        if answer.why:
            log.warning("what an inference server does is not known", at=answer.url, why=answer.why)
        else:
            log.info("the inference server answers again", at=answer.url)

    def _rest(self, now: float, code: int) -> None:
        self._child = None
        log.warning("the process that asks inference servers has ended", code=code)
        self._pause(now)

    def _pause(self, now: float) -> None:
        self._not_before = now + self._rest_seconds
        self._rest_seconds = min(2 * self._rest_seconds, _LONGEST_REST_SECONDS)
