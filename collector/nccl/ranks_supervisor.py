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
from .stalled import ALL, Holders, OnGpu, may_be_asked, stalled, stalled_seconds

log = Log("collector")

_LONGEST_LOOK_SECONDS = 2 * (TIMEOUT_SECONDS + 30.0)  # beside the pause
_LARGEST_BYTES = 256 * 1024


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


# A user, and whether it is for dumps.
_Whose = tuple[int, bool]


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
        self._rests: dict[_Whose, _Rest] = {}
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
        if not (self._settings.nccl_ras or self._settings.flight_recorder_directories):
            return
        gpus = _on_gpus(rows, processes, held)
        still, now = stalled(gpus), self._clock.monotonic()
        # Also who goes on for a moment, or is not measured, rests to the end.
        rests = self._rests.items()
        self._rests = {of: it for of, it in rests if it.holders & still or now < it.due}
        if self._child is not None:
            self._watch(self._child, still)
        elif still:
            self._look(gpus)

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

    def _look(self, gpus: Sequence[OnGpu]) -> None:
        """Begin what is due: a dump, which costs the job nothing, before a question."""
        pids = {pid for gpu in gpus for pid in gpu.pids}
        users = {pid: user for pid in pids if (user := self._user(pid)) is not None}
        ages = {pid: self._table.ran_seconds(pid) for pid in pids}
        if self._settings.flight_recorder_directories:
            for user, holders in may_be_asked(gpus, [ALL], users, ages, 0.0).items():
                # Of two jobs of one user nobody knows whose dump it is.
                if len(holders) == 1 and self._rested(user, holders, dumps=True):
                    self._start(self._for_dumps(user, holders, gpus))
                    return
        partitions, least = self._settings.nccl_ras, self._pace.youngest_seconds
        for user, holders in may_be_asked(gpus, partitions, users, ages, least).items():
            if self._rested(user, holders, dumps=False):
                self._start(self._for_ras(holders))
                return

    def _rested(self, user: int, holders: Holders, *, dumps: bool) -> bool:
        """Whether a look is due; then the next rest begins."""
        now, pace = self._clock.monotonic(), self._pace
        rest, seconds = self._rests.get((user, dumps)), pace.rest_seconds
        if rest is not None:
            if now < rest.due:
                return False
            seconds = min(2 * rest.seconds, pace.longest_rest_seconds)
        due = now + pace.pause_seconds + seconds
        self._rests[user, dumps] = _Rest(frozenset(holders), due, seconds)
        return True

    def _for_ras(self, holders: Holders) -> Asked:
        return Asked(
            proc_root=str(self._settings.proc_root),
            port=self._settings.nccl_ras_port,
            pause_seconds=self._pace.pause_seconds,
            versions=self._settings.nccl_ras_versions,
            holders=holders,
        )

    def _for_dumps(self, user: int, holders: Holders, gpus: Sequence[OnGpu]) -> Asked:
        (holder,) = holders
        directories = tuple(map(str, self._settings.flight_recorder_directories))
        return replace(
            self._for_ras(holders),
            directories=directories,
            user=user,
            youth_seconds=stalled_seconds(gpus, holder),
        )

    def _start(self, asked: Asked) -> None:
        command = own_command.command("ranks", "collector.nccl.ranks_child")
        self._asking, self._began = frozenset(asked.holders), self._clock.monotonic()
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
        if said.found and {one.holder for one in said.found} <= asking:
            self._tell([self._event(said.found)])

    def _event(self, found: tuple[Collective, ...]) -> Event:
        """Its words are for the log; who judges reads the values."""
        first = found[0]
        words = f"{first.holder}: ranks {first.stand.value}, by {first.by.value}"
        at = self._clock.now()
        event = self._events.make(EventKind.COLLECTIVE, self._events.node, at, words)
        return replace(event, collectives=found)

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
