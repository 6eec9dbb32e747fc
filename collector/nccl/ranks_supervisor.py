"""Has a stalled job's NCCL asked, seldom, by a child that ends after one answer."""

import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from gpuvigil import own_command
from gpuvigil.clock import Clock
from gpuvigil.config import CollectorSettings
from gpuvigil.log import Log
from gpuvigil.metrics import GPU
from gpuvigil.model import Allocation, Collective, Event, EventKind

from ..owners.processes import ProcessTable
from ..processes.spawn import Child, started
from ..rows.catalogue_rows import Row
from ..rows.events import EventMaker
from . import question
from .question import Answer, Asked
from .ras_client import TIMEOUT_SECONDS
from .stalled import OnGpu, may_be_asked, stalled

log = Log("collector")

_LONGEST_LOOK_SECONDS = 2 * (TIMEOUT_SECONDS + 30.0)  # beside the pause
_LARGEST_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How seldom is asked, at most."""

    pause_seconds: float = 30.0  # between the two questions of one look
    rest_seconds: float = 60.0  # after a look at a job; it doubles with each
    longest_rest_seconds: float = 1800.0
    # Communicators are made at a job's start: then nobody asks.
    youngest_seconds: float = 900.0


PACE = Pace()


@dataclass(slots=True)
class _Rest:
    """Of one user's stalled jobs: when they may be asked again, and how long they rest then."""

    holders: frozenset[str]
    due: float
    seconds: float


class Ranks:
    """One look at a time; `take` and `stop` are for the main thread, which the child is tied to."""

    def __init__(
        self,
        settings: CollectorSettings,
        events: EventMaker,
        clock: Clock,
        post: Callable[[Callable[[], None]], None],
        tell: Callable[[Sequence[Event]], None],
        pace: Pace = PACE,
    ) -> None:
        """`post` lets the main loop do something, `tell` tells events."""
        self._settings, self._events, self._clock = settings, events, clock
        self._post, self._tell, self._pace = post, tell, pace
        self._table = ProcessTable(settings.proc_root)
        self._rests: dict[int, _Rest] = {}
        self._child: Child | None = None
        self._asking: frozenset[str] = frozenset()
        self._began = 0.0
        self._told_why: dict[frozenset[str], str] = {}

    def take(
        self,
        rows: Iterable[Row],
        processes: Mapping[str, Iterable[int]],
        held: Iterable[Allocation],
    ) -> None:
        """What a tick brought: nothing more is done while no job stands still."""
        if not self._settings.nccl_ras:
            return
        gpus = _on_gpus(rows, processes, held)
        still = stalled(gpus)
        self._rests = {user: it for user, it in self._rests.items() if it.holders & still}
        if self._child is not None:
            self._watch(self._child, still)
        elif still:
            self._ask_one(gpus)

    def stop(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(1.0)

    def _watch(self, child: Child, still: frozenset[str]) -> None:
        """A job that goes on again is left alone at once; a child that does not end starts no other."""
        now = self._clock.monotonic()
        late = now - self._began > self._pace.pause_seconds + _LONGEST_LOOK_SECONDS
        if late or not self._asking & still:
            child.kill()
        if child.poll() is not None:
            self._child = None

    def _ask_one(self, gpus: Sequence[OnGpu]) -> None:
        pids = {pid for gpu in gpus for pid in gpu.pids}
        users = {pid: user for pid in pids if (user := self._user(pid)) is not None}
        ages = {pid: self._table.ran_seconds(pid) for pid in pids}
        now, pace = self._clock.monotonic(), self._pace
        least = pace.youngest_seconds
        asked = may_be_asked(gpus, self._settings.nccl_ras, users, ages, least)
        for user, holders in asked.items():
            rest = self._rests.get(user)
            if rest is not None and now < rest.due:
                continue
            seconds = pace.rest_seconds
            if rest is not None:
                seconds = min(2 * rest.seconds, pace.longest_rest_seconds)
            due = now + pace.pause_seconds + seconds
            self._rests[user] = _Rest(frozenset(holders), due, seconds)
            self._start(holders, now)
            return

    def _start(self, holders: Mapping[str, Mapping[int, Mapping[int, str]]], now: float) -> None:
        asked = Asked(
            proc_root=str(self._settings.proc_root),
            port=self._settings.nccl_ras_port,
            pause_seconds=self._pace.pause_seconds,
            versions=self._settings.nccl_ras_versions,
            holders=holders,
        )
        command = own_command.command("ranks", "collector.nccl.ranks_child")
        self._asking, self._began = frozenset(holders), now
        try:
            self._child = started([*command, question.question(asked)], "ranks", self._listen)
        except OSError as error:
            log.warning("a stalled job's NCCL is not asked", why=str(error))

    def _listen(self, child: Child) -> None:
        """In a thread of its own."""
        asking = self._asking
        assert child.stdout is not None
        with child.stdout as stream:
            text = stream.read(_LARGEST_BYTES)
        if not text:
            return
        try:
            said = question.read_answer(text)
        except ValueError as error:
            said = Answer(why=str(error))
        self._post(lambda: self._hear(asking, said))

    def _hear(self, asking: frozenset[str], said: Answer) -> None:
        if said.why and said.why != self._told_why.get(asking):
            self._told_why = {asking: said.why}
            log.warning(
                "how ranks stand is not known", held_by=", ".join(sorted(asking)), why=said.why
            )
        if said.found is not None and said.found.holder in asking:
            self._tell([self._event(said.found)])

    def _event(self, found: Collective) -> Event:
        node = self._events.node
        words = f"{found.holder}: NCCL says {found.stand.value}"
        event = self._events.make(EventKind.COLLECTIVE, node, self._clock.now(), words)
        return replace(event, collectives=(found,))

    def _user(self, pid: int) -> int | None:
        try:
            return os.stat(f"{self._settings.proc_root}/{pid}").st_uid
        except OSError:
            return None


def _on_gpus(
    rows: Iterable[Row], processes: Mapping[str, Iterable[int]], held: Iterable[Allocation]
) -> list[OnGpu]:
    by_gpu: dict[str, list[Allocation]] = {}
    for one in held:
        by_gpu.setdefault(one.subject.gpu or "", []).append(one)
    return [
        OnGpu(
            uuid=row.tags["uuid"],
            index=int(row.every.get("index") or 0),
            fields=row.every,
            pids=frozenset(processes.get(row.tags["uuid"], ())),
            held=tuple(by_gpu.get(row.tags["uuid"], ())),
        )
        for row in rows
        if row.measurement is GPU
    ]
