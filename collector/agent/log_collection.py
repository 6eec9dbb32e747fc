"""Collects a node's logs once per critical hardware fault, before a reset, by the site's command.

NVIDIA's support asks for what `nvidia-bug-report.sh` gathers before a reset. It can only be
gathered on the node, and only by the node itself: the hub tells no node what to do. Off unless a
command is set.
"""

import os
import re
import signal
import stat
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from gpuvigil.clock import Clock
from gpuvigil.config import CollectorSettings
from gpuvigil.faults.sxids import sxid
from gpuvigil.faults.xid_messages import read
from gpuvigil.log import Log
from gpuvigil.model import Event, EventKind, Severity, Subject

from ..rows.events import EventMaker

log = Log("collector")

FILE = "{file}"
# One log covers the whole node: what fails soon after is in it, or in the same state.
_REST_SECONDS = 600.0
# An older event says nothing about the state that the node is in now.
_YOUNG = timedelta(minutes=10)
_KEPT = 10
# The names of our own logs; nothing else in the directory may be deleted.
_OURS = "????????T??????Z.log*"
_LONGEST_WORDS = 200
_CLEAN = re.compile(r"[^\x20-\x7e]+")
# The agent's own environment is not passed on: it names tokens and credentials.
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
_CURES = frozenset({EventKind.GPU_BACK, EventKind.GPU_RESET, EventKind.DRIVER_BACK})


def is_critical(event: Event) -> bool:
    """Return whether an event by itself is a critical hardware fault."""
    if event.kind is EventKind.XID:
        return read(event.code, event.message).severity is Severity.CRITICAL
    if event.kind is EventKind.SXID:
        return sxid(event.code).severity is Severity.CRITICAL
    return event.kind in {EventKind.GPU_LOST, EventKind.DRIVER_SILENT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The outcome of a run of the command: where the log is, or why there is none."""

    file: Path
    failed: str = ""

    @property
    def words(self) -> str:
        """The outcome as one line for people."""
        return f"not collected: {self.failed}" if self.failed else f"collected in {self.file}"


class LogCollector:
    """Collects logs: one run at a time in a thread, all else in the agent's main loop."""

    def __init__(
        self,
        settings: CollectorSettings,
        events: EventMaker,
        clock: Clock,
        post: Callable[[Callable[[], None]], None],
        record: Callable[[Sequence[Event]], None],
    ) -> None:
        """Set up the collector: `post` lets the main loop do work, `record` keeps events."""
        self._settings = settings
        self._events = events
        self._clock = clock
        self._post = post
        self._record = record
        self._asked: dict[
            Subject, datetime
        ] = {}  # faults that logs were collected for, until they are cured
        self._last: tuple[float, Ended] | None = None  # monotonic, when it began
        self._running: subprocess.Popen[bytes] | None = None
        self._waiting: list[Subject] = []
        self._busy = False
        self._stopped = False

    def handle(self, events: Iterable[Event]) -> None:
        """Look at just recorded events, and collect logs for those that are grave and new."""
        if not self._settings.log_command or self._stopped:
            return
        now = self._clock.now()
        for event in events:
            if event.kind in _CURES:
                self._asked.pop(event.subject, None)
            elif (
                is_critical(event) and event.subject not in self._asked and now - event.at < _YOUNG
            ):
                self._asked[event.subject] = now
                self._ask(event.subject, now)

    def stop(self) -> None:
        """End a run that is under way, and start no more."""
        self._stopped = True
        running = self._running
        if running is not None:
            _kill(running)

    def _ask(self, subject: Subject, now: datetime) -> None:
        began = self._clock.monotonic()
        if self._busy:
            self._waiting.append(subject)
        elif self._last is not None and began - self._last[0] < _REST_SECONDS:
            self._report([subject], self._last[1])
        else:
            self._busy = True
            self._waiting = [subject]
            try:
                threading.Thread(
                    target=self._work, args=(now, began), name="logs", daemon=True
                ).start()
            except RuntimeError as error:  # no room for a thread; the next fault may find some
                self._busy, self._waiting = False, []
                self._report([subject], Ended(file=self._settings.log_directory, failed=str(error)))

    def _work(self, now: datetime, began: float) -> None:
        ended = self._run(now)
        self._post(lambda: self._over(began, ended))

    def _over(self, began: float, ended: Ended) -> None:
        self._busy, self._running = False, None
        self._last = began, ended
        subjects, self._waiting = self._waiting, []
        self._report(subjects, ended)

    def _report(self, subjects: Iterable[Subject], ended: Ended) -> None:
        now = self._clock.now()
        self._record(
            [self._events.make(EventKind.LOGS, one, now, f"logs {ended.words}") for one in subjects]
        )

    def _run(self, now: datetime) -> Ended:
        """Run the command within its time limit; any failure becomes one line of text."""
        directory = self._settings.log_directory
        file = directory / f"{now:%Y%m%dT%H%M%SZ}.log.gz"
        named = FILE in " ".join(self._settings.log_command)
        command = [part.replace(FILE, str(file)) for part in self._settings.log_command]
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_private(directory):
                why = f"{directory} must belong to the agent's user alone, with mode 0700"
                return Ended(file=file, failed=why)
            _forget_oldest(directory)
            plain = file.with_suffix("") if not named else directory / "output"
            with open(plain, "wb", opener=_private) as output:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=directory,
                    env=_ENVIRONMENT,
                    start_new_session=True,
                    umask=0o077,
                )
            self._running = process
            try:
                code = process.wait(self._settings.log_seconds)
            except subprocess.TimeoutExpired:
                _kill(process)
                return Ended(file=plain, failed=f"ended after {self._settings.log_seconds:g} s")
            where = plain if not named else file
            if code != 0:
                return Ended(file=where, failed=f"exit status {code}: {_last_words(plain)}")
            if not where.exists() or where.stat().st_size == 0:
                why = f"{where} was not written" if named else f"{command[0]} printed nothing"
                return Ended(file=where, failed=why)
            return Ended(file=where if named else _printed_path(where) or where)
        except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
            why = f"{command[0]}: {getattr(error, 'strerror', None) or error}"
            return Ended(file=file, failed=why)


