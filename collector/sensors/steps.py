"""How far the programs on this node's GPUs report to be: a small file per process.

A rank that wants its hangs to be seen leaves a file named by its process id, with one line: the
number of its last step, the 99th percentile of its steps' seconds, and `key=value` fields, such as
`1234 0.82 rank=3 own_seconds=0.5`. The file's time of change is when that step ended. The file
counts only while the process runs on a GPU, and only when both belong to the same user, so that
nobody can report for somebody else's job, and when it was written since the process began: the file
of a rank that was killed is not that of another one with the same number. That it was left behind
is reported for a while: a program that ends takes its file away. A process without a file may send
its line instead (`steps_socket`). Everybody may write to the directory: nobody lists it, or a
million files would stop the collector.
"""

import math
import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from gpuvigil.clock import EPOCH

from . import files
from .steps_socket import MOST_BYTES, StepsSocket

# File times are as coarse as the kernel's tick, and the clock may be corrected a little.
_SLACK_SECONDS = 1.0
# A lost rank is reported for this long: by then its job has ended, or somebody looks at it.
_GONE_SECONDS = 600.0
# This long after a rank was lost, its job's others wait for it or not: worth an early look.
_SETTLED_SECONDS, _ASKED_SECONDS = 2.0, 1.0
PHASES = ("work", "input", "collective", "checkpoint", "evaluation")
_STOPPED = len(PHASES)
# proc(5): stopped by a signal or a debugger; dead, though not waited for yet.
_STOPPED_STATES, _DEAD_STATES = frozenset("Tt"), frozenset("ZX")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What the ranks on one GPU report; of several, the one whose last step is longest ago.

    Of ranks that are gone only for how long, and only where no other rank reports.
    """

    step: int | None = None
    age_seconds: float | None = None  # since its last step ended
    p99_seconds: float | None = None  # of its steps
    rank: int | None = None
    world: int | None = None
    step_seconds: float | None = None
    own_seconds: float | None = None
    own_first_seconds: float | None = None
    input_seconds: float | None = None
    checkpoint_age_seconds: float | None = None
    phase: int | None = None
    phase_seconds: float | None = None
    gone_seconds: float | None = None

    def fields(self) -> dict[str, float | int | None]:
        """Return the fields by metric of a GPU."""
        return {
            "step": self.step,
            "step_age_seconds": _rounded(self.age_seconds),
            "step_p99_seconds": self.p99_seconds,
            "rank": self.rank,
            "step_seconds": self.step_seconds,
            "step_own_seconds": self.own_seconds,
            "step_own_first_seconds": self.own_first_seconds,
            "step_input_seconds": self.input_seconds,
            "checkpoint_age_seconds": _rounded(self.checkpoint_age_seconds),
            "step_phase": self.phase,
            "step_phase_seconds": _rounded(self.phase_seconds),
            "rank_gone_seconds": _rounded(self.gone_seconds),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A file as last found: its age when it was seen to have changed, and when that was."""

    owner: int
    written: int  # its time of change, in nanoseconds
    age_seconds: float
    since: float  # monotonic
    looked: float  # monotonic


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rank:
    """A process whose line was accepted, and since when it has been gone."""

    uuid: str
    started: int | None
    rank: int | None
    gone: float | None = None  # monotonic
    reported: bool = False  # whether it was reported after it had settled


