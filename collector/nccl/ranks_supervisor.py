"""Has a stalled job's NCCL asked, seldom, by a child that ends after one answer."""

import os
import subprocess
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from gpuvigil import own_command
from gpuvigil.clock import Clock
from gpuvigil.config import CollectorSettings
from gpuvigil.log import Log
from gpuvigil.metrics import GPU
from gpuvigil.model import Allocation, Collective, Event, EventKind, Source

from ..owners.processes import ProcessTable
from ..processes.spawn import Child, started
from ..rows.catalogue_rows import Row
from ..rows.events import EventMaker
from ..sensors import files
from . import question, turn
from .question import Answer, Asked, Look
from .ras_client import TIMEOUT_SECONDS
from .stalled import ALL, Holders, OnGpu, may_be_asked, stalled, stalled_seconds
from .told_first import ToldFirst

log = Log("collector")

_LONGEST_LOOK_SECONDS = 2 * (TIMEOUT_SECONDS + 30.0)  # beside the pause
_LARGEST_BYTES = 256 * 1024
# NCCL Inspector's files are looked at so often.
INSPECTOR_SECONDS = 120.0
# The analyzer remembers for a day: what dumps say of a job that hangs for longer is told again before that.
DUMPS_TOLD_AGAIN_SECONDS = 12 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How seldom is asked, at most."""

    pause_seconds: float = 30.0  # between the two questions of one look
    rest_seconds: float = 60.0  # after a look at a job; it doubles with each
    longest_rest_seconds: float = 1800.0
    # Communicators are made at a job's start: then nobody asks.
    youngest_seconds: float = 900.0
    # Those few nodes of a job that ask, and those that read its dumps, do it at moments of their own.
    spread_seconds: float = 60.0
    # Where a job's processes do not say which rank they are, each of its nodes may ask: so far apart, and
    # at the longest rest from the first time on.
    blind_spread_seconds: float = 600.0
    inspector_seconds: float = INSPECTOR_SECONDS


PACE = Pace()


@dataclass(slots=True)
class _Rest:
    """Of one user's stalled jobs: when they may be asked again, and how long they rest then."""

    holders: frozenset[str]
    due: float
    seconds: float


