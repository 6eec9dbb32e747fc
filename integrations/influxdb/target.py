"""Writes lines to an InfluxDB in batches; what it refuses for good is counted and dropped."""

import threading
from collections import deque
from collections.abc import Sequence

from gpuvigil.clock import Clock
from gpuvigil.config import InfluxdbSettings, StoreSettings
from gpuvigil.errors import StoreError
from gpuvigil.lineprotocol.refusal import Meaning, meaning, refused_lines
from gpuvigil.log import Log
from gpuvigil.store.http import Web
from gpuvigil.store.writer import Writer
from gpuvigil.web.metrics_page import family

log = Log("influxdb")


class Target:
    """One bucket. Threads may share it; what is counted stands on `/metrics`."""

    def __init__(self, settings: InfluxdbSettings, clock: Clock) -> None:
        """ConfigError when a file of the settings cannot be read."""
        server = StoreSettings(
            kind="influxdb",
            url=settings.url,
            bucket=settings.bucket,
            organization=settings.organization,
            token_file=settings.token_file,
            user=settings.user,
            password_file=settings.password_file,
            ca_file=settings.ca_file,
        )
        self._writer = Writer(server, clock, Web(server, "influxdb"))
        self._batch = settings.batch_count
        self._lock = threading.Lock()
        self._written = self._lost = self._failures = 0

    def write(self, lines: Sequence[str]) -> None:
        """Write all of them; StoreError when that has to be tried again, the same ones included.

        A line that came before is the same line: what was written in part is written again.
        """
        for start in range(0, len(lines), self._batch):
            try:
                self._send(lines[start : start + self._batch])
            except StoreError:
                with self._lock:
                    self._failures += 1
                raise

    def lose(self, count: int, why: str) -> None:
        """So many lines will never be there."""
        with self._lock:
            self._lost += count
        log.warning("lines are lost", count=count, why=why)

    def text(self, waiting: int) -> str:
        """What `/metrics` answers; `waiting`: lines of states that could not be written yet."""
        with self._lock:
            rows = (
                ("lines_total", "counter", "Lines that InfluxDB has taken.", self._written),
                ("lost_lines_total", "counter", "Lines that it never will have.", self._lost),
                (
                    "failures_total",
                    "counter",
                    "Writes that have to be tried again.",
                    self._failures,
                ),
                ("waiting_lines", "gauge", "Lines of states that wait.", waiting),
            )
        return "".join(
            family(f"gpuvigil_influxdb_{name}", kind, text, [({}, value)])
            for name, kind, text, value in rows
        )

    def _send(self, lines: Sequence[str]) -> None:
        try:
            self._writer.send("\n".join(lines).encode())
        except StoreError as error:
            self._refused(lines, error)
        else:
            self._count(len(lines))

    def _refused(self, lines: Sequence[str], error: StoreError) -> None:
        """Leave out what will never be taken, and raise the error where all of it may be later."""
        what = meaning(error.status, error.said) if error.status else Meaning.LATER
        if what is Meaning.PARTLY:
            lost = refused_lines(error.said, len(lines))
            self.lose(lost, str(error))
            self._count(len(lines) - lost)
        elif what in {Meaning.A_LINE, Meaning.TOO_LARGE}:
            if len(lines) == 1:
                self.lose(1, str(error))
                return
            half = len(lines) // 2
            self._send(lines[:half])
            self._send(lines[half:])
        else:
            raise error

    def _count(self, lines: int) -> None:
        with self._lock:
            self._written += lines


class Waiting:
    """Lines that are kept until they are written, as many as there is room for; of one thread."""

    def __init__(self, target: Target, most: int) -> None:
        self._target = target
        self._most = most
        self._lines: deque[str] = deque()

    def __len__(self) -> int:
        return len(self._lines)

    def put(self, lines: Sequence[str]) -> None:
        """Keep these, too; the oldest go where there is no room."""
        self._lines.extend(lines)
        over = len(self._lines) - self._most
        if over > 0:
            for _ in range(over):
                self._lines.popleft()
            self._target.lose(over, "InfluxDB was away for too long")

    def write(self) -> None:
        """Write what waits, oldest first; StoreError when that has to be tried again."""
        if self._lines:
            self._target.write(tuple(self._lines))
            self._lines.clear()