class Steps:
    """The step files of one directory."""

    def __init__(
        self,
        directory: Path,
        proc_root: Path,
        start_ticks: Callable[[int], int | None],
        monotonic: Callable[[], float] = time.monotonic,
        sent: StepsSocket | None = None,
    ) -> None:
        """Set up; `start_ticks` gives a process's start in clock ticks since boot, None if gone."""
        self._monotonic, self._sent = monotonic, sent
        self._known: dict[int, _Known] = {}
        self._ranks: dict[int, _Rank] = {}
        self._directory, self._proc, self._start_ticks = directory, proc_root, start_ticks
        self._asked = -math.inf
        self._ticks_per_second = os.sysconf("SC_CLK_TCK")

    def read(self, processes: Mapping[str, Iterable[int]], now: datetime) -> dict[str, Progress]:
        """Return the progress by GPU (UUID) for the processes on it; GPUs without any are absent."""
        found: dict[str, Progress] = {}
        pids_now = {pid for pids in processes.values() for pid in pids}
        for uuid, pids in processes.items():
            said = {
                pid: one for pid in sorted(set(pids)) if (one := self._of(pid, now)) is not None
            }
            for pid, one in said.items():
                # In a job of one rank, nobody waits for it.
                if one.world != 1:
                    started = self._start_ticks(pid)
                    self._ranks[pid] = _Rank(uuid=uuid, started=started, rank=one.rank)
            if said:
                found[uuid] = max(said.values(), key=lambda one: (one.age_seconds, one.step))
        for rank, seconds in self._gone(found.keys()):
            found[rank.uuid] = Progress(rank=rank.rank, gone_seconds=seconds)
        if self._sent is not None:
            self._sent.keep(pids_now)
        self._known = {
            pid: self._known[pid] for pid in self._known.keys() & (pids_now | self._ranks.keys())
        }
        return found

    def has_news(self) -> bool:
        """Return whether a lost rank has settled and was not reported; to be asked between looks."""
        at = self._monotonic()
        if at - self._asked < _ASKED_SECONDS:
            return False
        self._asked = at
        for pid, rank in self._ranks.items():
            if rank.gone is None and self._left(pid, rank, at) is not None:
                self._ranks[pid] = replace(rank, gone=at)
        return any(_is_settled(rank, at) and not rank.reported for rank in self._ranks.values())

    def _gone(self, speaking: Iterable[str]) -> list[tuple[_Rank, float]]:
        """Return ranks whose process ended and left its file, with seconds gone; longest gone last.

        A running rank is remembered, even while its GPU does not report its processes.
        """
        at, kept = self._monotonic(), {}
        for pid, rank in self._ranks.items():
            if (gone := self._left(pid, rank, at)) is not None:
                lost = replace(rank, gone=gone)
                kept[pid] = replace(lost, reported=_is_settled(lost, at))
            elif self._runs(pid, rank):
                kept[pid] = rank
        self._ranks = kept
        told = [(r, at - r.gone) for r in kept.values() if r.gone is not None]
        return sorted((one for one in told if one[0].uuid not in speaking), key=lambda one: one[1])

    def _left(self, pid: int, rank: _Rank, at: float) -> float | None:
        """Return since when a rank is gone; None: it is not gone, or took its file with it."""
        gone = at if rank.gone is None else rank.gone
        if at - gone > _GONE_SECONDS:
            return None
        if self._runs(pid, rank):
            return None
        try:
            about = os.stat(f"{self._directory}/{pid}", follow_symlinks=False)
        except OSError:
            return None
        # Lines written since the last look are not read any more: the file only has to be its own.
        known = self._known.get(pid)
        is_its = known is not None and known.owner == about.st_uid and stat.S_ISREG(about.st_mode)
        return gone if is_its else None

    def _runs(self, pid: int, rank: _Rank) -> bool:
        started = self._start_ticks(pid)
        same = started is not None and started == rank.started
        return same and self._state(pid) not in _DEAD_STATES

    def close(self) -> None:
        """Take no more lines."""
        if self._sent is not None:
            self._sent.close()

    def _of(self, pid: int, now: datetime) -> Progress | None:
        told = self._filed(pid) or self._line_of(pid)
        if told is None:
            return None
        text, written, owner = told
        age, ran = self._age_seconds(pid, written, owner, now), self._ran_seconds(pid)
        if age > ran + _SLACK_SECONDS:
            return None
        found, state = _parse(text, age, now, ran), self._state(pid)
        if found is not None and state in _STOPPED_STATES:
            return replace(found, phase=_STOPPED, phase_seconds=None)
        return None if state in _DEAD_STATES else found

    def _owner(self, pid: int) -> int | None:
        try:
            return os.stat(f"{self._proc}/{pid}").st_uid
        except OSError:
            return None

    def _filed(self, pid: int) -> tuple[str, int, int] | None:
        """Return the line in a process's file, when it was written in ns since 1970, and its owner.

        None unless the process is that user's.
        """
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(f"{self._directory}/{pid}", flags)
        except OSError:
            return None
        try:
            about = os.fstat(file)
            if not stat.S_ISREG(about.st_mode) or about.st_uid != self._owner(pid):
                return None
            content = os.read(file, MOST_BYTES)
            return content.decode(errors="replace"), about.st_mtime_ns, about.st_uid
        except OSError:
            return None
        finally:
            os.close(file)

    def _line_of(self, pid: int) -> tuple[str, int, int] | None:
        """Return the line that a process sent, when, and the process's owner."""
        one = None if self._sent is None else self._sent.of(pid)
        if one is None or (one.owner, one.started) != (self._owner(pid), self._start_ticks(pid)):
            return None
        return one.text, one.written, one.owner

    def _age_seconds(self, pid: int, written: int, owner: int, now: datetime) -> float:
        """Return how long ago a line was written.

        While the line stays the same, setting a clock has no effect. A line that changed since the
        last look is no older than that look.
        """
        known, at = self._known.get(pid), self._monotonic()
        if known is not None and known.written == written:
            self._known[pid] = replace(known, looked=at)
            return known.age_seconds + at - known.since
        age = (now - EPOCH).total_seconds() - written / 1e9
        if known is not None:
            age = min(age, at - known.looked)
        age = max(age, 0.0)
        self._known[pid] = _Known(
            owner=owner, written=written, age_seconds=age, since=at, looked=at
        )
        return age

    def _ran_seconds(self, pid: int) -> float:
        """Return how long the process has run, in seconds; 0 when it is gone."""
        ticks = self._start_ticks(pid)
        up = time.clock_gettime(time.CLOCK_BOOTTIME)
        return 0.0 if ticks is None else up - ticks / self._ticks_per_second

    def _state(self, pid: int) -> str:
        """Return the process's state, empty when it is gone.

        proc(5): field 3 of stat, behind the name in brackets.
        """
        text = files.read(f"{self._proc}/{pid}/stat") or ""
        return text.rpartition(")")[2].strip()[:1]


