"""The store as a whole: commits go into the hot tables of one DuckDB file, hours that are over into
Parquet files beside it, and every question is answered from both in one snapshot.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from gpuvigil.clock import Clock, SystemClock, to_ns
from gpuvigil.errors import StoreError
from gpuvigil.log import Log
from gpuvigil.metrics import MEASUREMENTS, Measurement
from gpuvigil.store import EARLIEST_NS

from ..bodies.deduplication import Arrival
from ..bodies.tables import EXTRA
from . import damage, segments
from .answer_cache import AnswerCache
from .backup import copy_tables, copy_units
from .bounded_answer import ANSWER_BYTES
from .continue_on_failure import ContinueOnFailure
from .database import Database, Lost, Work
from .manifest import Contents, Manifest, Span, read_contents, read_hot
from .newest import Newest, read_newest
from .open_readers import OpenReaders
from .query import QueryEngine
from .question import Latest, Question, Series, Window
from .recovery import mark, marked, recover_units, remove_orphans, unmark
from .rollup_cache import Change, RollupCache, seconds_of
from .schema import (
    any_older,
    arrival,
    delete_older,
    insert,
    newest_table,
    quoted,
    read_through,
    seen_table,
)
from .sealed_files import BESIDE, Unit, make_folder, strike, units
from .sealed_sql import rows_of
from .segment_writer import HOUR_NS, SegmentWriter
from .statistics import (
    DroppedLines,
    VerificationResult,
    beyond,
    damaged,
    held_bytes,
    oldest,
    reclaim,
    room_bytes,
    sizes,
)
from .verification import Inspector

_LOG = Log("hub")
_OF_SLICES = 4  # slices may take a quarter of what the tables may, in addition to it


class Embedded:
    """Tables of telemetry, one per measurement of the catalogue, and which bodies are in them.

    Any thread may call. Every method raises StoreError with one line when the store cannot do it.
    To load a past at once, `append` takes lines of any time; `seal` and then `join` with a `now_ns`
    after them make of it what the hub would have, hour by hour and day by day.
    """

    def __init__(
        self,
        path: Path,
        memory_limit_bytes: int,
        threads: int,
        *,
        clock: Clock | None = None,
        answer_bytes: int = ANSWER_BYTES,
        after_step: Callable[[str], None] = lambda _step: None,
    ) -> None:
        """`after_step` is called after each step of a longer operation: tests make it fail there."""
        self._path = path
        self.folder = path.with_suffix(".sealed")
        self._clock = clock or SystemClock()
        self._writing = threading.Lock()  # one writer at a time; readers never wait for it
        # Sealing, joining, expiring: one at a time, beside the writer.
        self._maintaining = threading.Lock()
        self._readers = OpenReaders()
        self._manifest = Manifest(self._read_manifest)
        self._answers = AnswerCache()
        self._after_step = after_step
        self._writer = SegmentWriter(folder=self.folder, after_step=self._stepped)
        self._stopping = threading.Event()
        # What `stop_retention` may interrupt: never a commit, which may reach the disk all the
        # same.
        self._busy: duckdb.DuckDBPyConnection | None = None
        self._interrupting = threading.Lock()
        self._newest: dict[str, Newest] = {}
        self.dropped = DroppedLines()  # since the start
        limits, place = (memory_limit_bytes, threads), (self.folder, self._readers)
        self._slices = RollupCache(memory_limit_bytes // _OF_SLICES)
        before_new = partial(mark, self.folder)
        self._database = Database(path, limits, self._clock, before_new, self._recover)
        self.ask = self._database.ask
        self._inspector = Inspector(self._database, place, self._clock, self._changing)
        self._asking = QueryEngine(
            self.folder,
            (threads, answer_bytes),
            self._database.cursor,
            self._manifest,
            self._readers,
            self._slices,
        )
        self._database.cursor().close()
        # The first question finds it read. What fails here will fail there, and be told.
        with suppress(StoreError):
            self._manifest.renew()

    def append(self, tables: Mapping[str, pa.Table], arrivals: Sequence[Arrival]) -> None:
        """Store rows and the bodies they came in, in one commit: all or nothing."""
        incoming = {**tables, "seen": seen_table(arrivals)}
        at_ns = {
            name: it["at"].cast(pa.int64()).to_numpy() for name, it in tables.items() if it.num_rows
        }
        times = {name: (int(it.min()), int(it.max())) for name, it in at_ns.items()}
        with self._writing, self._answers.changing(times), self._slices.changing(at_ns):
            for name, span in times.items():
                self._manifest.widen(name, span)
            self._database.transaction(lambda cursor: insert(cursor, incoming))
            for name in tables.keys() & self._newest.keys():
                try:
                    self._newest[name].add(tables[name])
                except Exception as error:  # noqa: BLE001 - committed all the same: memory, mostly
                    why = f"{type(error).__name__}: {error}"
                    _LOG.error("newest lines lag", table=name, error=why)

    def answer(self, question: Question) -> pa.Table:
        """Return the answer as `gpuvigil.store.Store` describes it, times in microseconds and UTC."""
        if isinstance(question, Latest):
            found = self._newest[question.measurement.name].latest(
                question.fields, question.since_ns
            )
            at = found.schema.get_field_index("at")
            times = found["at"].cast(pa.timestamp("us"), safe=False).cast(pa.timestamp("us", "UTC"))
            return found.set_column(at, "at", times)
        known = self.remembered(question)
        return known if known is not None else self._answers.answer(question, self._answered)

    def remembered(self, question: Question) -> pa.Table | None:
        """Return the cached answer if nothing in it has changed since; else None."""
        return None if isinstance(question, Latest) else self._answers.known(question)

    def _answered(self, question: Window | Series) -> pa.Table:
        try:
            return self._asking.answer(question)
        except duckdb.Error as error:
            self._database.after(error)
            if not damage.of_sealed_file(error):
                raise self._database.failure(error) from error
            _LOG.warning("a question failed: it is asked again", error=str(error))
        except damage.Unreadable as error:
            # Only this is worth it: every byte of them is read.
            _LOG.warning("a question failed: its files are looked through", error=str(error))
            touched = (
                unit
                for unit in self.units()
                if unit.measurement == question.measurement.name
                and unit.touches(question.start_ns, question.end_ns)
            )
            self._inspector.verify(touched, decode=True)
        # Asked again without the damaged files; another thread may have found them before.
        try:
            return self._asking.answer(question)
        except duckdb.Error as error:
            raise self._database.failure(error) from error
        except damage.Unreadable as error:
            raise StoreError(f"the store in {self.folder}: {error}") from error

    def forget(self, before_ns: int) -> None:
        """Drop every row of telemetry older than `before_ns`.

        Where only roll-ups are kept, the whole day in which `before_ns` lies is dropped.
        """
        now_ns = to_ns(self._clock.now())

        def in_two(unit: Unit) -> bool:
            return unit.lines_bytes is not None and unit.first_ns < before_ns <= unit.last_ns

        def work(cursor: duckdb.DuckDBPyConnection) -> list[Unit]:
            gone = []
            for measurement in (*MEASUREMENTS.values(), BESIDE):
                gone += segments.cut(cursor, self._writer, measurement, before_ns, now_ns)
                delete_older(cursor, measurement.name, before_ns)
            for measurement in MEASUREMENTS.values():
                delete_older(cursor, newest_table(measurement), before_ns)
            return gone

        with self._maintaining:
            # Damaged files are never rewritten as if they were whole.
            self._inspector.verify(filter(in_two, self.units()), decode=True)
            # Commits go on while files are rewritten.
            self._remove(self._made(work, begin_under=self._writing))
            self._narrow(MEASUREMENTS)
            for newest in self._newest.values():
                newest.forget(before_ns)

    def seal(self, now_ns: int, hot_ns: int) -> int:
        """Move whole hours that are older than `hot_ns` into files; return how many.

        An hour that cannot be sealed does not stop the others; StoreError is raised at the end.
        """
        each = ContinueOnFailure(self._stopping)
        with self._maintaining:
            for it in (*MEASUREMENTS.values(), BESIDE):
                due = partial(segments.due_hours, measurement=it, now_ns=now_ns)
                for start_ns in self._database.transaction(partial(due, before_ns=now_ns - hot_ns)):
                    with each:
                        self._seal_hour(it, start_ns, now_ns)
                        each.done += 1
        return each.count()

    def join(self, now_ns: int, hot_ns: int) -> int:
        """Merge the files of each whole day; return how many days.

        Damaged files are set aside before. A day that cannot be joined does not stop the others;
        StoreError is raised at the end.
        """
        each = ContinueOnFailure(self._stopping)
        with self._maintaining:
            for it in MEASUREMENTS.values():
                found = self._database.transaction(partial(units, measurement=it.name))
                for start_ns, pieces in segments.due_days(found, now_ns - hot_ns, now_ns):
                    with each:
                        each.done += self._join_day(it, (start_ns, pieces), now_ns)
        return each.count()

    def expire(self, lines_before_ns: int, rolled_before_ns: int) -> None:
        """Drop sealed lines and roll-ups that are wholly past their retention, and hot lines."""
        tables = (*MEASUREMENTS, EXTRA, *map(newest_table, MEASUREMENTS.values()))

        def is_due(cursor: duckdb.DuckDBPyConnection) -> bool:
            stripped, gone = segments.expiring(units(cursor), lines_before_ns, rolled_before_ns)
            return bool(stripped or gone or any_older(cursor, tables, lines_before_ns))

        def work(cursor: duckdb.DuckDBPyConnection) -> tuple[list[Unit], list[Unit]]:
            for table in tables:
                delete_older(cursor, table, lines_before_ns)
            return segments.expire(cursor, lines_before_ns, rolled_before_ns)

        with self._maintaining:
            # Checked each minute, and seldom due: caches stay as they are while nothing changes.
            if self._database.transaction(is_due):
                stripped, gone = self._database.transaction(work, commit_under=self._changing())
                self._readers.doom([it.lines_file(self.folder) for it in stripped])
                self._remove(gone)
            for newest in self._newest.values():
                newest.forget(lines_before_ns)

    def shrink(self, most_bytes: int) -> DroppedLines:
        """Drop the oldest sealed telemetry until the store fits `most_bytes`; return what went.

        What the DuckDB file holds counts, and is made smaller first; whatever it holds, half of
        `most_bytes` is left to sealed telemetry.
        """
        with self._maintaining:
            if not beyond(room_bytes(most_bytes, self.held_bytes()), self.units()):
                return DroppedLines()
            with self._writing:
                reclaim(self._database)
            gone = beyond(room_bytes(most_bytes, self.held_bytes()), self.units())
            if not gone:
                return DroppedLines()
            self._database.transaction(partial(strike, gone=gone), commit_under=self._changing())
            self._remove(gone)
        now = DroppedLines(
            lines=sum(unit.lines for unit in gone), until_ns=max(unit.last_ns for unit in gone)
        )
        self.dropped = self.dropped.and_then(now)
        return now

    def held_bytes(self) -> int:
        """Return the bytes in use outside of sealed files: recent lines, and all tables."""
        return held_bytes(self._database)

    def seen(self) -> list[Arrival]:
        """Return every body with an identity that was committed."""
        return [arrival(row) for row in self._database.ask("SELECT * FROM seen").to_pylist()]

    def replace_seen(self, arrivals: Sequence[Arrival]) -> None:
        """Replace all that `seen` returns by `arrivals`."""

        def replace(cursor: duckdb.DuckDBPyConnection) -> None:
            cursor.execute("DELETE FROM seen")
            insert(cursor, {"seen": seen_table(arrivals)})

        with self._writing:
            self._database.transaction(replace)

    def sizes(self) -> tuple[dict[str, int], int]:
        """Return the lines per table, sealed ones included, and the bytes on disk."""
        return sizes(self._database)

    def units(self) -> list[Unit]:
        """Return the units of the manifest, oldest first."""
        found: list[Unit] = self._database.transaction(units)
        return found

    def damaged(self) -> list[dict[str, Any]]:
        """Return what was set aside as unreadable: `at_ns, file, reason, moved_to, lines`."""
        return damaged(self._database)

    def verify(self) -> VerificationResult:
        """Read every byte of the store, and set aside sealed files that are not as written."""
        known = self.units()
        damaged = self._inspector.verify(known, decode=True)
        for table in (*MEASUREMENTS, EXTRA, "seen"):
            self._database.transaction(partial(read_through, table=table))
        lines = sum(unit.lines for unit in known if unit.lines_bytes is not None)
        return VerificationResult(units=len(known), lines=lines, damaged=damaged)

    def backup(self, to: Path) -> int:
        """Copy the store into a folder, from which it can be opened; return the copy's bytes.

        Commits go on meanwhile; sealing waits. Damaged files are set aside and not copied.
        """
        with self._maintaining:
            self._inspector.verify(self.units())
            known = self.units()
            target = to / self._path.name
            try:
                with self._database.cursor() as cursor:
                    copy_tables(cursor, self._path, target)
                size = copy_units(known, self.folder, to / self.folder.name)
            except duckdb.Error as error:
                raise self._database.failure(error) from error
            except OSError as error:
                raise StoreError(f"the copy in {to}: {error.strerror or error}") from error
            return size + target.stat().st_size

    def oldest(self) -> datetime | None:
        """Return the time of the oldest line of a node; None in an empty store."""
        return oldest(self._database)

    def close(self) -> None:
        """Write everything to the files and close them; the next question opens them again."""
        with self._maintaining, self._writing, self._changing():
            self._database.close()
        self._asking.close()

    def _read_manifest(self) -> tuple[Contents, dict[str, Span]]:
        found: tuple[Contents, dict[str, Span]] = self._database.transaction(
            lambda cursor: (read_contents(cursor), read_hot(cursor))
        )
        return found

    @contextmanager
    def _changing(self, hot: Change = None) -> Iterator[None]:
        """Mark a commit that changes units or drops lines; `hot`: the times of the hot lines."""
        slices = self._slices.changing(hot)
        with self._answers.changing(None), slices, self._manifest.changing():
            yield

    def _narrow(self, names: Collection[str]) -> None:
        """Reduce the hot times of measurements to those of the lines that are left."""
        read = partial(self._database.transaction, partial(read_hot, names=names))
        with self._writing:
            self._manifest.narrow(names, read)

    def _seal_hour(self, measurement: Measurement, start_ns: int, now_ns: int) -> None:
        newest = self._newest.get(measurement.name)

        def work(cursor: duckdb.DuckDBPyConnection) -> None:
            segments.seal(cursor, self._writer, measurement, start_ns, now_ns)
            if newest is None:
                return
            # A subject without hot lines is found here after a restart.
            fields = [metric.name for metric in measurement.metrics]
            cursor.execute(f"DELETE FROM {quoted(newest_table(measurement))}")
            insert(cursor, {newest_table(measurement): newest.latest(fields, EARLIEST_NS)})

        # No commit may be between the hot table and `newest` while the snapshot is taken.
        hour = seconds_of(start_ns, start_ns + HOUR_NS)
        self._made(work, begin_under=self._writing, hot={measurement.name: hour})
        if measurement.name in MEASUREMENTS:
            self._narrow([measurement.name])
        self._stepped("sealed")

    def _join_day(
        self, measurement: Measurement, day: tuple[int, Sequence[Unit]], now_ns: int
    ) -> bool:
        """Merge the undamaged units of a day; return whether there were two or more."""
        start_ns, pieces = day
        left = self._inspector.left_of(pieces)
        pieces = pieces if left is None else left
        try:
            return self._joined(measurement, (start_ns, pieces), now_ns)
        except StoreError:
            left = None if self._stopping.is_set() else self._inspector.left_of(pieces, decode=True)
            if left is None:
                raise
            return self._joined(measurement, (start_ns, left), now_ns)

    def _joined(
        self, measurement: Measurement, day: tuple[int, Sequence[Unit]], now_ns: int
    ) -> bool:
        if len(day[1]) < 2:
            return False
        join = partial(segments.join, writer=self._writer, measurement=measurement)
        self._remove(self._made(partial(join, day=day, now_ns=now_ns)))
        self._stepped("swept")
        return True

    def _remove(self, gone: Sequence[Unit]) -> None:
        self._readers.doom([path for unit in gone for path in unit.files(self.folder)])

    def stop_retention(self) -> None:
        """Interrupt `seal` and `join`, which then raise StoreError; nothing is lost."""
        self._stopping.set()
        with self._interrupting:
            if self._busy is not None:
                self._busy.interrupt()

    def _stepped(self, name: str) -> None:
        self._after_step(name)
        if self._stopping.is_set():
            raise StoreError("the store: sealing was broken off")

    def _made(
        self,
        work: Work,
        begin_under: AbstractContextManager[Any] | None = None,
        hot: Change = None,
    ) -> Any:
        """Run a transaction that makes units; when it fails, their files are removed."""
        self._writer.made.clear()

        def noted(cursor: duckdb.DuckDBPyConnection) -> Any:
            with self._interrupting:
                self._busy = cursor
            try:
                return work(cursor)
            finally:
                with self._interrupting:
                    self._busy = None

        try:
            return self._database.transaction(noted, begin_under, self._changing(hot))
        except StoreError:
            self._unmake()
            raise

    def _unmake(self) -> None:
        """Remove the files that a failed transaction has made, but none that the manifest names.

        A commit that is reported as failed may be on disk all the same.
        """
        # What stays because the store gives no answer is removed at the next start.
        with suppress(StoreError, OSError), self._changing():
            known = {path for unit in self.units() for path in unit.files(self.folder)}
            for path in self._writer.made:
                if path not in known:
                    path.unlink(missing_ok=True)

    def _recover(self, went_back: bool, lost: Lost) -> None:
        """Compare the sealed files with the manifest, and find the newest lines."""
        with self._changing():
            self._recover_units(went_back, lost)

    def _recover_units(self, went_back: bool, lost: Lost) -> None:
        went_back = went_back or marked(self.folder)
        if self._newest and not went_back:
            return
        make_folder(self.folder)
        with self._database.cursor() as cursor:
            if went_back:
                added, bad = recover_units(cursor, self.folder, self._clock.now(), self._after_step)
                lost = {**lost, **bad}
                for unit in added:
                    _LOG.warning("sealed file without a manifest taken in", unit=unit.name)
            for unit in units(cursor):
                for path, (size, _) in unit.files(self.folder).items():
                    there = path.stat().st_size if path.exists() else None
                    if there != size:
                        told = "it is gone" if there is None else f"{there} bytes instead of {size}"
                        self._inspector.set_aside(unit, {path: told})
                        break
            self._newest = {
                name: read_newest(cursor, measurement, self.folder, from_files=went_back)
                for name, measurement in MEASUREMENTS.items()
            }
            for file, (to, reason) in lost.items():
                self._inspector.record_damage(file, reason, to, rows_of(to))
            unmark(self.folder)
            remove_orphans(self.folder, units(cursor))