_Whose = tuple[int, Look]


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
        self._began = self._due = 0.0
        self._is_of_all = False
        self._told_first = ToldFirst()
        self._told_dumps: dict[str, tuple[tuple[Collective, ...], float]] = {}
        self._told_why: dict[frozenset[str], str] = {}
        self._given_up: set[str] = set()

    def take(
        self,
        rows: Iterable[Row],
        processes: Mapping[str, Iterable[int]],
        held: Iterable[Allocation],
    ) -> None:
        """What a tick brought: nothing more is done while no job stands still."""
        gpus = _on_gpus(rows, processes, held)
        still, now = stalled(gpus), self._clock.monotonic()
        self._given_up &= {gpu.holder for gpu in gpus}
        self._told_dumps = {of: it for of, it in self._told_dumps.items() if of in still}
        # Also who goes on for a moment, or is not measured, rests to the end.
        rests = self._rests.items()
        self._rests = {of: it for of, it in rests if it.holders & still or now < it.due}
        if self._child is not None:
            self._watch(self._child, still)
        elif not (still and self._look(gpus)) and now >= self._due:
            self._look_at_waits(gpus)

    def stop(self) -> None:
        """End the child, which may hear an answer to its end within a second."""
        if self._child is not None:
            self._child.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(1.0)
            self._child.kill()

    def _watch(self, child: Child, still: frozenset[str]) -> None:
        """A job that goes on again is asked no more; beside a child that does not end no other starts."""
        now = self._clock.monotonic()
        late = now - self._began > self._pace.pause_seconds + _LONGEST_LOOK_SECONDS
        if late:
            child.kill()
        elif not (self._asking & still or self._is_of_all):
            child.terminate()
        if child.poll() is not None:
            self._child = None

    def _look_at_waits(self, gpus: Sequence[OnGpu]) -> None:
        """Of all jobs here, stalled or not: only files are read."""
        directories = self._settings.nccl_inspector_directories
        holders: dict[str, dict[int, dict[int, str]]] = {}
        for gpu in gpus:
            for pid in gpu.pids if gpu.holder else ():
                holders.setdefault(gpu.holder, {}).setdefault(pid, {})[gpu.index] = gpu.uuid
        users = {self._user(pid) for pids in holders.values() for pid in pids} - {None}
        if directories and users:
            self._due = self._clock.monotonic() + self._pace.inspector_seconds
            asked = replace(
                self._for_ras(holders),
                look=Look.INSPECTOR,
                directories=tuple(map(str, directories)),
                users=tuple(user for user in users if user is not None),
                youth_seconds=INSPECTOR_SECONDS,
            )
            self._start(asked)

    def _look(self, gpus: Sequence[OnGpu]) -> bool:
        """Begin what is due: dumps, which cost the job nothing, before a question."""
        pids = {pid for gpu in gpus for pid in gpu.pids}
        users = {pid: user for pid in pids if (user := self._user(pid)) is not None}
        ages = {pid: self._table.ran_seconds(pid) for pid in pids}
        if self._settings.flight_recorder_directories:
            for user, holders in may_be_asked(gpus, [ALL], users, ages, 0.0).items():
                # Of two jobs of one user nobody knows whose dump it is.
                if len(holders) == 1 and self._rested(user, holders, Look.DUMPS, self._pace):
                    self._start(self._for_dumps(user, holders, gpus))
                    return True
        partitions, least = self._settings.nccl_ras, self._pace.youngest_seconds
        for user, holders in may_be_asked(gpus, partitions, users, ages, least).items():
            pace = self._turn(holders)
            if pace is not None and self._rested(user, holders, Look.RAS, pace):
                self._start(self._for_ras(holders))
                return True
        return False

    def _turn(self, holders: Holders) -> Pace | None:
        """How seldom this node asks; None: it is for other nodes, or of no use."""
        if holders.keys() & self._given_up:
            return None
        is_asking, pace = turn.is_asking(self._environs(holders)), self._pace
        if is_asking is None:
            return replace(
                pace,
                spread_seconds=pace.blind_spread_seconds,
                rest_seconds=pace.longest_rest_seconds,
            )
        return pace if is_asking else None

    def _environs(self, holders: Holders) -> Iterator[str]:
        for pid in (pid for of in holders.values() for pid in of):
            yield files.read(f"{self._settings.proc_root}/{pid}/environ") or ""

    def _rested(self, user: int, holders: Holders, look: Look, pace: Pace) -> bool:
        """Whether a look is due; then the next rest begins."""
        now = self._clock.monotonic()
        rest, seconds = self._rests.get((user, look)), pace.rest_seconds
        if rest is None and pace.spread_seconds:
            due = now + pace.spread_seconds * spread(self._events.node.key)
            self._rests[user, look] = _Rest(frozenset(holders), due, seconds / 2)
            return False
        if rest is not None:
            if now < rest.due:
                return False
            seconds = min(2 * rest.seconds, pace.longest_rest_seconds)
        due = now + pace.pause_seconds + seconds
        self._rests[user, look] = _Rest(frozenset(holders), due, seconds)
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
            look=Look.DUMPS,
            directories=directories,
            users=(user,),
            youth_seconds=stalled_seconds(gpus, holder),
            begin_rank=turn.lowest_rank(self._environs(holders)),
            begin_share=spread(self._events.node.key),
        )

    def _start(self, asked: Asked) -> None:
        command = own_command.command("ranks", "collector.nccl.ranks_child")
        self._asking, self._began = frozenset(asked.holders), self._clock.monotonic()
        self._is_of_all = asked.look is Look.INSPECTOR
        try:
            self._child = started([*command, question.question(asked)], "ranks", self._listen)
        except OSError as error:
            log.warning("a stalled job's NCCL is not asked", why=str(error))

    def _listen(self, child: Child) -> None:
        """In a thread of its own."""
        asking, is_of_all = self._asking, self._is_of_all
        assert child.stdout is not None
        with child.stdout as stream:
            text = stream.read(_LARGEST_BYTES)
        if not text:
            return
        try:
            said = question.read_answer(text)
        except ValueError as error:
            said = Answer(why=str(error))
        self._post(lambda: self._hear(asking, said, is_of_all))

    def _hear(self, asking: frozenset[str], said: Answer, is_of_all: bool) -> None:
        if said.why and said.why != self._told_why.get(asking):
            self._told_why = {asking: said.why}
            log.warning(
                "how ranks stand is not known", held_by=", ".join(sorted(asking)), why=said.why
            )
        if said.is_final:
            self._given_up |= asking
        heard = [of for of in said.found if of.holder in asking]
        found = _by_holder(self.lasting(heard) if is_of_all else heard)
        events = [self._event(them) for them in map(tuple, found) if self.differs(them)]
        if events:
            self._tell(events)

    def differs(self, them: tuple[Collective, ...]) -> bool:
        """Of dumps, which stay as they are while a job hangs, what was not told of it last."""
        holder, now = them[0].holder, self._clock.monotonic()
        if them[0].by is not Source.FLIGHT_RECORDER:
            return True
        before, again = self._told_dumps.get(holder, ((), 0.0))
        if them == before and now < again:
            return False
        self._told_dumps[holder] = them, now + DUMPS_TOLD_AGAIN_SECONDS
        return True

    def lasting(self, found: Sequence[Collective]) -> list[Collective]:
        """Of who waits least, who did at the look before, too, and was not told lately."""
        keys = [(of.holder, of.ranks[0].rank) for of in found]
        news = self._told_first.news(keys, self._clock.monotonic())
        return [of for key, of in zip(keys, found, strict=True) if key in news]

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


def spread(node: str) -> float:
    """A share from 0 to 1, always the same for a node."""
    return zlib.crc32(node.encode()) / 2**32


def _by_holder(found: Iterable[Collective]) -> Iterable[list[Collective]]:
    """An event is of one job."""
    them: dict[str, list[Collective]] = {}
    for one in found:
        them.setdefault(one.holder, []).append(one)
    return them.values()


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