def _printed_path(file: Path) -> Path | None:
    """Return the log's path if the command printed exactly one path and nothing else, else None."""
    with file.open("rb") as stream:
        said = stream.read(_LONGEST_WORDS + 1)
    text = said.decode(errors="replace").strip()
    one = len(said) <= _LONGEST_WORDS and text.startswith("/") and not _CLEAN.search(text)
    return Path(text) if one else None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the command and what it started; give up on one that is stuck in the driver."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(1.0)


def _is_private(directory: Path) -> bool:
    """Return whether only the agent's user may enter the directory.

    Where others may write, they choose what is deleted and overwritten in the agent's name.
    """
    about = directory.stat()
    return about.st_uid == os.geteuid() and not stat.S_IMODE(about.st_mode) & 0o077


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _forget_oldest(directory: Path) -> None:
    """Delete the oldest logs to make room for one more: logs are large."""
    kept = sorted(directory.glob(_OURS))
    for path in kept[: max(len(kept) + 1 - _KEPT, 0)]:
        with suppress(OSError):
            path.unlink()


def _last_words(file: Path) -> str:
    """Return the last line of a command's output, without characters that no log line may hold."""
    try:
        with file.open("rb") as stream:
            stream.seek(max(file.stat().st_size - 4096, 0))
            lines = stream.read().decode(errors="replace").split("\n")
    except OSError:
        return "it said nothing"
    said = [text for line in lines if (text := _CLEAN.sub(" ", line).strip())]
    return said[-1][:_LONGEST_WORDS] if said else "it said nothing"
