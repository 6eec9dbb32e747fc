"""The DuckDB file: opened once, opened again after a failure, set aside when it is damaged."""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from gpuvigil.clock import Clock
from gpuvigil.errors import StoreError

from . import damage
from .folder_sync import FolderSync
from .schema import prepare

Cursor = duckdb.DuckDBPyConnection
Work = Callable[[Cursor], Any]
# The length of the log that triggers a checkpoint. A checkpoint rewrites the last row group, up to
# 122,880 lines of all columns, so that frequent ones cost more than the lines themselves: with 16
# MB (DuckDB's own) ingest takes up to twice the processor time and memory. A log of this length is
# replayed in about two seconds. Until then its lines are in memory, and may take a share of the
# limit.
_LOG_BYTES = 128 * 1024 * 1024
_LOG_SHARE = 1 / 8
# Files that were set aside: each with where it is now, and why.
Lost = dict[Path, tuple[Path, str]]


class Database:
    """A DuckDB file that only this process opens; any thread may call.

    Every method raises StoreError with a one-line message when the file cannot be used.
    """

    def __init__(
        self,
        path: Path,
        limits: tuple[int, int],
        clock: Clock,
        before_new: Callable[[], None],
        on_open: Callable[[bool, Lost], None],
    ) -> None:
        """`limits`: bytes of memory, and threads. `before_new` is called before the tables are
        recreated or lose recent commits; `on_open` is called with whether that was so, and what was
        lost.
        """
        self.path = path
        self._names = FolderSync(path.parent)
        self._clock = clock
        self._before_new = before_new
        self._on_open = on_open
        self._settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{limits[0]}B",
            "threads": str(limits[1]),
            "checkpoint_threshold": f"{min(_LOG_BYTES, int(limits[0] * _LOG_SHARE))}B",
            # Otherwise a Python variable with the name of a table would replace it.
            "python_enable_replacements": "false",
            "autoinstall_known_extensions": "false",
        }
        self._opening = threading.RLock()
        # A new object for each connection, and that of a thread's last cursor: several threads may
        # meet the same damage, and only the first of them handles it.
        self._generation = object()
        self._lent = threading.local()
        self._connection: Cursor | None = None

    def cursor(self) -> Cursor:
        """Return a new cursor for the calling thread, which passes any duckdb.Error to `after`."""
        with self._opening:
            if self._connection is None:
                self._open()
            assert self._connection is not None
            self._lent.generation = self._generation
            return self._connection.cursor()

    def ask(self, query: str, parameters: Sequence[Any] = ()) -> pa.Table:
        """Return all rows of a query."""
        try:
            with self.cursor() as cursor:
                return cursor.sql(query, params=list(parameters)).to_arrow_table()
        except duckdb.Error as error:
            self.after(error)
            raise self.failure(error) from error

    def transaction(
        self,
        work: Work,
        begin_under: AbstractContextManager[Any] | None = None,
        commit_under: AbstractContextManager[Any] | None = None,
    ) -> Any:
        """Run `work` in a transaction; return its result once the commit survives a power loss."""
        try:
            with self.cursor() as cursor:
                with begin_under or nullcontext():
                    cursor.begin()
                    # The snapshot is taken by the first statement.
                    cursor.execute("SELECT 1 FROM schema_version").fetchall()
                try:
                    done = work(cursor)
                    with commit_under or nullcontext():
                        cursor.commit()
                        self._names.sync()
                except (duckdb.Error, OSError, StoreError):
                    # A failed commit has rolled back by itself.
                    with suppress(duckdb.Error):
                        cursor.rollback()
                    raise
                return done
        except duckdb.Error as error:
            self.after(error)
            raise self.failure(error) from error
        except OSError as error:
            raise self.refused(error) from error

    def after(self, error: duckdb.Error) -> None:
        """Recover from an error of this thread's last cursor that DuckDB or its file cannot
        survive.

        Do nothing after any other error, or when that was done since.
        """
        damaged = damage.of_file(error)
        if not damaged and not isinstance(error, duckdb.FatalException):
            return
        with self._opening:
            if getattr(self._lent, "generation", None) is not self._generation:
                return
            # After a failed commit DuckDB serves nobody until the file is opened again.
            self.close()
            if damaged:
                self._set_aside(str(error))

    def failure(self, error: duckdb.Error) -> StoreError:
        """Return the error as a StoreError with one line."""
        first = (str(error).splitlines() or [type(error).__name__])[0]
        return StoreError(f"the store in {self.path}: {first}")

    def refused(self, error: OSError) -> StoreError:
        """Return an error of the operating system as a StoreError with one line."""
        place = error.filename or self.path
        return StoreError(f"the store: {place}: {error.strerror or error}")

    def close(self) -> None:
        """Write everything into the one file and close it."""
        with self._opening:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> None:
        try:
            if wrong := damage.of_log(self.path):
                self._set_aside(wrong)
                return
            self._on_open(self._connect(), {})
        except duckdb.Error as error:
            self.close()
            if not damage.of_file(error):
                raise self.failure(error) from error
            self._set_aside(str(error))
        except StoreError:
            self.close()
            raise
        except OSError as error:
            self.close()
            raise self.refused(error) from error

    def _connect(self) -> bool:
        if not self.path.exists():
            self._before_new()
        self._generation = object()
        self._connection = duckdb.connect(str(self.path), config=self._settings)
        return prepare(self._connection, self.path)

    def _set_aside(self, reason: str, before: Lost | None = None) -> None:
        """Set aside the damaged file, or its log alone, and go on with what can be read of it.

        `before`: what was set aside already; damage may show in one file after the other.
        """
        first = reason.splitlines()[0]
        try:
            self._before_new()
            moved = damage.put_away(self.path, first, self._clock.now())
            lost = {**(before or {}), **{file: (to, first) for file, to in moved.items()}}
            try:
                self._connect()
            except duckdb.Error as error:
                if not damage.of_file(error) or not moved:
                    raise
                self.close()
                self._set_aside(str(error), lost)
                return
            self._on_open(True, lost)
        except duckdb.Error as error:
            self.close()
            raise self.failure(error) from error
        except StoreError:
            self.close()
            raise
        except OSError as error:
            self.close()
            raise self.refused(error) from error
