"""Wakes this hub when another one commits to the same PostgreSQL."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.exc import SQLAlchemyError

from .tables import counter

# Every commit notifies this channel, with its sequence.
# https://www.postgresql.org/docs/15/sql-notify.html
CHANNEL = "gpuvigil_records"

# The delay where a pooler between here and the server swallows notifications.
_POLL_SECONDS = 1.0
_AGAIN_SECONDS = 1.0


def announce(connection: Connection, sequence: int) -> None:
    """Notify all hubs when this transaction commits, and not before."""
    connection.execute(select(func.pg_notify(CHANNEL, str(sequence))))


class Follower:
    """A thread that calls `tell` after commits of other hubs, as soon as they can be read."""

    def __init__(
        self, engine: Engine, notify: Callable[[], None], own_sequence: Callable[[], int]
    ) -> None:
        """`own_sequence` returns the newest sequence that this hub has committed itself."""
        self._engine = engine
        self._notify = notify
        self._own_sequence = own_sequence
        self._known_sequence = -1
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="records-follower", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, which ends within one look."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        # The pool's own errors, too: whatever goes wrong, the next look may go well.
        errors = (SQLAlchemyError, self._engine.dialect.loaded_dbapi.Error, OSError)
        while not self._stopping.is_set():
            try:
                with self._engine.connect() as connection:
                    for sequence in self._sequences(connection):
                        self._receive(sequence)
            except errors:
                # Requests log that the database is away. Waiting requests are woken, and ask again,
                # too.
                self._notify()
                self._stopping.wait(_AGAIN_SECONDS)

    def _sequences(self, connection: Connection) -> Iterator[int]:
        """Yield the newest sequence after each notification of a commit, and at every look."""
        connection = connection.execution_options(isolation_level="AUTOCOMMIT")
        connection.exec_driver_sql(f"LISTEN {CHANNEL}")
        driver: Any = connection.connection.driver_connection
        try:
            while not self._stopping.is_set():
                yield int(connection.execute(select(counter.c.sequence)).scalar_one())
                for _ in driver.notifies(timeout=_POLL_SECONDS, stop_after=1):
                    pass
        finally:
            # This connection, which listens, may not go back into the pool.
            connection.detach()

    def _receive(self, sequence: int) -> None:
        if sequence > max(self._known_sequence, self._own_sequence()):
            self._notify()
        self._known_sequence = sequence