def _is_settled(rank: _Rank, at: float) -> bool:
    return rank.gone is not None and at - rank.gone >= _SETTLED_SECONDS


def _parse(text: str, age_seconds: float, now: datetime, ran_seconds: float) -> Progress | None:
    numbers, fields = _words(text)
    try:
        step = int(numbers[0])
        seconds = float(numbers[1]) if len(numbers) > 1 else None
    except (IndexError, ValueError):
        return None
    if not 0 <= step < 2**63 or (seconds is not None and not 0.0 <= seconds < 1e9):
        return None

    def ago(name: str) -> float | None:
        """Return how long ago a time in seconds since 1970 was; None if the clock was set since."""
        at = _seconds(fields.get(name), most=1e11)
        age = None if at is None else (now - EPOCH).total_seconds() - at
        return None if age is None or age > ran_seconds + _SLACK_SECONDS else max(age, 0.0)

    phase = fields.get("phase", "")
    return Progress(
        step=step,
        age_seconds=age_seconds,
        p99_seconds=seconds,
        rank=_whole(fields.get("rank")),
        world=_whole(fields.get("world")),
        step_seconds=_seconds(fields.get("step_seconds")),
        own_seconds=_seconds(fields.get("own_seconds")),
        own_first_seconds=_seconds(fields.get("own_first_seconds")),
        input_seconds=_seconds(fields.get("input_seconds")),
        checkpoint_age_seconds=ago("checkpoint"),
        phase=PHASES.index(phase) if phase in PHASES else None,
        phase_seconds=ago("since") if phase in PHASES else None,
    )


def _words(text: str) -> tuple[list[str], dict[str, str]]:
    """Return the numbers at the beginning, and the `key=value` fields without one that was cut off."""
    # A rank writes a whole line; any other end may be in the middle of a number.
    words = text.partition("\n")[0].split()
    if "\n" not in text and "=" in text:
        words = words[:-1]
    fields = dict(word.split("=", 1) for word in words if "=" in word)
    return [word for word in words if "=" not in word], fields


def _whole(text: str | None) -> int | None:
    # More digits than any number of ranks has would take long to parse.
    return int(text) if text is not None and len(text) < 10 and text.isdecimal() else None


def _seconds(text: str | None, most: float = 1e9) -> float | None:
    try:
        seconds = math.nan if text is None else float(text)
    except ValueError:
        return None
    return seconds if 0.0 <= seconds < most else None


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
