"""The thread that backs up the records and reports repairs."""

import sqlite3
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from gpuvigil.clock import Clock, micros, to_text
from gpuvigil.errors import StoreError
from gpuvigil.log import Log
from gpuvigil.model import Record, RecordKind

from .backups import Backup, back_up, backups, is_damage, prune, wrong_inside
from .journal import Journal
from .record_book import RecordBook
from .repair import Opened, Repair

_LOG = Log("hub")

EVERY = timedelta(hours=1)
# Shortest time between two attempts, after a failure or because of a long journal.
_AGAIN = timedelta(minutes=5)
# A longer journal would take long to replay: some 200,000 records.
_LONGEST_JOURNAL_BYTES = 256 * 1024 * 1024
_SYNC_SECONDS = 1.0
PULSE = "hub-records"


class BackupJob:
    """One hub's thread that syncs the journal each second, and copies the records when it is time."""

    def __init__(self, opened: Opened, book: RecordBook, clock: Clock) -> None:
        self._folder = opened.folder
        self._repairs = opened.repairs
        self._journal: Journal = opened.journal
        self._book = book
        self._clock = clock
        self._tried_at: datetime | None = None
        self._lags = opened.lags
        self._written_repairs: list[dict[str, Any]] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="records-backups")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and break off a copy that is under way."""
        self._stopping.set()
        self._thread.join()

    def pending(self) -> list[Repair]:
        """Return the repairs that somebody still has to look at, oldest first."""
        now = self._clock.now()
        return [it for it in self._repairs if it.is_pending(now)]

    def newest(self) -> Backup | None:
        """Return the newest backup; None while there is none."""
        return next(reversed(backups(self._folder)), None)

    def step(self) -> None:
        """Sync the journal; report repairs and back up the records if that is due."""
        now = self._clock.now()
        self._journal.sync()
        try:
            self._write_pulse(now)
            if self._is_due(now):
                self._tried_at = now
                self._back_up()
        except StoreError as error:
            _LOG.error("records not backed up", error=str(error))
        except OSError as error:
            _LOG.error("records not backed up", error=f"{error.filename}: {error.strerror}")

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.step()
            except Exception as error:  # noqa: BLE001 - the thread outlives any look
                _LOG.error("records not backed up", error=f"{type(error).__name__}: {error}")
            self._clock.wait(self._stopping, _SYNC_SECONDS)

    def _is_due(self, now: datetime) -> bool:
        if self._tried_at is not None and timedelta() <= now - self._tried_at < _AGAIN:
            return False
        newest = self.newest()
        if newest is None or self._lags or self._journal.broken:
            return True
        # After the clock was set back, a backup from the future counts as old.
        old = not timedelta() <= now - newest.at < EVERY
        repaired = any(it.at > to_text(newest.at) for it in self._repairs)
        return old or repaired or self._journal.bytes > _LONGEST_JOURNAL_BYTES

    def _back_up(self) -> None:
        source = Path(str(self._book.transactions.engine.url.database))
        started = self._clock.monotonic()
        with self._book.transactions.turn():
            number = self._journal.begin(self._book.sequence())
        try:
            wrong = back_up(source, self._folder, number, self._rest)
        except _Stopped:
            return
        except sqlite3.Error as error:
            if is_damage(error):
                self._book.transactions.found_damaged(str(error))
            raise StoreError(f"the records in {source}: {error}") from error
        if wrong is not None:
            self._check_source(source, wrong)
            return
        self._lags = False
        prune(self._folder)
        seconds = self._clock.monotonic() - started
        _LOG.info("records backed up", number=number, seconds=round(seconds, 3))

    def _check_source(self, source: Path, wrong: str) -> None:
        """Check whether the source is damaged as well as its copy, and raise StoreError."""
        found = wrong_inside(source, thorough=True)
        if found is not None:
            self._book.transactions.found_damaged(found)
        raise StoreError(f"the copy of {source} is not whole: {wrong}")

    def _rest(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise _Stopped

    def _write_pulse(self, now: datetime) -> None:
        """Write a pulse with the repairs, of which alerts makes incidents, when they have changed."""
        repairs = [{**it.to_json(), "over": not it.is_pending(now)} for it in self._repairs]
        if not repairs or self._written_repairs == repairs:
            return
        body = {"state": "running", "repairs": repairs}
        version = micros(now)
        pulse = Record(
            kind=RecordKind.PULSE, id=PULSE, at=now, subject="hub", version=version, body=body
        )
        self._book.write([pulse])
        self._written_repairs = repairs


class _Stopped(Exception):
    """The hub stops."""
