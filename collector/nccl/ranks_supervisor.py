"""Has a stalled job's NCCL asked, rarely, by a child that ends after one answer."""

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
from .repeat_filter import RepeatFilter
from .stalled import ALL, Holders, OnGpu, may_be_asked, stalled, stalled_seconds

log = Log("collector")

_LONGEST_LOOK_SECONDS = 2 * (TIMEOUT_SECONDS + 30.0)  # on top of the pause
_LARGEST_BYTES = 256 * 1024
# How often NCCL Inspector's files are read, and how young they must be.
INSPECTOR_SECONDS, INSPECTOR_YOUTH_SECONDS = 60.0, 120.0
# The analyzer remembers for a day: the dumps of a job that hangs longer are reported again before that.
DUMPS_TOLD_AGAIN_SECONDS = 12 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The limits on how often a job is asked."""

    pause_seconds: float = 30.0  # between the two questions of one look
    rest_seconds: float = 60.0  # after a look at a job; it doubles with each
    longest_rest_seconds: float = 1800.0
    # Younger jobs are not asked: communicators are made at a job's start.
    youngest_seconds: float = 900.0
    # The few nodes of a job that ask, or read its dumps, do so at different times.
    spread_seconds: float = 60.0
    # Where a job's processes do not name their ranks, each of its nodes may ask: this far apart, and
    # with the longest rest from the start.
    blind_spread_seconds: float = 600.0
    inspector_seconds: float = INSPECTOR_SECONDS


PACE = Pace()


@dataclass(slots=True)
class _Rest:
    """When one user's stalled jobs may be asked again, and how long they rest then, in seconds."""

    holders: frozenset[str]
    due: float
    seconds: float


_Whose = tuple[int, Look]


class Ranks:
    """Runs one look at a time; `take` and `stop` are for the main thread, which owns the child."""

    def __init__(
        self,
        settings: CollectorSettings,
        events: EventMaker,
        clock: Clock,
        post: Callable[[Callable[[], None]], None],
        record: Callable[[Sequence[Event]], None],
        pace: Pace = PACE,
    ) -> None:
        """Set up: `post` lets the main loop do work, `record` keeps events."""
        self._settings, self._events, self._clock = settings, events, clock
        self._post, self._record, self._pace = post, record, pace
        self._table = ProcessTable(settings.proc_root)
        self._rests: dict[_Whose, _Rest] = {}
        self._child: Child | None = None
        self._asking: frozenset[str] = frozenset()
        self._began = self._due = 0.0
        self._is_of_all = False
        self._repeat_filter = RepeatFilter()
        self._reported_dumps: dict[str, tuple[tuple[Collective, ...], float]] = {}
        self._logged_why: dict[frozenset[str], str] = {}
        self._given_up: set[str] = set()

    def update(
        self,
        rows: Iterable[Row],
        processes: Mapping[str, Iterable[int]],
        held: Iterable[Allocation],
    ) -> None:
        """Take a tick's rows, processes and allocations; start a look if one is due.

        While no job stands still, only Inspector's files are read.
        """
        gpus = _on_gpus(rows, processes, held)
        still, now = stalled(gpus), self._clock.monotonic()
        self._given_up &= {gpu.holder for gpu in gpus}
        self._reported_dumps = {of: it for of, it in self._reported_dumps.items() if of in still}
        # A job that goes on for a moment, or is not measured, still rests to the end.
        rests = self._rests.items()
        self._rests = {of: it for of, it in rests if it.holders & still or now < it.due}
        if self._child is not None:
            self._watch(self._child, still)
        elif not (still and self._start_due(gpus)) and now >= self._due:
            self._start_inspector(gpus)

    def stop(self) -> None:
        """End the child, which gets a second to read the answer it waits for."""
        if self._child is not None:
            self._child.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(1.0)
            self._child.kill()

    def _watch(self, child: Child, still: frozenset[str]) -> None:
        """End the child when its job goes on or it is late; no other starts before it has ended."""
        now = self._clock.monotonic()
        late = now - self._began > self._pace.pause_seconds + _LONGEST_LOOK_SECONDS
        if late:
            child.kill()
        elif not (self._asking & still or self._is_of_all):
            child.terminate()
        if child.poll() is not None:
            self._child = None

    def _start_inspector(self, gpus: Sequence[OnGpu]) -> None:
        """Start a look at Inspector's files of all jobs here, stalled or not: only files are read."""
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
                youth_seconds=INSPECTOR_YOUTH_SECONDS,
            )
            self._start(asked)

    def _start_due(self, gpus: Sequence[OnGpu]) -> bool:
        """Start a look that is due, dumps before RAS, since they cost the job nothing.

        Returns whether one was started.
        """
        pids = {pid for gpu in gpus for pid in gpu.pids}
        users = {pid: user for pid in pids if (user := self._user(pid)) is not None}
        ages = {pid: self._table.ran_seconds(pid) for pid in pids}
        if self._settings.flight_recorder_directories:
            for user, holders in may_be_asked(gpus, [ALL], users, ages, 0.0).items():
                # With two jobs of one user, the dump could be of either.
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
        """Return the pace at which this node asks; None if other nodes ask, or asking is useless."""
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
        """Return whether a look is due; if so, start the next rest."""
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
        """Take the child's answer, in a thread of its own."""
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
        self._post(lambda: self._handle_answer(asking, said, is_of_all))

    def _handle_answer(self, asking: frozenset[str], answer: Answer, is_of_all: bool) -> None:
        if answer.why and answer.why != self._logged_why.get(asking):
            self._logged_why = {asking: answer.why}
            log.warning(
                "how ranks stand is not known", held_by=", ".join(sorted(asking)), why=answer.why
            )
        if answer.is_final:
            self._given_up |= asking
        heard = [of for of in answer.found if of.holder in asking]
        found = _by_holder(self.lasting(heard) if is_of_all else heard)
        events = [self._event(them) for them in map(tuple, found) if self.differs(them)]
        if events:
            self._record(events)

    def differs(self, them: tuple[Collective, ...]) -> bool:
        """Return whether a report is news: while a job hangs, its dumps repeat and are no news."""
        holder, now = them[0].holder, self._clock.monotonic()
        if them[0].by is not Source.FLIGHT_RECORDER:
            return True
        before, again = self._reported_dumps.get(holder, ((), 0.0))
        if them == before and now < again:
            return False
        self._reported_dumps[holder] = them, now + DUMPS_TOLD_AGAIN_SECONDS
        return True

    def lasting(self, found: Sequence[Collective]) -> list[Collective]:
        """Return those that waited least at the look before, too, and were not reported lately."""
        keys = [(of.holder, of.ranks[0].rank) for of in found]
        now = self._clock.monotonic()
        news = self._repeat_filter.news(keys, now)
        read = max((float(of.seconds or 0) for of in found), default=0.0)
        rest = self._repeat_filter.rest(self._pace.inspector_seconds, read)
        self._due = min(self._due, now + rest)
        return [of for key, of in zip(keys, found, strict=True) if key in news]

    def _event(self, found: tuple[Collective, ...]) -> Event:
        """Return the event; its words are for the log, the analyzer reads the values."""
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
    """Return a share from 0 to 1 that is constant for a node."""
    return zlib.crc32(node.encode()) / 2**32


def _by_holder(found: Iterable[Collective]) -> Iterable[list[Collective]]:
    """Group by job: an event is about one job."""
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
